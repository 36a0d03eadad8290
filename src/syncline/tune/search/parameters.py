"""Search spaces as flat lists of parameters with bounds, distributions and steps, for libraries.

`SearchSpace` flattens a nested space to parameters with keys such as "model/lr", and converts drawn
values to configurations and back. Lists, and choices that contain parameters, keep their structure.
Grids and functions (`grid_search`, `sample_from`) are rejected here; `LibrarySearcher` rejects
other parameters that its library does not support.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from syncline.suggestions import did_you_mean
from syncline.tune.search.sample import (
    Categorical,
    Domain,
    Float,
    Integer,
    LogUniform,
    Normal,
    Quantized,
)
from syncline.tune.search.spec_view import Value

_ABSENT = object()


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter. Libraries draw a number for it; for a choice, the index."""

    key: str
    """Flat key in the search space: "lr", "model/width", "layers/0"."""
    kind: Literal["float", "integer", "choice"]
    """Type of the value: a float, an int, or one of `choices`."""
    distribution: Literal["uniform", "log", "normal"] = "uniform"
    """Distribution of the values: uniform, log-uniform, or normal."""
    low: Value = -math.inf
    """Minimum, of the type of `kind`."""
    high: Value = math.inf
    """Maximum, inclusive."""
    step: Value = None
    """Number of which values are multiples; None for any value."""
    mean: float = 0.0
    """Mean of a normal distribution."""
    sd: float = 0.0
    """Standard deviation of a normal distribution."""
    choices: tuple[Value, ...] = ()
    """Options of a choice; they may contain parameters (see `conditional`)."""
    conditional: tuple[tuple[Parameter, ...], ...] = ()
    """For each of `choices`, the parameters inside, which have values only if it is chosen."""

    def number(self, drawn: float) -> Value:
        """Round a drawn number to the step and the type of `kind`, within the bounds."""
        if self.step:
            # Decimal arithmetic, because 3 * 0.1 is a little more than 0.3.
            drawn = float(Decimal(str(self.step)) * round(float(drawn) / self.step))
        bounded = min(max(drawn, self.low), self.high)
        return round(bounded) if self.kind == "integer" else float(bounded)

    def drawn(self, value: Value) -> dict[str, Value]:
        """Return the drawn values by key that give `value`: a number, and those of parameters
        inside a choice.

        Raises:
            ValueError: The parameter cannot have this value.
        """
        if self.kind != "choice":
            if (
                isinstance(value, bool)
                or not isinstance(value, numbers.Real)
                or not self.low <= value <= self.high
            ):
                raise ValueError(
                    f"{value!r} is not a value of {self.key!r}, which ranges from {self.low} to "
                    f"{self.high}."
                )
            return {self.key: value}
        for index, choice in enumerate(self.choices):
            inner: dict[str, Value] = {}
            if _matches(choice, value, inner):
                return {self.key: index, **inner}
        raise ValueError(
            f"{value!r} is not among the choices of {self.key!r}: "
            f"{[_displayed(choice) for choice in self.choices]}."
        )

    @property
    def described(self) -> str:
        """Distribution and type, for errors."""
        prefix = {"uniform": "", "log": "log-uniform ", "normal": "normal "}[self.distribution]
        return f"{prefix}{self.kind}"


