"""Whether the workers of a plan may use torch.

Workers that do not need torch start a second earlier, see `core.worker_imports`. The search is for
names in the pickled code of the plan. User functions of `__main__` and closures are pickled with
all their names, and functions of importable modules with the name of their module, whose content is
searched in turn. Not covered: a module that imports torch and that a function is the first to
import.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType

from syncline.core import serialization
from syncline.data.execute.physical_plan import ExchangeRows, PhysicalPlan, SourceTasks, Stage

_DOTTED_NAME = re.compile(rb"(?<![/\w.-])[A-Za-z_][\w.]*(?![/\w-])")
"""A name outside of paths: pickled functions contain the paths of their files."""
_WITHOUT_TORCH = frozenset(
    {
        *sys.stdlib_module_names,
        *("__main__", "__mp_main__"),  # pickled by value
        *("cloudpickle", "numpy", "pandas", "pyarrow", "syncline"),
    }
)
_MAX_MODULES = 500
"""Number of modules above which the search gives up."""


def may_use_torch(plan: PhysicalPlan) -> bool:
    """Return False if the functions and sources of a plan do not use torch."""
    try:
        return any(
            _mentions_torch(serialization.pack(_code_of(stage)).data) for stage in plan.stages
        )
    except Exception:  # cannot be pickled; the start of the task reports it
        return True


def _code_of(stage: Stage) -> tuple[object, ...]:
    """Return the functions of a stage, and one of its sources."""
    grouping = stage.grouping
    if isinstance(grouping, SourceTasks):
        return stage.chain, grouping.payloads[:1]
    if isinstance(grouping, ExchangeRows):
        return stage.chain, grouping.sample, grouping.partition
    return (stage.chain,)


def _mentions_torch(code: bytes) -> bool:
    names = {name.decode() for name in _DOTTED_NAME.findall(code)}
    return any(_is_torch(name) for name in names) or _reaches_torch(
        [name for name in names if name in sys.modules]
    )


def _reaches_torch(names: Iterable[str]) -> bool:
    """Return True if torch, or something of it, is in modules or in modules that they refer to."""
    waiting = [name for name in names if _may_reach(name)]
    found = set(waiting)
    while waiting:
        module = sys.modules.get(waiting.pop())
        for value in list(vars(module).values()) if module is not None else ():
            name = _module_of(value)
            if _is_torch(name):
                return True
            if name not in found and _may_reach(name):
                found.add(name)
                waiting.append(name)
        if len(found) > _MAX_MODULES:
            return True
    return False


def _is_torch(name: str) -> bool:
    return name.split(".")[0] == "torch"


def _may_reach(name: str) -> bool:
    return name.split(".")[0] not in _WITHOUT_TORCH


def _module_of(value: object) -> str:
    """Return the name of a module, or of the module of a function, a class or an instance."""
    if isinstance(value, ModuleType):
        return value.__name__
    owner = value if isinstance(value, FunctionType | type) else type(value)
    name = owner.__module__
    return name if isinstance(name, str) else ""
