# SPDX-License-Identifier: Apache-2.0
"""Plugins of one modality: what they parse, refuse, count, and hand to a model."""
