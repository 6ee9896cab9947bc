# SPDX-License-Identifier: Apache-2.0
"""From the V1 model runner to Model Runner V2: a slot logits processor made of a batch one."""
