# SPDX-License-Identifier: Apache-2.0
"""The host's side of multi-modal requests: vLLM's own scheduler, judged without a model."""
