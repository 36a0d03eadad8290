"""`NevergradSearch`: derivative-free optimization with Nevergrad."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Sequence

from syncline.tune.result import Config
from syncline.tune.search.library_searcher import LibraryObject, LibrarySearcher, Values
from syncline.tune.search.parameters import Parameter, SearchSpace
from syncline.tune.search.util import flatten_dict


class NevergradSearch(LibrarySearcher):
    """Search with Nevergrad.

    Nevergrad takes its seed from numpy's global state, so `numpy.random.seed` makes the search
    reproducible.

    Args:
        optimizer: One of `nevergrad.optimizers`: a class, a configured optimizer, or an instance.
            Default: `TwoPointsDE`, which supports concurrent trials. The state of sequential
            optimizers (such as Cobyla, which `NGOpt` may select) cannot be saved.
        optimizer_kwargs: Options of a class besides the space, such as `budget` and `num_workers`.
        space: Search space, or Nevergrad parameter. For an instance over an array, the list of
            names of its numbers. Default: the tuner's space.
        metric: Metric to optimize.
        mode: "min" or "max".
        points_to_evaluate: Initial configurations with all parameters.

    Raises:
        ImportError: Nevergrad is not installed.
        TypeError: `space` is not a search space.
        ValueError: The arguments contradict each other, or `optimizer` is not an optimizer.
    """

    package = "nevergrad"

    def __init__(
        self,
        optimizer: LibraryObject = None,
        optimizer_kwargs: Config | None = None,
        space: LibraryObject = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[Config] | None = None,
    ) -> None:
        nevergrad = _nevergrad()
        optimizer = optimizer if optimizer is not None else nevergrad.optimizers.TwoPointsDE
        base = nevergrad.optimization.base
        is_class = inspect.isclass(optimizer) and issubclass(optimizer, base.Optimizer)
        if not (is_class or isinstance(optimizer, base.Optimizer | base.ConfiguredOptimizer)):
            raise ValueError(f"`optimizer` must be one of nevergrad.optimizers, not {optimizer!r}.")
        is_instance = isinstance(optimizer, base.Optimizer)
        if is_instance and optimizer_kwargs:
            raise ValueError(
                "`optimizer_kwargs` cannot be applied to an optimizer instance. Give its class "
                "instead."
            )
        if is_instance and not isinstance(space, list | None):
            raise ValueError(
                "An optimizer instance already has a space. Give a list of names as `space`, or "
                "omit it."
            )
        self._given_optimizer = optimizer
        self._is_instance = is_instance
        self._names: Sequence[str] = space or [] if is_instance else []
        self._optimizer_kwargs = dict(optimizer_kwargs or {})
        super().__init__(
            optimizer.parametrization if is_instance else space, metric, mode, points_to_evaluate
        )

    @classmethod
    def _convert_space(cls, space: SearchSpace) -> LibraryObject:
        return _nevergrad().p.Dict(
            **{key: _parameter(parameter) for key, parameter in space.parameters.items()}
        )

    def _check_space(self, space: LibraryObject) -> LibraryObject:
        if not isinstance(space, _nevergrad().p.Parameter):
            raise TypeError(
                f"`space` must be a search space or a Nevergrad parameter, not {space!r}."
            )
        if self._names and space.dimension != len(self._names):
            raise ValueError(
                f"The optimizer searches {space.dimension} numbers, but `space` has "
                f"{len(self._names)} names: {self._names}."
            )
        return space

    def _create_optimizer(self) -> LibraryObject:
        if self._is_instance:
            return self._given_optimizer
        return self._given_optimizer(self._library_space, **self._optimizer_kwargs)

    def _ask(self) -> tuple[LibraryObject, Config]:
        candidate = self._optimizer.ask()
        if self._names:
            numbers = candidate.args[0] if candidate.args else candidate.value
            return candidate, self._config(dict(zip(self._names, numbers, strict=True)))
        return candidate, self._config(flatten_dict(candidate.kwargs or candidate.value))

    def _ask_point(self, point: Values) -> tuple[LibraryObject, Config]:
        drawn = self._drawn(point)
        if self._names:
            self._optimizer.suggest([drawn[name] for name in self._names])
        elif isinstance(self._library_space, _nevergrad().p.Instrumentation):
            self._optimizer.suggest(**drawn)
        else:
            self._optimizer.suggest(drawn)
        return self._ask()

    def _tell(self, candidate: LibraryObject, loss: float, result: Values) -> None:
        self._optimizer.tell(candidate, loss)


def _nevergrad() -> LibraryObject:
    return NevergradSearch.load("nevergrad")


def _parameter(parameter: Parameter) -> LibraryObject:
    p = _nevergrad().p
    if parameter.kind == "choice":
        return p.Choice(range(len(parameter.choices)))
    if parameter.low == parameter.high:
        return p.Constant(parameter.low)
    bounds = {"lower": parameter.low, "upper": parameter.high}
    with warnings.catch_warnings():
        # Nevergrad warns of close bounds.
        warnings.simplefilter("ignore")
        number = (
            p.Log(exponent=math.e, **bounds)
            if parameter.distribution == "log"
            else p.Scalar(**bounds)
        )
    return number.set_integer_casting() if parameter.kind == "integer" else number
