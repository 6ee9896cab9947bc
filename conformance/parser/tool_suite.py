# SPDX-License-Identifier: Apache-2.0
"""What workers ask about tool parsers."""

from conformance.parser.roles import TOOL
from conformance.parser.suite import suite

SUITE = suite(TOOL)
