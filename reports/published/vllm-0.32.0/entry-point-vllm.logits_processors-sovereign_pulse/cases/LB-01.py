"""LB-01 The class loads in every documented way.

Plugin    entry-point:vllm.logits_processors/sovereign_pulse
Did       SovereignPulseLogitsProcessor is no vLLM plugin: it is not a subclass of
          vllm.v1.sample.logits_processor.LogitsProcessor or
          vllm.v1.worker.gpu.sample.logits_processor.LogitsProcessor or
          vllm.plugins.io_processors.interface.IOProcessor or
          reference_plugins.classifier_hook.ExternalClassifierHook (no base class, but name,
          blocking, timeout_ms and score) or a model class that
          MULTIMODAL_REGISTRY.register_processor decorates (vllm.multimodal.MULTIMODAL_REGISTRY) or
          reference_plugins.modality.MultiModalPlugin (no base class, but parse_input, validate and
          get_max_per_prompt) or vllm.tool_parsers.abstract_tool_parser.ToolParser or
          vllm.reasoning.abs_reasoning_parsers.ReasoningParser
Expected  The target imports, is a concrete subclass of
          vllm.v1.sample.logits_processor.LogitsProcessor, and vLLM's loader finds it by its
          fully-qualified name; an engine and a server start with it.
Check     Import the module in a plain Python shell; check the base class and that __init__, apply,
          is_argmax_invariant and update_state are all defined.

Needs vLLM, torch and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

import os
import sys
import traceback

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm.v1.sample.logits_processor import _load_logitsprocs_by_fqcns

sys.path.insert(0, "PLUGIN/sovereign_pulse_vllm")


try:
    (Plugin,) = _load_logitsprocs_by_fqcns(["sovereign_pulse_vllm:SovereignPulseLogitsProcessor"])
except (Exception, SystemExit) as error:
    traceback.print_exc()
    print(f"FAILS: vLLM's loader raised {type(error).__name__}: {error}")
    print("expected: it raises nothing")
    sys.exit(1)

print("OK: vLLM's loader raised nothing")
