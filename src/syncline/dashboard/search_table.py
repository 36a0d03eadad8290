"""The table of a search's trials: filtered, sorted, one page of it. Pure.

A filter is words, all of which must fit. `lr<0.01`, `layers>=3`, `act=relu`, `status!=error`
compare a parameter, a metric, or a fact of the trial; any other word is looked for in names, ids,
hosts, statuses and errors. Case does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from syncline.dashboard.searches import TrialView, Value

Source = Literal["fact", "metric", "parameter"]
LONGEST_FILTER = 1_000

_COMPARISON = re.compile(r"(?P<name>[^<>=!]+)(?P<sign><=|>=|!=|==|=|<|>)(?P<value>.*)")
_FACTS: dict[str, Callable[[TrialView], Value]] = {
    "trial": lambda trial: trial.index,
    "id": lambda trial: trial.id,
    "name": lambda trial: trial.name,
    "status": lambda trial: trial.status,
    "iteration": lambda trial: trial.iteration,
    "time": lambda trial: trial.time_s,
    "host": lambda trial: trial.host,
    "pid": lambda trial: trial.pid,
    "error": lambda trial: trial.last_words,
    "stopped": lambda trial: trial.stopped_by,
}


@dataclass(frozen=True, kw_only=True)
class Field:
    """What a column shows, or a comparison is about."""

    source: Source
    """Where the value comes from."""
    name: str
    """Its name there."""

    def of(self, trial: TrialView) -> Value:
        """The trial's value; None if it has none."""
        if self.source == "fact":
            return _FACTS[self.name](trial)
        values: Mapping[str, Value] = trial.metrics if self.source == "metric" else trial.parameters
        return values.get(self.name)


@dataclass(frozen=True, kw_only=True)
class Query:
    """What is shown of the trials."""

    text: str = ""
    """The filter."""
    statuses: Collection[str] = ()
    """Only trials with one of these; all if there are none."""
    sort_by: Field = Field(source="fact", name="trial")
    """What trials are sorted by; those without a value come last either way."""
    descending: bool = False
    """Whether the largest come first."""
    page: int = 0
    """Which page, from 0; the last one where there are not so many."""
    page_size: int = 25
    """Trials on a page."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page of the table."""

    trials: Sequence[TrialView]
    """Those on it."""
    number: int
    """Which it is."""
    found: int
    """Trials that fit the filter, on all pages."""


def page_of(
    trials: Sequence[TrialView], query: Query, short: Mapping[str, str] | None = None
) -> Page:
    """The page that a query means. `short`: full names of parameters by short ones, which filters
    may use, too.
    """
    fits = _filter(query.text[:LONGEST_FILTER], short or {})
    wanted = frozenset(query.statuses)
    found = [trial for trial in trials if (not wanted or trial.status in wanted) and fits(trial)]
    found = sorted_by(found, query.sort_by, query.descending)
    size = max(1, query.page_size)
    number = min(max(0, query.page), max(0, (len(found) - 1) // size))
    return Page(trials=found[number * size : (number + 1) * size], number=number, found=len(found))


def sorted_by(trials: Sequence[TrialView], key: Field, descending: bool) -> list[TrialView]:
    """Numbers before texts, and those without a value last whichever way."""
    having = [
        (value, trial) for trial in trials if (value := key.of(trial)) is not None and value != ""
    ]
    missing = [trial for trial in trials if (value := key.of(trial)) is None or value == ""]
    having.sort(key=lambda each: _order(each[0]), reverse=descending)
    return [trial for _, trial in having] + missing


def _order(value: Value) -> tuple[int, float | int, str]:
    if isinstance(value, (bool, int, float)):
        return (0, value, "")
    return (1, 0, str(value).casefold())


def _filter(text: str, short: Mapping[str, str]) -> Callable[[TrialView], bool]:
    tests = [_test(word, short) for word in text.split()]
    return lambda trial: all(test(trial) for test in tests)


def _test(word: str, short: Mapping[str, str]) -> Callable[[TrialView], bool]:
    comparison = _COMPARISON.fullmatch(word)
    if comparison is None or not comparison["value"]:
        wanted = word.casefold()
        return lambda trial: any(
            wanted in text.casefold()
            for text in (
                trial.id,
                trial.name,
                trial.status,
                trial.host,
                trial.last_words,
                trial.stopped_by,
            )
        )
    name, sign, value = comparison["name"], comparison["sign"], comparison["value"]
    fields = [
        Field(source="parameter", name=short.get(name, name)),
        Field(source="metric", name=name),
    ]
    if name.casefold() in _FACTS:
        fields.append(Field(source="fact", name=name.casefold()))
    return lambda trial: _compares(
        next((found for field in fields if (found := field.of(trial)) is not None), None),
        sign,
        value,
    )


def _compares(found: Value, sign: str, wanted: str) -> bool:
    if found is None:
        return False
    one: Any = found
    other: Any
    try:
        if isinstance(found, (bool, str)):
            raise ValueError("compared as texts")
        other = float(wanted)
    except ValueError:
        one, other = str(found).casefold(), wanted.casefold()
    if sign in ("=", "=="):
        return bool(one == other)
    if sign == "!=":
        return bool(one != other)
    if sign == "<":
        return bool(one < other)
    if sign == ">":
        return bool(one > other)
    return bool(one <= other) if sign == "<=" else bool(one >= other)
