# SPDX-License-Identifier: Apache-2.0
"""What plugins are given: histories, token ids, and values of clients that nobody expects."""
