# SPDX-License-Identifier: Apache-2.0
"""What plugins do to their process while they are loaded and called, and what they leave behind."""
