# SPDX-License-Identifier: Apache-2.0
"""Lines and branches of a plugin: which ran, which never did, and what would reach them."""
