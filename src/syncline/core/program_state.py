"""State of the user's program that its workers share: arguments, main module, import path, warning
filters, and the configuration of `logging`.

A worker is not started by running the user's script, so what the script has configured at its top
is sent: the driver captures it (`ProgramWatch`) before it defines a task or creates an actor, and
the worker takes it over (`ProgramReceiver`) before it loads that code. On a cluster, the state at
the time of `init` goes with the job. Working directory and environment variables are not part of
it: processes inherit them, or get them from `runtime_env`.

No library is imported for a handler or a filter: libraries that configure their own loggers and
warnings do so when they are imported.
"""

from __future__ import annotations

import importlib.machinery
import inspect
import io
import logging
import logging.handlers
import os
import pickle
import re
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Iterator
from typing import Any, TextIO, TypeAlias

import cloudpickle

from syncline.core import pickling
from syncline.core.definitions import AnyFunction, find_methods
from syncline.core.pickling import PROTOCOL
from syncline.records import dataclass

_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_STREAMS = ("stdout", "stderr")
_entered: weakref.WeakSet[AnyFunction | type] = weakref.WeakSet()


@dataclass(frozen=True, kw_only=True)
class LoggerState:
    """Configuration of one logger that differs from the default."""

    name: str
    """Empty for the root logger."""
    level: int
    propagate: bool
    disabled: bool
    handlers: tuple[bytes, ...]
    """Pickled separately, so that a value that cannot be restored does not affect the others."""
    filters: tuple[bytes, ...]


Pattern: TypeAlias = re.Pattern[str] | str | None
PackedPattern: TypeAlias = tuple[str, int] | str | None
"""Text and flags of a compiled pattern. Python pickles it with a flag that the program did not set,
so that a worker would not find it among the compiled patterns of modules that it has imported.
"""


@dataclass(frozen=True, kw_only=True)
class WarningFilter:
    """One entry of `warnings.filters`."""

    action: str
    message: PackedPattern
    """Pattern, or None for all messages."""
    category: bytes
    """Class of the warnings, pickled."""
    category_module: str
    module: PackedPattern
    """Pattern for the module's name, or None for all modules."""
    line: int
    """Line number, or 0 for all lines."""


@dataclass(frozen=True, kw_only=True)
class ProgramState:
    """State that a worker takes over from the program."""

    arguments: tuple[str, ...]
    main_file: str | None
    """Absolute path of the script; None in a notebook, a shell, or `python -c`."""
    main_name: str | None
    """Name of the module that `python -m` runs."""
    sys_path: tuple[str, ...]
    warning_filters: tuple[WarningFilter, ...]
    captures_warnings: bool
    """True after `logging.captureWarnings(True)`."""
    loggers: tuple[LoggerState, ...]
    level_names: tuple[tuple[int, str], ...]
    disabled_level: int
    """Argument of `logging.disable`."""
    left_out: tuple[str, ...]
    """Handlers that cannot be copied, with the reason."""


class ProgramWatch:
    """Captures the program's state when it has changed."""

    def __init__(self) -> None:
        self._fingerprint: object = None

    def changed(self) -> bytes | None:
        """Return the state, pickled, if it has changed since the last call."""
        fingerprint = _fingerprint()
        if fingerprint == self._fingerprint:
            return None
        self._fingerprint = fingerprint
        return pickle.dumps(capture(), PROTOCOL)


class ProgramReceiver:
    """Takes over states of the program in a worker."""

    def __init__(self) -> None:
        self._state: ProgramState | None = None

    def apply(self, packed: bytes) -> None:
        """Take over a state of `ProgramWatch`, before code of the program is loaded."""
        state: ProgramState = pickle.loads(packed)
        _apply(state, self._state)
        self._state = state

    def code_loaded(self) -> None:
        """Add the warning filters for warnings of modules that were imported meanwhile."""
        assert self._state is not None, "apply comes first"
        _filter_warnings(self._state)


def capture() -> ProgramState:
    """Return the state of this process."""
    main = sys.modules.get("__main__")
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    left_out: list[str] = []
    return ProgramState(
        arguments=tuple(sys.argv),
        main_file=os.path.abspath(file) if file else None,
        main_name=spec.name if spec is not None else None,
        sys_path=tuple(sys.path),
        warning_filters=tuple(_warning_filter(*each) for each in warnings.filters),
        captures_warnings=_captures_warnings(),
        loggers=tuple(_logger_state(logger, left_out) for logger in _configured_loggers()),
        level_names=tuple(logging._levelToName.items()),
        disabled_level=logging.root.manager.disable,
        left_out=tuple(left_out),
    )


