# SPDX-License-Identifier: Apache-2.0
"""What torch refuses on a GPU is refused where one is pretended, and what it allows is not."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import yaml
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from conformance.logits.machine import looks
from conformance.logits.operations import COMPARED, DeviceError
from conformance.logits.pinning import DEVICE
from conformance.logits.places import Place
from conformance.logits.pretended import Accelerator, PretenceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class _Plugin:
    """Stands for a plugin whose code is this file."""


def _called(function: Callable[..., Any]) -> tuple[Accelerator, Any]:
    """Call a function as if it were a plugin's; return what it gave, and the accelerator."""
    accelerator = Accelerator(_Plugin)
    logits = torch.arange(32.0).view(4, 8)
    return accelerator, accelerator.call(function, logits)


def _host(*values: float) -> torch.Tensor:
    return torch.tensor(values)


def _index(*values: int) -> torch.Tensor:
    return torch.tensor(values)


#: What was there before any device was pretended.
_MADE_BEFORE = torch.zeros(8)

#: What raises on a GPU, and what torch's fake tensors say of it, which know no indexing on one.
REFUSED: dict[str, Callable[[torch.Tensor], Any]] = {
    "a bias is added": lambda x: x + torch.zeros(8),
    "a bias is added in place": lambda x: x.add_(torch.zeros(8)),
    "a bias of one element": lambda x: x * _host(2.0),
    "a row is changed": lambda x: x.view(32).__iadd__(torch.ones(32)),
    "the host comes first": lambda x: torch.zeros(8) - x,
    "a scalar of the device": lambda x: torch.zeros(8).mul_(x.max()),
    "a comparison": lambda x: torch.arange(8) == x,
    "a choice": lambda x: torch.where(torch.ones(8, dtype=torch.bool), x, 0.0),
    "a value of a choice": lambda x: torch.where(x > 0, x, torch.zeros(8)),
    "a mask": lambda x: x.masked_fill_(torch.ones(4, 8, dtype=torch.bool), 0.0),
    "a mask, out of place": lambda x: x.masked_fill(torch.ones(8, dtype=torch.bool), 0.0),
    "an index of gather": lambda x: x.gather(1, torch.zeros(4, 1, dtype=torch.long)),
    "an index of scatter": lambda x: x.scatter_(1, torch.zeros(4, 1, dtype=torch.long), 1.0),
    "a source of scatter": lambda x: x.scatter_(
        1, torch.zeros(4, 1, dtype=torch.long, device=x.device), torch.ones(4, 1)
    ),
    "an index of index_fill": lambda x: x.index_fill_(1, _index(1, 2), 0.0),
    "an index of index_select": lambda x: x.index_select(0, _index(1, 2)),
    "an index of take": lambda x: x.take(_index(1, 2)),
    "parts": lambda x: torch.cat([x, torch.zeros(1, 8)]),
    "a product": lambda x: x @ torch.zeros(8, 2),
    "what follows from the host": lambda x: x + torch.zeros(16)[:8].clone().unsqueeze(0) * 2,
    "what was moved away": lambda x: x + x.cpu(),
}

#: What raises on a GPU, and fake tensors cannot tell.
REFUSED_UNTOLD: dict[str, Callable[[torch.Tensor], Any]] = {
    "a table of the host": lambda x: torch.zeros(4)[
        torch.zeros(2, dtype=torch.long, device=x.device)
    ],
    "values that are written": lambda x: x.__setitem__((_index(0, 1), _index(0, 1)), _host(1, 2)),
    "an array": lambda x: x.numpy(),
    "an array of a row": lambda x: np.asarray(x[0]),
    "an array that is pinned": lambda x: torch.tensor(np.zeros(8), pin_memory=True).to(x.device),
    "a tensor that is pinned": lambda x: torch.tensor(torch.zeros(8), pin_memory=True).to(x),
    "what is there and pinned": lambda x: torch.zeros(8, device=x.device, pin_memory=True),
    "pinning what is there": lambda x: x.pin_memory(),
}

