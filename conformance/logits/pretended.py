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
of the GPU and one of the host that has dimensions.  Operations and their checks are those of
torch's ``native_functions.yaml`` and ``TensorIterator``; what neither names is allowed.
"""

from __future__ import annotations

import ast
import os
import sys
import types
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from conformance.logits.calls import observed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import FrameType

#: What plugins are told that they run on.
DEVICE = torch.device("cuda:0")

_TORCH = str(Path(torch.__file__).parent) + os.sep

#: Operations by ``TensorIterator``: one device for all, but for tensors of the CPU without
#: dimensions.
ITERATED = frozenset(
    (
        "add",
        "sub",
        "mul",
        "div",
        "maximum",
        "minimum",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "logical_and",
        "logical_or",
        "logical_xor",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "pow",
        "fmod",
        "remainder",
        "where",
        "lerp",
        "addcmul",
        "addcdiv",
        "masked_fill",  # its kernel looks at the mask before
        "index_fill",
    )
)

#: Operations whose wrapper for CUDA compares the devices of all arguments.
COMPARED = frozenset(
    (
        "gather",
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "index_select",
        "index_add",
        "index_copy",
        "masked_select",
        "masked_scatter",
        "take",
        "cat",
        "mm",
        "bmm",
        "addmm",
        "mv",
    )
)

#: Operations whose result is where their first argument is, whatever the others.
_OF_FIRST = frozenset(("index", "index_put", "select_scatter", "slice_scatter"))

#: Functions that make tensors on the CPU where nobody says otherwise.
_MAKING = frozenset(
    (
        torch.tensor,
        torch.as_tensor,
        torch.asarray,
        torch.from_numpy,
        torch.zeros,
        torch.ones,
        torch.empty,
        torch.full,
        torch.arange,
        torch.linspace,
        torch.eye,
        torch.rand,
        torch.randn,
        torch.randint,
    )
)

#: What source files name that look at the machine: there is none here that they could find.
_LOOKS = (
    "cuda",
    "gpu",
    "is_available",
    "platform",
    "accelerator",
    "device_config",
    "device_type",
    "uva",
    "view_from_cpu",
)

#: How far back in a chain of exceptions is looked.
_MOST_CAUSES = 8

#: Where slot plugins read what is on the device.
_READS = "gpu"


class Place(StrEnum):
    """Where a tensor is; of those that are in no place nobody knows."""

    DEVICE = "device"
    HOST = "host"


class DeviceMismatchError(RuntimeError):
    """Torch would raise on a GPU: a tensor of the host was used as if it were there."""

    def __init__(self, does: str, made: str | None, says: str) -> None:
        of = f", made in {made}" if made else ""
        super().__init__(f"{does}{of}: {says}")


class PretenceError(Exception):
    """A call raised while an accelerator was pretended."""

    def __init__(self, error: BaseException) -> None:
        super().__init__("a call raised on an accelerator that is only pretended")
        self.error = error

    @property
    def mismatch(self) -> DeviceMismatchError | None:
        """What torch would have raised on a GPU, if that is why; None if that is not known."""
        found: BaseException | None = self.error
        for _ in range(_MOST_CAUSES):
            if isinstance(found, DeviceMismatchError):
                return found
            if found is None:
                break
            found = found.__cause__ or found.__context__
        return None


@attrs.frozen
class _Kept:
    """What is known of a storage."""

    storage: Any  #: a weak reference, so that no other storage gets the same address
    place: Place
    made: str | None = None  #: file and line, for those of the host


@attrs.define
class Places:
    """Where tensors are, by their storages: views are where the whole is."""

    _known: dict[int, _Kept] = attrs.field(factory=dict)

    def of(self, tensor: torch.Tensor) -> Place | None:
        """Return where a tensor is, or None where nobody knows."""
        kept = self._kept(tensor)
        return kept and kept.place

    def made(self, tensor: torch.Tensor) -> str | None:
        """Return where in the plugin's source a tensor of the host was made."""
        kept = self._kept(tensor)
        return kept and kept.made

    def put(self, tensor: torch.Tensor, place: Place | None, made: str | None = None) -> None:
        """Say where a tensor is."""
        storage = _storage(tensor)
        if storage is None:
            return
        if place is None:
            self._known.pop(storage._cdata, None)
        else:
            self._known[storage._cdata] = _Kept(StorageWeakRef(storage), place, made)

    def knows(self, tensor: torch.Tensor) -> bool:
        """Tell whether the storage of a tensor has a place."""
        return self._kept(tensor) is not None

    def _kept(self, tensor: torch.Tensor) -> _Kept | None:
        storage = _storage(tensor)
        return None if storage is None else self._known.get(storage._cdata)


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the storage of a tensor; None for the few kinds that have none."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def _tensors(values: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _extended(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor has dimensions and values; those without may mix."""
    return tensor.dim() > 0 and tensor.numel() > 0


