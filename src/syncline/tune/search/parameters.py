"""Search spaces as the libraries of searchers see them: a flat list of parameters with bounds, laws
and steps.

Covered: reading a nested search space into parameters with keys such as "model/lr", filling what a
library drew back into the nested form, and finding a given point's values. Lists in the space, and
choices that hold parameters of their own, keep their form. What no library can search
(`grid_search`, `sample_from`) is refused here; what one library cannot, that library's searcher
refuses with `Parameter.refusal`.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from syncline.tune.search.sample import (
    Categorical,
    Domain,
    Float,
    Integer,
    LogUniform,
    Normal,
    Quantized,
)

_NOTHING = object()


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter. Libraries draw a number for it: of a choice, the index."""

    key: str
    """Where it stands in the search space: "lr", "model/width", "layers/0"."""
    kind: Literal["float", "integer", "choice"]
    """What the trial gets: a float, an int, one of `choices`."""
    law: Literal["uniform", "log", "normal"] = "uniform"
    """Which values are likely: all, all orders of magnitude, those around `mean`."""
    low: Any = -math.inf
    """The least value, of the kind's type."""
    high: Any = math.inf
    """The greatest value, itself allowed."""
    step: Any = None
    """Only multiples of this; None: every value."""
    mean: float = 0.0
    """Where a normal law has its middle."""
    sd: float = 0.0
    """The standard deviation of a normal law."""
    choices: tuple[Any, ...] = ()
    """What a choice chooses from; an item may hold parameters itself, see `conditional`."""
    conditional: tuple[tuple[Parameter, ...], ...] = ()
    """For each of `choices`, the parameters inside. They have values only where that choice was
    taken.
    """

    def number(self, drawn: float) -> Any:
        """A drawn number in the kind's type, on the nearest step, within the bounds."""
        if self.step:
            # In decimals, because 3 * 0.1 is a little more than 0.3.
            drawn = float(Decimal(str(self.step)) * round(float(drawn) / self.step))
        bounded = min(max(drawn, self.low), self.high)
        return round(bounded) if self.kind == "integer" else float(bounded)

    def drawn(self, value: Any) -> dict[str, Any]:
        """What a library would have drawn to give `value`, by key: a number, and those inside a
        choice. ValueError if nothing would.
        """
        if self.kind != "choice":
            if (
                isinstance(value, bool)
                or not isinstance(value, numbers.Real)
                or not self.low <= value <= self.high
            ):
                raise ValueError(
                    f"{value!r} is no value of {self.key!r}, which goes from {self.low} to {self.high}."
                )
            return {self.key: value}
        for index, choice in enumerate(self.choices):
            inner: dict[str, Any] = {}
            if _matches(choice, value, inner):
                return {self.key: index, **inner}
        raise ValueError(
            f"{value!r} is not among the choices of {self.key!r}: {[_shown(choice) for choice in self.choices]}."
        )

    def refusal(self, searcher: str, able: str) -> ValueError:
        """The error of a searcher that cannot search this parameter; `able` says what it can."""
        law = {"uniform": "", "log": "log-uniform ", "normal": "normal "}[self.law]
        return ValueError(
            f"{searcher} cannot search {self.key!r}, {law}{self.kind}: it takes {able}. Change the parameter, or take another searcher."
        )


