# SPDX-License-Identifier: Apache-2.0
"""The same plugin under every way vLLM runs it: engines of many configurations, one oracle."""
