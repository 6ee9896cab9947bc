# SPDX-License-Identifier: Apache-2.0
"""Programs of slot plugins whose failures no history shows: the check itself, made small.

They stand on the runner of :mod:`conformance.counterexample.runner_program`.
"""

from __future__ import annotations

from string import Template
from typing import TYPE_CHECKING, Any

from conformance.counterexample import (
    cost_scripts,
    device_scripts,
    fragments,
    loading_scripts,
    scripts,
    slot_graphs,
    verdicts,
)
from conformance.counterexample.source import decoded, laid_out, literal

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A full batch, as in ``logits_slot.checks``.
_MANY = 256

#: One request by itself.
_ALONE = '''\
def alone(runner: Runner, keywords: dict) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Serve one request by itself; yield its logits before and after each step."""
    sequence = $prompt
    accepted = runner.join($slot, $make(**copy.deepcopy(keywords)), sequence)
    for step in range($steps):
        runner.begin_step()
        before = rows(step)$masking
        after = before
        if accepted:  # else apply is not called for this request
            where = {"tokens": sequence[-1:], "positions": [len(sequence) - 1]}
            after = runner.apply(before.clone(), slots=[$slot], **where)
        yield before[0], after[0].clone()
        sequence.append($tokens[step % len($tokens)])
        runner.append($slot, sequence[-1])


'''

_SERVED = (
    _ALONE
    + '''\
def served(requests: list[dict], make_runner=Runner) -> dict[str, torch.Tensor]:
    """Return the rows that each request gets alone, by step."""
    return {
        f"step {step} of {keywords}": after
        for keywords in requests
        for step, (_, after) in enumerate(alone(make_runner(), keywords))
    }


'''
    + fragments.COMPARE
)

_INSTANCES = (
    _SERVED
    + """\
expected = served(PARAMETERS)

# Two instances beside each other, with a request each.
runners = [Runner() for _ in PARAMETERS]
accepted = [
    runner.join($slot, $make(**copy.deepcopy(keywords)), $prompt)
    for runner, keywords in zip(runners, PARAMETERS)
]
for number, (runner, keywords) in enumerate(zip(runners, PARAMETERS)):
    runner.begin_step()
    row = rows(0)
    if accepted[number]:
        row = runner.apply(row, slots=[$slot], tokens=$prompt[-1:], positions=[$end])
    name = f"step 0 of {keywords}"
    compare({name: row[0]}, {name: expected[name]}, "an instance beside another one")
print("OK: what one instance serves, another one does not feel")
"""
)

_ACTS = (
    _ALONE
    + """\
rows_of_request = list(alone(Runner(), KEYWORDS))
if all(torch.equal(before, after) for before, after in rows_of_request):
    print(f"FAILS: none of {len(rows_of_request)} rows was changed")
    print("expected: a request with these parameters gets a changed row")
    sys.exit(1)
print("OK: rows were changed")
"""
)

_WARM_UP = (
    _SERVED
    + '''\
def warmed_up() -> Runner:
    """$doc"""
    runner = Runner()
    for slot in reversed(range(8)):
        params = SamplingParams.for_sampler_warmup()
        $join
    runner.begin_step()
    zeros = [0] * 8
    runner.apply(torch.zeros(8, $vocabulary), slots=list(range(8)), tokens=zeros, positions=zeros)
    return runner


expected = served([KEYWORDS])
try:
    got = served([KEYWORDS], warmed_up)
except Exception as error:
    traceback.print_exc()
    print(f"FAILS: during or after warm-up: {type(error).__name__}: {error}")
    print("expected: it raises nothing, and the rows are those of an instance that is new")
    sys.exit(1)
compare(got, expected, "an instance that was warmed up")
print("OK: nothing is left of the warm-up")
'''
)

#: How vLLM warms up, by the word of the finding: a docstring, and how a request is added.
_WAYS = {
    "fake requests": (
        "Return a runner after a warm-up with requests of two tokens in all slots.",
        "runner.join(slot, params, [0, 1])",
    ),
    "dummy runs": (
        "Return a runner after a dummy run: add_request for slots that hold no request.",
        "runner.plugin.add_request(slot, params)",
    ),
}

_STEADY = (
    _SERVED
    + """\
first = served([KEYWORDS])
for _ in range(2):
    compare(served([KEYWORDS]), first, "the same request, served again,")
print("OK: the same rows again")
"""
)

_DRAWS = (
    _ALONE
    + """\
state = $state
for _ in alone(Runner(), KEYWORDS):
    pass
"""
)

