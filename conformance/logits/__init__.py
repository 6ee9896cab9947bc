# SPDX-License-Identifier: Apache-2.0
"""What the generations of the logits processor interface share; knows none of them."""
