# SPDX-License-Identifier: Apache-2.0
"""What a plugin is tried out on: its class, its parameters, the logits, and watched calls."""

from __future__ import annotations

import copy
import math
import signal
import time
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor

from conformance.logits_batch import host
from conformance.rules import nearest
from conformance.settings import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from conformance.history import Choice

#: A single call, or a single example of a few steps on tiny tensors, that takes this long hangs.
#: Far above anything honest, a first ``torch.compile`` included.
CALL_LIMIT = 20.0

CONSTRUCTOR_LIMIT = 120.0

#: Building an instance slower than this, examples share one instance and leave it idle between.
SLOW_CONSTRUCTOR = 0.02

#: Instances that are built before that is decided.
MEASURED_CONSTRUCTORS = 3

#: End-of-sequence token of the tiny model, which the front end adds to the stop tokens.
END_OF_SEQUENCE = 1

#: The last of the token ids that stand for no text in the tiny model.
LAST_SPECIAL = 2

_LOGITS_ROWS = 97  # a prime, so that rows do not repeat in step with anything


class PluginRaised(Exception):
    """The plugin raised where the engine calls it."""

    def __init__(self, call: str, error: BaseException) -> None:
        super().__init__(f"{call} raised {type(error).__name__}: {error}")
        self.call = call
        self.error = error


class PluginMisshapen(Exception):
    """``apply`` returned something that is no tensor like the logits it was given."""


class PluginHung(BaseException):
    """A call did not return in time; a ``BaseException`` so that plugins do not swallow it."""

    def __init__(self, call: str, seconds: float) -> None:
        super().__init__(f"{call} did not return within {seconds:.0f} s")


#: The plugin call in progress, for whoever interrupts it.
_in_progress: list[str] = []


class Observer(Protocol):
    """Writes down what is done to a plugin."""

    def parameters(self, params: SamplingParams, keywords: Mapping[str, Any]) -> None:
        """Take note of what parameters were made of."""

    def request(self, name: str) -> None:
        """Take note of whom the instance that is made next serves alone."""

    def call(self, function: Any, *arguments: Any) -> Any:  # noqa: ANN401 - a plugin's own values
        """Call a function of the plugin."""


#: Who writes down what is done, if anybody does: see ``transcript``.
_observers: list[Observer] = []


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Have an observer see all calls and all parameters made within the block."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def call(what: str, function: Any, *arguments: Any) -> Any:  # noqa: ANN401 - a plugin's own values
    """Call into the plugin.

    Raises:
        PluginRaised: it raised; the exception is attached.
        PluginHung: it was interrupted by :func:`limited`.

    """
    _in_progress.append(what)
    try:
        if _observers:
            return _observers[-1].call(function, *arguments)
        return function(*arguments)
    except (Exception, SystemExit) as error:
        raise PluginRaised(what, error) from error
    finally:
        _in_progress.pop()


@contextmanager
def limited(seconds: float = CALL_LIMIT) -> Iterator[None]:
    """Interrupt the block when it takes longer than ``seconds`` of wall time.

    Within another limited block, the time of the inner one does not count for the outer one.

    Raises:
        PluginHung: the plugin was being called.
        TimeoutError: nothing of the plugin was running: the harness itself is slow.

    """

    def interrupt(*_: object) -> None:
        if _in_progress:
            raise PluginHung(_in_progress[-1], seconds)
        raise TimeoutError("the harness did not finish an example in time")

    handler = signal.signal(signal.SIGALRM, interrupt)
    # Again and again, in case the plugin catches everything and goes on.
    outer = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *outer)
        signal.signal(signal.SIGALRM, handler)


def serving(name: str) -> None:
    """Tell whoever observes that the instance that is made next serves a request alone."""
    for observer in _observers:
        observer.request(name)


class Watched(LogitsProcessor):
    """A plugin as the batch sees it: every call goes through :func:`call`.

    Engines run their steps under ``torch.inference_mode``.
    """

    def __init__(self, plugin: LogitsProcessor, *, inference: bool = True) -> None:
        self.plugin = plugin
        self._inference = inference

    def is_argmax_invariant(self) -> bool:
        """Return the plugin's claim."""
        return call("is_argmax_invariant()", self.plugin.is_argmax_invariant)  # type: ignore[no-any-return]

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Pass a batch update on."""
        name = "update_state(None)" if batch_update is None else "update_state(batch_update)"
        with torch.inference_mode(self._inference):
            call(name, self.plugin.update_state, batch_update)

    def begin(self, params: SamplingParams, prompt: list[int] | None, outputs: list[int]) -> None:
        """Add a request to the empty batch; ``outputs`` is its live list."""
        self.update_state(BatchUpdate(1, [], [(0, params, prompt, outputs)], []))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Pass logits ``[rows, vocabulary]`` on.

        Raises:
            PluginMisshapen: what came back has another shape, dtype or device.

        """
        shape = logits.shape  # the plugin may change the tensor that it was given
        with torch.inference_mode(self._inference):
            result = call("apply(logits)", self.plugin.apply, logits)
        if problem := misshapen(result, logits, shape):
            raise PluginMisshapen(problem)
        return result


