# SPDX-License-Identifier: Apache-2.0
"""Whether requests are served that are as long as the context of a model.

What is made for a number of tokens that seemed enough ends the engine behind it: one long request
of one client ends those of all.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import attrs
from vllm.sampling_params import SamplingParams

from conformance.counterexample.logits_player import CONTEXT
from conformance.findings import Finding, failed, inapplicable
from conformance.inputs.history import Choice, label
from conformance.logits.calls import PluginRaised
from conformance.logits.requests import LAST_SPECIAL, Stock
from conformance.logits.trial import Trial
from conformance.verdict import Verdict
from conformance.watching.interruption import PluginHung, limited

#: How long a request is, behind the lengths that constants usually have; the last one is tried
#: first, and the one before it where that takes too long.
LENGTHS = (80, 600, 1_100, 2_100, 4_200, 8_300, 16_500, 33_000)
FEWER = 4_200

#: Outputs that a request gets one by one, and those behind a long prompt, or when it is resumed.
STEPPED, AFTER = 1_100, 3

#: Tokens of a prompt that is not long.
SHORT = 2

#: Seconds for one request.
LIMIT = 60.0


@attrs.frozen
class Long:
    """The tokens with which a request comes, and for how many steps it is served."""

    prompt: int = SHORT
    outputs: int = 0  #: with which it is resumed
    steps: int = AFTER

    def made(
        self, bench: Stock, choice: Choice
    ) -> tuple[SamplingParams, list[int], list[int], set[int | None]]:
        """Return its parameters, prompt, outputs, and the tokens with which it ends."""
        params = bench.params(choice)
        if "max_tokens" not in bench.parameters[choice]:  # as vLLM's front end has it
            params.max_tokens = CONTEXT - self.prompt
        ends = {params.eos_token_id, *(params.stop_token_ids or ())}
        said = [bench.words.said(step) for step in range(self.outputs)]
        outputs = [LAST_SPECIAL + 1 if token in ends else token for token in said]
        before = range(self.prompt - len(bench.prompt))
        prompt = [*(bench.tokens[place % len(bench.tokens)] for place in before), *bench.prompt]
        return params, prompt, outputs, ends

    def told(self) -> str:
        """Return how long it is, in words."""
        if self.prompt > SHORT:
            return f"a prompt of {self.prompt} tokens"
        return f"{self.outputs + self.steps} outputs"


#: Ways in which a request gets long, by a number of tokens.
WAYS: tuple[Callable[[int], Long], ...] = (
    lambda count: Long(prompt=count),
    lambda count: Long(outputs=count),
    lambda count: Long(steps=count),
)
_PROMPT, _RESUMED, _STEPPED = WAYS


@attrs.frozen
class Server:
    """How a generation makes an instance for a long context, and serves it one request."""

    new: Callable[[Any], Any]  #: from a bench
    #: From a bench, an instance, a parameter set and a request.
    serve: Callable[[Any, Any, Choice, Long], None]

    def raised(self, bench: Stock, choice: Choice, request: Long) -> PluginRaised | None:
        """Serve a request with an instance of its own, and return what was raised."""
        try:
            with limited(LIMIT):
                self.serve(bench, self.new(bench), choice, request)
        except PluginRaised as error:
            return error
        return None


@attrs.define
class _Serving:
    """Requests that one instance serves, one after the other; where it raises, the next one."""

    bench: Stock
    server: Server
    instance: Any = None

    def serve(self, choice: Choice, request: Long) -> None:
        instance, self.instance = self.instance or self.server.new(self.bench), None
        self.server.serve(self.bench, instance, choice, request)
        self.instance = instance

    def raises(self, choice: Choice, way: Callable[[int], Long]) -> bool:
        """Tell whether the longest request raises of those that do not take too long.

        What takes long is for the rule about the cost of a step.
        """
        for length in (STEPPED,) if way is _STEPPED else (LENGTHS[-1], FEWER):
            with suppress(PluginHung), limited():
                try:
                    self.serve(choice, way(length))
                except PluginRaised:
                    return True
                return False
        return False


def judge(trial: Trial, server: Server) -> Finding:
    """Judge that no call raises for a request that is as long as the context allows."""
    bench, count = trial.bench, 0
    try:
        serving = _Serving(bench, server, server.new(bench))
    except PluginRaised as error:  # it says so before an engine starts
        why = f"the plugin refuses engines with a context of {CONTEXT} tokens: {error}"
        return inapplicable(why)
    chosen, _ = bench.pair
    for number, choice in enumerate(chosen or bench.choices[:1]):
        # Steps take time, and those of one parameter set are like those of another.
        ways = WAYS if number == 0 else WAYS[:2]
        for way in ways if "max_tokens" not in bench.parameters[choice] else (_PROMPT,):
            try:
                with limited(LIMIT):
                    serving.serve(choice, way(LENGTHS[0]))
            except PluginRaised:
                if way is not _RESUMED:
                    raise  # not about length
                continue  # the plugin does not allow these outputs
            count += 1
            if serving.raises(choice, way) and (found := _shortest(bench, server, choice, way)):
                return attrs.evolve(found, examples=count, acted=count)
    return Finding(Verdict.PASS, count, count)


def _shortest(
    bench: Stock, server: Server, choice: Choice, way: Callable[[int], Long]
) -> Finding | None:
    """Return the failure of the shortest request that is not served.

    Outputs with which a request is resumed may be some that the plugin does not allow: only what is
    raised where they come one by one, as the plugin leaves them, says anything.
    """
    for length in LENGTHS:
        request = way(length)
        error = server.raised(bench, choice, request)
        if error is not None and way is _RESUMED:
            request = _STEPPED(length + AFTER)
            error = server.raised(bench, choice, request)
            if error is None:
                return None
        if error is not None:
            what = f"a request with {request.told()}, of the {CONTEXT} tokens that max_model_len"
            lengths = [request.prompt, request.outputs, request.steps]
            why = f"{what} allows ({label(choice)}), is not served: {error}"
            return failed(why, case={"choice": choice, "lengths": lengths})
    return None
