# SPDX-License-Identifier: Apache-2.0
"""Correct, fast, readable vLLM plugins, one or more for each interface, to copy from."""