#: What a GPU allows, or nobody knows.
ALLOWED: dict[str, Callable[[torch.Tensor], Any]] = {
    "scalars of the host": lambda x: x * torch.tensor(2.0) + torch.where(x > 0, _host(1.0)[0], x),
    "indices of the host": lambda x: x[_index(0, 1)],
    "lists": lambda x: x[[0, 1], [2, 3]],
    "writing by indices of the host": lambda x: x.__setitem__(_index(0, 1), -torch.inf),
    "writing by a mask of the host": lambda x: x.__setitem__(x.cpu() > 3, 0.0),
    "one value of the host": lambda x: x.__setitem__((_index(0), _index(0)), _host(1.0)),
    "a row of the host": lambda x: x.__setitem__(0, torch.zeros(8)),
    "writing to a table of the host": lambda x: torch.zeros(9).__setitem__(x[0].long(), 1.0),
    "copies": lambda x: torch.zeros(4, 8).copy_(x) + torch.zeros(8),
    "numbers": lambda x: (x[0, 0].item(), x.tolist(), float(x.max()), int(x.argmax())),
    "an array of a copy": lambda x: x.cpu().numpy() + np.asarray(x.to("cpu")),
    "what is made there": lambda x: (
        x + torch.zeros(8, device=x.device) + torch.zeros(8, device=x.device)
    ),
    "what is made there by index": lambda x: x + torch.zeros(8, device=0),
    "what is moved": lambda x: (
        x + torch.zeros(8).to(x.device) + torch.zeros(8).to(x) + _host(1).cuda()
    ),
    "what is like it": lambda x: x + torch.zeros_like(x) + x.new_tensor([1.0] * 8) + x.new_ones(8),
    "pinned memory": lambda x: x + torch.zeros(8, pin_memory=True).pin_memory().to(x.device),
    "a pinned list": lambda x: x + torch.tensor([1.0] * 8, pin_memory=True).to(x.device),
    "a pinned array": lambda x: x + torch.from_numpy(np.zeros(8)).pin_memory().to(x.device),
    "a pinned list that is moved": lambda x: torch.tensor([1.0], device=x.device, pin_memory=True),
    "what nobody knows": lambda x: x + torch.zeros(8, device="cpu"),
    "a device that is asked for": lambda x: x + torch.zeros(8).to(_MADE_BEFORE.device),
    "what was there before": lambda x: x + _MADE_BEFORE,
    "what came from numpy": lambda x: x + torch.from_numpy(np.zeros(8, dtype=np.float32)),
    "a context": lambda x: x + _within(x.device),
    "a cast": lambda x: x.type("torch.DoubleTensor").numpy(),
    "functions in Python": lambda x: x + functional.one_hot(x[0].long(), 32)[:, :8].sum(0),
    "a module": lambda x: torch.nn.Linear(8, 8).to(x.device)(x),
    "empty tensors": lambda x: torch.cat([torch.zeros(0), x.flatten()]),
    "two of the host": lambda x: torch.zeros(x.shape[1]) + torch.ones(8),
    "sorting": lambda x: x.sort(dim=-1).values + x.topk(8).values + x.cumsum(-1).softmax(-1),
}

#: What a GPU refuses, and is let pass without one: these tensors could as well be there, or whether
#: they are refused depends on the release of torch.
UNKNOWN = (
    "empty tensors",
    "what nobody knows",
    "a device that is asked for",
    "what was there before",
    "what came from numpy",
)


def _within(device: torch.device) -> torch.Tensor:
    with device:
        return torch.zeros(8)


def test_refuses_where_vllm_pins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runner for CPUs puts a method in the place of torch's, and finds it there again."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    theirs = torch.Tensor.pin_memory

    with pytest.raises(PretenceError):
        _called(REFUSED_UNTOLD["pinning what is there"])

    assert torch.Tensor.pin_memory is theirs


@pytest.mark.parametrize("case", [*REFUSED, *REFUSED_UNTOLD])
def test_refuses(case: str) -> None:
    """An operation that torch refuses on a GPU raises, and says what torch would."""
    with pytest.raises(PretenceError) as raised:
        _called((REFUSED | REFUSED_UNTOLD)[case])

    assert isinstance(raised.value.refusal, DeviceError)


@pytest.mark.parametrize("case", ALLOWED)
def test_allows(case: str) -> None:
    """What torch allows on a GPU, or nobody can tell, raises nothing."""
    _called(ALLOWED[case])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")
@pytest.mark.filterwarnings("ignore:To copy construct from a tensor:UserWarning")
@pytest.mark.parametrize("case", [*REFUSED, *REFUSED_UNTOLD])
def test_a_gpu_refuses_the_same(case: str) -> None:
    """Torch raises on a GPU where it was said to."""
    with pytest.raises((RuntimeError, TypeError)):
        (REFUSED | REFUSED_UNTOLD)[case](torch.arange(32.0, device=DEVICE).view(4, 8))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")