_MASKS = (
    _ALONE
    + """\
$mask
for step, (before, after) in enumerate(alone(Runner(), KEYWORDS)):
    again = (before.isneginf() & ~after.isneginf()).nonzero().flatten().tolist()
    if again:
        print(f"FAILS: step {step}: {len(again)} tokens that were masked are so no more")
        for token in again[:8]:
            print(f"  token {token}: got {after[token]:.6g}, expected -inf")
        sys.exit(1)
print("OK: what was masked is masked")
"""
)

_TOKENS = (
    _ALONE
    + """\
$mask
for step, (_, after) in enumerate(alone(Runner(), KEYWORDS)):
    if after.isneginf().all():
        print(f"FAILS: step {step}: where a grammar masks {MASKED}, every token is -inf")
        print("expected: at least one token that can be sampled")
        sys.exit(1)
print("OK: a token can be sampled")
"""
)

_ADMISSION = _SERVED + fragments.ADMISSION

_RANKS = _SERVED + fragments.RANKS

_GROWTH = (
    '''\
# How many requests come and go before each measurement.
ROUND = 2000


def go_through(runner: Runner, logits: torch.Tensor, numbers: Iterator[int], applies: bool) -> None:
    """Give each of the eight slots one new request after the other."""
    for _ in range(ROUND // 8):
        for slot in range(8):
            # No two requests have the same prompt.
            number = next(numbers)
            keywords = copy.deepcopy(PARAMETERS[number % len(PARAMETERS)])
            prompt = [3 + number % 400, 3 + number // 400, $token]
            runner.join(slot, $make(**keywords), prompt)
        runner.begin_step()
        if applies:
            places = {"tokens": [$token] * 8, "positions": [2] * 8}
            runner.apply(logits.clone(), slots=list(range(8)), **places)


'''
    + fragments.GROWTH
)

_FULL = (
    _SERVED
    + '''\
def serve_many(few: dict[str, torch.Tensor]) -> None:
    """Serve $many requests at once; compare their rows with those of requests by themselves."""
    runner = Runner($many)
    slots = list(reversed(range($many)))
    requests = [PARAMETERS[number % len(PARAMETERS)] for number in range($many)]
    accepted = [
        runner.join(slot, $make(**copy.deepcopy(keywords)), $prompt)
        for slot, keywords in zip(slots, requests)
    ]
    runner.begin_step()
    for count in (1, 3):  # rows of each request: with two drafts there are three
        result = runner.apply(
            rows(0).repeat($many * count, 1),
            slots=[slot for slot in slots for _ in range(count)],
            tokens=[$last, *[$token] * (count - 1)] * $many,
            positions=[*range($end, $end + count)] * $many,
        )
        for number, keywords in enumerate(requests):
            name = f"step 0 of {keywords}"
            if accepted[number]:
                where = f"request {number} of $many with {count} rows each"
                compare({name: result[number * count]}, {name: few[name]}, where)


few = served(PARAMETERS)
try:
    serve_many(few)
except Exception as error:
    traceback.print_exc()
    print(f"FAILS: with $many requests: {type(error).__name__}: {error}")
    print("expected: each gets the row that it gets by itself")
    sys.exit(1)
print("OK: the rows of a batch of $many are those of a small one")
'''
)

_WAITS = '''\
class Waits(TorchFunctionMode):
    """Notes calls that make the host wait for what is on the device.

    On a CPU nothing tells one from the other: the engine's tensors, and what is computed from
    them, are followed.
    """

    def __init__(self, *tensors: torch.Tensor) -> None:
        super().__init__()
        self.seen, self.device = [], {id(tensor): tensor for tensor in tensors}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        leaves = tree_leaves((args, kwargs))
        touched = any(id(leaf) in self.device for leaf in leaves)
        if touched and $waits:
            self.seen.append(function.__name__)
        result = function(*args, **(kwargs or {}))
        if touched:
            found = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            self.device |= {id(tensor): tensor for tensor in found}
        return result


runner, sequence = Runner(), $prompt
runner.join($slot, $make(**KEYWORDS), sequence)
states = (runner.tokens, runner.total, runner.prompt, runner.prefill)
for step in range($steps):
    runner.begin_step()
    logits = rows(step)
    ctx = runner.context([$slot], sequence[-1:], [len(sequence) - 1])
    tensors = [value for value in vars(ctx).values() if isinstance(value, torch.Tensor)]
    tensors += [logits, *(field.gpu for field in states)]
    with torch.inference_mode(), Waits(*tensors) as waits:
        runner.plugin.apply(logits, ctx)
    if waits.seen:
        print(f"FAILS: step {step}: apply calls {waits.seen[0]}() on what is on the device")
        print("expected: nothing that the host has to wait for")
        sys.exit(1)
    sequence.append($tokens[step % len($tokens)])
    runner.append($slot, sequence[-1])
print("OK: the host never waits")
'''

