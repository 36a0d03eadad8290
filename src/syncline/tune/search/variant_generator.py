"""From a search space to configurations: grids are gone through, domains are drawn, functions see
what is drawn already.

Covered: spaces nested in dictionaries, lists and tuples; domains and grids inside the values of
others; functions that depend on each other in any order; `Variants`, which makes one configuration
at a time, whatever the size of the grid, and can be pickled half-way; tags for people. Not covered:
how many samples there are, and points to start from, see `basic_variant`.
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
from typing import Any, TypeAlias

import numpy as np

from syncline.tune.search.sample import (
    Categorical,
    Domain,
    Function,
    RandomSource,
    RandomState,
    as_random_source,
)
from syncline.tune.search.spec_view import RecursiveDependencyError, SpecView

Path: TypeAlias = tuple[Any, ...]
"""Where a value lies in nested containers: keys and indices, outermost first."""

_NOT_IN_TAGS = re.compile(r"[^a-zA-Z0-9_-]+")
_LONGEST_VALUE = 32
_LONGEST_TAG = 128


def grid_search(values: Iterable[Any]) -> dict[str, list[Any]]:
    """Tries each of `values`; with several grids in a space, every combination. ValueError if there
    are none.
    """
    return {"grid_search": _grid_values(values)}


def generate_variants(
    unresolved_spec: dict[str, Any],
    constant_grid_search: bool = False,
    random_state: RandomState = None,
) -> Iterator[tuple[dict[Path, Any], dict[str, Any]]]:
    """One sample of a space: each combination of its grids once, as (what was drawn by path, the
    whole).

    The first grid, by path, changes fastest. The rest is drawn anew for every combination; with
    `constant_grid_search` once for all of them, as far as it does not depend on a grid.
    """
    source = as_random_source(random_state)
    variants = Variants(ParsedSpace.parse(unresolved_spec), constant_grid_search, source)
    while not variants.exhausted:
        yield variants.draw(source)


@dataclass(frozen=True, kw_only=True)
class ParsedSpace:
    """A space taken apart."""

    skeleton: Any
    """A copy of its containers, with a domain wherever a value is missing, however that was
    written.
    """

    domains: list[tuple[Path, Domain]]
    """What is drawn, in the order of the space."""

    grids: list[tuple[Path, Domain]]
    """What is gone through, in the order of the space."""

    @staticmethod
    def parse(value: Any, path: Path = ()) -> ParsedSpace:
        """Takes `value`, which lies at `path`, apart. ValueError and TypeError name the path of
        what cannot be searched.
        """
        found: list[tuple[Path, Domain]] = []
        skeleton = _take_apart(value, path, found)
        grids = [entry for entry in found if entry[1].is_grid()]
        return ParsedSpace(
            skeleton=skeleton,
            domains=[entry for entry in found if not entry[1].is_grid()],
            grids=grids,
        )

    @property
    def is_resolved(self) -> bool:
        """Whether no value is missing."""
        return not self.domains and not self.grids

    def count_variants(self) -> int:
        """How many combinations the grids have, those inside values of grids included; those inside
        of other domains are not known.
        """
        return math.prod(
            sum(ParsedSpace.parse(value).count_variants() for value in grid.categories)
            for _, grid in _categorical(self.grids)
        )


class Variants:
    """The configurations of one sample of a space, one after the other."""

    def __init__(
        self, space: ParsedSpace, constant_grid_search: bool, source: RandomSource
    ) -> None:
        self._constant_grid_search = constant_grid_search
        # The innermost level last: a grid inside a value that was drawn is gone through before the
        # next combination outside.
        self._levels: list[_Level] = []
        self._open(
            _Resolution(config=space.skeleton, waiting=space.domains, grids=space.grids, drawn=[]),
            source,
        )

    @property
    def exhausted(self) -> bool:
        """Whether all have been drawn."""
        return not self._levels

    def draw(self, source: RandomSource) -> tuple[dict[Path, Any], dict[str, Any]]:
        """The next one: (what was drawn by path, the configuration). RecursiveDependencyError if
        parameters wait for each other.
        """
        while True:
            level = self._levels[-1]
            state = level.next_combination()
            if level.index == level.size:
                self._levels.pop()
            state.resolve(source)
            if not state.grids:
                state.refuse_to_wait()
                return {path: value_at(state.config, path) for path in state.drawn}, state.config
            self._open(state, source)

    def _open(self, start: _Resolution, source: RandomSource) -> None:
        if self._constant_grid_search:
            start = start.copied()
            start.resolve(source)
        self._levels.append(_Level(start))


class _Level:
    """The combinations of some grids, all else being the same."""

    def __init__(self, start: _Resolution) -> None:
        self._start = start
        self._grids = [
            (path, grid.categories) for path, grid in _categorical(_by_path(start.grids))
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
    """A configuration on its way: what is still missing, and what has been filled in."""

    config: Any
    waiting: list[tuple[Path, Domain]]
    grids: list[tuple[Path, Domain]]
    drawn: list[Path]

    def copied(self) -> _Resolution:
        """The same to go on from apart."""
        return _Resolution(
            config=_copied(self.config),
            waiting=list(self.waiting),
            grids=list(self.grids),
            drawn=list(self.drawn),
        )

    def assign(self, path: Path, value: Any) -> None:
        """Fills `path` in. Domains and grids inside `value` are missing from now on."""
        inside: list[tuple[Path, Domain]] = []
        self.config = assign_value(self.config, path, _take_apart(value, path, inside))
        for entry in inside:
            (self.grids if entry[1].is_grid() else self.waiting).append(entry)
        self.drawn.append(path)

    def resolve(self, source: RandomSource) -> None:
        """Draws all that does not depend on a grid. What waits for others is tried again as long as
        something moves.
        """
        moved = True
        while moved and self.waiting:
            moved, blocked = False, []
            # Domains inside a value that is assigned join the end of this round.
            for path, domain in self.waiting:
                try:
                    value = domain.sample(SpecView(self.config), random_state=source)
                except RecursiveDependencyError:
                    blocked.append((path, domain))
                except Exception as error:
                    cause = f"{type(error).__name__}: {error}"
                    raise ValueError(
                        f"No value for `{joined(path)}` could be drawn from {domain!r}: {cause}"
                    ) from error
                else:
                    self.assign(path, value)
                    moved = True
            self.waiting = blocked

    def refuse_to_wait(self) -> None:
        """RecursiveDependencyError if something waits, though nothing that it could wait for is
        left.
        """
        if not self.waiting:
            return
        stories = [
            f"`{joined(path)}` reads {self._awaited(domain)}" for path, domain in self.waiting
        ]
        raise RecursiveDependencyError(
            f"Parameters of the search space wait for each other: {', '.join(stories)}. "
            "Give one of them a value that depends on none of the others."
        )

    def _awaited(self, domain: Domain) -> str:
        try:
            domain.sample(SpecView(self.config))
        except RecursiveDependencyError as error:
            return error.place
        return "nothing"


def parse_spec_vars(
    spec: dict[str, Any],
) -> tuple[list[tuple[Path, Any]], list[tuple[Path, Any]], list[tuple[Path, Any]]]:
    """(constants, domains, grids) of a space, each as (path, value); grids by path."""
    space = ParsedSpace.parse(spec)
    return list(_constants(space.skeleton, ())), list(space.domains), _by_path(space.grids)


def has_unresolved_values(spec: dict[str, Any]) -> bool:
    """Whether `spec` holds a domain, a grid, or a function to be evaluated."""
    return not ParsedSpace.parse(spec).is_resolved


def assign_value(spec: Any, path: Path, value: Any) -> Any:
    """`spec` with `value` at `path`: itself, changed, unless it is a tuple, of which there is a new
    one.
    """
    if not path:
        return value
    key = path[0]
    item = assign_value(spec[key], path[1:], value) if len(path) > 1 else value
    if isinstance(spec, tuple):
        return _rebuilt(spec, [*spec[:key], item, *spec[key + 1 :]])
    spec[key] = item
    return spec


def value_at(spec: Any, path: Path) -> Any:
    """What lies at `path`."""
    for key in path:
        spec = spec[key]
    return spec


def joined(path: Path) -> str:
    """A path as a flat key: "a/b"."""
    return "/".join(map(str, path))


def leaves(resolved_vars: dict[Path, Any]) -> Iterator[tuple[Path, Any]]:
    """What was drawn, with dictionaries taken apart: (path, value) of each value inside."""
    for path, value in resolved_vars.items():
        if isinstance(value, dict) and value:
            yield from leaves({(*path, key): item for key, item in value.items()})
        else:
            yield path, value


def flat_params(resolved_vars: dict[Path, Any]) -> dict[str, Any]:
    """What was drawn, by flat key: "a/b". Dictionaries that were drawn whole are taken apart."""
    return {joined(path): value for path, value in leaves(resolved_vars)}


def format_vars(resolved_vars: dict[Path, Any]) -> str:
    """What was drawn, for people and for file names: "lr=0.1,momentum=0.9". Long values and long
    lists of them are cut short.

    A parameter goes by its last key where that is a name and no other has the same, else by all its
    keys: "a_lr=1,b_lr=2".
    """
    values = dict(leaves(resolved_vars))
    uses = Counter(path[-1] for path in values)
    parts: list[str] = []
    room = _LONGEST_TAG
    for path in sorted(values, key=_sort_key):
        alone = isinstance(path[-1], str) and uses[path[-1]] == 1
        part = f"{_clean(path[-1] if alone else '_'.join(map(str, path)))}={_clean(values[path])}"
        room -= len(part) + 1
        if room < 0:
            break
        parts.append(part)
    return ",".join(parts)


def _take_apart(value: Any, path: Path, found: list[tuple[Path, Domain]]) -> Any:
    domain = _as_domain(value, path)
    if domain is not None:
        found.append((path, domain))
        return domain
    if isinstance(value, dict):
        return _rebuilt(
            value, {key: _take_apart(item, (*path, key), found) for key, item in value.items()}
        )
    if isinstance(value, list | tuple):
        return _rebuilt(
            value, [_take_apart(item, (*path, index), found) for index, item in enumerate(value)]
        )
    return value


def _as_domain(value: Any, path: Path) -> Domain | None:
    """The domain that `value` is or stands for; None if it is a value."""
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
    # Older programs put `lambda spec: ...` there as it is; other functions are values like any
    # other.
    if (
        isinstance(value, FunctionType)
        and value.__name__ == "<lambda>"
        and value.__code__.co_varnames[: value.__code__.co_argcount] == ("spec",)
    ):
        return Function(value)
    return None


def _evaluated(expression: str, spec: Any) -> Any:
    return eval(expression, {"random": random, "np": np}, {"spec": spec})


def _grid_values(values: Any) -> list[Any]:
    if not isinstance(values, Iterable):
        raise TypeError(f"grid_search needs a list of values to try, not {values!r}.")
    listed = list(values)
    if not listed:
        raise ValueError(
            "grid_search needs at least one value to try; an empty grid would give no trial at all."
        )
    return listed


def _categorical(grids: Iterable[tuple[Path, Domain]]) -> Iterator[tuple[Path, Categorical]]:
    for path, grid in grids:
        assert isinstance(grid, Categorical), "only categories can be gone through"
        yield path, grid


def _copied(value: Any) -> Any:
    """A copy of the containers; what they hold is shared."""
    if isinstance(value, dict):
        return _rebuilt(value, {key: _copied(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return _rebuilt(value, [_copied(item) for item in value])
    return value


def _rebuilt(container: Any, items: Any) -> Any:
    """A container of the same type with `items`: a dictionary, or a list for lists and tuples."""
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


def _constants(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
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


def _by_path(entries: list[tuple[Path, Domain]]) -> list[tuple[Path, Domain]]:
    return sorted(entries, key=lambda entry: _sort_key(entry[0]))


def _sort_key(path: Path) -> list[tuple[str, Any]]:
    """Orders paths; keys of different types never meet in a comparison."""
    return [(type(key).__name__, key) for key in path]


def _clean(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    return _NOT_IN_TAGS.sub("_", str(value)).strip("_")[:_LONGEST_VALUE]