def _apply(state: ProgramState, before: ProgramState | None) -> None:
    sys.argv[:] = state.arguments
    _set_main_module(state)
    own = set(before.sys_path if before is not None else state.sys_path)
    sys.path[:] = [*(path for path in sys.path if path not in own), *state.sys_path]
    _filter_warnings(state)
    if state.captures_warnings != _captures_warnings():
        logging.captureWarnings(state.captures_warnings)
    for level, name in state.level_names:
        logging.addLevelName(level, name)
    logging.disable(state.disabled_level)
    configured = {logger.name for logger in state.loggers}
    for earlier in before.loggers if before is not None else ():
        if earlier.name not in configured:
            _configure(_default(earlier.name))
    problems = [problem for logger in state.loggers for problem in _configure(logger)]
    for problem in (*state.left_out, *problems):
        logging.getLogger("syncline").warning("%s", problem)


# -- warnings


def _warning_filter(
    action: str, message: Pattern, category: object, module: Pattern, line: int
) -> WarningFilter:
    return WarningFilter(
        action=action,
        message=_packed(message),
        category=cloudpickle.dumps(category, PROTOCOL),
        category_module=getattr(category, "__module__", "builtins"),
        module=_packed(module),
        line=line,
    )


def _packed(pattern: Pattern) -> PackedPattern:
    if isinstance(pattern, re.Pattern):
        return pattern.pattern, pattern.flags & ~re.UNICODE
    return pattern


def _unpacked(pattern: PackedPattern) -> Pattern:
    return re.compile(*pattern) if isinstance(pattern, tuple) else pattern


def _filter_warnings(state: ProgramState) -> None:
    warnings.resetwarnings()
    for each in state.warning_filters:
        if each.category_module in sys.modules:
            category = pickle.loads(each.category)
            message, module = _unpacked(each.message), _unpacked(each.module)
            entry = (each.action, message, category, module, each.line)
            warnings.filters.append(entry)  # type: ignore[attr-defined]


def _captures_warnings() -> bool:
    return warnings.showwarning.__module__ == "logging"


# -- the main module


def _set_main_module(state: ProgramState) -> None:
    """Describe the user's script in `__main__`, so that child processes can import it, and let
    classes and functions of the script appear there as they arrive.

    `multiprocessing` imports the file in spawned children under the name `__mp_main__`.
    """
    main = pickling.main_module
    if main is None:
        main = pickling.main_module = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = __builtins__
        # `multiprocessing` knows it under both names, and sends values with the second one.
        sys.modules["__main__"] = sys.modules["__mp_main__"] = main
    file = state.main_file
    if file is not None and os.path.exists(file):  # another node may not have it
        main.__file__ = file
    main.__spec__ = None
    if state.main_name is not None:
        main.__spec__ = importlib.machinery.ModuleSpec(state.main_name, None, origin=file)
        main.__package__ = main.__spec__.parent


def enter_in_main(code: AnyFunction | type) -> None:
    """Enter the globals of a function or an actor class of the user's script in `__main__`.

    Needed where another pickler than ours has brought it.
    """
    main = pickling.main_module
    if main is None or code in _entered or code.__module__ != "__main__":
        return
    _entered.add(code)
    functions = find_methods(code).values() if isinstance(code, type) else [code]
    names = {name: value for each in functions for name, value in _globals(each).items()}
    for name, value in {**names, code.__name__: code}.items():
        if pickling.is_top_level_of_main(value):
            setattr(main, name, value)


def _globals(function: AnyFunction) -> dict[str, Any]:
    return getattr(inspect.unwrap(function), "__globals__", {})


# -- logging


def _loggers() -> Iterator[logging.Logger]:
    yield logging.root
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield logger


def _configured_loggers() -> Iterator[logging.Logger]:
    for logger in _loggers():
        if (
            logger.level
            or logger.handlers
            or logger.filters
            or logger.disabled
            or not logger.propagate
        ):
            yield logger


def _fingerprint() -> object:
    main = sys.modules.get("__main__")
    return (
        tuple(sys.argv),
        id(main),
        tuple(sys.path),
        tuple(map(id, warnings.filters)),
        _captures_warnings(),
        logging.root.manager.disable,
        tuple(logging._levelToName),
        tuple(
            (
                logger.name,
                logger.level,
                logger.propagate,
                logger.disabled,
                tuple((id(each), each.level, id(each.formatter)) for each in logger.handlers),
                tuple(map(id, logger.filters)),
            )
            for logger in _configured_loggers()
        ),
    )