#: What the host is caught at: a call by its name, or reading by a mask.
_CALL = 'getattr(function, "__name__", "") == "{}"'
_BY_MASK = (
    _CALL.format("__getitem__")
    + ' and any(\n            getattr(index, "dtype", None) is torch.bool'
    + " for index in tree_leaves(args[1])\n        )"
)

_BOTH = (
    scripts.CONFIG
    + scripts.SERVED.replace("def served(", "def served_in_v1(")
    + _SERVED
    + """\
got, expected = served([KEYWORDS]), served_in_v1([KEYWORDS])
name = list(expected)[-1]
compare({name: got[name]}, {name: expected[name]}, "Model Runner V2")
print("OK: both model runners give the same row")
"""
)

SCRIPTS = {
    "LS-02": _INSTANCES,
    "LS-05": _ACTS,
    "LS-13": _WARM_UP,
    "LS-15": _STEADY,
    "LS-19": _MASKS,
    "LS-21": _TOKENS,
    "LS-41": _ADMISSION,
    "LS-25": _RANKS,
    "LS-26": _GROWTH,
    "LS-27": _FULL,
    "LS-28": _WAITS,
    "LS-31": _BOTH,
    "LS-34": slot_graphs.PADDED,
    **cost_scripts.SLOT_SCRIPTS,
    **device_scripts.SLOT_SCRIPTS,
    **loading_scripts.SCRIPTS,
}

#: Programs that cannot be tried here: they start others of their own, or need a GPU.
FILES_ONLY = frozenset({"LS-25", *device_scripts.SLOT_SCRIPTS})

#: Steps of a program where no finding says how many.
_STEPS = {
    "LS-02": 1,
    "LS-05": 10,
    "LS-13": 8,
    "LS-26": 8,
    "LS-27": 1,
    "LS-32": 0,
    "LS-33": 0,
    "LS-34": 8,
}
_MOST = 6


def steps(case: Mapping[str, Any]) -> int:
    """Return for how many steps a program goes: it needs logits for as many."""
    return int(case["expect"].get("steps") or _STEPS.get(case["rule"], _MOST))


def script(case: Mapping[str, Any], *, bare: bool) -> str:
    """Return what a program does after its imports and functions."""
    expect, tokens = case["expect"], case["logits"]["tokens"]
    prompt = case["logits"].get("prompt", [tokens[0], tokens[-1]])
    values = {tuple(e["choice"]): decoded(e["keywords"]) for e in case["parameters"]}
    if "choice" in expect:
        lines = laid_out(literal(values[tuple(expect["choice"])]), before="KEYWORDS = ")
    else:
        wanted = [tuple(choice) for choice in expect.get("choices", values)]
        lines = laid_out(literal([values[c] for c in wanted]), before="PARAMETERS = ")
    if "invalid" in expect:
        lines += laid_out(literal(decoded(expect["invalid"])), before="INVALID = ")
    text, ending = SCRIPTS[case["rule"]], []
    words: dict[str, Any] = {
        "make": "SamplingParams" if bare else "request",
        "token": tokens[0],
        "last": prompt[-1],
        "end": len(prompt) - 1,
        "tokens": tokens,
        "prompt": prompt,
        "slot": 7,  # the first that vLLM gives away, of eight
        "steps": steps(case),
        "new": "Runner()",
        "many": _MANY,
        "masking": "",
        "vocabulary": case["logits"]["vocabulary"],
    }
    if expect.get("draws"):
        text, words["state"] = _DRAWS, verdicts.STATES[expect["draws"]]
        ending = verdicts.ending({"is": "undrawn", "generator": expect["draws"]})
    if "masked" in expect:
        words["mask"] = verdicts.mask(expect["masked"])
        words["masking"] = "\n        before[:, MASKED] = -torch.inf"
    if "warm" in expect:
        words["doc"], words["join"] = _WAYS[expect["warm"]]
    if "waits" in expect:
        name = expect["waits"]
        words["waits"] = _BY_MASK if name == "__getitem__" else _CALL.format(name)
    filled = Template(text).substitute(words)
    return "\n".join([*lines, "", "", *filled.splitlines(), *ending]) + "\n"
