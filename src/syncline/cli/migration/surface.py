"""Which of Ray's names syncline has, by looking them up in the installed package.

Attributes are looked up in modules, classes and other objects; any name below an annotated field
is taken to exist. If a module of syncline needs a library that is not installed here, its source
tells which names it defines.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import re
import symtable
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import syncline
from syncline import settings
from syncline.cli.migration.remedies import RENAMED_VARIABLES

RAY = "ray"
OURS = "syncline"
NOT_COUNTERPARTS = frozenset({"cli", "core", "dashboard", "faults", "settings", "testing"})
"""Modules of syncline unrelated to Ray's modules of the same name."""
JOBS = "ray.dashboard.modules.job."
"""Ray's modules for jobs, which syncline has under the same paths."""


class Missing(NamedTuple):
    """A name that syncline does not have."""

    name: str
    """Shortest prefix of the dotted name that is missing."""
    elsewhere: str | None = None
    """Full name of its last part in a package above."""
    remedy: str | None = None
    """What to use instead, as the package says it."""


def ours(name: str) -> str:
    """Return syncline's form of a dotted name of Ray."""
    return OURS + name.removeprefix(RAY)


@functools.cache
def find(name: str) -> object:
    """Return syncline's counterpart of a dotted name of Ray, such as "ray.tune.Tuner".

    Returns:
        The object; None if it exists but cannot be loaded; `Missing` if it does not exist.
    """
    found = _look_up(name)
    if isinstance(found, Missing):
        # `ray.tune.tuner_internal.Tuner`, in an internal module of Ray, is `syncline.tune.Tuner`.
        above, last = found.name.split(".")[:-1], name.rpartition(".")[2]
        for count in range(len(above), 0, -1):
            candidate = ".".join([*above[:count], last])
            if candidate != name and not isinstance(_look_up(candidate), Missing):
                return Missing(found.name, ours(candidate))
    return found


def _look_up(name: str) -> object:
    value: object = syncline
    parts = name.split(".")
    for count, part in enumerate(parts[1:], start=2):
        missing = Missing(".".join(parts[:count]))
        if inspect.isclass(value):
            if any(part in inspect.get_annotations(base) for base in value.__mro__):
                return None
            if not hasattr(value, part):
                return missing
            value = getattr(value, part)
        elif isinstance(value, ModuleType):
            if count == 2 and part in NOT_COUNTERPARTS and not name.startswith(JOBS):
                return missing
            module = f"{value.__name__}.{part}"
            try:
                value = _member(value, part)
            except ImportError as error:
                if error.name == module:
                    return missing
                remedy = getattr(error, "remedy", None)
                if isinstance(remedy, str):
                    return missing._replace(remedy=remedy)
                if parts[count:] and parts[count] not in _names_in_source(module):
                    return Missing(".".join(parts[: count + 1]))
                return None
            if value is annotations or (
                isinstance(value, ModuleType) and value.__name__.split(".")[0] != OURS
            ):
                return missing  # a library or `__future__` feature that the module imports
        elif value is None:
            return None
        elif hasattr(value, part):
            value = getattr(value, part)
        else:
            # `util.placement_group` is a function, and a module of the same name is behind it.
            behind = sys.modules.get(ours(".".join(parts[: count - 1])))
            if behind is None or not hasattr(behind, part):
                return missing
            value = getattr(behind, part)
    return value


def _member(module: ModuleType, part: str) -> object:
    """Return an attribute or submodule. Raises ImportError if there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = getattr(module, part, None)
        if value is None and part not in vars(module):
            return importlib.import_module(f"{module.__name__}.{part}")
    return value


def _names_in_source(module: str) -> set[str]:
    """Return the names that a module's source binds at its top level, and its submodules."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return set()
    source = Path(spec.origin)
    table = symtable.symtable(source.read_text(encoding="utf-8"), spec.origin, "exec")
    names = {
        each.get_name() for each in table.get_symbols() if each.is_assigned() or each.is_imported()
    }
    below = source.parent.iterdir() if spec.submodule_search_locations else ()
    return names | {path.stem for path in below}


def unknown_arguments(value: object, names: list[str]) -> list[str]:
    """Return the keywords that a function or class does not take; [] if that is unknown."""
    if not callable(value):
        return []
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return []
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return []
    taken = {each.name for each in parameters if each.kind is not each.POSITIONAL_ONLY}
    return [name for name in names if name not in taken]


def variable(name: str) -> str | None:
    """Return syncline's counterpart of an environment variable of Ray; None without one."""
    counterpart = RENAMED_VARIABLES.get(name, "SYNCLINE_" + name.removeprefix("RAY_"))
    return counterpart if counterpart in _own_variables() else None


@functools.cache
def _own_variables() -> frozenset[str]:
    return frozenset(re.findall(r'"(SYNCLINE_\w+)"', inspect.getsource(settings)))
