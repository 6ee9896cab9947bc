# SPDX-License-Identifier: Apache-2.0
"""One plugin on many releases of vLLM, each in an environment of its own.

No engine of its own: every environment runs ``vllm-conformance certify`` and hands back what
that says. Imports neither vLLM, torch nor a plugin.
"""
