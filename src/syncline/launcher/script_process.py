"""The process of a worker: a forked process becomes `python script.py`.

Covered: working directory, variables, standard streams, arguments, module search path, `__main__`,
random states, tracebacks that begin at the script, exit codes. Other commands replace the process,
as torchrun always does; so does a script whose directory hides a module that the template has
imported. Not covered: interpreter options in a script's first line.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import io
import marshal
import multiprocessing.process
import os
import pickle
import pkgutil
import runpy
import signal
import sys
import types
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from syncline import settings, system
from syncline.core import random_states
from syncline.core.embedded import early_start, stack_dump
from syncline.launcher import worker_profiles
from syncline.launcher.rank_watch import RankWatch
from syncline.records import dataclass

UNBUFFERED = "-u"
THREADS = "OMP_NUM_THREADS"
_PR_SET_PTRACER = 0x59616D61


@dataclass(frozen=True, kw_only=True)
class WorkerProcess:
    """Work of a worker's process (see `core.embedded.program_server`).

    It is called with the descriptor of a `RankMemory`, if it is to be watched.
    """

    command: tuple[str, ...]
    """Program and arguments."""
    function: bytes | None
    """Pickled function to call instead of a command."""
    directory: str
    variables: dict[str, str]
    launcher_pid: int
    """Process that may inspect this one."""
    world_size: int

    def __call__(self, fds: list[int]) -> None:
        """Run the command; never return from one that needs another interpreter."""
        os.chdir(self.directory)
        template = settings.inherited_environment()
        os.environ.clear()
        os.environ.update(self.variables)
        arguments = script_arguments(self.command)
        if self.function is None and (arguments is None or is_hidden(arguments)):
            for fd in fds:
                os.close(fd)
            execute(self.command)
        _permit_inspection(self.launcher_pid)
        stack_dump.register()
        worker_profiles.offer()
        take_standard_streams()
        reset_libraries(template)
        with ExitStack() as watched:
            for fd in fds:
                watch = RankWatch(fd, self.world_size)
                os.close(fd)
                watch.start()
                watched.callback(watch.finish)
            if self.function is not None:
                call_pickled(self.function)
            else:
                assert arguments is not None, "checked above"
                sys.orig_argv = list(self.command)
                run_as_main(arguments)


def call_pickled(function: bytes) -> None:
    """Call a pickled function; its errors are printed as those of a script."""
    pickle.loads(function)()


def script_arguments(command: Sequence[str]) -> tuple[str, ...] | None:
    """Return the arguments of this interpreter after `-u`; None for another program."""
    if command[0] != sys.executable or tuple(command[1:2]) != (UNBUFFERED,):
        return None
    return tuple(command[2:])


def is_hidden(arguments: Sequence[str]) -> bool:
    """Return True if the script would import one of its own files where another module is loaded.

    A fresh interpreter finds `random.py` or `numpy/` beside the script before the library of that
    name; this process has the library's already.
    """
    directory = _first_path(arguments)
    try:
        own = {entry.name.partition(".")[0] for entry in os.scandir(directory)}
    except OSError:
        return False
    loaded = {name for name in sys.modules if "." not in name} - {"__main__"}
    return any(_is_elsewhere(name, directory) for name in own & loaded)


def _is_elsewhere(name: str, directory: str) -> bool:
    path = Path(directory, name)
    is_module = path.with_name(f"{name}.py").is_file() or (path / "__init__.py").is_file()
    file = getattr(sys.modules[name], "__file__", None)
    return is_module and file is not None and not file.startswith(os.path.join(directory, ""))


def _first_path(arguments: Sequence[str]) -> str:
    """Return the directory that a fresh interpreter searches first."""
    if arguments[0] == "-m":
        return os.getcwd()
    path = os.path.realpath(arguments[0])
    return path if _is_container(path) else os.path.dirname(path)


def _is_container(path: str) -> bool:
    """Return True for a directory or an archive, whose `__main__` Python runs."""
    return pkgutil.get_importer(path) is not None


def execute(command: Sequence[str]) -> None:
    """Replace this process by a program; exit as a shell does if it does not exist."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        print(f"syncline run: cannot run {command[0]!r}: {error.strerror}", file=sys.stderr)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


