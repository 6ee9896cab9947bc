# SPDX-License-Identifier: Apache-2.0
"""Multi-modal processors: prompts with items, placeholders, and rows of embeddings."""
