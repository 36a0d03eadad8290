"""Generation of configurations from a search space: enumeration of grids, sampling of domains,
evaluation of functions.

Spaces are nested in dictionaries, lists and tuples. Values of domains and grids may contain further
domains and grids, and functions may depend on each other in any order. `Variants` generates one
configuration at a time and can be pickled in between. Not covered: the number of samples and
initial points (`basic_variant.py`).
"""

from __future__ import annotations

import copy
import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import TypeAlias

import numpy as np

from syncline.tune.search.sample import (
    Categorical,
    Domain,
    Function,
    RandomSource,
    RandomState,
    as_random_source,
)
from syncline.tune.search.spec_view import RecursiveDependencyError, SpecView, Value

Path: TypeAlias = tuple[Value, ...]
"""Location of a value in nested containers: keys and indices, outermost first."""

_NOT_IN_TAGS = re.compile(r"[^a-zA-Z0-9_-]+")
_LONGEST_VALUE = 32
_LONGEST_TAG = 128


def grid_search(values: Iterable[Value]) -> dict[str, list[Value]]:
    """Try each of `values`; several grids in a space are combined.

    Raises:
        ValueError: There are no values.
    """
    return {"grid_search": _grid_values(values)}


def generate_variants(
    unresolved_spec: dict[str, Value],
    constant_grid_search: bool = False,
    random_state: RandomState = None,
) -> Iterator[tuple[dict[Path, Value], dict[str, Value]]]:
    """Generate one sample of a space: each combination of its grids, as (resolved values by path,
    configuration). The first grid in path order changes fastest.

    Args:
        unresolved_spec: The space.
        constant_grid_search: If False, other parameters are drawn for each combination; if True,
            once for all, unless they depend on a grid.
        random_state: Seed or generator.
    """
    source = as_random_source(random_state)
    variants = Variants(ParsedSpace.parse(unresolved_spec), constant_grid_search, source)
    while not variants.exhausted:
        yield variants.draw(source)


@dataclass(frozen=True, kw_only=True)
class ParsedSpace:
    """A search space with its domains and grids."""

    skeleton: Value
    """Copy of the containers, with a `Domain` for each unresolved value."""

    domains: list[tuple[Path, Domain]]
    """Domains to draw from, in the order of the space."""

    grids: list[tuple[Path, Domain]]
    """Grids, in the order of the space."""

    @staticmethod
    def parse(value: Value, path: Path = ()) -> ParsedSpace:
        """Parse the space `value`, located at `path`.

        Raises:
            ValueError: A value is invalid; the message has its path.
            TypeError: The same, for a wrong type.
        """
        found: list[tuple[Path, Domain]] = []
        skeleton = _parse(value, path, found)
        grids = [entry for entry in found if entry[1].is_grid()]
        return ParsedSpace(
            skeleton=skeleton,
            domains=[entry for entry in found if not entry[1].is_grid()],
            grids=grids,
        )

    def count_variants(self) -> int:
        """Return the number of combinations of the grids, including grids inside their values but
        not those inside values of domains.
        """
        return math.prod(
            sum(ParsedSpace.parse(value).count_variants() for value in grid.categories)
            for _, grid in _categorical(self.grids)
        )


class Variants:
    """Iterator over the configurations of one sample."""

    def __init__(
        self, space: ParsedSpace, constant_grid_search: bool, source: RandomSource
    ) -> None:
        self._constant_grid_search = constant_grid_search
        # The innermost level is the last one: grids inside a resolved value are enumerated before
        # the next outer combination.
        self._levels: list[_Level] = []
        self._open(
            _Resolution(
                config=space.skeleton, unresolved=space.domains, grids=space.grids, drawn=[]
            ),
            source,
        )

    @property
    def exhausted(self) -> bool:
        """True if there are no more configurations."""
        return not self._levels

    def draw(self, source: RandomSource) -> tuple[dict[Path, Value], dict[str, Value]]:
        """Return the next configuration as (resolved values by path, configuration).

        Raises:
            RecursiveDependencyError: Parameters depend on each other in a cycle.
        """
        while True:
            level = self._levels[-1]
            state = level.next_combination()
            if level.index == level.size:
                self._levels.pop()
            state.resolve(source)
            if not state.grids:
                state.check_resolved()
                return {path: value_at(state.config, path) for path in state.drawn}, state.config
            self._open(state, source)

    def _open(self, start: _Resolution, source: RandomSource) -> None:
        if self._constant_grid_search:
            start = start.copied()
            start.resolve(source)
        self._levels.append(_Level(start))