class SearchSpace:
    """A nested search space and its parameters.

    Args:
        config: The space; constants are omitted.
        searcher: Name of the searcher, for errors.
        conditional: If True, choices may contain parameters.

    Raises:
        ValueError: The space has a parameter that searchers do not support.
    """

    def __init__(
        self, config: Mapping[str, Value], searcher: str, conditional: bool = False
    ) -> None:
        self.parameters: dict[str, Parameter] = {}
        self._known_keys = set(config)
        reader = _SpaceReader(searcher, conditional, self.parameters)
        template = reader.read(dict(config), ())
        self._template: Value = {} if template is _ABSENT else template

    def config(self, drawn: Mapping[str, Value]) -> dict[str, Value]:
        """Return the searched part of a configuration from drawn values by key."""

        def value(parameter: Parameter) -> Value:
            number = drawn[parameter.key]
            return (
                _fill(parameter.choices[int(number)], value)
                if parameter.kind == "choice"
                else parameter.number(number)
            )

        return self.config_of(value)

    def config_of(self, value: Callable[[Parameter], Value]) -> dict[str, Value]:
        """Return the searched part of a configuration; `value` returns that of a parameter."""
        filled: dict[str, Value] = _fill(self._template, value)
        return filled

    def has_key(self, key: str) -> bool:
        """Return True if the nested or flat `key` is in the space."""
        return key in self._known_keys or key in self.parameters

    def values(self, point: Mapping[str, Value]) -> dict[str, Value]:
        """Return the values of a configuration by flat key; parameters may be missing.

        Raises:
            ValueError: The configuration has a key that is not in the space.
        """
        unknown = [key for key in point if not self.has_key(key)]
        if unknown:
            raise ValueError(
                f"The point {dict(point)} has a value for {unknown[0]!r}, which is not in the "
                f"search space: {sorted(self._known_keys)}."
                f"{did_you_mean(unknown[0], self._known_keys)}"
            )
        found = {key: _look_up(point, key) for key in self.parameters}
        return {key: value for key, value in found.items() if value is not _ABSENT}

    def drawn(self, point: Mapping[str, Value]) -> dict[str, Value]:
        """Return the drawn values by key that give the configuration `point`.

        Raises:
            ValueError: The point lacks a parameter or has an invalid value.
        """
        values = self.values(point)
        missing = [key for key in self.parameters if key not in values]
        if missing:
            raise ValueError(
                f"The point {dict(point)} has no value for {missing[0]!r}. This searcher needs "
                f"values of all parameters: {list(self.parameters)}."
            )
        drawn: dict[str, Value] = {}
        for key, value in values.items():
            drawn.update(self.parameters[key].drawn(value))
        return drawn


@dataclass(frozen=True)
class _Placeholder:
    """Location of a parameter's value in a template."""

    parameter: Parameter