class _Operations(TorchDispatchMode):
    """Follows the operations that torch dispatches."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.places = places
        #: The call of the plugin's own code that is under way, if one is.
        self.caller: str | None = None

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - as torch declares it
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - as torch declares it
        del types
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunction():
            given = _tensors((args, kwargs))
            base = func.overloadpacket.__name__.rstrip("_")
            if self.caller is not None and (culprit := self._culprit(base, args, given)):
                host, says = culprit
                does = f"{self.caller} takes a tensor of the CPU (shape {list(host.shape)})"
                raise DeviceMismatchError(does, self.places.made(host), says)
            addresses = {s._cdata for tensor in given if (s := _storage(tensor)) is not None}
            result = func(*args, **kwargs)
            # Operations of others may well leave on the host what they made of something else.
            if func.namespace == "aten":
                self._follow(base, given, addresses, result)
        return result

    def _culprit(
        self, base: str, args: tuple[Any, ...], given: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, str] | None:
        """Return the tensor of the host that torch would refuse, and what it would say."""
        on_device = [each for each in given if self.places.of(each) is Place.DEVICE]
        on_host = [
            each for each in given if self.places.of(each) is Place.HOST and _extended(each)
        ]
        if not on_device or not on_host:
            return None
        if base in ITERATED or base in COMPARED:
            return on_host[0], _SAME
        if base == "index":
            # Indices may be on the host, what they look up may not.
            taken = any(_extended(each) for each in on_device)
            return (given[0], _INDICES) if given[0] is on_host[0] and taken else None
        if base == "index_put":
            # Indices go where they are needed. A value goes with one element, of the host or not.
            into, value = args[0], args[2]
            both = {self.places.of(into), self.places.of(value)} == {*Place}
            host = into if self.places.of(into) is Place.HOST else value
            return (host, _SAME) if both and value.numel() > 1 and _extended(value) else None
        return None

    def _follow(
        self, base: str, given: Sequence[torch.Tensor], addresses: set[int], result: object
    ) -> None:
        """Say where the result of an operation is."""
        if not given:
            return
        first = given[:1] if base in _OF_FIRST else given
        places = {self.places.of(each) for each in first}
        place = None
        if Place.DEVICE in places:
            place = Place.DEVICE
        elif places == {Place.HOST}:
            place = Place.HOST
        made = next((m for each in first if (m := self.places.made(each))), None)
        for tensor in _tensors(result):
            storage = _storage(tensor)
            if storage is not None and storage._cdata not in addresses:
                self.places.put(tensor, place, made if place is Place.HOST else None)


_SAME = (
    "Expected all tensors to be on the same device, but found at least two devices, "
    "cuda:0 and cpu!"
)
_INDICES = "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
_NUMPY = (
    "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
    "host memory first."
)


class _Calls(TorchFunctionMode):
    """Answers what the plugin asks of torch by name: devices, moves, what is made where."""

    def __init__(self, operations: _Operations, own: Callable[[str], bool]) -> None:
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
    ) -> Any:  # noqa: ANN401 - as torch declares it
        del types
        kwargs = dict(kwargs or {})
        frame = _outside()
        caller = frame if frame and self._own(frame.f_code.co_filename) else None
        if func in _ANSWERS and self.places.of(args[0]) is Place.DEVICE:
            return _ANSWERS[func]
        name = getattr(func, "__name__", "")
        if func in _ARRAYS:
            return self._array(func, args, kwargs, name, caller)
        if func in _CASTS and len(args) > 1:
            # Names of types say where, too.
            result = func(*args, **kwargs).clone()
            self.places.put(result, None)
            return result
        if func in _MOVES:
            return self._moved(func, args, kwargs)
        if func is torch.Tensor.pin_memory:
            copied = args[0].clone()
            self.places.put(copied, self.places.of(args[0]), self.places.made(args[0]))
            return copied
        kwargs.pop("pin_memory", None)  # there is nothing to pin for
        where = kwargs.get("device")
        if where is not None:
            return self._placed(func, args, kwargs, where)
        made = func in _MAKING
        # Functions of torch that are written in Python move tensors by what they see.
        loud = caller is not None and not isinstance(func, types_of_python)
        before = self.operations.caller
        self.operations.caller = f"{name}()" if loud else None
        try:
            result = func(*args, **kwargs)
        finally:
            self.operations.caller = before
        if isinstance(func, types_of_python):
            self._doubt(args, kwargs, result)
        elif made:
            self._note_made(args, kwargs, result, caller)
        elif func is torch.Tensor.new_tensor:
            self.places.put(result, self.places.of(args[0]), self.places.made(args[0]))
        return result

    def _array(
        self,
        func: Any,  # noqa: ANN401 - one of torch's functions
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        name: str,
        caller: FrameType | None,
    ) -> Any:  # noqa: ANN401 - an array
        """Return a tensor as an array: torch refuses one that is on a GPU."""
        on_device = self.places.of(args[0]) is Place.DEVICE
        if on_device and caller is not None and not kwargs.get("force"):
            shape = list(args[0].shape)
            said = f"{name}() is asked of a tensor of the GPU (shape {shape})"
            raise DeviceMismatchError(said, None, _NUMPY)
        return func(*args, **kwargs)

    def _moved(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - torch's own
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
        before = _storage(tensor)
        result = torch.Tensor.to(tensor, *rest, **kwargs)
        after = _storage(result)
        same = before is not None and after is not None and before._cdata == after._cdata
        if there and same:
            return result
        if same:
            result = result.clone()
        self.places.put(result, place, made)
        return result

    def _target(
        self,
        func: Any,  # noqa: ANN401 - one of torch's functions
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
                device = _device(value)
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
    ) -> Any:  # noqa: ANN401 - torch's own
        """Return what a function makes on the device that it was told."""
        device = _device(where)
        if device.type == "meta":
            return func(*args, **kwargs)
        kwargs["device"] = torch.device("cpu")
        given = {s._cdata for t in _tensors((args, kwargs)) if (s := _storage(t)) is not None}
        result = func(*args, **kwargs)
        if not isinstance(result, torch.Tensor):
            return result
        storage = _storage(result)
        shared = func in (torch.as_tensor, torch.asarray) or (
            storage is not None and storage._cdata in given
        )
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
        given = _tensors((args, kwargs))
        if not given and caller is not None and torch.get_default_device().type == "cpu":
            self.places.put(result, Place.HOST, _site(caller))
        elif len(given) == 1 and args and args[0] is given[0]:
            # torch.tensor and its like leave a tensor where it is.
            self.places.put(result, self.places.of(given[0]), self.places.made(given[0]))

    def _doubt(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> None:
        """Forget where results are of which torch may have moved a part."""
        given = _tensors((args, kwargs))
        if all(self.places.of(tensor) is not Place.DEVICE for tensor in given):
            return
        own = {s._cdata for tensor in given if (s := _storage(tensor)) is not None}
        for tensor in _tensors(result):
            storage = _storage(tensor)
            fresh = storage is not None and storage._cdata not in own
            if fresh and self.places.of(tensor) is Place.HOST:
                self.places.put(tensor, None)


types_of_python = types.FunctionType

_MOVES = frozenset((torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda))
_CASTS = frozenset((torch.Tensor.type, torch.Tensor.type_as))
_ARRAYS = frozenset((torch.Tensor.numpy, torch.Tensor.__array__))

#: What properties of a tensor on the GPU say.
_ANSWERS: Mapping[Any, object] = {
    torch.Tensor.device.__get__: DEVICE,
    torch.Tensor.is_cuda.__get__: True,
    torch.Tensor.is_cpu.__get__: False,
    torch.Tensor.get_device: 0,
}


def _device(value: Any) -> torch.device:  # noqa: ANN401 - whatever was given as a device
    """Return the device that is meant; a number is one of a GPU."""
    return DEVICE if isinstance(value, int) else torch.device(value)


def _outside() -> FrameType | None:
    """Return the nearest frame that is neither of torch nor of this module."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name != __file__ and not name.startswith(_TORCH):
            return frame
        frame = frame.f_back
    return None


