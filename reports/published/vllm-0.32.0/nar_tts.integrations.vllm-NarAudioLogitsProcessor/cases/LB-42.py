"""LB-42 A request that is refused gets status 400.

Plugin    nar_tts.integrations.vllm:NarAudioLogitsProcessor
Did       a request with extra_args={"nar_audio_grammar": 0} gets status 500, not 400:
          validate_params raised TypeError: nar_audio_grammar must be a mapping (at vllm.py:48)
Expected  Whatever the value, validate_params refuses a request with an exception that vLLM answers
          with status 400, and so names the client's mistake.
Check     Check with isinstance before anything is looked up, compared or counted, and raise
          ValueError.

Needs vLLM, torch and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm import SamplingParams
from vllm.exceptions import VLLMValidationError

sys.path.insert(0, "PLUGIN")

from nar_tts.integrations.vllm import NarAudioLogitsProcessor as Plugin


params = SamplingParams(extra_args={"nar_audio_grammar": 0})
try:
    Plugin.validate_params(params)
except (ValueError, VLLMValidationError) as error:
    print(f"OK: the request is refused: {error}")
except Exception as error:
    print(f"FAILS: the request is refused with {type(error).__name__}: {error}")
    print("expected: ValueError or VLLMValidationError, which become HTTP 400")
    sys.exit(1)
else:
    print("FAILS: validate_params accepts the request")
    print("expected: it raises ValueError or VLLMValidationError")
    sys.exit(1)