class _SpaceReader:
    """Traverse a search space, collect its parameters, and return a template of the values."""

    def __init__(self, searcher: str, conditional: bool, parameters: dict[str, Parameter]) -> None:
        self._searcher = searcher
        self._conditional = conditional
        self._parameters = parameters

    def read(self, node: Value, path: tuple[Value, ...], whole: bool = False) -> Value:
        """Return the template of `node`; `_ABSENT` if it has no parameters. Lists keep their
        constants, dictionaries only if `whole`.
        """
        if isinstance(node, Domain):
            parameter = self._parameter("/".join(map(str, path)), node)
            if parameter.key in self._parameters:
                raise ValueError(
                    f"Two parameters have the key {parameter.key!r}, because a key contains '/', "
                    f"which separates nested keys. Rename it."
                )
            self._parameters[parameter.key] = parameter
            return _Placeholder(parameter)
        if isinstance(node, dict):
            if set(node) == {"grid_search"}:
                raise self._grid_error("/".join(map(str, path)))
            templates = {key: self.read(item, (*path, key), whole) for key, item in node.items()}
            found = {key: item for key, item in templates.items() if item is not _ABSENT}
            return {**node, **found} if whole and found else found or _ABSENT
        if isinstance(node, list | tuple):
            items = [self.read(item, (*path, index), whole=True) for index, item in enumerate(node)]
            if all(template is _ABSENT for template in items):
                return _ABSENT
            return [
                item if template is _ABSENT else template
                for item, template in zip(node, items, strict=True)
            ]
        return _ABSENT

    def _parameter(self, key: str, domain: Domain) -> Parameter:
        if domain.is_grid():
            raise self._grid_error(key)
        sampler: Value = domain.get_sampler()
        step = None
        if isinstance(sampler, Quantized):
            sampler, step = sampler.sampler, sampler.q
        distribution: Literal["uniform", "log", "normal"] = "uniform"
        if isinstance(sampler, LogUniform):
            distribution = "log"
        elif isinstance(sampler, Normal):
            distribution = "normal"
        mean, sd = getattr(sampler, "mean", 0.0), getattr(sampler, "sd", 0.0)
        if isinstance(domain, Float):
            return Parameter(
                key=key,
                kind="float",
                distribution=distribution,
                low=domain.lower,
                high=domain.upper,
                step=step,
                mean=mean,
                sd=sd,
            )
        if isinstance(domain, Integer):
            if step is None or step == 1:
                return Parameter(
                    key=key,
                    kind="integer",
                    distribution=distribution,
                    low=domain.lower,
                    high=domain.upper - 1,
                )
            low, high = -(-domain.lower // step) * step, domain.upper // step * step
            return Parameter(
                key=key, kind="integer", distribution=distribution, low=low, high=high, step=step
            )
        if isinstance(domain, Categorical):
            return self._choice(key, domain.categories)
        raise ValueError(
            f"{self._searcher} does not support {key!r}, {type(domain).__name__.lower()} (such as "
            f"of sample_from). Compute the value in the trainable from other parameters, or omit "
            f"`search_alg`."
        )

    def _choice(self, key: str, categories: Sequence[Value]) -> Parameter:
        choices, conditional = [], []
        for index, category in enumerate(categories):
            inside: dict[str, Parameter] = {}
            template = _SpaceReader(self._searcher, self._conditional, inside).read(
                category, (key, index), whole=True
            )
            if inside and not self._conditional:
                raise ValueError(
                    f"{self._searcher} does not support {next(iter(inside))!r}, a parameter inside "
                    f"the choices of {key!r}. Use HyperOptSearch, or OptunaSearch with a function "
                    f"as its space."
                )
            choices.append(category if template is _ABSENT else template)
            conditional.append(tuple(inside.values()))
        return Parameter(
            key=key,
            kind="choice",
            low=0,
            high=len(choices) - 1,
            choices=tuple(choices),
            conditional=tuple(conditional),
        )

    def _grid_error(self, key: str) -> ValueError:
        return ValueError(
            f"{self._searcher} does not support {key!r}, a grid. Use tune.choice([...]), or omit "
            f"`search_alg` to try all values."
        )


def _fill(template: Value, value: Callable[[Parameter], Value]) -> Value:
    if isinstance(template, _Placeholder):
        return value(template.parameter)
    if isinstance(template, dict):
        return {key: _fill(item, value) for key, item in template.items()}
    if isinstance(template, list):
        return [_fill(item, value) for item in template]
    return template


def _matches(template: Value, value: Value, drawn: dict[str, Value]) -> bool:
    """Return True if `template` can give `value`; add the drawn values to `drawn`."""
    if isinstance(template, _Placeholder):
        try:
            drawn.update(template.parameter.drawn(value))
        except ValueError:
            return False
        return True
    if isinstance(template, dict):
        return (
            isinstance(value, dict)
            and template.keys() == value.keys()
            and all(_matches(template[key], value[key], drawn) for key in template)
        )
    if isinstance(template, list):
        return (
            isinstance(value, list)
            and len(template) == len(value)
            and all(map(_matches, template, value, [drawn] * len(template)))
        )
    # 1.0 matches 1, but True does not.
    return template is value or (
        isinstance(template, bool) == isinstance(value, bool) and bool(template == value)
    )


def _look_up(point: Value, key: str) -> Value:
    if isinstance(point, dict) and key in point:
        return point[key]
    value = point
    for part in key.split("/"):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list | tuple) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return _ABSENT
    return value


def _displayed(template: Value) -> Value:
    return _fill(template, lambda parameter: f"<{parameter.key}>")
