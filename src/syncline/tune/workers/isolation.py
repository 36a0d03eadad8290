"""`ProcessState`: the state of a worker process that one trial may leave behind for the next one.

Restored: environment variables, working directory, file mask, `sys.path`, `sys.argv`, the standard
streams, warning filters, levels and handlers of the root logger, the recursion limit, locale, and
settings of torch. Random generators are seeded anew, as in a new process.

Checked: globals of the program's modules, modules that a trial imported, built-in names, signal
handlers, threads, open files, child processes, and memory. If one of these differs, the process
must not run another trial.

Not covered: state inside installed libraries, such as matplotlib's parameters. A function that is
pickled by value, such as one of `__main__`, needs no check: each trial unpickles its own globals.
"""

from __future__ import annotations

import builtins
import gc
import locale
import logging
import os
import pickle
import re
import resource
import signal
import sys
import sysconfig
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from functools import _lru_cache_wrapper, cache
from io import BytesIO
from types import FunctionType, GenericAlias, ModuleType
from typing import Any, TypeAlias

from cloudpickle import cloudpickle as internals

from syncline import settings
from syncline.core import random_states
from syncline.core.tracebacks import is_engine_file
from syncline.tune.workers.own_time import is_open_meanwhile

MEMORY_LIMIT_BYTES = 1 << 30
"""Growth of a process after which it runs no further trial."""
CONTENT_LIMIT_BYTES = 16 << 20
"""Size of a module's state, pickled, above which it is not compared."""