# -- the interpreter's state


def take_standard_streams() -> None:
    """Open `sys.stdin`, `sys.stdout` and `sys.stderr` as an interpreter with `-u` does."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, f"__{name}__") or getattr(sys, name)
        encoding = getattr(before, "encoding", "utf-8")
        errors = getattr(before, "errors", "strict")
        if fd == 0:
            raw: Any = io.FileIO(fd, "rb", closefd=False)
            stream = io.TextIOWrapper(io.BufferedReader(raw), encoding, errors, write_through=True)
            stream.mode = "r"  # type: ignore[misc]
        else:
            raw = io.FileIO(fd, "wb", closefd=False)
            stream = io.TextIOWrapper(
                raw, encoding, errors, newline="\n", write_through=True, line_buffering=raw.isatty()
            )
            stream.mode = "w"  # type: ignore[misc]
        raw.name = f"<{name}>"
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def reset_libraries(template: dict[str, str]) -> None:
    """Give libraries the state of a fresh process.

    Args:
        template: Variables with which the template imported them.
    """
    early_start.allow()
    random_states.seed_anew()
    multiprocessing.process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]
    multiprocessing.process.current_process().authkey = os.urandom(32)
    torch = sys.modules.get("torch")
    if torch is None:
        return
    threads = settings.environment(THREADS)
    if threads != template.get(THREADS):
        count = threads if threads is not None and threads.isdecimal() else None
        torch.set_num_threads(int(count) if count else len(system.allowed_cpus()))


def _permit_inspection(pid: int) -> None:
    """Let descendants of the launcher, such as py-spy, read this process."""
    if system.IS_LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


# -- the script


def run_as_main(arguments: Sequence[str]) -> None:
    """Run `script.py args…` or `-m module args…` as the interpreter does with these arguments.

    The traceback of an error is printed without the frames of this file. The error is raised
    again, so that the interpreter ends as it does after an error.
    """
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __annotations__={}, __spec__=None)
    sys.modules["__main__"] = main
    is_module = arguments[0] == "-m"
    sys.argv[:] = ["-m", *arguments[2:]] if is_module else list(arguments)
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, _first_path(arguments))
    try:
        if is_module:
            runpy._run_module_as_main(arguments[1])  # type: ignore[attr-defined]
        elif _is_container(arguments[0]):
            runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        else:
            exec(_loaded(arguments[0], main), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        _print(error.with_traceback(trace))
        raise


def _loaded(path: str, main: types.ModuleType) -> types.CodeType:
    """Return the code of a script, and set the attributes of its module."""
    absolute = os.path.abspath(path)
    try:
        with io.open_code(absolute) as file:
            content = file.read()
    except OSError as error:
        print(
            f"{sys.executable}: can't open file {absolute!r}: [Errno {error.errno}] "
            f"{error.strerror}",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    is_compiled = content[:4] == importlib.util.MAGIC_NUMBER
    loader = (
        importlib.machinery.SourcelessFileLoader
        if is_compiled
        else importlib.machinery.SourceFileLoader
    )
    main.__dict__.update(
        __file__=absolute, __cached__=None, __loader__=loader("__main__", absolute)
    )
    if is_compiled:
        code: types.CodeType = marshal.loads(content[16:])
        return code
    return compile(content, absolute, "exec", dont_inherit=True)


def _print(error: BaseException) -> None:
    """Call the program's hook for uncaught errors, then silence it for the error's second end."""
    hook, sys.excepthook = sys.excepthook, lambda *_: None
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    try:
        hook(type(error), error, error.__traceback__)
    except SystemExit:
        raise
    except BaseException as problem:
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(problem), problem, problem.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)
