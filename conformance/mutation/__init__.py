# SPDX-License-Identifier: Apache-2.0
"""What a certificate would notice: small changes to a plugin, each certified."""