def _logger_state(logger: logging.Logger, left_out: list[str]) -> LoggerState:
    name = "" if logger is logging.root else logger.name
    parts: dict[str, tuple[bytes, ...]] = {}
    for kind, members in (("handler", logger.handlers), ("filter", logger.filters)):
        packed: list[bytes] = []
        for member in members:
            if _is_of_its_library(member, logger.name) or not _reaches_a_person(member):
                continue
            try:
                packed.append(_pack(member))
            except Exception as error:
                left_out.append(
                    f"The {kind} {member!r} of the logger {logger.name!r} cannot be copied to "
                    f"workers ({type(error).__name__}: {error}): records of workers do not reach "
                    "it. Add it in the function that the workers run."
                )
        parts[kind] = tuple(packed)
    return LoggerState(
        name=name,
        level=logger.level,
        propagate=logger.propagate,
        disabled=logger.disabled,
        handlers=parts["handler"],
        filters=parts["filter"],
    )


def _default(name: str) -> LoggerState:
    level = logging.NOTSET if name else logging.WARNING
    return LoggerState(
        name=name, level=level, propagate=True, disabled=False, handlers=(), filters=()
    )


def _configure(state: LoggerState) -> list[str]:
    """Configure a logger of this process; return a text for each part that failed."""
    logger = logging.getLogger(state.name or None)
    logger.setLevel(state.level)
    logger.propagate, logger.disabled = state.propagate, state.disabled
    problems: list[str] = []
    parts: list[tuple[str, list[Any], tuple[bytes, ...]]] = [
        ("handler", logger.handlers, state.handlers),
        ("filter", logger.filters, state.filters),
    ]
    for kind, members, packed in parts:
        kept = [member for member in members if _is_of_its_library(member, logger.name)]
        for data in packed:
            try:
                kept.append(pickle.loads(data))
            except Exception as error:
                problems.append(
                    f"A {kind} of the logger {logger.name!r} cannot be restored in a worker "
                    f"({type(error).__name__}: {error}): records of workers do not reach it."
                )
        members[:] = kept
    return problems


def _is_of_its_library(member: object, logger_name: str) -> bool:
    """Return True if a library has configured its own logger, as it does on import."""
    library = logger_name.partition(".")[0]
    formatter = getattr(member, "formatter", None)
    return any(
        type(each).__module__.partition(".")[0] == library
        for each in (member, formatter)
        if each is not None
    )


def _reaches_a_person(member: object) -> bool:
    """Return False for handlers that write to memory, which no one could read in a worker."""
    if not isinstance(member, logging.StreamHandler) or isinstance(member, logging.FileHandler):
        return True
    return _stream_name(member.stream) is not None


def _stream_name(stream: object) -> str | None:
    for name in _STREAMS:
        if stream in (getattr(sys, name), getattr(sys, f"__{name}__")):
            return name
    if isinstance(stream, StandardStream):
        return stream.stream_name
    return next((name for name in _STREAMS if getattr(stream, "name", "") == f"<{name}>"), None)


class StandardStream:
    """`sys.stdout` or `sys.stderr` as it is at the time of each call."""

    def __init__(self, name: str) -> None:
        self.stream_name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(getattr(sys, self.stream_name), attribute)

    def __reduce__(self) -> tuple[object, ...]:
        return StandardStream, (self.stream_name,)


def _pack(member: object) -> bytes:
    with io.BytesIO() as stream:
        _Pickler(stream).dump(member)
        return stream.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle ships no type hints
    """Pickles handlers with new locks, standard streams by name, and files by path."""

    def reducer_override(self, obj: object) -> object:
        if isinstance(obj, _LOCKS):
            return type(obj), ()
        if isinstance(obj, logging.FileHandler):
            state = (obj.level, obj.formatter, obj.filters)
            return _open_file, (obj.baseFilename, obj.encoding, *state)
        if isinstance(obj, TextIO | io.TextIOBase | StandardStream):
            name = _stream_name(obj)
            if name is not None:
                return StandardStream, (name,)
        return super().reducer_override(obj)


def _open_file(
    path: str, encoding: str | None, level: int, formatter: Any, filters: Any
) -> logging.Handler:
    """Return a handler that appends to the file at `path`, also after another process has moved it
    aside.
    """
    handler = logging.handlers.WatchedFileHandler(path, encoding=encoding, delay=True)
    handler.setLevel(level)
    handler.setFormatter(formatter)
    handler.filters[:] = filters
    return handler
