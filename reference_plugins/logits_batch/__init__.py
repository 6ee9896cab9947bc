# SPDX-License-Identifier: Apache-2.0
"""Logits processors for the batch interface of the V1 model runner."""
