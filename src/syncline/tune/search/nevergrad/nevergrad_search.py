"""Suggestions of Nevergrad's derivative-free optimizers."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from syncline.tune.search.library_searcher import LibrarySearcher, load_library
from syncline.tune.search.parameters import Parameter, SearchSpace
from syncline.tune.search.util import flatten_dict


class NevergradSearch(LibrarySearcher):
    """Searches with Nevergrad.

    Args:
        optimizer: one of `nevergrad.optimizers`: a class, a configured one, or an optimizer that
        was made already. The default is
            `TwoPointsDE`, which runs trials side by side. The state of optimizers that are
            sequential inside (Cobyla and the like, which `NGOpt` may choose) cannot be saved.
        optimizer_kwargs: what a class gets besides the space, such as `budget` and `num_workers`.
        space: a search space of ours, or a Nevergrad parameter; for an optimizer that was made over
        an array, the list of the names of its
            numbers. Left out: the tuner's.
        metric: the result to go by.
        mode: "min" or "max".
        points_to_evaluate: configurations to try first, each with all parameters.

    Nevergrad seeds itself from numpy's global state: `numpy.random.seed` makes the search
    repeatable.
    """

    def __init__(
        self,
        optimizer: Any = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        space: Any = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
    ) -> None:
        nevergrad = _nevergrad()
        optimizer = optimizer if optimizer is not None else nevergrad.optimizers.TwoPointsDE
        base = nevergrad.optimization.base
        is_class = inspect.isclass(optimizer) and issubclass(optimizer, base.Optimizer)
        if not (is_class or isinstance(optimizer, base.Optimizer | base.ConfiguredOptimizer)):
            raise ValueError(f"`optimizer` must be one of nevergrad.optimizers, not {optimizer!r}.")
        made = isinstance(optimizer, base.Optimizer)
        if made and optimizer_kwargs:
            raise ValueError(
                "`optimizer_kwargs` come too late for an optimizer that was made already: give its class instead."
            )
        if made and not isinstance(space, list | None):
            raise ValueError(
                "An optimizer that was made already has its space: give a list of names as `space`, or leave it out."
            )
        self._given = optimizer
        self._is_made = made
        self._names: Sequence[str] = space or [] if made else []
        self._optimizer_kwargs = dict(optimizer_kwargs or {})
        super().__init__(
            optimizer.parametrization if made else space, metric, mode, points_to_evaluate
        )

    def _converted(self, space: SearchSpace) -> Any:
        return _nevergrad().p.Dict(
            **{key: _parameter(parameter) for key, parameter in space.parameters.items()}
        )

    def _checked(self, space: Any) -> Any:
        if not isinstance(space, _nevergrad().p.Parameter):
            raise TypeError(
                f"`space` must be a search space or a Nevergrad parameter, not {space!r}."
            )
        if self._names and space.dimension != len(self._names):
            raise ValueError(
                f"The optimizer searches {space.dimension} numbers, but `space` names {len(self._names)}: {self._names}."
            )
        return space

    def _start(self) -> Any:
        return (
            self._given
            if self._is_made
            else self._given(self._library_space, **self._optimizer_kwargs)
        )

    def _ask(self) -> tuple[Any, dict[str, Any]]:
        candidate = self._optimizer.ask()
        if self._names:
            numbers = candidate.args[0] if candidate.args else candidate.value
            return candidate, self._config(dict(zip(self._names, numbers, strict=True)))
        return candidate, self._config(flatten_dict(candidate.kwargs or candidate.value))

    def _ask_for(self, point: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        drawn = self._drawn(point)
        if self._names:
            self._optimizer.suggest([drawn[name] for name in self._names])
        elif isinstance(self._library_space, _nevergrad().p.Instrumentation):
            self._optimizer.suggest(**drawn)
        else:
            self._optimizer.suggest(drawn)
        return self._ask()

    def _tell(self, ticket: Any, loss: float, result: Mapping[str, Any]) -> None:
        self._optimizer.tell(ticket, loss)

    def _take_back(self, ticket: Any) -> None:
        """Nevergrad's optimizers need not be told every candidate."""


def _nevergrad() -> Any:
    return load_library("nevergrad", "nevergrad", "NevergradSearch")


def _parameter(parameter: Parameter) -> Any:
    p = _nevergrad().p
    if parameter.kind == "choice":
        return p.Choice(range(len(parameter.choices)))
    if parameter.law == "normal":
        raise parameter.refusal("NevergradSearch", "uniform and log-uniform numbers, and choices")
    if parameter.low == parameter.high:
        return p.Constant(parameter.low)
    bounds = {"lower": parameter.low, "upper": parameter.high}
    with warnings.catch_warnings():
        # Nevergrad prefers bounds that are further apart.
        warnings.simplefilter("ignore")
        number = p.Log(exponent=math.e, **bounds) if parameter.law == "log" else p.Scalar(**bounds)
    return number.set_integer_casting() if parameter.kind == "integer" else number
