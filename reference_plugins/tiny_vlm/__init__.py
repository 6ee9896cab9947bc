# SPDX-License-Identifier: Apache-2.0
"""A vision language model outside vLLM's tree, small enough to read in one sitting.

Put `register` into an entry point of the group ``vllm.general_plugins``:

    [project.entry-points."vllm.general_plugins"]
    tiny_vlm = "reference_plugins.tiny_vlm:register"

and vLLM serves checkpoints whose config.json names the architecture ``TinyVlm``.
`checkpoint.write` makes one.
"""

from __future__ import annotations

__all__ = ["register"]


def register() -> None:
    """Make the model known to vLLM; any number of times, in each of its processes."""
    from vllm import ModelRegistry

    # Reading config.json needs the configuration, and this import registers it.
    import reference_plugins.tiny_vlm.configuration  # noqa: F401 - see above

    # By name: importing the model here would cost processes that never run it, and one that
    # touches CUDA on import would break those that are forked later.
    ModelRegistry.register_model("TinyVlm", "reference_plugins.tiny_vlm.model:TinyVlm")
