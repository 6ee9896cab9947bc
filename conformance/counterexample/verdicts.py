# SPDX-License-Identifier: Apache-2.0
"""How the programs of counterexamples end: what was got, what was expected, the exit status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from conformance.counterexample.source import decoded, flat, literal

Call = dict[str, Any]

_CALLED = {
    "new": "making an instance",
    "load": "vLLM's loader",
    "validate": "validate_params",
    "claim": "is_argmax_invariant()",
    "apply": "apply(logits)",
    "update": "update_state(batch_update)",
    "join": "add_request(req_idx, sampling_params)",
    "begin": "apply_staged_writes()",
    "process": "apply(logits, ctx)",
}

#: The last call, where it must not raise.
_RAISES_NOTHING = """\
except (Exception, SystemExit) as error:
    traceback.print_exc()
    print(f"FAILS: $called raised {type(error).__name__}: {error}")
    print("expected: it raises nothing$why")
    sys.exit(1)
"""

#: The last call, where it must raise.
_REFUSES = """\
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
"""

_HANGING = """\
print("calling $called; expected: it returns")
sys.stdout.flush()
faulthandler.dump_traceback_later(20, exit=True)  # shows where it is, and exits with status 1
"""

_DIFFERENT = """\
if wrong:
    print("FAILS: $whose $fails")
    for token in wrong[:8]:
        print(f"  token {token}: got {got[token]:.6g}, expected {expected[token]:.6g}")
    print(f"  ({len(wrong)} of {len(got)} tokens differ)")
    sys.exit(1)
print("OK: $whose $holds")
"""

_SAME = (
    """\
