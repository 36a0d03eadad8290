"""Running a program as `python` does: a script, a directory or zip file with `__main__.py`, or a
module after `-m`.

The program is the module `__main__` from its start to the end of the process, so that pickling and
`multiprocessing` find it there.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import zipfile
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from io import open_code
from types import CodeType, ModuleType

from syncline.as_ray.imports import install
from syncline.as_ray.names import OURS, RAY, advice, counterpart

USAGE = """\
usage: python -m syncline.as_ray SCRIPT [ARGUMENT...]
       python -m syncline.as_ray -m MODULE [ARGUMENT...]

Run a program written for Ray with syncline: `import ray` gives syncline, in the program, in the
libraries that it uses, and in the processes that it starts. RAY_ADDRESS is read like
SYNCLINE_ADDRESS."""
_CANNOT_IMPORT = re.compile(r"cannot import name '(\w+)' from '((?:ray|syncline)[\w.]*)'")


class _NoProgramError(Exception):
    """The command line names a program that does not exist."""


def main(arguments: Sequence[str]) -> int:
    """Run the program that the command line names; return the exit code."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    problem = _problem(arguments)
    if problem:
        print(f"{USAGE}\n\nsyncline.as_ray: {problem}", file=sys.stderr)
        return 2
    try:
        install()
        if arguments[0] == "-m":
            code, described = _module(arguments[1:])
        else:
            code, described = _script(arguments)
    except (_NoProgramError, RuntimeError, OSError) as error:
        print(f"syncline.as_ray: {error}", file=sys.stderr)
        return 2
    return _run(code, described)


def _problem(arguments: Sequence[str]) -> str | None:
    """Return the reason why the command line names no program."""
    if not arguments:
        return "no script: pass its path, or -m and the name of a module"
    if arguments[0] == "-m":
        return None if len(arguments) > 1 else "`-m` needs the name of a module"
    return f"unknown option {arguments[0]!r}" if arguments[0].startswith("-") else None


def _script(arguments: Sequence[str]) -> tuple[CodeType, Mapping[str, object]]:
    """Return the code of a script, and the attributes of its module."""
    path = arguments[0]
    sys.argv[:] = arguments
    if os.path.isdir(path) or zipfile.is_zipfile(path):
        _set_first_path(path)
        return _module_code("__main__", path)
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    with open_code(os.path.abspath(path)) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    return code, {"__file__": path, "__spec__": None, "__package__": None}


def _module(arguments: Sequence[str]) -> tuple[CodeType, Mapping[str, object]]:
    """Return the code of `-m MODULE`, and the attributes of its module."""
    name = arguments[0]
    _set_first_path(os.getcwd())
    code, described = _module_code(name, name)
    sys.argv[:] = [str(described["__file__"]), *arguments[1:]]
    return code, described


def _module_code(name: str, called: str) -> tuple[CodeType, Mapping[str, object]]:
    spec = _find(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.__main__"
        spec = _find(name)
    loader = None if spec is None else spec.loader
    code = None if loader is None else loader.get_code(name)  # type: ignore[attr-defined]
    if spec is None or code is None:
        raise _NoProgramError(
            f"{called!r} cannot be run: there is no Python code of a module {name!r}. Correct the "
            "name, or the directory in which you start it"
        )
    described = {"__file__": spec.origin, "__spec__": spec, "__package__": spec.parent}
    return code, {**described, "__loader__": loader, "__cached__": spec.cached}


def _find(name: str) -> ModuleSpec | None:
    if name == "__main__":
        return importlib.machinery.PathFinder.find_spec(name, sys.path[:1])
    try:
        return importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError) as error:
        raise _NoProgramError(f"module {name!r} cannot be found: {error}") from None


def _set_first_path(directory: str) -> None:
    """Replace the first entry of the import path, as Python sets it for the program."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = directory


def _run(code: CodeType, described: Mapping[str, object]) -> int:
    """Run the program as `__main__`; return the exit code."""
    main_module = ModuleType("__main__")
    main_module.__dict__.update(described, __builtins__=__builtins__)
    sys.modules["__main__"] = main_module
    try:
        exec(code, main_module.__dict__)
    except Exception as error:
        _explain(error)
        # Without the frames of this package, as if `python` had run the program.
        frames = error.__traceback__
        error.__traceback__ = None if frames is None else frames.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _explain(error: Exception) -> None:
    """Add advice to the error of `from ray.x import name`, whose text Python writes alone."""
    match = _CANNOT_IMPORT.search(str(error)) if isinstance(error, ImportError) else None
    if match is None or not isinstance(error, ImportError):
        return
    name, module = match.groups()
    dotted = RAY + module.removeprefix(OURS).removeprefix(RAY) + "." + name
    if counterpart(dotted) is None:  # an import within syncline
        return
    error.msg = f"{error.msg}. {advice(dotted)}"
