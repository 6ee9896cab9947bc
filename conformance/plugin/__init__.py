# SPDX-License-Identifier: Apache-2.0
"""What an author hands over: the target, the profile, and what both tell without vLLM."""