class _Level:
    """Combinations of some grids, with all other values fixed."""

    def __init__(self, start: _Resolution) -> None:
        self._start = start
        self._grids = [
            (path, grid.categories) for path, grid in _categorical(_in_order(start.grids))
        ]
        self.size = math.prod(len(values) for _, values in self._grids)
        self.index = 0

    def next_combination(self) -> _Resolution:
        state, rest = self._start.copied(), self.index
        state.grids = []
        for path, values in self._grids:
            rest, position = divmod(rest, len(values))
            state.assign(path, values[position])
        self.index += 1
        return state


@dataclass(kw_only=True)
class _Resolution:
    """A partly resolved configuration."""

    config: Value
    unresolved: list[tuple[Path, Domain]]
    grids: list[tuple[Path, Domain]]
    drawn: list[Path]

    def copied(self) -> _Resolution:
        """Return an independent copy."""
        return _Resolution(
            config=_copied(self.config),
            unresolved=list(self.unresolved),
            grids=list(self.grids),
            drawn=list(self.drawn),
        )

    def assign(self, path: Path, value: Value) -> None:
        """Set the value at `path`. Domains and grids inside `value` become unresolved entries."""
        inside: list[tuple[Path, Domain]] = []
        self.config = assign_value(self.config, path, _parse(value, path, inside))
        for entry in inside:
            (self.grids if entry[1].is_grid() else self.unresolved).append(entry)
        self.drawn.append(path)

    def resolve(self, source: RandomSource) -> None:
        """Draw all values that do not depend on grids, in rounds until no more can be resolved."""
        moved = True
        while moved and self.unresolved:
            moved, blocked = False, []
            # Domains inside an assigned value are appended to this round.
            for path, domain in self.unresolved:
                try:
                    value = domain.sample(SpecView(self.config), random_state=source)
                except RecursiveDependencyError:
                    blocked.append((path, domain))
                except Exception as error:
                    cause = f"{type(error).__name__}: {error}"
                    raise ValueError(
                        f"Drawing a value for `{joined(path)}` from {domain!r} failed: {cause}"
                    ) from error
                else:
                    self.assign(path, value)
                    moved = True
            self.unresolved = blocked

    def check_resolved(self) -> None:
        """Raise RecursiveDependencyError if values are unresolved."""
        if not self.unresolved:
            return
        dependencies = [
            f"`{joined(path)}` depends on {self._dependency_of(domain)}"
            for path, domain in self.unresolved
        ]
        raise RecursiveDependencyError(
            f"Parameters of the search space depend on each other: {', '.join(dependencies)}. "
            f"Define one of them independently of the others."
        )

    def _dependency_of(self, domain: Domain) -> str:
        try:
            domain.sample(SpecView(self.config))
        except RecursiveDependencyError as error:
            return error.key
        return "nothing"


def parse_spec_vars(
    spec: dict[str, Value],
) -> tuple[list[tuple[Path, Value]], list[tuple[Path, Value]], list[tuple[Path, Value]]]:
    """Return (constants, domains, grids) of a space, each as (path, value); grids in path order."""
    space = ParsedSpace.parse(spec)
    return list(_constants(space.skeleton, ())), list(space.domains), _in_order(space.grids)