def _site(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


@attrs.define
class Accelerator:
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
        self._files = tuple(_own_files(self.plugin))

    def watching(self) -> Any:  # noqa: ANN401 - a context manager
        """Have calls into the plugin run on the accelerator within a block."""
        return observed(self)

    def put(self, *tensors: torch.Tensor) -> None:
        """Say that tensors are on the accelerator."""
        for tensor in tensors:
            self.places.put(tensor, Place.DEVICE)

    def parameters(self, params: object, keywords: object) -> None:
        """Take no note of parameters."""

    def request(self, name: str) -> None:
        """Take no note of requests."""

    def note(self, event: object) -> None:
        """Take no note of what the host does."""

    def call(self, function: Any, *arguments: Any) -> Any:  # noqa: ANN401 - a plugin's own values
        """Call a function of the plugin, with the engine's tensors on the accelerator."""
        self.put(*self.engine())
        for argument in arguments:
            # A tensor, or what has tensors as its fields: the context of a step.
            whole = isinstance(argument, torch.Tensor) or not hasattr(argument, "__dict__")
            self.put(*_tensors(argument if whole else dict(vars(argument))))
        operations = _Operations(self.places)
        try:
            with operations, _Calls(operations, self.owns):
                result = function(*arguments)
        except (Exception, SystemExit) as error:
            # What it lacks here, it has on a GPU: nobody is to draw conclusions from its traceback.
            raise PretenceError(error) from None
        self.returned_host = (
            isinstance(result, torch.Tensor)
            and _extended(result)
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
        return any(_looks(path) for path in paths if path and self.owns(path))


def _own_files(plugin: type) -> Iterable[str]:
    """Yield files, and folders of packages, that hold the classes of a plugin."""
    host = plugin.__module__.partition(".")[0] == "vllm"
    for base in plugin.__mro__:
        package = base.__module__.partition(".")[0]
        if package in ("builtins", "abc", "typing", "torch") or (package == "vllm" and not host):
            continue
        file = getattr(sys.modules.get(package), "__file__", None)
        own = getattr(sys.modules.get(base.__module__), "__file__", None)
        if file and Path(file).name == "__init__.py":
            yield str(Path(file).parent) + os.sep
        elif own:
            yield own


def _looks(path: str) -> bool:
    """Tell whether a source file names what tells machines apart, but for its docstrings."""
    try:
        tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return True  # nobody can tell
    said = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Name):
            names = [node.id]
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in said:
            names = [node.value]
        if any(word in name.lower() for name in names for word in _LOOKS if name != _READS):
            return True
    return False
