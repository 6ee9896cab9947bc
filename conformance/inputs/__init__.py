# SPDX-License-Identifier: Apache-2.0
"""What plugins are given: histories, token ids, and unexpected values of clients."""