def _constants(value: Value, path: Path) -> Iterator[tuple[Path, Value]]:
    if isinstance(value, Domain):
        return
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _constants(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _constants(item, (*path, index))
    else:
        yield path, value


def _in_order(entries: list[tuple[Path, Domain]]) -> list[tuple[Path, Domain]]:
    return sorted(entries, key=lambda entry: _sort_key(entry[0]))


def assign_value(spec: Value, path: Path, value: Value) -> Value:
    """Set the value at `path` and return `spec`; tuples are replaced by new ones."""
    if not path:
        return value
    key = path[0]
    item = assign_value(spec[key], path[1:], value) if len(path) > 1 else value
    if isinstance(spec, tuple):
        return _rebuilt(spec, [*spec[:key], item, *spec[key + 1 :]])
    spec[key] = item
    return spec


def value_at(spec: Value, path: Path) -> Value:
    """Return the value at `path`."""
    for key in path:
        spec = spec[key]
    return spec


def joined(path: Path) -> str:
    """Return the flat key of a path: "a/b"."""
    return "/".join(map(str, path))


def leaves(resolved_vars: dict[Path, Value]) -> Iterator[tuple[Path, Value]]:
    """Iterate over the (path, value) pairs of resolved values, descending into dictionaries."""
    for path, value in resolved_vars.items():
        if isinstance(value, dict) and value:
            yield from leaves({(*path, key): item for key, item in value.items()})
        else:
            yield path, value


def flat_params(resolved_vars: dict[Path, Value]) -> dict[str, Value]:
    """Return the resolved values by flat key "a/b", descending into dictionaries."""
    return {joined(path): value for path, value in leaves(resolved_vars)}


def format_vars(resolved_vars: dict[Path, Value]) -> str:
    """Format resolved values for display and file names: "lr=0.1,momentum=0.9". Long values and
    long lists are truncated.

    A parameter is named by its last key if this is a unique string, otherwise by all its keys:
    "a_lr=1,b_lr=2".
    """
    values = dict(leaves(resolved_vars))
    uses = Counter(path[-1] for path in values)
    parts: list[str] = []
    room = _LONGEST_TAG
    for path in sorted(values, key=_sort_key):
        unique = isinstance(path[-1], str) and uses[path[-1]] == 1
        name = path[-1] if unique else "_".join(map(str, path))
        part = f"{_clean(name)}={_clean(values[path])}"
        room -= len(part) + 1
        if room < 0:
            break
        parts.append(part)
    return ",".join(parts)


def _parse(value: Value, path: Path, found: list[tuple[Path, Domain]]) -> Value:
    domain = _as_domain(value, path)
    if domain is not None:
        found.append((path, domain))
        return domain
    if isinstance(value, dict):
        return _rebuilt(
            value, {key: _parse(item, (*path, key), found) for key, item in value.items()}
        )
    if isinstance(value, list | tuple):
        return _rebuilt(
            value, [_parse(item, (*path, index), found) for index, item in enumerate(value)]
        )
    return value


def _as_domain(value: Value, path: Path) -> Domain | None:
    """Return the domain that `value` is or represents; None for a plain value."""
    if isinstance(value, Domain):
        return value
    if isinstance(value, dict) and len(value) == 1:
        if "grid_search" in value:
            try:
                return Categorical(_grid_values(value["grid_search"])).grid()
            except (TypeError, ValueError) as error:
                raise type(error)(f"`{joined(path)}`: {error}") from None
        if isinstance(value.get("eval"), str):
            return Function(partial(_evaluated, value["eval"]))
    # Older programs write `lambda spec: ...` without sample_from; other functions are values.
    if (
        isinstance(value, FunctionType)
        and value.__name__ == "<lambda>"
        and value.__code__.co_varnames[: value.__code__.co_argcount] == ("spec",)
    ):
        return Function(value)
    return None


def _evaluated(expression: str, spec: Value) -> Value:
    return eval(expression, {"random": random, "np": np}, {"spec": spec})


def _grid_values(values: Value) -> list[Value]:
    if not isinstance(values, Iterable):
        raise TypeError(f"grid_search needs a list of values, not {values!r}.")
    listed = list(values)
    if not listed:
        raise ValueError(
            "grid_search needs at least one value: an empty grid would give no trials."
        )
    return listed


def _categorical(grids: Iterable[tuple[Path, Domain]]) -> Iterator[tuple[Path, Categorical]]:
    for path, grid in grids:
        assert isinstance(grid, Categorical), "only categories have grids"
        yield path, grid


def _copied(value: Value) -> Value:
    """Copy containers, sharing their values."""
    if isinstance(value, dict):
        return _rebuilt(value, {key: _copied(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return _rebuilt(value, [_copied(item) for item in value])
    return value


def _rebuilt(container: Value, items: Value) -> Value:
    """Return a container of the same type with `items`: a dictionary, or a list for sequences."""
    kind = type(container)
    if kind is dict or kind is list:
        return items
    if isinstance(container, tuple):
        return kind(*items) if hasattr(container, "_fields") else kind(items)
    new = copy.copy(container)
    if isinstance(new, dict):
        new.update(items)
    else:
        new[:] = items
    return new


def _sort_key(path: Path) -> list[tuple[str, Value]]:
    """Return a key to sort paths whose items have different types."""
    return [(type(key).__name__, key) for key in path]


def _clean(value: Value) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    return _NOT_IN_TAGS.sub("_", str(value)).strip("_")[:_LONGEST_VALUE]
