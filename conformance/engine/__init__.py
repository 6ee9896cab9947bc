# SPDX-License-Identifier: Apache-2.0
"""Real vLLM engines and servers, and what they need: tiny models, environments, entry points."""