_ENGINE_THREADS = ("syncline-", "call-", "calls-", "call_")
_HARMLESS = (
    ModuleType,
    GenericAlias,
    re.Pattern,
    logging.Logger,
    type(threading.Lock()),
    type(threading.RLock()),
    weakref.ref,
)
"""Types of globals without a state that a trial could change for another one."""
_BY_IDENTITY = (FunctionType, type, *_HARMLESS)
_LIBRARIES = tuple(
    {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)

_Content: TypeAlias = "bytes | str"
"""Pickled state of a module, or the reason why it cannot be compared."""


class ProcessState:
    """State of this process before a trial.

    Args:
        load: Loads the trainable, and thereby the modules of the program. If these seed the random
            generators, each trial begins with that seed.
    """

    def __init__(self, load: Callable[[], object]) -> None:
        unseeded = random_states.capture()
        load()
        self._random_states = {
            name: state
            for name, state in random_states.capture().items()
            if unseeded.get(name) != state
        }
        self._environment = settings.inherited_environment()
        self._variables = settings.raw_environment()
        self._directory = os.getcwd()
        self._mask = _file_mask()
        self._lists = {name: list(getattr(sys, name)) for name in ("path", "argv", "meta_path")}
        self._attributes = {
            name: getattr(sys, name)
            for name in ("stdout", "stderr", "stdin", "excepthook", "displayhook")
        }
        self._recursion_limit = sys.getrecursionlimit()
        self._filters = list(warnings.filters)
        self._locale = locale.setlocale(locale.LC_ALL)
        self._logging = _logging_state()
        self._torch = _torch_settings()
        self._builtins = dict(vars(builtins))
        self._signals = _signal_handlers()
        self._threads = set(threading.enumerate())
        self._files = _open_files()
        self._has_children = _has_children()
        self._memory = _memory_bytes()
        self._module_count = len(sys.modules)
        modules = _program_modules()
        self._modules = {name: _content(module) for name, module in modules.items()}
        # Objects that live have an `id` of their own.
        self._objects = [list(vars(module).values()) for module in modules.values()]

    def restore(self) -> str:
        """Restore the state after a trial. Return the reason why the process must not run another
        trial; "" if it may.
        """
        if reason := self._difference():
            return reason
        if settings.raw_environment() != self._variables:
            os.environ.clear()
            os.environ.update(self._environment)
        try:
            if os.getcwd() != self._directory:
                os.chdir(self._directory)
        except OSError:  # the trial deleted its own working directory
            os.chdir(self._directory)
        os.umask(self._mask)
        for name, values in self._lists.items():
            if getattr(sys, name) != values:
                setattr(sys, name, list(values))
        for name, value in self._attributes.items():
            setattr(sys, name, value)
        if sys.getrecursionlimit() != self._recursion_limit:
            sys.setrecursionlimit(self._recursion_limit)
        if warnings.filters != self._filters:
            warnings.resetwarnings()
            warnings.filters[:] = self._filters  # type: ignore[index]  # a list at run time
        if locale.setlocale(locale.LC_ALL) != self._locale:
            locale.setlocale(locale.LC_ALL, self._locale)
        _restore_logging(self._logging)
        _restore_torch(self._torch)
        random_states.seed_anew()
        if self._random_states:
            random_states.restore({**random_states.capture(), **self._random_states})
        return ""

    def _difference(self) -> str:
        """Return the first difference that cannot be undone."""
        for check in (
            self._threads_left,
            self._children_left,
            self._changed_signals,
            self._changed_builtins,
            self._files_left,
            self._changed_modules,
            self._memory_growth,
        ):
            if reason := check():
                return reason
        return ""

    def _threads_left(self) -> str:
        for thread in threading.enumerate():
            if thread not in self._threads and not thread.name.startswith(_ENGINE_THREADS):
                return f"its thread {thread.name!r} still runs"
        return ""

    def _children_left(self) -> str:
        return "" if self._has_children or not _has_children() else "its child process still runs"

    def _changed_signals(self) -> str:
        now = _signal_handlers()
        changed = [number for number, handler in now.items() if handler != self._signals[number]]
        return f"it changed the handler of {signal.Signals(changed[0]).name}" if changed else ""

    def _changed_builtins(self) -> str:
        now = vars(builtins)
        changed = _names_of_changed(self._builtins, now) - {"_"}
        return f"it changed the built-in name {min(changed)!r}" if changed else ""

    def _files_left(self) -> str:
        if not self._further_files():
            return ""
        gc.collect()  # closes files that nothing refers to
        further = self._further_files()
        return f"it left {further[0]!r} open" if further else ""

    def _further_files(self) -> list[str]:
        """Return the targets of descriptors that were not open before."""
        numbers = sorted(number for number, *_ in _open_files() - self._files)
        targets = filter(None, map(_target_of, numbers))
        return [target for target in targets if not is_open_meanwhile(target)]

    def _changed_modules(self) -> str:
        modules = _program_modules() if len(sys.modules) != self._module_count else None
        if modules is not None:
            further = modules.keys() - self._modules.keys()
            if further:
                return f"{IMPORTED}{', '.join(sorted(further))}"
            self._module_count = len(sys.modules)
        for name, before in self._modules.items():
            module = sys.modules.get(name)
            if module is None:
                return f"it removed the module {name!r}"
            now = _content(module)
            if isinstance(now, str):
                return f"the state of the module {name!r} cannot be compared: {now}"
            if now != before:
                return f"it changed the module {name!r}"
        return ""

    def _memory_growth(self) -> str:
        if _peak_memory_bytes() - self._memory <= MEMORY_LIMIT_BYTES:  # as a rule, and fast
            return ""
        growth = _memory_bytes() - self._memory
        if growth <= MEMORY_LIMIT_BYTES:
            return ""
        return f"the process grew by {growth / 1e9:.1f} GB"


IMPORTED = "it imported "
"""Start of the reason of a trial that imported modules of the program, whose names follow."""


def forget_classes() -> None:
    """Let classes that are pickled by value be created anew, instead of being shared by trials."""
    cloudpickle_classes().clear()


def cloudpickle_classes() -> MutableMapping[str, type]:
    """Return the classes that cloudpickle has created, by its identifiers. It has no public name
    for them.
    """
    classes: MutableMapping[str, type] = internals._DYNAMIC_CLASS_TRACKER_BY_ID
    return classes


# -- globals of the program's modules


def _program_modules() -> dict[str, ModuleType]:
    """Return the loaded modules that are neither of Python nor installed."""
    return {name: module for name, module in list(sys.modules.items()) if _is_program(name, module)}


def _is_program(name: str, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and name != "__mp_main__" and _is_program_file(file)


@cache
def _is_program_file(file: str) -> bool:
    return not any(
        is_engine_file(path) or path.startswith(_LIBRARIES)
        for path in (file, os.path.abspath(file))
    )


class _StatePickler(pickle.Pickler):
    """Pickles the state of a module. Functions and classes count by their identity."""

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, _BY_IDENTITY):
            return hash, (id(value),)
        return NotImplemented


def _content(module: ModuleType) -> _Content:
    """Return the state of a module: its globals, the defaults and attributes of its functions, and
    the attributes of its classes. Caches of functions are emptied.
    """
    state: dict[str, object] = {}
    for name, value in vars(module).items():
        if name.startswith("__"):
            continue
        if isinstance(value, _lru_cache_wrapper):
            value.cache_clear()
            state[name] = id(value)
        elif isinstance(value, FunctionType):
            if value.__module__ == module.__name__:
                state[name] = id(value), value.__defaults__, value.__kwdefaults__, value.__dict__
        elif isinstance(value, type):
            state[name] = id(value)
            if value.__module__ == module.__name__:
                state[f"{name}."] = _attributes(value)
        elif isinstance(value, _HARMLESS):
            state[name] = id(value)
        else:
            state[name] = value
    buffer = BytesIO()
    try:
        _StatePickler(buffer, pickle.HIGHEST_PROTOCOL).dump(state)
    except Exception as error:  # anything of the program's own `__reduce__`
        return f"{type(error).__name__}: {error}"
    if buffer.tell() > CONTENT_LIMIT_BYTES:
        return f"it has {buffer.tell() / 1e6:.0f} MB"
    return buffer.getvalue()


def _attributes(kind: type) -> Mapping[str, object]:
    """Return the attributes of a class; those with code by their identity."""
    return {
        name: value
        if isinstance(value, (int, float, str, bytes, list, dict, set, tuple, bytearray))
        else id(value)
        for name, value in vars(kind).items()
        if not name.startswith("__") and name != "_abc_impl"
    }


# -- parts of the process


def _names_of_changed(before: Mapping[str, object], now: Mapping[str, object]) -> set[str]:
    if before == now:  # compares by identity first
        return set()
    return {name for name in before.keys() | now.keys() if before.get(name) is not now.get(name)}


def _signal_handlers() -> dict[int, object]:
    return {number: _handler_of(number) for number in _SIGNALS}


_SIGNALS = sorted(map(int, signal.Signals))
# The function behind `getsignal`, without the enumeration members that take most of the time.
_handler_of: Callable[[int], object] = getattr(signal, "_signal", signal).getsignal


def _open_files() -> set[tuple[int, int, int]]:
    """Return number, device and inode of each descriptor of this process."""
    try:
        numbers = os.listdir("/proc/self/fd")
    except OSError:  # not Linux
        return set()
    found = set()
    for number in map(int, numbers):
        with suppress(OSError):  # the descriptor of the listing itself
            status = os.fstat(number)
            found.add((number, status.st_dev, status.st_ino))
    return found


def _target_of(number: int) -> str:
    """Return the target of a descriptor; "" if it was closed."""
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _file_mask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _memory_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return 0


def _peak_memory_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


_LoggingState: TypeAlias = tuple[int, int, list[logging.Handler], list[logging.Filter]]


def _logging_state() -> _LoggingState:
    root = logging.getLogger()
    return root.manager.disable, root.level, list(root.handlers), list(root.filters)  # type: ignore[arg-type]


def _restore_logging(state: _LoggingState) -> None:
    if _logging_state() == state:
        return
    root = logging.getLogger()
    disabled, level, handlers, filters = state
    logging.disable(disabled)
    root.setLevel(level)
    root.handlers[:], root.filters[:] = handlers, filters


def _torch() -> Any:
    torch = sys.modules.get("torch")
    # Another thread may be importing torch: the module may exist without its content.
    return torch if hasattr(torch, "default_generator") else None


_TorchSettings: TypeAlias = "list[tuple[Callable[[Any], object], object]] | None"


def _torch_settings() -> _TorchSettings:
    """Return functions that set the global settings of torch, with their current values."""
    torch = _torch()
    if torch is None:
        return None
    return [
        (torch.set_default_dtype, torch.get_default_dtype()),
        (torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled()),
        (torch.set_float32_matmul_precision, torch.get_float32_matmul_precision()),
        (torch.set_num_threads, torch.get_num_threads()),
    ]


def _restore_torch(before: _TorchSettings) -> None:
    torch = _torch()
    if before is None and torch is not None:  # a trial imported torch
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")
    elif before is not None and before != _torch_settings():
        for setter, value in before:
            setter(value)
