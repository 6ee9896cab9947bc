# SPDX-License-Identifier: Apache-2.0
"""Conformance harness for vLLM plugins.

Importing this package imports neither vLLM nor torch:
both are loaded in a worker process of their own (see :mod:`conformance.worker`).
"""

__version__ = "0.1.0"

#: Version of the rule catalogue.
#: It changes when a rule is added, removed or judged differently,
#: so that two certificates can be told apart by more than the harness release.
RULE_SET = "2026.11.30"
