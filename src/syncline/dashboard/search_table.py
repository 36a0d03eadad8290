"""Table of a search's trials: filter, order and paging. Pure.

A filter consists of words that must all match. `lr<0.01`, `layers>=3`, `act=relu` and
`status!=error` compare a parameter, a metric or a property of the trial; any other word is searched
in names, IDs, hosts, statuses and errors. Filters ignore case.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from syncline.dashboard.search_trials import TrialView, Value

Source = Literal["fact", "metric", "parameter"]
MAX_FILTER_LENGTH = 1_000

_COMPARISON = re.compile(r"(?P<name>[^<>=!]+)(?P<sign><=|>=|!=|==|=|<|>)(?P<value>.*)")
_COMPARISONS = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_FACTS: dict[str, Callable[[TrialView], Value]] = {
    "trial": lambda trial: trial.index,
    "id": lambda trial: trial.id,
    "name": lambda trial: trial.name,
    "status": lambda trial: trial.status,
    "iteration": lambda trial: trial.iteration,
    "time": lambda trial: trial.time_s,
    "host": lambda trial: trial.host,
    "pid": lambda trial: trial.pid,
    "error": lambda trial: trial.cause,
    "stopped": lambda trial: trial.stopped_by,
}


@dataclass(frozen=True, kw_only=True)
class Field:
    """Value that a column shows or a comparison uses."""

    source: Source
    """Source of the value."""
    name: str
    """Name of the value in its source."""

    def of(self, trial: TrialView) -> Value:
        """Return the trial's value; None if it has none."""
        if self.source == "fact":
            return _FACTS[self.name](trial)
        values: Mapping[str, Value] = trial.metrics if self.source == "metric" else trial.parameters
        return values.get(self.name)


@dataclass(frozen=True, kw_only=True)
class Query:
    """Filter, order and page of the table."""

    text: str = ""
    """Filter."""
    statuses: Collection[str] = ()
    """Statuses of the trials; all if empty."""
    sort_by: Field = Field(source="fact", name="trial")
    """Sort key; trials without a value come last."""
    descending: bool = False
    """Sort in descending order."""
    page: int = 0
    """Page number from 0; limited to the last page."""
    page_size: int = 25
    """Trials per page."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page of the table."""

    trials: Sequence[TrialView]
    """Trials on the page."""
    number: int
    """Page number from 0."""
    found: int
    """Number of matching trials on all pages."""


def page_of(
    trials: Sequence[TrialView], query: Query, short: Mapping[str, str] | None = None
) -> Page:
    """Return the page of a query. `short`: full parameter names by the short names that filters may
    use.
    """
    fits = _filter(query.text[:MAX_FILTER_LENGTH], short or {})
    wanted = frozenset(query.statuses)
    found = [trial for trial in trials if (not wanted or trial.status in wanted) and fits(trial)]
    found = sorted_by(found, query.sort_by, query.descending)
    size = max(1, query.page_size)
    number = min(max(0, query.page), max(0, (len(found) - 1) // size))
    return Page(trials=found[number * size : (number + 1) * size], number=number, found=len(found))


def sorted_by(trials: Sequence[TrialView], key: Field, descending: bool) -> list[TrialView]:
    """Sort trials: numbers before texts, trials without a value last."""
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
                trial.cause,
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
    return bool(_COMPARISONS[sign](one, other))
