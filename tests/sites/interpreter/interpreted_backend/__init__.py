# SPDX-License-Identifier: Apache-2.0
"""A Triton backend ``cpu`` that compiles nothing: every kernel runs in Triton's interpreter.

vLLM for CPU believes in Triton only where it has a backend of this name, and the packages of
Triton on PyPI have none.
Triton finds it by the entry point in ``sites/interpreter``, which only processes have on their
path that :mod:`interpreter` is asked for.
"""
