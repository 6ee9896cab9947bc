# SPDX-License-Identifier: Apache-2.0
"""Reference parsers: calls of tools, and reasoning."""
