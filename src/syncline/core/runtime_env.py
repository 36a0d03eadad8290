"""`runtime_env`: environment variables and code that a worker gets before its first task.

Covers normalization, merging of a task's environment with the program's, and application in a
worker. `packages` has the fields `pip` and `uv`. Other interpreters (`conda`, containers) need a
cluster.
"""

from __future__ import annotations

import os
import string
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from syncline import settings
from syncline.core import packages
from syncline.suggestions import did_you_mean

Env = Mapping[str, Any]
"""Fields of a `runtime_env` by name."""

_SUPPORTED = ("env_vars", "working_dir", "py_modules", *packages.INSTALLERS)
_IGNORED = ("config", "excludes", "nsight", "_validate", "_tracing")
_INSTALLING = (
    "conda",
    "container",
    "image_uri",
    "java_jars",
    "py_executable",
    "mpi",
    "rocprof_sys",
)
_UNSUPPORTED = ("worker_process_setup_hook",)


class RuntimeEnv(dict[str, Any]):
    """A `runtime_env` as a dict that is validated on creation."""

    def __init__(self, **fields: object) -> None:
        super().__init__({name: value for name, value in fields.items() if value is not None})
        normalize(self, may_install=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a plain dict."""
        return dict(self)

    def env_vars(self) -> dict[str, str]:
        """Return the environment variables."""
        return dict(self.get("env_vars", {}))

    def working_dir(self) -> str | None:
        """Return the working directory."""
        return self.get("working_dir")

    def py_modules(self) -> list[str]:
        """Return the modules as given."""
        return list(self.get("py_modules", ()))


class RuntimeEnvConfig(dict[str, Any]):
    """The field `config` of a `runtime_env` as a dict that is validated on creation.

    A cluster uses it; on one machine it has no effect.
    """

    def __init__(
        self,
        setup_timeout_seconds: int = 600,
        eager_install: bool = True,
        log_files: Sequence[str] | None = None,
    ) -> None:
        """`setup_timeout_seconds`: limit of the installation, -1 for none; `eager_install`:
        install when the program starts; `log_files`: files to show on Ray's dashboard.
        """
        if isinstance(setup_timeout_seconds, bool) or not isinstance(setup_timeout_seconds, int):
            raise TypeError(
                f"`setup_timeout_seconds={setup_timeout_seconds!r}` is a "
                f"{type(setup_timeout_seconds).__name__}: give whole seconds, or -1 for no limit"
            )
        if setup_timeout_seconds < -1 or setup_timeout_seconds == 0:
            raise ValueError(
                f"`setup_timeout_seconds={setup_timeout_seconds}` is impossible: "
                f"give 1 or more seconds, or -1 for no limit"
            )
        if not isinstance(eager_install, bool):
            raise TypeError(
                f"`eager_install={eager_install!r}` is a {type(eager_install).__name__}: "
                f"give True or False"
            )
        super().__init__(
            setup_timeout_seconds=setup_timeout_seconds,
            eager_install=eager_install,
            log_files=list(log_files or ()),
        )


def normalize(env: Env | None, *, may_install: bool = False) -> Env:
    """Return the normal form: absolute paths, no empty fields.

    `may_install`: keep fields that install packages unchanged; otherwise they raise ValueError.
    Also raises ValueError or TypeError for unknown fields, wrong types and missing paths.
    """
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise TypeError(
            f"`runtime_env` is a {type(env).__name__}: "
            f"pass a dict such as {{'env_vars': {{'NAME': 'value'}}}}"
        )
    normal: dict[str, Any] = {}
    for name, value in env.items():
        if value is None or name in _IGNORED:
            continue
        if name in _INSTALLING or name in _UNSUPPORTED:
            if not may_install:
                raise ValueError(_cannot_install(name))
            normal[name] = value
        elif name == "env_vars":
            normal[name] = _env_vars(value)
        elif name in packages.INSTALLERS:
            normal[name] = packages.normalize(name, value)
        elif name == "working_dir":
            normal[name] = _existing_path("working_dir", value, only_directory=True)
        elif name == "py_modules":
            normal[name] = _py_modules(value)
        else:
            known = (*_SUPPORTED, *_INSTALLING, *_UNSUPPORTED, *_IGNORED)
            raise ValueError(
                f"`runtime_env` has no field {name!r}.{did_you_mean(str(name), known)} "
                f"It has {', '.join(_SUPPORTED)}."
            )
    if all(normal.get(name) for name in packages.INSTALLERS):
        raise ValueError(
            "`runtime_env` has both 'pip' and 'uv': give the packages in one of the two fields"
        )
    return {name: value for name, value in normal.items() if value}


def merge(job: Env, task: Env, *, may_install: bool = False) -> Env:
    """Merge a task's normal form into the program's: variables are joined, fields replaced.

    Raises ValueError for fields that install packages, unless the engine `may_install`.
    """
    if not may_install:
        for name in task:
            if name in _INSTALLING or name in _UNSUPPORTED:
                raise ValueError(_cannot_install(name))
    merged = {**job, **task}
    if any(name in task for name in packages.INSTALLERS):
        merged = {
            name: value
            for name, value in merged.items()
            if name in task or name not in packages.INSTALLERS
        }
    if "env_vars" in job and "env_vars" in task:
        merged["env_vars"] = {**job["env_vars"], **task["env_vars"]}
    return merged


def apply(normal: Env) -> None:
    """Apply a normal form to this process, once, before its first task.

    `${NAME}` in variables is expanded.
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
    if name in _UNSUPPORTED:
        return (
            f"`runtime_env[{name!r}]` is not supported: "
            f"call the function at the start of the task instead"
        )
    return (
        f"`runtime_env[{name!r}]` prepares another environment for workers, which only a cluster "
        f"can do: on this machine, workers use the program's interpreter. Install the packages "
        f"there before the program starts, or name them in 'pip', and remove {name!r}."
    )


def _env_vars(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError(
            f"`runtime_env['env_vars']` is a {type(value).__name__}: pass a dict of strings"
        )
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError(
                f"`runtime_env['env_vars']` has {name!r}: {text!r}, but variables are strings: "
                f"write {str(name)!r}: {str(text)!r}"
            )
    return dict(value)


def _py_modules(value: object) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(
            f"`runtime_env['py_modules']` is a {type(value).__name__}: "
            f"pass a list of paths or modules"
        )
    return [
        _existing_path("py_modules", _module_path(entry), only_directory=False) for entry in value
    ]


def _module_path(entry: object) -> object:
    if not isinstance(entry, ModuleType):
        return entry
    if hasattr(entry, "__path__"):
        return next(iter(entry.__path__))
    return entry.__file__


def _existing_path(field: str, value: object, *, only_directory: bool) -> str:
    if not isinstance(value, (str, Path)):
        raise TypeError(f"`runtime_env[{field!r}]` has a {type(value).__name__}: pass a path")
    if "://" in str(value) or (only_directory and str(value).endswith((".zip", ".whl"))):
        raise ValueError(
            f"`runtime_env[{field!r}]={str(value)!r}` is a URI or an archive: "
            f"fetch and unpack it first, and pass the directory"
        )
    path = Path(value).expanduser().absolute()
    if not (path.is_dir() if only_directory else path.exists()):
        kind = "directory" if only_directory else "file or directory"
        raise ValueError(
            f"`runtime_env[{field!r}]={str(value)!r}` is {path}, which is not an existing {kind}"
        )
    return str(path)
