# SPDX-License-Identifier: Apache-2.0
"""A failure of an IO processor comes with a program that shows it, or says that it has none."""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from lines_plugin import Fault, failing
from programs import ALLOWED, execute, execute_apart, has_one, imported
from support import of_configurations

from conformance.counterexample import io_crowd_player, io_player, program
from conformance.generations import named
from conformance.running.replay import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

#: The statements of the correct plugin that faults stand in, or beside.
INIT = "        self.names = {}\n"
PARSE = 'lines = data.get("lines") if isinstance(data, dict) else None\n'
REFUSE = 'raise ValueError("a line must not hold what is forbidden")'
PARAMS = "PoolingParams() if params is None else params"
PRE = "        return list(prompt)\n"
POST = '        return {"firsts": [output.outputs.data[0].item() for output in model_output]}\n'
ANSWER = '{"firsts"'

AWAITED = "\n    async def post_process_async(self, model_output, request_id=None, **kwargs):\n"
SORTED = """\
        pairs = sorted([pair async for pair in model_output], key=lambda pair: pair[0])
        return self.post_process([output for _, output in pairs], request_id=request_id)
"""
MEETING = """\
        pairs = sorted([pair async for pair in model_output], key=lambda pair: pair[0])
        self.outputs = [output for _, output in pairs]
        await asyncio.sleep(0.002)
        return self.post_process(self.outputs, request_id=request_id)
"""
SHIELDED = """\
        return await asyncio.shield(self.finish(model_output, request_id))

    async def finish(self, model_output, request_id):
"""
SWALLOWING = """\
        found = {}
        try:
            async for number, output in model_output:
                found[number] = output
        except RuntimeError:
            pass
        return self.post_process([found[number] for number in sorted(found)])
"""
UNSORTED = """\
        found = [output async for _, output in model_output]
        return self.post_process(found, request_id=request_id)
"""
HANDLING = """\
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
"""
SWEEPING = """\
        now = time.monotonic()
        while self.names and now - next(iter(self.names.values())) > 3000:
            del self.names[next(iter(self.names))]
        self.names[request_id] = now
"""
BUSY = """\
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            pass
"""
ON_SELF = """\
        self.found = []
        for output in model_output:
            self.found.append(output.outputs.data[0].item())
        return {"firsts": self.found}
"""
ONE_PROMPT = "        topic = self.names.setdefault('topic', {'prompt_token_ids': [5, 6, 7]})\n"
TOGETHER = "        return [topic, *prompt]\n"
UNPADDED = "        assert model_output[0].prompt_token_ids[-1] != 2  # with which vLLM pads\n"
COUNTED = "        self.names['count'] = self.names.get('count', 0) + len(model_output)\n"
LATE = "        if 'bad' in self.names:\n            raise ValueError('late')\n"
FORMS = 'getattr(request, "data", request)'
TWO_FORMS = 'request["data"] if isinstance(request, dict) else request.data'
DEPTH = """
    def depth(self, data):
        return 1 + max(map(self.depth, data), default=0) if isinstance(data, list) else 0
"""
CONSTRUCTOR = """\
    def __init__(self, vllm_config, renderer=None):
        super().__init__(vllm_config, renderer)
"""


def _before(statement: str, new: str) -> tuple[str, str]:
    """Return a change that puts statements before another one."""
    return statement, new + statement


def _keeping(kept: str, told: str) -> tuple[tuple[str, str], ...]:
    """Return a change of both sides: what ``pre_process`` keeps, and what is answered."""
    return _before(PRE, f"        {kept} = prompt\n"), (ANSWER, f'{{"lines": {told}, "firsts"')


