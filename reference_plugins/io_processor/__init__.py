# SPDX-License-Identifier: Apache-2.0
"""IO processor plugins: what a client sends becomes prompts, and pooling outputs an answer."""