@pytest.mark.parametrize("case", [case for case in ALLOWED if case not in UNKNOWN])
def test_a_gpu_allows_the_same(case: str) -> None:
    """Torch takes on a GPU what is not refused where one is pretended."""
    ALLOWED[case](torch.arange(32.0, device=DEVICE).view(4, 8))


@pytest.mark.parametrize("case", [case for case in REFUSED if case != "what was moved away"])
def test_torch_says_the_same(case: str) -> None:
    """Torch's own fake tensors of a GPU are refused, too."""
    if case in {"what was moved away", "what came from numpy"}:
        pytest.skip("fake tensors of a GPU cannot be moved without one")
    with FakeTensorMode():
        logits = torch.empty(4, 8, device=DEVICE)
        with pytest.raises(RuntimeError, match=r"on the same device|not on the expected device"):
            REFUSED[case](logits)


@pytest.mark.parametrize("name", sorted(COMPARED))
def test_wrappers_compare_devices(name: str) -> None:
    """No declaration of such an operation tells the generated wrapper not to look at devices."""
    source = files("torchgen").joinpath("packaged/ATen/native/native_functions.yaml")
    declared = {
        entry["func"].partition("(")[0]: entry for entry in yaml.safe_load(source.read_text())
    }
    mine = [entry for key, entry in declared.items() if key.partition(".")[0].rstrip("_") == name]

    assert mine
    assert all("device_check" not in entry for entry in mine)
    dispatched = " ".join(str(entry.get("dispatch", {}).keys()) for entry in mine)
    assert "CUDA" in dispatched or "structured_delegate" in str(mine)


def test_says_where_it_was_made() -> None:
    """The sentence names the call, the shape and the line of the plugin."""
    with pytest.raises(PretenceError) as raised:
        _called(REFUSED["a bias is added"])

    said = str(raised.value.refusal)
    assert said.startswith(
        "add() takes a tensor of the CPU (shape [8]), made in test_pretended.py:"
    )
    assert "found at least two devices, cuda:0 and cpu!" in said


def test_devices_are_as_on_a_gpu() -> None:
    """Tensors of the device say so; others do not."""
    _, said = _called(
        lambda x: (x.device, x.is_cuda, x.is_cpu, x[0].device == DEVICE, torch.zeros(2).device.type)
    )

    assert said == (DEVICE, True, False, True, "cpu")


def test_a_copy_on_the_device_is_another_tensor() -> None:
    """What is moved shares no memory with what stays, also where both are on the CPU."""

    def moved(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        here = torch.zeros(3)
        there = here.to(logits.device)
        here.fill_(1.0)
        return here, there

    accelerator, (here, there) = _called(moved)

    assert there.tolist() == [0.0, 0.0, 0.0]
    assert accelerator.places.of(there) is Place.DEVICE
    assert accelerator.places.of(here) is Place.HOST


def test_logits_of_the_host_are_noticed() -> None:
    """A result that was put together on the CPU is no result for a GPU."""
    assert _called(lambda x: torch.tensor(x.tolist()))[0].returned_host
    assert not _called(lambda x: x.clone())[0].returned_host


def test_code_of_others_is_left_alone() -> None:
    """Nobody knows on what a library decides where its tensors go."""

    class _Other:
        """Stands for a plugin of another file."""

    _Other.__module__ = "json"
    accelerator = Accelerator(_Other)
    accelerator.call(REFUSED["a bias is added"], torch.zeros(4, 8))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("on = device.type == 'cuda'", True),
        ("if torch.cuda.is_available(): pass", True),
        ("from vllm.platforms import current_platform", True),
        ("def f():\n    'On a GPU this raises.'\n    return states.total_len.gpu", False),
        ("bias = torch.zeros(8)  # not on cuda", False),
        ("this is no Python", True),
    ],
)
def test_knows_who_looks_at_the_machine(source: str, expected: bool, tmp_path: Path) -> None:
    """A plugin that asks what it runs on may do something else there; comments do not count."""
    path = tmp_path / "plugin.py"
    path.write_text(source, encoding="utf-8")

    assert looks(str(path)) is expected
