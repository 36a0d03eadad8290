"""Reading and writing configuration files, and importing applications from directories.

Covered: reading YAML, importing applications of several directories, errors with the user's frames,
removing modules so that they are imported again, and the configuration of running applications.
Not covered: the classes of configuration files (`config_file`) and building one application
(`application_loader`).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from syncline.core.tracebacks import is_self_explanatory, user_traceback
from syncline.optional import load
from syncline.serve.application_loader import build_from_schema
from syncline.serve.config import DeploymentConfig
from syncline.serve.config_file import (
    DeploymentSchema,
    ServeApplicationSchema,
    ServeDeploySchema,
    plain,
)
from syncline.serve.controller.messages import ApplicationTarget
from syncline.serve.option_values import within

_OWN_PACKAGE = __name__.partition(".")[0]
NO_ORIGIN = "unknown:app"
"""`import_path` of applications deployed by programs with `run`."""


class ApplicationImportError(RuntimeError):
    """Raised if an application cannot be imported or built; contains the user's frames."""


# -- files


def read_config(path: str | os.PathLike[str]) -> ServeDeploySchema:
    """Return the checked content of a YAML file.

    Raises OSError if the file cannot be read, and ValueError that names the key if its content is
    invalid.
    """
    yaml = load("yaml", purpose="a configuration file", install="syncline[serve]")
    with open(path, encoding="utf-8") as file:
        try:
            data = yaml.safe_load(file)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not YAML: {error}") from None
    if not isinstance(data, Mapping):
        raise ValueError(
            f"{path} is not a mapping: it needs at least `applications:`, a list whose items have "
            "an `import_path`"
        )
    if "import_path" in data and "applications" not in data:
        raise ValueError(
            f"{path} describes one application at the top level: move its keys to an item of the "
            "list `applications:`"
        )
    try:
        return ServeDeploySchema.from_dict(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def targets_of(
    config: ServeDeploySchema, directory: Path, *, replicas_import_from_it: bool
) -> list[ApplicationTarget]:
    """Return the targets of all applications, imported from their `working_dir` or `directory`.

    With `replicas_import_from_it`, `directory` becomes the `working_dir` of replicas that have
    none, for programs that run elsewhere. Raises ApplicationImportError.
    """
    return [
        _target(config, number, directory, replicas_import_from_it)
        for number in range(len(config.applications))
    ]


def _target(
    config: ServeDeploySchema, number: int, directory: Path, replicas_import_from_it: bool
) -> ApplicationTarget:
    application = config.applications[number]
    place = f"applications[{number}]"
    folder = _folder(application, directory, place)
    runtime_env = dict(application.runtime_env)
    if replicas_import_from_it or folder != directory:
        runtime_env["working_dir"] = str(folder)
    schema = replace(
        application,
        runtime_env=runtime_env,
        logging_config=application.logging_config or config.logging_config,
    )
    with importing_from(folder):
        try:
            return build_from_schema(schema, target_capacity=config.target_capacity)
        except (Exception, SystemExit) as error:
            text = _explained(application.import_path, error)
            raise ApplicationImportError(within(place, text)) from error


def _folder(application: ServeApplicationSchema, directory: Path, place: str) -> Path:
    given = application.runtime_env.get("working_dir")
    if given is None or "://" in str(given):  # the cluster fetches it; modules are also local
        return directory
    folder = (directory / Path(str(given)).expanduser()).resolve()
    if not folder.is_dir():
        problem = f"`runtime_env.working_dir={given!r}` is {folder}: no such directory"
        raise ApplicationImportError(within(place, problem))
    return folder


def described(targets: Iterable[ApplicationTarget]) -> ServeDeploySchema:
    """Return the configuration of applications: their origins and options."""
    return ServeDeploySchema(applications=tuple(_described(target) for target in targets))


def _described(target: ApplicationTarget) -> ServeApplicationSchema:
    return ServeApplicationSchema(
        name=target.name,
        route_prefix=target.route_prefix,
        import_path=target.import_path or NO_ORIGIN,
        args=target.args,
        external_scaler_enabled=target.external_scaler_enabled,
        deployments=tuple(
            DeploymentSchema(name=each.name, **_changed_options(each.config))
            for each in target.deployments
        ),
    )


def _changed_options(config: DeploymentConfig) -> dict[str, Any]:
    """Return the options that differ from the defaults, except actors, which exist only in code."""
    options: dict[str, Any] = plain(config)
    options.pop("deployment_actors", None)
    return options


# -- modules


@contextmanager
def importing_from(directory: Path) -> Iterator[None]:
    """Import modules from `directory` first; afterwards remove the new modules.

    This allows modules with the same name in different directories, and makes the next import read
    the files again.
    """
    entry = str(directory)
    sys.path.insert(0, entry)
    importlib.invalidate_caches()
    before = set(sys.modules)
    try:
        yield
    finally:
        sys.path.remove(entry)
        for name in set(sys.modules) - before:
            if _is_users(name, directory):
                del sys.modules[name]


def _is_users(name: str, directory: Path) -> bool:
    """Return True for a user module in a directory; False for installed modules."""
    file = getattr(sys.modules[name], "__file__", None)
    if name.partition(".")[0] == _OWN_PACKAGE or not isinstance(file, str):
        return False
    path = Path(file)
    return path.is_relative_to(directory) and "site-packages" not in path.parts


def _explained(import_path: str, error: BaseException) -> str:
    """Return the text of an error of syncline, or the traceback of an error of user code."""
    if is_self_explanatory(error):
        return str(error)
    if hasattr(error, "error_count"):  # of pydantic
        return f"the arguments of {import_path!r} are invalid: {error}"
    frames = _without_import_frames(user_traceback(error)).rstrip()
    return f"the import of {import_path!r} failed:\n{frames}"


def _without_import_frames(text: str) -> str:
    """Remove the frames of the import system from a traceback."""
    kept: list[str] = []
    is_skipping = False
    for line in text.splitlines(keepends=True):
        if line.startswith("  File "):
            is_skipping = "<frozen importlib" in line or f"{os.sep}importlib{os.sep}" in line
        elif not line.startswith("    "):
            is_skipping = False
        if not is_skipping:
            kept.append(line)
    return "".join(kept)
