"""`runtime_env`: environment variables and code that a worker gets before its first task.

Covered: the normal form, its key, merging a task's with the program's, and applying one in a
worker. An environment that installs packages (`pip`, `conda`, `uv`, containers) needs a cluster: on
one machine the program's own environment is the workers' too.
"""

from __future__ import annotations

import hashlib
import json
import os
import string
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from syncline import settings
from syncline.core.errors import did_you_mean

_KEPT = ("env_vars", "working_dir", "py_modules")
_IGNORED = ("config", "excludes", "nsight", "_validate", "_tracing")
_INSTALLING = (
    "pip",
    "conda",
    "uv",
    "container",
    "image_uri",
    "java_jars",
    "py_executable",
    "mpi",
    "rocprof_sys",
)
_OTHER = ("worker_process_setup_hook",)


class RuntimeEnv(dict[str, Any]):
    """A `runtime_env` as an object: a dict that was checked when it was made."""

    def __init__(self, **fields: Any) -> None:
        super().__init__({name: value for name, value in fields.items() if value is not None})
        normalize(self, may_install=True)

    def to_dict(self) -> dict[str, Any]:
        """The fields as a plain dict."""
        return dict(self)

    def env_vars(self) -> dict[str, str]:
        """The environment variables."""
        return dict(self.get("env_vars", {}))

    def working_dir(self) -> str | None:
        """The working directory."""
        return self.get("working_dir")

    def py_modules(self) -> list[str]:
        """The modules, as given."""
        return list(self.get("py_modules", ()))


def normalize(env: Mapping[str, Any] | None, *, may_install: bool = False) -> dict[str, Any]:
    """The normal form: `env_vars`, `working_dir` and `py_modules` with absolute paths, without what
    is empty.

    `may_install`: fields that install packages are kept as they are; otherwise they are a
    ValueError. ValueError or TypeError for unknown fields, wrong types and paths that do not exist.
    """
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise TypeError(
            f"`runtime_env` is a {type(env).__name__}: pass a dict such as {{'env_vars': {{'NAME': 'value'}}}}"
        )
    normal: dict[str, Any] = {}
    for name, value in env.items():
        if value is None or name in _IGNORED:
            continue
        if name in _INSTALLING or name in _OTHER:
            if not may_install:
                raise ValueError(_cannot_install(name))
            normal[name] = value
        elif name == "env_vars":
            normal[name] = _env_vars(value)
        elif name == "working_dir":
            normal[name] = _existing_path("working_dir", value, only_directory=True)
        elif name == "py_modules":
            normal[name] = _py_modules(value)
        else:
            known = (*_KEPT, *_INSTALLING, *_OTHER, *_IGNORED)
            raise ValueError(
                f"`runtime_env` has no field {name!r}.{did_you_mean(str(name), known)} It knows {', '.join(_KEPT)}."
            )
    return {name: value for name, value in normal.items() if value}


def merge(
    job: Mapping[str, Any], task: Mapping[str, Any], *, may_install: bool = False
) -> dict[str, Any]:
    """The normal form for a task of a program: variables of both, the task's first; otherwise the
    task's fields replace.

    ValueError for fields that install packages, unless the engine `may_install`.
    """
    if not may_install:
        for name in task:
            if name in _INSTALLING or name in _OTHER:
                raise ValueError(_cannot_install(name))
    merged = {**job, **task}
    if "env_vars" in job and "env_vars" in task:
        merged["env_vars"] = {**job["env_vars"], **task["env_vars"]}
    return merged


def key(normal: Mapping[str, Any]) -> str:
    """A short text that is equal for equal normal forms; empty for the empty one. Workers are
    shared by key.
    """
    if not normal:
        return ""
    return hashlib.sha256(json.dumps(normal, sort_keys=True, default=repr).encode()).hexdigest()[
        :16
    ]


def apply(normal: Mapping[str, Any]) -> None:
    """Make this process's environment that of `normal`, once, before it runs a task. `${NAME}` in
    variables is filled in.
    """
    for name, value in normal.get("env_vars", {}).items():
        os.environ[name] = string.Template(value).safe_substitute(settings.inherited_environment())
    for path in reversed(normal.get("py_modules", ())):
        _import_from(path if path.endswith((".whl", ".zip", ".egg")) else os.path.dirname(path))
    working_dir = normal.get("working_dir")
    if working_dir:
        os.chdir(working_dir)
        _import_from(working_dir)


def _import_from(directory: str) -> None:
    if directory in sys.path:
        sys.path.remove(directory)
    sys.path.insert(0, directory)


def _cannot_install(name: str) -> str:
    if name in _OTHER:
        return f"`runtime_env[{name!r}]` is not supported: call the function at the beginning of the task instead"
    return (
        f"`runtime_env[{name!r}]` prepares another environment for workers, which only a cluster can do: on this machine workers run "
        f"in the program's own environment. Install what is needed there before the program starts, and remove {name!r}."
    )


def _env_vars(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError(
            f"`runtime_env['env_vars']` is a {type(value).__name__}: pass a dict of text by name"
        )
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError(
                f"`runtime_env['env_vars']` has {name!r}: {text!r}, but variables are text: write {str(name)!r}: {str(text)!r}"
            )
    return dict(value)


def _py_modules(value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(
            f"`runtime_env['py_modules']` is a {type(value).__name__}: pass a list of paths or modules"
        )
    return [
        _existing_path("py_modules", _module_path(entry), only_directory=False) for entry in value
    ]


def _module_path(entry: Any) -> Any:
    if not isinstance(entry, ModuleType):
        return entry
    if hasattr(entry, "__path__"):
        return next(iter(entry.__path__))
    return entry.__file__


def _existing_path(field: str, value: Any, *, only_directory: bool) -> str:
    if not isinstance(value, (str, Path)):
        raise TypeError(f"`runtime_env[{field!r}]` has a {type(value).__name__}: pass a path")
    if "://" in str(value) or (only_directory and str(value).endswith((".zip", ".whl"))):
        raise ValueError(
            f"`runtime_env[{field!r}]={str(value)!r}` is to be fetched or unpacked: do that first, and pass the directory"
        )
    path = Path(value).expanduser().absolute()
    if not (path.is_dir() if only_directory else path.exists()):
        kind = "directory" if only_directory else "file or directory"
        raise ValueError(
            f"`runtime_env[{field!r}]={str(value)!r}` leads to {path}, where there is no {kind}"
        )
    return str(path)
