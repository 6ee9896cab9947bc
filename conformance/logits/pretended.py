# SPDX-License-Identifier: Apache-2.0
"""An accelerator that is pretended: real tensors of the CPU, of which some count as the GPU's.

On a machine without a GPU, a tensor that was made on the CPU by mistake is used together with the
logits, and nothing happens; on a GPU torch raises, which ends the engine.  Here every tensor is on
the CPU and has a *place*:

- the GPU: the engine's tensors, what is made with ``device=`` the GPU, and what follows from them;
- the host: what the plugin's own code makes without a device, and what follows from that alone;
- unknown: everything else, above all what is made with ``device="cpu"``, since the plugin may have
  asked for the machine's device and got this answer.

Only what torch is certain to refuse is an error: an operation of the plugin's own code on a tensor
of the GPU and one of the host that has dimensions, see :mod:`conformance.logits.operations`, and
memory that it does not pin.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import attrs
import torch
from torch.overrides import TorchFunctionMode

from conformance.logits import machine, pinning
from conformance.logits.calls import Observer, observed
from conformance.logits.operations import DeviceError, Operations
from conformance.logits.pinning import DEVICE
from conformance.logits.places import Place, Places, address, addresses, extended, tensors

_TORCH = str(Path(torch.__file__).parent) + os.sep

#: How far back in a chain of exceptions is looked.
_MOST_CAUSES = 8


class PretenceError(Exception):
    """A call raised while an accelerator was pretended."""

    def __init__(self, error: BaseException) -> None:
        super().__init__("a call raised on an accelerator that is only pretended")
        self.error = error

    @property
    def refusal(self) -> DeviceError | None:
        """What torch would have raised on a GPU, if that is why; None if that is not known."""
        found: BaseException | None = self.error
        for _ in range(_MOST_CAUSES):
            if isinstance(found, DeviceError):
                return found
            if found is None:
                break
            found = found.__cause__ or found.__context__
        return None


_NUMPY = (
    "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
    "host memory first."
)


class _Calls(TorchFunctionMode):
    """Answers what the plugin asks of torch by name: devices, moves, what is made where."""

    def __init__(self, operations: Operations, own: Callable[[str], bool]) -> None:
        super().__init__()
        self.operations = operations
        self.places = operations.places
        self._own = own

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401 - as torch declares it
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        del types
        kwargs = dict(kwargs or {})
        caller = self._caller()
        if func in _ANSWERS and self.places.of(args[0]) is Place.DEVICE:
            return _ANSWERS[func]
        name = getattr(func, "__name__", "")
        if func in _SPECIAL:
            return self._special(func, args, kwargs, caller)
        where = kwargs.get("device")
        # There is nothing to pin for, but torch does not pin everything.
        if kwargs.pop("pin_memory", None) and caller is not None:
            pinning.check(func, args, kwargs)
        if where is not None:
            return self._placed(func, args, kwargs, where)
        made = func in pinning.MAKING
        # Functions of torch that are written in Python move tensors by what they see.
        loud = caller is not None and not isinstance(func, _WRITTEN_IN_PYTHON)
        before = self.operations.caller
        self.operations.caller = f"{name}()" if loud else None
        try:
            result = func(*args, **kwargs)
        finally:
            self.operations.caller = before
        if isinstance(func, _WRITTEN_IN_PYTHON):
            self._doubt(args, kwargs, result)
        elif made:
            self._note_made(args, kwargs, result, caller)
        elif func is torch.Tensor.new_tensor:
            self.places.put(result, self.places.of(args[0]), self.places.made(args[0]))
        return result

    def _special(
        self,
        func: Any,  # noqa: ANN401 - one of torch's functions
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        caller: FrameType | None,
    ) -> object:
        """Return what a function gives that is about places, or about arrays."""
        if func in _ARRAYS:
            return self._array(func, args, kwargs, caller)
        if func in _MOVES:
            return self._moved(func, args, kwargs)
        if func is _PIN:
            if self.places.of(args[0]) is Place.DEVICE and caller is not None:
                raise DeviceError(
                    "pin_memory() is asked of a tensor of the GPU", None, pinning.REFUSED
                )
            result = args[0].clone()
            self.places.put(result, self.places.of(args[0]), self.places.made(args[0]))
            return result
        # Names of types say where, too.
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor):
            result = result.clone()
            self.places.put(result, None)
        return result

    def _caller(self) -> FrameType | None:
        """Return the frame that calls torch, if it is of the plugin's own code."""
        frame = _outside()
        return frame if frame and self._own(frame.f_code.co_filename) else None

    def _array(
        self,
        func: Any,  # noqa: ANN401 - one of torch's functions
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        caller: FrameType | None,
    ) -> object:
        """Return a tensor as an array: torch refuses one that is on a GPU."""
        on_device = self.places.of(args[0]) is Place.DEVICE
        if on_device and caller is not None and not kwargs.get("force"):
            shape = list(args[0].shape)
            said = f"{func.__name__}() is asked of a tensor of the GPU (shape {shape})"
            raise DeviceError(said, None, _NUMPY)
        return func(*args, **kwargs)

    def _moved(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:  # noqa: ANN401 - torch's own
        """Return a tensor where it is asked for: a copy, unless it is there."""
        tensor, *rest = args
        place, made, target = self._target(func, rest, kwargs)
        if target is None:
            return func(*args, **kwargs)
        rest = [torch.device("cpu") if value is target else value for value in rest]
        kwargs = {
            key: torch.device("cpu") if value is target else value for key, value in kwargs.items()
        }
        kwargs = {key: value for key, value in kwargs.items() if key != "non_blocking"}
        if func is not torch.Tensor.to:
            rest = [torch.device("cpu")]
            kwargs.pop("device", None)
        elif isinstance(target, torch.Tensor):
            rest = [torch.device("cpu"), target.dtype, *rest[1:]]
            kwargs.pop("other", None)
        there = place is not None and self.places.of(tensor) is place
        result = torch.Tensor.to(tensor, *rest, **kwargs)
        same = address(result) == address(tensor)
        if there and same:
            return result
        if same:
            result = result.clone()
        self.places.put(result, place, made)
        return result

    def _target(
        self,
        func: object,
        rest: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> tuple[Place | None, str | None, Any]:
        """Return where a tensor is to go, what that is the place of, and the argument."""
        if func is torch.Tensor.cuda:
            return Place.DEVICE, None, DEVICE
        if func is torch.Tensor.cpu:
            frame = _outside()
            return Place.HOST, _site(frame) if frame else None, DEVICE
        for value in (*rest, *kwargs.values()):
            if isinstance(value, torch.Tensor):
                return self.places.of(value), self.places.made(value), value
            if isinstance(value, torch.device | str) or type(value) is int:
                device = pinning.device_of(value)
                if device.type == "meta":
                    return None, None, None
                return None if device.type == "cpu" else Place.DEVICE, None, value
        return None, None, None

    def _placed(
        self,
        func: Any,  # noqa: ANN401 - one of torch's functions
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        where: Any,  # noqa: ANN401 - whatever was given as a device
    ) -> object:
        """Return what a function makes on the device that it was told."""
        device = pinning.device_of(where)
        if device.type == "meta":
            return func(*args, **kwargs)
        kwargs["device"] = torch.device("cpu")
        given = addresses((args, kwargs))
        result = func(*args, **kwargs)
        if not isinstance(result, torch.Tensor):
            return result
        shared = func in (torch.as_tensor, torch.asarray) or address(result) in given
        if device.type != "cpu":
            if shared:
                result = result.clone()
            self.places.put(result, Place.DEVICE)
        elif not shared:
            self.places.put(result, None)
        return result

    def _note_made(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result: object,
        caller: FrameType | None,
    ) -> None:
        """Say where what was made without a device is."""
        if not isinstance(result, torch.Tensor):
            return
        given = tensors((args, kwargs))
        if not given and caller is not None and torch.get_default_device().type == "cpu":
            self.places.put(result, Place.HOST, _site(caller))
        elif len(given) == 1 and args and args[0] is given[0]:
            # torch.tensor and its like leave a tensor where it is.
            self.places.put(result, self.places.of(given[0]), self.places.made(given[0]))

    def _doubt(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> None:
        """Forget where results are of which torch may have moved a part."""
        given = tensors((args, kwargs))
        if all(self.places.of(tensor) is not Place.DEVICE for tensor in given):
            return
        had = addresses(given)
        for tensor in tensors(result):
            if address(tensor) not in had and self.places.of(tensor) is Place.HOST:
                self.places.put(tensor, None)


#: What functions of torch are that are no C.
_WRITTEN_IN_PYTHON = types.FunctionType

_MOVES = frozenset((torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda))
_CASTS = frozenset((torch.Tensor.type, torch.Tensor.type_as))
_ARRAYS = frozenset((torch.Tensor.numpy, torch.Tensor.__array__))
#: Torch's own: vLLM's runner for CPUs puts another one in its place, which no mode sees.
_PIN = torch._C.TensorBase.pin_memory  # noqa: SLF001 - it has no public name

_SPECIAL = _MOVES | _CASTS | _ARRAYS | {_PIN}

#: What properties of a tensor on the GPU say.
_ANSWERS: Mapping[Any, object] = {
    torch.Tensor.device.__get__: DEVICE,
    torch.Tensor.is_cuda.__get__: True,
    torch.Tensor.is_cpu.__get__: False,
    torch.Tensor.get_device: 0,
}


@contextmanager
def _own_pinning() -> Iterator[None]:
    """Have tensors pinned by torch's own method within the block."""
    replaced = vars(torch.Tensor).get("pin_memory")
    if replaced is not None:
        del torch.Tensor.pin_memory
    try:
        yield
    finally:
        if replaced is not None:
            torch.Tensor.pin_memory = replaced


def _outside() -> FrameType | None:
    """Return the nearest frame that is neither of torch nor of this module."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - torch's frames are between
    while frame is not None:
        name = frame.f_code.co_filename
        if name != __file__ and not name.startswith(_TORCH):
            return frame
        frame = frame.f_back
    return None


def _site(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


@attrs.define
class Accelerator(Observer):
    """A pretended accelerator: an observer within whose calls a plugin runs on it."""

    plugin: type
    places: Places = attrs.field(factory=Places)
    #: Returns the engine's tensors that are no arguments of calls.
    engine: Callable[[], Iterable[torch.Tensor]] = tuple
    #: Whether the last call returned a tensor of the host.
    returned_host: bool = False
    _files: tuple[str, ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Find the files that are the plugin's own."""
        self._files = tuple(machine.own_files(self.plugin))

    def watching(self) -> AbstractContextManager[None]:
        """Have calls into the plugin run on the accelerator within a block."""
        return observed(self)

    def put(self, *tensors: torch.Tensor) -> None:
        """Say that tensors are on the accelerator."""
        for tensor in tensors:
            self.places.put(tensor, Place.DEVICE)

    def call(self, function: Any, *arguments: Any) -> Any:  # noqa: ANN401 - a plugin's own values
        """Call a function of the plugin, with the engine's tensors on the accelerator."""
        self.put(*self.engine())
        for argument in arguments:
            # A tensor, or what has tensors as its fields: the context of a step.
            whole = isinstance(argument, torch.Tensor) or not hasattr(argument, "__dict__")
            self.put(*tensors(argument if whole else dict(vars(argument))))
        operations = Operations(self.places)
        try:
            with _own_pinning(), operations, _Calls(operations, self.owns):
                result = function(*arguments)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the plugin raises
            # What it lacks here, it has on a GPU: nobody is to draw conclusions from its traceback.
            raise PretenceError(error) from None
        self.returned_host = (
            isinstance(result, torch.Tensor)
            and extended(result)
            and self.places.of(result) is Place.HOST
        )
        return result

    def owns(self, path: str) -> bool:
        """Tell whether a file is the plugin's own."""
        return path.startswith(self._files)

    def looks_at_machine(self) -> bool:
        """Tell whether the plugin's own files name anything that tells one machine from another.

        What it does then on one with a GPU cannot be seen here.
        """
        paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        return any(machine.looks(path) for path in paths if path and self.owns(path))