#: A fault for each rule, or for each way in which its program is written; and how its program says
#: that it is gone.
FAULTS = {
    "raises-in-second": Fault(
        "IO-02", ((INIT, "        assert 'made' not in vars(Lines)\n        Lines.made = 1\n"),)
    ),
    "changes-configuration": Fault(
        "IO-02", (_before(INIT, "        vllm_config.model_config.max_model_len -= 1\n"),)
    ),
    "takes-no-renderer": Fault(
        "IO-03",
        ((CONSTRUCTOR, CONSTRUCTOR.replace(", renderer=None", "").replace(", renderer", "")),),
        documented=True,
    ),
    "needs-id": Fault("IO-05", (("prompt, request_id=None", "prompt, request_id"),)),
    "cannot-be-awaited": Fault("IO-06", (), AWAITED.replace("async ", "", 1) + "        pass\n"),
    "answers-nobody": Fault("IO-07", (_before(PRE, "        self.names['option']\n"),)),
    "answers-nobody-offline": Fault("IO-07", (_before(PRE, "        request_id.split()\n"),)),
    "takes-what-is-forbidden": Fault("IO-08", ((REFUSE, "pass"),)),
    "raises-key-error": Fault("IO-09", ((PARSE, 'lines = data["lines"]\n'),)),
    "expects-no-padding": Fault("IO-09", (_before(POST, UNPADDED),)),
    "refuses-late": Fault("IO-10", ((REFUSE, "self.names['bad'] = 1"), _before(POST, LATE))),
    "pops-data": Fault("IO-11", (('data.get("lines")', 'data.pop("lines", None)'),)),
    "knows-two-forms": Fault("IO-12", ((FORMS, TWO_FORMS),), documented=True),
    "gives-documents": Fault("IO-13", ((PRE, "        return [{'document': prompt[0]}]\n"),)),
    "returns-no-params": Fault("IO-14", (("return params\n", "return None\n"),)),
    "drops-params": Fault("IO-15", ((PARAMS, "PoolingParams()"),)),
    "shares-params": Fault(
        "IO-16", ((PARAMS, "params or self.names.setdefault('params', PoolingParams())"),)
    ),
    "takes-outputs-as-they-come": Fault("IO-17", (), AWAITED + UNSORTED),
    "answers-otherwise-when-awaited": Fault(
        "IO-18", (), AWAITED + "        return [pair[0] async for pair in model_output]\n"
    ),
    "skips-last": Fault("IO-19", (("in model_output]", "in model_output[:-1]]"),)),
    "swallows-errors": Fault("IO-20", (), AWAITED + SWALLOWING),
    "doubles-outputs": Fault("IO-21", (("outputs.data[0]", "outputs.data.mul_(2)[0]"),)),
    "answers-tensors": Fault("IO-22", (("data[0].item()", "data[0]"),)),
    "returns-bare-data": Fault(
        "IO-23", (("IOProcessorResponse(data=plugin_output)", "plugin_output"),), documented=True
    ),
    "tells-the-time": Fault("IO-24", ((ANSWER, '{"time": time.time_ns(), "firsts"'),)),
    "knows-offline": Fault("IO-25", ((ANSWER, '{"offline": request_id is None, "firsts"'),)),
    "counts-outputs": Fault(
        "IO-26", (_before(POST, COUNTED), (ANSWER, '{"count": self.names["count"], "firsts"'))
    ),
    "hands-out-one-prompt": Fault("IO-26", (_before(PRE, ONE_PROMPT), (PRE, TOGETHER))),
    "keeps-lines-on-self": Fault("IO-27", _keeping("self.lines", "self.lines")),
    "keeps-lines-on-self-documented": Fault(
        "IO-27", _keeping("self.lines", "self.lines"), documented=True
    ),
    "keeps-outputs-while-it-waits": Fault("IO-27", (), AWAITED + MEETING),
    "keeps-lines-by-id": Fault(
        "IO-28", _keeping("self.names[request_id]", "self.names.pop(request_id, None)")
    ),
    "keeps-offline-lines": Fault(
        "IO-29",
        (
            _before(PRE, "        self.names.setdefault(request_id, prompt)\n"),
            (ANSWER, '{"lines": request_id is None and self.names[None], "firsts"'),
        ),
    ),
    "remembers-refusals": Fault(
        "IO-30",
        (
            (REFUSE, f"self.names['bad'] = 1\n            {REFUSE}"),
            (ANSWER, '{"bad": self.names.pop("bad", 0), "firsts"'),
        ),
    ),
    "keeps-lines-in-thread": Fault(
        "IO-31",
        (
            _before(INIT, "        self.mine = threading.local()\n"),
            *_keeping("self.mine.lines", "self.mine.lines"),
        ),
    ),
    "gathers-on-self": Fault("IO-31", ((POST, ON_SELF),)),
    "sleeps": Fault("IO-32", (_before(PRE, "        time.sleep(0.2)\n"),)),
    "works": Fault("IO-33", (_before(PRE, BUSY),)),
    "shields-its-work": Fault("IO-34", (), AWAITED + SHIELDED + SORTED),
    "keeps-outputs": Fault(
        "IO-35",
        (_before(POST, "        self.names.setdefault('all', []).append(model_output[0])\n"),),
    ),
    "seeds-when-loaded": Fault("IO-39", (_before(INIT, "        torch.manual_seed(0)\n"),)),
    "seeds-when-loaded-documented": Fault(
        "IO-39", (_before(INIT, "        torch.manual_seed(0)\n"),), documented=True
    ),
    "seeds-in-every-request": Fault("IO-39", (_before(POST, "        torch.manual_seed(0)\n"),)),
    "computes-in-double": Fault(
        "IO-39", (_before(PRE, "        torch.set_default_dtype(torch.float64)\n"),)
    ),
    "computes-on-one-thread": Fault(
        "IO-42", (_before(PRE, "        torch.set_num_threads(1)\n"),), documented=True
    ),
    "handles-errors-of-the-loop": Fault("IO-42", (), AWAITED + HANDLING + SORTED),
    "keeps-every-answer": Fault(
        "IO-35",
        (_before(POST, "        self.names[tuple(model_output[0].prompt_token_ids)] = 1\n"),),
    ),
    "leaves-task-to-callers": Fault(
        "IO-43",
        (
            (PARAMS, 'params or PoolingParams(task="embed")'),
            ('        params.task = "embed"\n', ""),
        ),
    ),
    "forgets-what-is-old": Fault("IO-44", (_before(PRE, SWEEPING),)),
    "keeps-what-was-begun": Fault("IO-36", (_before(PRE, "        self.names[request_id] = 1\n"),)),
}

