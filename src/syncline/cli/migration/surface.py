"""Which of Ray's names syncline has, found by looking at syncline itself.

A module of ours whose library is not installed here cannot be imported: then its source says which
names it defines. Attributes are looked up in modules and classes; what lies below a function or
another object is not known, and counts as there.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from syncline import settings

RAY = "ray"
OURS = "syncline"
NOT_COUNTERPARTS = frozenset({"cli", "core", "dashboard", "faults", "settings", "testing"})
"""Parts of syncline that have nothing to do with what Ray has under the same name."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """syncline has it. `value` is the object where it could be loaded and is no longer than the
    name: None otherwise.
    """

    value: object = None


@dataclass(frozen=True, kw_only=True)
class Missing:
    """syncline does not have it: the shortest beginning of the dotted name that is not there, and
    where its last part is found instead.
    """

    name: str
    elsewhere: str | None = None


class _Unloadable(Exception):
    def __init__(self, module: str) -> None:
        super().__init__(module)
        self.module = module


class Surface:
    """Answers are kept. Not for several threads."""

    def __init__(self) -> None:
        self._answers: dict[str, Known | Missing] = {}

    def find(self, name: str) -> Known | Missing:
        """Whether syncline has the counterpart of a dotted name of Ray's, such as
        "ray.tune.Tuner".
        """
        if name not in self._answers:
            found = self._look_up(name)
            if isinstance(found, Missing):
                found = Missing(name=found.name, elsewhere=self._elsewhere(name, found.name))
            self._answers[name] = found
        return self._answers[name]

    def _look_up(self, name: str) -> Known | Missing:
        value: object = importlib.import_module(OURS)
        parts = name.split(".")
        for count, part in enumerate(parts[1:], start=2):
            if not isinstance(value, ModuleType) and not inspect.isclass(value):
                return Known()
            if count == 2 and part in NOT_COUNTERPARTS:
                return Missing(name=".".join(parts[:2]))
            try:
                value = _member(value, part)
            except _Unloadable as error:
                rest = parts[count:]
                known = not rest or rest[0] in _names_in_source(error.module)
                return Known() if known else Missing(name=".".join(parts[: count + 1]))
            except AttributeError:
                return Missing(name=".".join(parts[:count]))
        return Known(value=value)

    def _elsewhere(self, name: str, missing: str) -> str | None:
        """The same last part in a package above, where the path between is one of Ray's own:
        `ray.tune.tuner_internal.Tuner`.
        """
        last = name.rpartition(".")[2]
        above = missing.split(".")[:-1]
        for count in range(len(above), 0, -1):
            candidate = ".".join([*above[:count], last])
            if candidate != name and isinstance(self._look_up(candidate), Known):
                return ours(candidate)
        return None


def ours(name: str) -> str:
    """A dotted name of Ray's as syncline calls it."""
    return OURS + name.removeprefix(RAY)


def _member(owner: ModuleType | type, part: str) -> object:
    """An attribute or submodule. AttributeError where there is none, _Unloadable for a module whose
    library is missing.
    """
    if not isinstance(owner, ModuleType):
        if any(part in vars(base).get("__annotations__", ()) for base in owner.__mro__):
            return None
        return getattr(owner, part)
    module = f"{owner.__name__}.{part}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = getattr(owner, part, None)
            if value is None and part not in vars(owner):
                value = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            raise AttributeError(part) from None
        raise _Unloadable(module) from error
    except ImportError as error:
        raise _Unloadable(module) from error
    if value is annotations or (
        isinstance(value, ModuleType) and value.__name__.split(".")[0] != OURS
    ):
        raise AttributeError(
            part
        )  # a library that our module happens to use, or its `from __future__ import annotations`
    return value


def _names_in_source(module: str) -> frozenset[str]:
    """Names that a module's file defines or imports at its top, and its submodules."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return frozenset()
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    below = {
        path.stem
        for place in spec.submodule_search_locations or ()
        for path in Path(place).iterdir()
    }
    return frozenset(below | set(_defined(tree.body)))


def _defined(statements: list[ast.stmt]) -> Iterator[str]:
    for statement in statements:
        match statement:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name.split(".")[0] for alias in names)
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If(body=body, orelse=orelse) | ast.Try(body=body, orelse=orelse):
                yield from _defined([*body, *orelse])
            case _:
                pass


def unknown_arguments(value: object, names: list[str]) -> list[str]:
    """Those of a call's keywords that a function or class of ours does not take; none where that
    cannot be told.
    """
    if not callable(value):
        return []
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return []
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return []
    taken = {
        parameter.name
        for parameter in parameters
        if parameter.kind is not parameter.POSITIONAL_ONLY
    }
    return [name for name in names if name not in taken]


def own_variables() -> frozenset[str]:
    """The environment variables that syncline reads."""
    constants = [
        node.value
        for node in ast.walk(ast.parse(inspect.getsource(settings)))
        if isinstance(node, ast.Constant)
    ]
    return frozenset(
        value for value in constants if isinstance(value, str) and value.startswith("SYNCLINE_")
    )