def misshapen(result: object, logits: torch.Tensor, shape: torch.Size) -> str | None:
    """Say in what a value that ``apply`` returned differs from the logits it was given."""
    if not isinstance(result, torch.Tensor):
        return f"apply returned {type(result).__name__}, not a tensor"
    for what, wanted in (("shape", shape), ("dtype", logits.dtype), ("device", logits.device)):
        got = getattr(result, what)
        if got != wanted:
            if what == "shape":
                return f"apply returned a tensor of shape {list(got)}, not {list(shape)}"
            return f"apply returned a tensor of {what} {got}, not {wanted}"
    return None


@attrs.define
class Bench:
    """One plugin class with everything it needs to be tried out."""

    plugin: type[LogitsProcessor]
    model: str  #: folder of the model whose configuration the constructor gets
    parameters: Mapping[Choice, Mapping[str, Any]]  #: ``SamplingParams`` keywords of each choice
    seed: int
    vocabulary: int = attrs.field(init=False)
    tokens: tuple[int, ...] = attrs.field(init=False)  #: token ids that prompts are made of
    table: torch.Tensor = attrs.field(init=False)
    _idle: list[Watched] = attrs.field(init=False, factory=list)
    _slow: bool = attrs.field(init=False, default=False)
    _made: int = attrs.field(init=False, default=0)
    _fastest: float = attrs.field(init=False, default=math.inf)
    #: Parameters of each choice, as they are and for greedy requests.
    _prototypes: dict[tuple[Choice, bool], SamplingParams] = attrs.field(init=False, factory=dict)
    _containers: dict[tuple[Choice, bool], list[str]] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        """Derive the tokens and the logits from the model, the parameters and the seed."""
        self.vocabulary = host.vllm_config(self.model).model_config.get_vocab_size()
        # Few different tokens, those of the parameters among them, so that history readers
        # (n-gram bans, stop words) meet what they look for within a few steps.
        named = [
            value for value in _integers(self.parameters) if LAST_SPECIAL < value < self.vocabulary
        ]
        self.tokens = tuple(dict.fromkeys([*named[:3], 7, 11, 13]))
        self.table = logits_table(self.vocabulary, self.tokens, self.seed)
        for choice, keywords in self.parameters.items():
            params = sampling_params(keywords, f"{choice[0]}[{choice[1]}]")
            self._keep(choice, greedy=False, params=params)
            # What cannot be greedy (several answers to one prompt) stays as it is.
            with suppress(UsageError):
                params = sampling_params({**keywords, "temperature": 0.0}, "")
            self._keep(choice, greedy=True, params=params)

    def _keep(self, choice: Choice, *, greedy: bool, params: SamplingParams) -> None:
        # As the engine's front end does before a plugin sees them.
        params.update_from_generation_config({}, END_OF_SEQUENCE)
        self._prototypes[choice, greedy] = params
        self._containers[choice, greedy] = [
            field
            for field in SamplingParams.__struct_fields__
            if isinstance(getattr(params, field), dict | list | set)
        ]

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The parameter sets that histories draw from: as often on as off."""
        on = [choice for choice in self.parameters if choice[0] == "on"]
        off = [choice for choice in self.parameters if choice[0] == "off"]
        if not on or not off:
            return tuple(on or off)
        longer = max(len(on), len(off))
        return tuple(side[index % len(side)] for index in range(longer) for side in (on, off))

    def params(self, choice: Choice, *, greedy: bool = False) -> SamplingParams:
        """Return a fresh ``SamplingParams``: no two requests share one, or a container in it."""
        prototype = self._prototypes[choice, greedy]
        params = copy.copy(prototype)
        # Deep copies of whole parameter sets would be a third of the time of an example.
        for field in self._containers[choice, greedy]:
            setattr(params, field, copy.deepcopy(getattr(prototype, field)))
        for observer in _observers:
            changes = {"temperature": 0.0} if greedy and not prototype.temperature else {}
            observer.parameters(params, {**self.parameters[choice], **changes})
        return params

    def unchanged(self, params: SamplingParams, choice: Choice, *, greedy: bool = False) -> bool:
        """Tell whether nobody has written to a request's parameters."""
        return bool(params == self._prototypes[choice, greedy])

    @cached_property
    def invariant(self) -> bool:
        """Whether the plugin claims argmax invariance; False where it cannot be asked."""
        try:
            with limited():
                return bool(self.new().is_argmax_invariant())
        except (PluginRaised, PluginHung):
            return False

    def new(self) -> Watched:
        """Return an idle instance: fresh, or used before where building one takes long."""
        if self._idle:
            return self._idle.pop()
        started = time.perf_counter()
        # An honest constructor may load a model of its own.
        with limited(CONSTRUCTOR_LIMIT):
            instance = call("__init__", self.construct)
        self._made += 1
        self._fastest = min(self._fastest, time.perf_counter() - started)
        # The fastest of several: the first does what is done once, and the machine may be busy.
        if self._made == MEASURED_CONSTRUCTORS:
            self._slow = self._fastest > SLOW_CONSTRUCTOR
        return Watched(instance)

    def construct(self) -> LogitsProcessor:
        """Make an instance as ``build_logitsprocs`` does."""
        return self.plugin(host.vllm_config(self.model), host.CPU, False)  # noqa: FBT003 - as vLLM calls it

    def retire(self, instance: Watched, rows: int) -> None:
        """Take back an instance after an example, with all of its requests finished."""
        if self._slow:
            removed = list(range(rows - 1, -1, -1))
            instance.update_state(BatchUpdate(0, removed, [], []) if rows else None)
            self._idle.append(instance)

    def logits_row(self, prompt: Sequence[int], outputs: Sequence[int]) -> int:
        """Return which row of :attr:`table` the model would give after these tokens."""
        return (sum(prompt) * 31 + len(prompt) * 7 + sum(outputs) * 3 + len(outputs)) % _LOGITS_ROWS


