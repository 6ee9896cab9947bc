# SPDX-License-Identifier: Apache-2.0
"""What everything in a process shares, by name: generators, settings, handlers, hooks, loggers.

Programs of counterexamples hold parts of this module.
"""

import asyncio
import gc
import logging
import multiprocessing
import pickle
import random
import signal
import socket
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

#: Before anything is loaded: asking for them again is slow.
_SIGNALS = tuple(sorted(signal.valid_signals()))


def seed_generators(number: int) -> None:
    """Seed the generators that everything in a process draws from."""
    random.seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002 - plugins may draw from it
    torch.manual_seed(number)


def generator_states() -> dict[str, bytes]:
    """Return the states of the generators that everything in a process draws from."""
    return {
        "random": pickle.dumps(random.getstate()),
        "numpy.random": pickle.dumps(np.random.get_state()),  # noqa: NPY002 - plugins may use it
        "torch": torch.default_generator.get_state().numpy().tobytes(),
    }


def signal_handlers() -> dict[str, Any]:
    """Return the handler of each signal."""
    return {getattr(each, "name", str(int(each))): signal.getsignal(each) for each in _SIGNALS}


def blanket_filters() -> dict[str, bool]:
    """Return the filters for every warning: packages add others, for warnings of their own."""
    return {
        f"a filter for every warning: {action}": True
        for action, message, category, module, line in warnings.filters
        if message is None and module is None and not line and category is Warning
    }


def logger_settings() -> dict[str, Any]:
    """Return the settings of loggers that the messages of all requests go through."""
    found: dict[str, Any] = {"logging.disable()": logging.root.manager.disable}
    for name in (None, "vllm"):  # the first is the root
        logger = logging.getLogger(name)
        shown = logger.name
        found[f"the level of the logger {shown}"] = logging.getLevelName(logger.level)
        found[f"the handlers of the logger {shown}"] = tuple(logger.handlers)
        found[f"whether the logger {shown} is disabled"] = logger.disabled
    return found


def torch_settings() -> dict[str, Any]:
    """Return the settings of torch."""
    return {
        "torch.get_default_dtype()": torch.get_default_dtype(),
        "torch.get_default_device()": torch.get_default_device(),
        "torch.are_deterministic_algorithms_enabled()": (
            torch.are_deterministic_algorithms_enabled()
            and not torch.is_deterministic_algorithms_warn_only_enabled()
        ),
        "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision(),
        "torch.backends.cudnn.deterministic": torch.backends.cudnn.deterministic,
        "torch.backends.cudnn.benchmark": torch.backends.cudnn.benchmark,
        "torch.get_num_threads()": torch.get_num_threads(),
        "torch.get_num_interop_threads()": torch.get_num_interop_threads(),
        "torch.is_grad_enabled()": torch.is_grad_enabled(),
        "torch.is_inference_mode_enabled()": torch.is_inference_mode_enabled(),
    }


def interpreter_hooks() -> dict[str, Any]:
    """Return hooks and limits of Python, and settings of the event loop that is running."""
    return {
        "the working folder": str(Path.cwd()),
        "sys.excepthook": sys.excepthook,
        "sys.unraisablehook": sys.unraisablehook,
        "sys.gettrace()": sys.gettrace(),
        "sys.getprofile()": sys.getprofile(),
        "sys.getrecursionlimit()": sys.getrecursionlimit(),
        "sys.getswitchinterval()": sys.getswitchinterval(),
        "sys.stdout": sys.stdout,
        "sys.stderr": sys.stderr,
        "threading.excepthook": threading.excepthook,
        "builtins.__import__": __import__,
        "gc.isenabled()": gc.isenabled(),
        "gc.get_threshold()": gc.get_threshold(),
        "multiprocessing.get_start_method()": (
            # Whoever asks which it is, as pools of processes do, settles it; this does not.
            multiprocessing.get_start_method(allow_none=True)
            or multiprocessing.get_all_start_methods()[0]
        ),
        "numpy.geterr()": str(np.geterr()),
        "socket.getdefaulttimeout()": socket.getdefaulttimeout(),
        "the event loop policy": type(
            # Asking for it would make it.
            getattr(asyncio.events, "_event_loop_policy", None)
        ),
        **loop_settings(),
    }


def loop_settings() -> dict[str, Any]:
    """Return the settings of the event loop that is running, if there is one."""
    loop: Any = asyncio._get_running_loop()  # noqa: SLF001 - the public one raises
    if loop is None:
        return {}
    return {
        "the debug mode of the event loop": loop.get_debug(),
        "the exception handler of the event loop": loop.get_exception_handler(),
        "the task factory of the event loop": loop.get_task_factory(),
    }