#: Something for each argument of the functions that play cases.
CASES = {
    "hook": "post_process_async",
    "data": [{"text": "a"}],
    "other": "b",
    "request_id": None,
    "hidden": ["answer['time']"],
    "asked": {"dimensions": 8},
    "place": 0,
    "count": 1_024,
    "requests": {"A": [{"lines": ["red" * 40, "green" * 40]}, "id-0"]},
    "events": [["arrive", "A"], ["deliver", "A", 1], ["deliver", "A", 0]],
    "judged": ["A"],
    "reusing": True,
    "failing": True,
    "what": "waited",
    "limit": 0.1,
    "awaited": False,
    "changed": [0, "text"],
    "beside": {"truncate_prompt_tokens": 1},
    "answered": True,
    "alike": True,
    "wanted": {"lines": 1},
    "names": ["torch", "logging.disable()"],
}

#: Rules without programs; ``io_processor.demonstrations`` says why.
WITHOUT = {"IO-01", "IO-04", "IO-37", "IO-38"}

#: Rules whose programs other tests run: ``test_io_meaning``.
ELSEWHERE = {"IO-40"}


def test_every_rule_has_a_program_or_is_named() -> None:
    """A rule that joins the catalogue needs a program, or a word about why there is none."""
    rules = {rule.id for name in ("io/data", "io/request") for rule in named(name).rules}

    shown = {fault.rule for fault in FAULTS.values()} | (of_configurations() & rules)

    assert shown | WITHOUT | ELSEWHERE == rules


