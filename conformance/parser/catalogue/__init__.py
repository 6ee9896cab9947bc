# SPDX-License-Identifier: Apache-2.0
"""The rules of parsers, as data.

Identifiers are stable: a rule that goes away leaves its number unused.
"""