class SearchSpace:
    """A nested search space, read."""

    def __init__(self, config: Mapping[str, Any], searcher: str, conditional: bool = False) -> None:
        """Reads `config`, whose constants are left out. `conditional` allows choices that hold
        parameters.

        ValueError, which names the key, if there is something that searchers cannot search.
        """
        self.parameters: dict[str, Parameter] = {}
        self._known_keys = set(config)
        reader = _Reader(searcher, conditional, self.parameters)
        form = reader.read(dict(config), ())
        self._form: Any = {} if form is _NOTHING else form

    def config(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """The searched part of a configuration, from what a library drew by key."""

        def value(parameter: Parameter) -> Any:
            number = drawn[parameter.key]
            return (
                _filled(parameter.choices[int(number)], value)
                if parameter.kind == "choice"
                else parameter.number(number)
            )

        return self.config_of(value)

    def config_of(self, value: Callable[[Parameter], Any]) -> dict[str, Any]:
        """The searched part of a configuration; `value` gives each parameter's."""
        filled: dict[str, Any] = _filled(self._form, value)
        return filled

    def knows(self, key: str) -> bool:
        """Whether `key` stands in the space, nested or flat."""
        return key in self._known_keys or key in self.parameters

    def values(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a configuration by key, as far as it gives them, nested or flat. ValueError
        if it names what is not there.
        """
        unknown = [key for key in point if not self.knows(key)]
        if unknown:
            raise ValueError(
                f"The point {dict(point)} names {unknown[0]!r}, which is not in the search space: {sorted(self._known_keys)}."
            )
        found = {key: _looked_up(point, key) for key in self.parameters}
        return {key: value for key, value in found.items() if value is not _NOTHING}

    def drawn(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """What a library would have drawn to give `point`. ValueError unless it has a value for
        each parameter.
        """
        values = self.values(point)
        missing = [key for key in self.parameters if key not in values]
        if missing:
            raise ValueError(
                f"The point {dict(point)} has no value for {missing[0]!r}: this searcher needs all of {list(self.parameters)}."
            )
        drawn: dict[str, Any] = {}
        for key, value in values.items():
            drawn.update(self.parameters[key].drawn(value))
        return drawn


@dataclass(frozen=True)
class _Slot:
    """Stands in a form where the value of a parameter goes."""

    parameter: Parameter


class _Reader:
    """Walks through a search space and collects its parameters; what it returns is the form to
    fill.
    """

    def __init__(self, searcher: str, conditional: bool, parameters: dict[str, Parameter]) -> None:
        self._searcher = searcher
        self._conditional = conditional
        self._parameters = parameters

    def read(self, node: Any, path: tuple[Any, ...], whole: bool = False) -> Any:
        """The form of `node`, `_NOTHING` if there is no parameter in it. Dictionaries keep their
        constants if `whole`; lists always do.
        """
        if isinstance(node, Domain):
            parameter = self._parameter("/".join(map(str, path)), node)
            if parameter.key in self._parameters:
                raise ValueError(
                    f"Two parameters are called {parameter.key!r}: one key contains '/', which separates nested keys."
                )
            self._parameters[parameter.key] = parameter
            return _Slot(parameter)
        if isinstance(node, dict):
            if set(node) == {"grid_search"}:
                raise self._grid("/".join(map(str, path)))
            forms = {key: self.read(item, (*path, key), whole) for key, item in node.items()}
            found = {key: form for key, form in forms.items() if form is not _NOTHING}
            return {**node, **found} if whole and found else found or _NOTHING
        if isinstance(node, list | tuple):
            items = [self.read(item, (*path, index), whole=True) for index, item in enumerate(node)]
            if all(form is _NOTHING for form in items):
                return _NOTHING
            return [
                item if form is _NOTHING else form for item, form in zip(node, items, strict=True)
            ]
        return _NOTHING

    def _parameter(self, key: str, domain: Domain) -> Parameter:
        if domain.is_grid():
            raise self._grid(key)
        sampler: Any = domain.get_sampler()
        step = None
        if isinstance(sampler, Quantized):
            sampler, step = sampler.sampler, sampler.q
        law: Any = (
            "log"
            if isinstance(sampler, LogUniform)
            else "normal"
            if isinstance(sampler, Normal)
            else "uniform"
        )
        mean, sd = getattr(sampler, "mean", 0.0), getattr(sampler, "sd", 0.0)
        if isinstance(domain, Float):
            return Parameter(
                key=key,
                kind="float",
                law=law,
                low=domain.lower,
                high=domain.upper,
                step=step,
                mean=mean,
                sd=sd,
            )
        if isinstance(domain, Integer):
            if step is None or step == 1:
                return Parameter(
                    key=key, kind="integer", law=law, low=domain.lower, high=domain.upper - 1
                )
            low, high = -(-domain.lower // step) * step, domain.upper // step * step
            return Parameter(key=key, kind="integer", law=law, low=low, high=high, step=step)
        if isinstance(domain, Categorical):
            return self._choice(key, domain.categories)
        raise ValueError(
            f"{self._searcher} cannot search {key!r}, {type(domain).__name__.lower()} (such as of sample_from): compute the value in the "
            "trainable from other parameters, or leave `search_alg` out."
        )

    def _choice(self, key: str, categories: Sequence[Any]) -> Parameter:
        choices, conditional = [], []
        for index, category in enumerate(categories):
            inside: dict[str, Parameter] = {}
            form = _Reader(self._searcher, self._conditional, inside).read(
                category, (key, index), whole=True
            )
            if inside and not self._conditional:
                raise ValueError(
                    f"{self._searcher} cannot search {next(iter(inside))!r}, a parameter inside the choices of {key!r}: "
                    "take HyperOptSearch, or OptunaSearch with a function as its space."
                )
            choices.append(category if form is _NOTHING else form)
            conditional.append(tuple(inside.values()))
        return Parameter(
            key=key,
            kind="choice",
            low=0,
            high=len(choices) - 1,
            choices=tuple(choices),
            conditional=tuple(conditional),
        )

    def _grid(self, key: str) -> ValueError:
        return ValueError(
            f"{self._searcher} cannot search {key!r}, a grid: write tune.choice([...]) there, or leave `search_alg` out to try every value."
        )


def _filled(form: Any, value: Callable[[Parameter], Any]) -> Any:
    if isinstance(form, _Slot):
        return value(form.parameter)
    if isinstance(form, dict):
        return {key: _filled(item, value) for key, item in form.items()}
    if isinstance(form, list):
        return [_filled(item, value) for item in form]
    return form


def _matches(form: Any, value: Any, drawn: dict[str, Any]) -> bool:
    """Whether `value` may have come from `form`; what was drawn for it is put into `drawn`."""
    if isinstance(form, _Slot):
        try:
            drawn.update(form.parameter.drawn(value))
        except ValueError:
            return False
        return True
    if isinstance(form, dict):
        return (
            isinstance(value, dict)
            and form.keys() == value.keys()
            and all(_matches(form[key], value[key], drawn) for key in form)
        )
    if isinstance(form, list):
        return (
            isinstance(value, list)
            and len(form) == len(value)
            and all(map(_matches, form, value, [drawn] * len(form)))
        )
    # True is no 1 here, but 1.0 is.
    return form is value or (
        isinstance(form, bool) == isinstance(value, bool) and bool(form == value)
    )


def _looked_up(point: Any, key: str) -> Any:
    if isinstance(point, dict) and key in point:
        return point[key]
    place: Any = point
    for part in key.split("/"):
        if isinstance(place, dict) and part in place:
            place = place[part]
        elif isinstance(place, list | tuple) and part.isdigit() and int(part) < len(place):
            place = place[int(part)]
        else:
            return _NOTHING
    return place


def _shown(form: Any) -> Any:
    return _filled(form, lambda parameter: f"<{parameter.key}>")
