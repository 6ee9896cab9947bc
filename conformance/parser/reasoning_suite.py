# SPDX-License-Identifier: Apache-2.0
"""What workers ask about reasoning parsers."""

from conformance.parser.roles import REASONING
from conformance.parser.suite import suite

SUITE = suite(REASONING)
