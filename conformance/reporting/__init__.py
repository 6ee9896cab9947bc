# SPDX-License-Identifier: Apache-2.0
"""Everything drawn from results: certificates, badges, the terminal.  Never imports vLLM."""
