# SPDX-License-Identifier: Apache-2.0
"""The program of a counterexample of ``logits/slot``: what a model runner did, step by step.

The program has a small runner of its own, with the states that slot plugins read, so that it
needs neither this harness nor kernels.
"""

from __future__ import annotations

import textwrap
from string import Template
from typing import TYPE_CHECKING, Any

from conformance.counterexample import helpers
from conformance.counterexample.source import (
    WIDTH,
    Named,
    call,
    decoded,
    keywords,
    laid_out,
    literal,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.counterexample.source import Node

Event = dict[str, Any]

_RUNNER = '''\
class Runner:
    """As much of Model Runner V2 as a logits processor sees: slots, their tokens, its calls."""

    def __init__(self, max_num_reqs: int = 8) -> None:
        self.staged = []
        self.tokens = SimpleNamespace(gpu=torch.zeros(max_num_reqs, 128, dtype=torch.int32))
        self.total = SimpleNamespace(gpu=torch.zeros(max_num_reqs, dtype=torch.int32))
        self.prompt, self.prefill = self.lengths(max_num_reqs), self.lengths(max_num_reqs)
        states = LogitsProcRequestState(
            device=torch.device("cpu"),
            max_num_reqs=max_num_reqs,
            vocab_size={vocabulary},
            all_token_ids=self.tokens,
            prompt_len=self.prompt,
            prefill_len=self.prefill,
            total_len=self.total,
        )
        self.plugin = Plugin(engine_config(max_num_seqs=max_num_reqs), states)

    @staticmethod
    def lengths(count: int) -> SimpleNamespace:
        """Return a host array and its two copies for the device, which are used in turn."""
        buffers = [torch.zeros(count, dtype=torch.int32) for _ in range(2)]
        return SimpleNamespace(np=np.zeros(count, dtype=np.int32), buffers=buffers, gpu=buffers[0])

    def join(self, slot: int, params: SamplingParams, prompt: list, outputs: list = ()) -> bool:
        """Add a request to a slot; its tokens are written when the step begins."""
        self.staged.append((slot, [*prompt, *outputs]))
        self.prompt.np[slot] = len(prompt)
        self.prefill.np[slot] = len(prompt) + len(outputs)
        return self.plugin.add_request(slot, params)

    def begin_step(self) -> None:
        """Write what was staged, the plugin's staged writes last."""
        if self.staged:
            for slot, tokens in self.staged:
                self.tokens.gpu[slot, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
                self.total.gpu[slot] = len(tokens)
            for lengths in (self.prompt, self.prefill):
                lengths.buffers.reverse()
                lengths.gpu = lengths.buffers[0]
                lengths.gpu.copy_(torch.from_numpy(lengths.np))
            self.staged = []
        self.plugin.apply_staged_writes()

    def apply(self, logits: torch.Tensor, *, slots: list, tokens: list, positions: list):
        """Process one row for each of the slots; a slot has more rows than one with drafts."""
        requests = list(dict.fromkeys(slots))
        offsets = [slots[:row].count(slot) for row, slot in enumerate(slots)]
        lengths = [1 + max(p for s, p in zip(slots, positions) if s == slot) for slot in requests]
        context = LogitsContext(
            expanded_idx_mapping=torch.tensor(slots),
            idx_mapping=torch.tensor(requests),
            idx_mapping_np=np.array(requests),
            expanded_local_pos=torch.tensor(offsets, dtype=torch.int32),
            input_ids=torch.tensor(tokens, dtype=torch.int32),
            pos=torch.tensor(positions),
            seq_lens_upper_bound_np=np.array(lengths, dtype=np.int32),
        )
        return self.plugin.apply(logits, context)

    def append(self, slot: int, *tokens: int) -> None:
        """Give a request the tokens that were sampled."""
        total = int(self.total.gpu[slot])
        self.tokens.gpu[slot, total : total + len(tokens)] = torch.tensor(tokens).int()
        self.total.gpu[slot] = total + len(tokens)
'''

_DIFFERENT = """\
if wrong:
    print("FAILS: $whose $fails")
    for token in wrong[:8]:
        print(f"  token {token}: got {got[token]:.6g}, expected {expected[token]:.6g}")
    print(f"  ({len(wrong)} of {len(got)} tokens differ)")
    sys.exit(1)
print("OK: $whose $holds")
"""

_ENDINGS = {
    "same": """\
got, expected = $got, $expected
close = torch.isclose(got, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
wrong = (~close).nonzero().flatten().tolist()
"""
    + _DIFFERENT,
    "unchanged": """\
got, expected = $got, $given
wrong = (got != expected).nonzero().flatten().tolist()
"""
    + _DIFFERENT,
    "nan": """\
if $got.isnan().any():
    print("FAILS: $whose holds NaN")
    print("expected: numbers, or -inf for tokens that must not be sampled")
    sys.exit(1)
print("OK: $whose holds no NaN")
""",
    "no-token": """\
if $got.isneginf().all():
    print("FAILS: $whose is -inf for every token")
    print("expected: at least one token that can be sampled")
    sys.exit(1)
print("OK: a token can be sampled from $whose")
""",
    "shape": """\
expected = (list($logits.shape), torch.float32)
got = type(result).__name__
if isinstance(result, torch.Tensor):
    got = (list(result.shape), result.dtype)
if got != expected:
    print(f"FAILS: apply returned {got}")
    print(f"expected: a tensor like the logits it was given, {expected}")
    sys.exit(1)
print("OK: apply returned a tensor like the logits it was given")
""",
    "bool": """\
if not isinstance(answer, bool | np.bool_):
    print(f"FAILS: add_request returned {answer!r}")
    print("expected: True or False")
    sys.exit(1)
print(f"OK: add_request returned {answer}")
""",
    "raises-nothing": """\
print("OK: $called raised nothing")
""",
    "returns": """\
faulthandler.cancel_dump_traceback_later()
print("OK: $called returned")
""",
}

_RAISED = """\
except (Exception, SystemExit) as error:
    traceback.print_exc()
    print(f"FAILS: $called raised {type(error).__name__}: {error}")
    print("expected: it raises nothing")
    sys.exit(1)
"""

_HANGING = """\
print("calling $called; expected: it returns")
sys.stdout.flush()
faulthandler.dump_traceback_later(20, exit=True)  # shows where it is, and exits with status 1
"""

_CALLED = {
    "new": "making an instance",
    "join": "add_request(req_idx, sampling_params)",
    "begin": "apply_staged_writes()",
    "process": "apply(logits, ctx)",
}


def functions(shown: Mapping[str, Any]) -> list[str]:
    """Return the functions and the class that a program begins with."""
    events, bare = shown["events"], shown["bare"]
    calls = [{"do": "new"}, *({"do": "params"} for e in events if e["do"] == "join")]
    calls += [{"do": "apply", "rows": e["rows"]} for e in events if e["do"] == "process"]
    vocabulary = shown["logits"]["vocabulary"]
    found = helpers.used(calls, bare=bare, seed=shown["seed"], logits=shown["logits"])
    return [*found, _RUNNER.replace("{vocabulary}", str(vocabulary))]


def body(shown: Mapping[str, Any]) -> str:
    """Return the statements of a program: what the runner did, and the verdict."""
    lines: list[str] = []
    *earlier, last = shown["events"]
    expect = shown["expect"]
    for event in earlier:
        lines += _opening(event)
        lines += _statement(event, bare=shown["bare"])
    lines += _opening(last)
    words = _words(shown, last)
    ending = Template(_ENDINGS[expect["is"]]).substitute(words).splitlines()
    if expect["is"] == "returns":
        lines += Template(_HANGING).substitute(words).splitlines()
    statement = _statement(last, bare=shown["bare"])
    if expect["is"] == "raises-nothing":
        lines += ["try:", *(f"    {line}" for line in statement)]
        lines += Template(_RAISED).substitute(words).splitlines()
    else:
        lines += statement
    return "\n".join([*lines, "", *ending]).strip("\n") + "\n"


def _words(shown: Mapping[str, Any], last: Event) -> dict[str, str]:
    expect = shown["expect"]
    words = dict.fromkeys(("got", "expected", "given", "logits", "whose", "fails", "holds"), "")
    words["called"] = _CALLED[last["do"]]
    if "row" in expect:
        result = next(event for event in shown["events"] if event.get("to") == "result")
        row = result["rows"][expect["row"]]
        words |= {
            "got": f"result[{expect['row']}]",
            "expected": "expected[0]",
            "given": helpers.rows({"rows": [row]}) + "[0]",
            "whose": f"row {expect['row']} (request {expect['request']})",
            "fails": "is not what it gets alone",
            "holds": "is what it gets alone",
        }
        if expect["is"] == "unchanged":
            words |= {"fails": f"was changed, though {expect['why']}", "holds": "is unchanged"}
    if last["do"] == "process":
        words["logits"] = helpers.rows({"rows": last["rows"]})
    return words


def _opening(event: Event) -> list[str]:
    """Return what stands before a statement: an empty line, and what happens in the step."""
    if event["do"] == "new":
        said = "# The same request alone, in a runner of its own."
        return ["", said] if event["name"].startswith("alone") else [""]
    if "note" not in event:
        return []
    text = f"Step {event['step']}: {event['note']}."
    return ["", *(f"# {line}" for line in textwrap.wrap(text, WIDTH - 2))]


def _statement(event: Event, *, bare: bool) -> list[str]:
    name = event["name"]
    node: Node
    before = f"{event['to']} = " if "to" in event else ""
    if event["do"] == "new":
        return [f"{name} = Runner()"]
    if event["do"] == "begin":
        return [f"{name}.begin_step()"]
    if event["do"] == "join":
        values = helpers.keywords(decoded(event["keywords"]))
        params = call("SamplingParams" if bare else "request", *keywords(values))
        arguments: list[Node] = [str(event["slot"]), params, literal(event["prompt"])]
        if event["outputs"]:
            arguments.append(literal(event["outputs"]))
        node = call(f"{name}.join", *arguments)
    elif event["do"] == "process":
        node = call(
            f"{name}.apply",
            helpers.rows({"rows": event["rows"]}),
            Named("slots=", literal(event["slots"])),
            Named("tokens=", literal(event["tokens"])),
            Named("positions=", literal(event["positions"])),
        )
    else:
        tokens = ", ".join(map(str, event["tokens"]))
        return [f"{name}.append({event['slot']}, {tokens})"]
    return laid_out(node, 0, before)
