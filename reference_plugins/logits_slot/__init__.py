# SPDX-License-Identifier: Apache-2.0
"""Logits processors for the slot interface of Model Runner V2."""