@pytest.mark.gallery
@pytest.mark.parametrize("name", FAULTS)
def test_a_program_shows_what_was_found(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """It fails for the plugin, and with a correct one in its place it says that the fault is gone.

    It imports nothing of this harness.
    """
    case = failing(zygote, FAULTS[name], tmp_path)
    assert has_one(case.result), f"no scene in demonstrations.py shows this: {case.result.message}"
    source = case.program.read_text(encoding="utf-8")
    assert imported(source) <= ALLOWED | {"lines"}
    lines = [line for line in source.splitlines() if "/" not in line]
    assert max(map(len, lines)) <= 100

    status, said = execute(zygote, case.program)
    assert status == 1, said
    assert "FAILS: " in said
    assert "expected" in said

    case.mend()
    status, said = execute(zygote, case.program)
    assert status == 0, said
    assert said.splitlines()[-1].startswith("OK: ")


def test_an_awaited_hook_is_repaired_by_a_future(zygote: Zygote, tmp_path: Path) -> None:
    """The program of IO-06 goes by what the hook returns, as vLLM does."""
    case = failing(zygote, FAULTS["cannot-be-awaited"], tmp_path)
    ordinary = AWAITED.replace("async ", "", 1)
    returned = "        return asyncio.ensure_future(self.finish(model_output, request_id))\n"
    finish = "\n    async def finish(self, model_output, request_id):\n" + SORTED

    case.plugin.write_text(case.correct + ordinary + returned + finish, "utf-8")
    status, said = execute(zygote, case.program)

    assert status == 0, said
    assert case.replay()[0] is Outcome.FIXED


def test_a_program_about_order_shows_two_outputs(zygote: Zygote, tmp_path: Path) -> None:
    """Of the three lines that the profile has, two are enough, and they change places."""
    profile = '[io-processor]\nvalid = [ { lines = ["red", "green", "blue"] } ]\n'
    case = failing(zygote, FAULTS["takes-outputs-as-they-come"], tmp_path, profile=profile)
    found = case.result.counterexample
    assert found is not None
    source = case.program.read_text(encoding="utf-8")

    assert found["moves"] == [["arrives", 0, 0], *([["output delivered", 0, n] for n in (1, 0)])]
    assert found["requests"][0]["data"] == {"lines": ["red", "green"]}
    assert '("deliver", "A", 1), ("deliver", "A", 0)]' in source
    assert execute(zygote, case.program)[0] == 1


def test_a_program_leaves_out_what_always_differs(zygote: Zygote, tmp_path: Path) -> None:
    """Where answers hold the time of day, a program compares the rest of them."""
    counts, timed = FAULTS["counts-outputs"], ('{"count"', '{"time": time.time_ns(), "count"')
    case = failing(zygote, Fault(counts.rule, (*counts.changes, timed)), tmp_path)

    status, said = execute(zygote, case.program)
    assert status == 1, said
    assert "answer['count']: got 3, expected " in said

    case.plugin.write_text(
        case.correct.replace(ANSWER, '{"time": time.time_ns(), "count": 1, "firsts"'), "utf-8"
    )
    status, said = execute(zygote, case.program)
    assert status == 0, said


@pytest.mark.usefixtures("shared_zygote")
def test_what_a_program_does_not_show_has_none(zygote: Zygote, tmp_path: Path) -> None:
    """A list that is too deep for Python to copy; its check shows it again."""
    deep = Fault("IO-09", ((PARSE, f"{PARSE}        self.depth(lines)\n"),), DEPTH)
    case = failing(zygote, deep, tmp_path)

    assert not has_one(case.result)
    assert not case.program.exists()
    assert case.replay()[0] is Outcome.STILL_FAILS


#: The functions that play cases.
PLAYED = {
    name.removeprefix("check_"): function
    for player in (io_player, io_crowd_player)
    for name, function in vars(player).items()
    if name.startswith("check_")
}


@pytest.mark.parametrize("generation", ["io/data", "io/request"])
@pytest.mark.parametrize("name", PLAYED)
def test_every_program_is_python_of_100_columns(name: str, generation: str) -> None:
    """Whatever its case holds: no more than the function takes."""
    _, *taken = inspect.signature(PLAYED[name]).parameters
    shown = {"is": name, "model": "m", **{key: CASES[key] for key in taken}}
    source = program(_case(shown, generation))

    assert max(map(len, source.splitlines())) <= 100
    assert imported(source) <= ALLOWED | {"lines"}
    compile(source, name, "exec")


def _case(shown: dict[str, Any], generation: str) -> dict[str, Any]:
    """Return a case document with a program that is made of this."""
    return {
        "rule": "IO-09",
        "generation": generation,
        "target": "lines:Lines",
        "plugin": {"module": "lines", "qualname": "Lines", "root": None},
        "counterexample": {"program": shown},
    }


def test_data_are_written_as_they_are() -> None:
    """Texts with a dollar, braces or half of a surrogate pair, and what is repeated."""
    data = {"a $new": ["$data {x}", {"!type": "str", "value": "\\ud800"}], "long": "x" * 500}
    case = _case({"is": "hostile", "data": data, "model": "m"}, "io/data")
    last = next(
        node for node in ast.parse(program(case)).body[::-1] if isinstance(node, ast.Assign)
    )
    (written,) = (
        node.value
        for node in ast.walk(last)
        if isinstance(node, ast.keyword) and node.arg == "data"
    )

    assert eval(ast.unparse(written)) == {"a $new": ["$data {x}", "\ud800"], "long": "x" * 500}  # noqa: S307 - the literal under test


@pytest.mark.parametrize("name", ["keeps-lines-on-self", "returns-bare-data"])
def test_a_program_needs_nothing_but_python(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """``python program.py`` in an empty folder: it fails, and with a correct plugin it does not."""
    case = failing(zygote, FAULTS[name], tmp_path)

    broken = execute_apart(case.program)
    case.mend()
    fixed = execute_apart(case.program)

    assert broken.returncode == 1, broken.stderr
    assert "FAILS: " in broken.stdout
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    assert fixed.stdout.splitlines()[-1].startswith("OK: ")