got, expected = $got, $expected
close = torch.isclose(got, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
wrong = (~close).nonzero().flatten().tolist()
"""
    + _DIFFERENT
)

_ALL_SAME = """\
close = torch.isclose($got, $expected, rtol=1e-4, atol=1e-4, equal_nan=True)
wrong = (~close).nonzero().tolist()
if wrong:
    print("FAILS: rows differ with how the logits lie in memory")
    for row, token in wrong[:8]:
        print(f"  row {row}, token {token}: got {$got[row, token]:.6g}", end=", ")
        print(f"expected {$expected[row, token]:.6g}")
    sys.exit(1)
print("OK: the same rows, however the logits lie in memory")
"""

_UNCHANGED = (
    """\
got, expected = $got, $given
wrong = (got != expected).nonzero().flatten().tolist()
"""
    + _DIFFERENT
)

#: The state of each global random generator, as an expression.
STATES = {
    "torch": "torch.random.get_rng_state().tolist()",
    "random": "random.getstate()",
    "numpy.random": 'str(sys.modules["numpy"].random.get_state())',
}

_ENDINGS = {
    "same": _SAME,
    "unchanged": _UNCHANGED,
    "means": """\
got = $got
expected = $tokens
near = {"rtol": $rtol, "atol": $rtol}
wrong = [
    token
    for token, value in expected.items()
    if not torch.isclose(got[token].float(), torch.tensor(value), **near)
]
if wrong:
    print("FAILS: $whose is not what $function returns")
    for token in wrong:
        print(f"  token {token}: got {got[token]:.6g}, expected {expected[token]:.6g}")
    sys.exit(1)
print("OK: $whose is what $function returns, for the tokens shown")
""",
    "returns": """\
print("OK: $called returned")
""",
    "raises-nothing": """\
print("OK: $called raised nothing")
""",
    "refuses": "",
    "other": """\
got, taken, given = $got, $taken, $given
last = len(got) - 1
if torch.equal(got, taken) and got[last] != given[last]:
    print(f"FAILS: $whose takes -1 for token {last}, the last one of the vocabulary")
    print(f"  token {last}: got {got[last]:.6g}, as where it is said; given {given[last]:.6g}")
    print("expected: another row; -1 stands for a token that is not known yet")
    sys.exit(1)
print("OK: $whose does not take -1 for the last token of the vocabulary")
""",
    "nan": """\
wrong = $got.isnan().nonzero().flatten().tolist()
if wrong:
    print(f"FAILS: $whose holds NaN for {len(wrong)} tokens: {wrong[:8]}")
    print("expected: numbers, or -inf for tokens that must not be sampled")
    sys.exit(1)
print("OK: $whose holds no NaN")
""",
    "infinite": """\
wrong = $got.isposinf().nonzero().flatten().tolist()
if wrong:
    print(f"FAILS: $whose holds +inf for {len(wrong)} tokens: {wrong[:8]}")
    print("expected: numbers, or -inf for tokens that must not be sampled")
    sys.exit(1)
print("OK: $whose holds no +inf")
""",
    "no-token": """\
if $got.isneginf().all():
    print("FAILS: $whose is -inf for every token")
    print("expected: at least one token that can be sampled")
    sys.exit(1)
print("OK: a token can be sampled from $whose")
""",
    "shape": """\
expected = (list($given.shape), torch.float32, torch.device("cpu"))
got = type(result).__name__
if isinstance(result, torch.Tensor):
    got = (list(result.shape), result.dtype, result.device)
    if any(size > 1 and not step for size, step in zip(result.shape, result.stride())):
        got = "an expanded tensor, to whose rows nothing can write"
if got != expected:
    print(f"FAILS: apply returned {got}")
    print(f"expected: a tensor like the logits it was given, {expected}")
    sys.exit(1)
print("OK: apply returned a tensor like the logits it was given")
""",
    "kept-list": """\
expected = $value
if $name != expected:
    print(f"FAILS: the plugin wrote to $name: {$name}")
    print(f"expected: {expected}, as the engine left it")
    sys.exit(1)
print("OK: $name is as the engine left it")
""",
    "kept": """\
expected = $value
if $name != expected:
    print(f"FAILS: the plugin wrote to $name: {$name}")
    print(f"expected: {expected}")
    sys.exit(1)
print("OK: $name is as it was")
""",
    "only-read": """\
if (kept != $name).any():
    print("FAILS: the plugin wrote to $what")
    print("expected: it only reads there")
    sys.exit(1)
print("OK: $what is as it was")
""",
    "parameters": """\
if params.extra_args != kept.extra_args:
    print(f"FAILS: the plugin wrote to extra_args: {params.extra_args}")
    print(f"expected: {kept.extra_args}, as the client sent it")
    sys.exit(1)
print("OK: extra_args are as the client sent them")
""",
    "bool": """\
if not isinstance(claim, bool):
    print(f"FAILS: is_argmax_invariant() returned {claim!r}")
    print("expected: True or False")
    sys.exit(1)
print(f"OK: is_argmax_invariant() returned {claim}")
""",
    "nothing": """\
if returned is not None:
    print(f"FAILS: validate_params returned {returned!r}")
    print("expected: None; vLLM drops what it returns")
    sys.exit(1)
print("OK: validate_params returned nothing")
""",
    "answer": """\
if not isinstance(answer, bool | np.bool_):
    print(f"FAILS: add_request returned {answer!r}")
    print("expected: True or False")
    sys.exit(1)
print(f"OK: add_request returned {answer}")
""",
    "declined": """\
if answer:
    print("FAILS: add_request returned True for a request whose rows the plugin never changes")
    print("expected: False; every batch with such a request is processed for nothing")
    sys.exit(1)
print("OK: add_request returned False")
""",
    "claims": """\
if claim != first_claim:
    print(f"FAILS: is_argmax_invariant() returned {claim!r}")
    print(f"expected: {first_claim!r}, as the first time")
    sys.exit(1)
print(f"OK: is_argmax_invariant() returned {claim!r} both times")
""",
    "masked": """\
again = (logits.isneginf() & ~result.isneginf())[0].nonzero().flatten().tolist()
if again:
    print(f"FAILS: {len(again)} tokens that were masked are so no more")
    for token in again[:8]:
        print(f"  token {token}: got {result[0, token]:.6g}, expected -inf")
    sys.exit(1)
print("OK: what was masked is masked")
""",
    "argmax": """\
before, after = $given[0], result[0]
best, other = int(before.argmax()), int(after.argmax())
chances = before.softmax(-1)
# A rounding step that no probability shows makes no other token.
near = before[best] != before[other] and chances[best] == chances[other]
if after[best] < after[other] and not near:
    print(f"FAILS: token {other} is the highest ({before[other]:.6g} -> {after[other]:.6g})")
    print(f"expected: token {best} ({before[best]:.6g} -> {after[best]:.6g}), as before, since")
    print("is_argmax_invariant() returns True, and greedy requests are served without the plugin")
    sys.exit(1)
print(f"OK: token {best} is the highest, before and after")
""",
    "undrawn": """\
if $state != state:
    print("FAILS: the plugin drew from the global random generator of $generator")
    print("expected: its state is what it was; other requests draw from it, too")
    sys.exit(1)
print("OK: the global random generator of $generator is as it was")
""",
    "follows": """\
given = torch.equal(given_a, given_b)
grown = torch.equal(grown_a, grown_b)
if grown and not given:
    print("FAILS: the same rows for two different outputs that have grown since the request joined")
    print("expected: different rows, as for requests that join with these outputs")
    sys.exit(1)
print("OK: the rows follow the outputs")
""",
    "acts": """\
if not any(changes):
    print(f"FAILS: none of {len(changes)} rows was changed")
    print("expected: a request with these parameters gets a changed row")
    sys.exit(1)
print(f"OK: {sum(changes)} of {len(changes)} rows were changed")
""",
}


def called(entry: Call) -> str:
    """Return what a call is in a sentence."""
    if entry["do"] == "update" and entry["update"] is None:
        return "update_state(None)"
    return _CALLED[entry["do"]]


def hanging(entry: Call) -> list[str]:
    """Return the statements before a call that does not come back."""
    return Template(_HANGING).substitute(called=called(entry)).splitlines()


def handlers(expect: Mapping[str, Any], entry: Call) -> list[str]:
    """Return the ``except`` clauses around the last call."""
    text = _REFUSES if expect["is"] == "refuses" else _RAISES_NOTHING
    why = "; the request is a valid one" if entry["do"] == "validate" else ""
    return Template(text).safe_substitute(called=called(entry), why=why).splitlines()


def mask(masked: Sequence[Any]) -> str:
    """Return the statement that says which tokens a grammar has masked."""
    tokens, *span = masked
    listed = f"[*{tokens}, *range({', '.join(map(str, span))})]" if span else f"{tokens}"
    return f"MASKED = {listed}"


def filled(kind: str, words: Mapping[str, str]) -> list[str]:
    """Return the statements at the end of a program, with these words in them."""
    return Template(_ENDINGS[kind]).substitute(words).splitlines()


def meant(expect: Mapping[str, Any]) -> dict[str, str]:
    """Return the words for a row that is to be what the author's function returns."""
    rounded = ((token, float(f"{decoded(value):.6g}")) for token, value in expect["tokens"])
    tokens = ", ".join(f"{token}: {flat(literal(value))}" for token, value in rounded)
    return {
        "tokens": f"{{{tokens}}}",
        "function": expect["function"],
        "rtol": f"{expect['rtol']:g}",
    }


def _more(expect: Mapping[str, Any]) -> dict[str, str]:
    """Return the words that one kind of expectation alone has."""
    if expect["is"] == "means":
        return meant(expect)
    if "generator" in expect:
        return {"generator": expect["generator"], "state": STATES[expect["generator"]]}
    return {}


def ending(expect: Mapping[str, Any], calls: Sequence[Call] = (), value: str = "") -> list[str]:
    """Return the statements at the end of a program.

    Args:
        expect: what the calls must lead to.
        calls: the calls, with the expressions of logits in ``given``.
        value: for what the plugin must not write to: what it was, as an expression.

    """
    kind = expect["is"]
    last = called(calls[-1]) if calls else ""
    words = {"called": last, "value": value, "name": expect.get("name", "")}
    given = [entry["given"] for entry in calls if entry.get("to") == "result" and "given" in entry]
    words["given"] = given[0].removesuffix(".clone()") if given else ""
    if kind == "same" and expect["got"][1] is None:
        words |= {"got": expect["got"][0], "expected": expect["expected"][0]}
        return Template(_ALL_SAME).substitute(words).splitlines()
    words |= _more(expect)
    if "got" in expect:
        variable, row = expect["got"]
        words |= {"got": f"{variable}[{row}]", "whose": f"row {row}"}
        if expect.get("request"):
            words["whose"] += f" (request {expect['request']})"
        if kind == "other":
            words["taken"] = "{}[{}]".format(*expect["taken"])
            words["given"] += f"[{row}]"
        if kind == "unchanged":
            words |= {"fails": "was changed, though it did not opt in", "holds": "is unchanged"}
            words["given"] += f"[{row}]"
    if kind == "same":
        variable, row = expect["expected"]
        words |= {"fails": "is not the same again", "holds": "is the same again"}
        if expect.get("request"):
            words |= {"fails": "is not what it gets alone", "holds": "is what it gets alone"}
        words["expected"] = f"{variable}[{row}]"
    if kind == "kept" and not expect["name"].startswith("params"):
        kind = "kept-list"
    return filled(kind, words)