def logits_table(vocabulary: int, tokens: Sequence[int], seed: int) -> torch.Tensor:
    """Return float32 logits ``[97, vocabulary]`` such as a model with a grammar mask gives.

    Every row prefers the given tokens; every eighth has ties at the top,
    every eighth is masked to 16 tokens (``-inf`` elsewhere) as structured output does.
    """
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn((_LOGITS_ROWS, vocabulary), generator=generator)
    favourites = torch.tensor(tokens)
    table[:, favourites] += 4.0
    ties = table[3::8]
    ties[:, favourites] = ties.amax(dim=-1, keepdim=True)
    masked = table[5::8]
    kept = torch.randint(0, vocabulary, (16,), generator=generator)
    mask = torch.ones(vocabulary, dtype=torch.bool)
    mask[kept] = False
    mask[favourites] = False
    masked[:, mask] = -torch.inf
    table[3::8], table[5::8] = ties, masked
    return table


def sampling_params(keywords: Mapping[str, Any], where: str) -> SamplingParams:
    """Build ``SamplingParams`` from the keywords of a profile.

    Raises:
        UsageError: the keywords are not those of ``SamplingParams``, or vLLM refuses them.

    """
    if not hasattr(keywords, "items"):
        raise UsageError(
            f"profile: {where} must be a table of SamplingParams keywords, not {keywords!r}."
        )
    known = SamplingParams.__struct_fields__
    for key in keywords:
        if key not in known:
            raise UsageError(
                f"profile: {where} has {key!r}, which is no field of SamplingParams."
                + nearest(key, known)
            )
    values = dict(keywords)
    if isinstance(bias := values.get("logit_bias"), dict):
        # TOML and JSON keys are strings; vLLM's own front end converts them in the same way.
        values["logit_bias"] = {int(token): float(value) for token, value in bias.items()}
    try:
        params = SamplingParams(**copy.deepcopy(values))
    except Exception as error:  # noqa: BLE001 - any refusal is the profile's
        raise UsageError(f"profile: {where} is refused by SamplingParams: {error}") from None
    for observer in _observers:
        observer.parameters(params, values)
    return params


def admissible(
    invalid: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[str, Mapping[str, Any], SamplingParams]]:
    """Yield the requests that vLLM itself does not refuse before the plugin is asked.

    Each with its name in messages, its keywords and a fresh ``SamplingParams``.
    """
    for index, keywords in enumerate(invalid):
        name = f"invalid[{index}]"
        with suppress(UsageError):
            yield name, keywords, sampling_params(keywords, name)


def _integers(value: object) -> Iterator[int]:
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _integers(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _integers(item)
