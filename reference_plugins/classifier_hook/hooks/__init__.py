# SPDX-License-Identifier: Apache-2.0
"""Reference hooks: what an author of a hook copies from."""
