"""Domains of parameters and samplers that draw from them.

Users call the functions `uniform` to `sample_from`. They return domains (`Float`, `Integer`,
`Categorical`, `Function`) with samplers (`Uniform`, `LogUniform`, `Normal`, `Quantized`, `Grid`),
whose attributes searchers read to convert a space for their libraries. Empty domains raise errors
when they are created. Draws are reproducible with seeded numpy generators. Not covered: spaces of
several parameters (`variant_generator.py`).
"""

from __future__ import annotations

import inspect
import math
import numbers
import operator
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np

from syncline.tune.search.spec_view import SpecView, Unresolved, Value, unwrap

RandomSource: TypeAlias = np.random.Generator | np.random.RandomState
RandomState: TypeAlias = RandomSource | int | None
"""Seed of a draw: a numpy generator, which advances; an int, which gives the same draw each time;
or None for numpy's global state.
"""

_DomainT = TypeVar("_DomainT", bound="Domain")


def as_random_source(random_state: RandomState) -> RandomSource:
    """Return the generator for `random_state`."""
    if random_state is None:
        # The global state, so that `numpy.random.seed` makes programs reproducible.
        source: np.random.RandomState = np.random.mtrand._rand
        return source
    if isinstance(random_state, np.random.Generator | np.random.RandomState):
        return random_state
    return np.random.default_rng(operator.index(random_state))


def fresh_generator() -> np.random.Generator:
    """Return a new generator, seeded from numpy's global state."""
    return np.random.default_rng(np.random.randint(0, 2**32, size=4, dtype=np.uint32))


class Domain(Unresolved):
    """Values that a parameter can have, with a sampler.

    Domains are immutable after creation: `.uniform()`, `.quantized(q)` and others return copies.
    """

    sampler: Sampler | None = None
    default_sampler_cls: ClassVar[type[Sampler] | None] = None

    def cast(self, value: Value) -> Value:
        """Convert `value` to the Python type of this domain."""
        return value

    def set_sampler(self, sampler: Sampler, allow_override: bool = False) -> None:
        """Set the sampler.

        Raises:
            ValueError: There is one already and `allow_override` is False.
        """
        if self.sampler and not allow_override:
            raise ValueError(
                f"{self!r} already has the sampler {self.sampler}, so {sampler} cannot be set. "
                f"Create a new domain."
            )
        self.sampler = sampler

    def get_sampler(self) -> Sampler:
        """Return the sampler, or the default sampler of the domain."""
        if self.sampler is None:
            assert self.default_sampler_cls is not None, f"{type(self).__name__} has no sampler"
            return self.default_sampler_cls()
        return self.sampler

    def sample(
        self, config: Value = None, size: int = 1, random_state: RandomState = None
    ) -> Value:
        """Draw one value, or an array or list of `size` > 1 values. Only functions use `config`."""
        return self.get_sampler().sample(self, config=config, size=size, random_state=random_state)

    def is_grid(self) -> bool:
        """Return True if all values are tried instead of drawing."""
        return isinstance(self.sampler, Grid)

    def is_function(self) -> bool:
        """Return True if a user function returns the value."""
        return False

    def is_valid(self, value: Value) -> bool:
        """Return True if `value` is in this domain; bounds are inclusive."""
        raise NotImplementedError

    @property
    def domain_str(self) -> str:
        """The domain for display: `(0.1, 1.0)`."""
        return "(unknown)"

    def __repr__(self) -> str:
        sampler = "" if self.sampler is None else f", {self.sampler}"
        return f"{type(self).__name__}{self.domain_str}{sampler}"

    def _with(self: _DomainT, sampler: Sampler, allow_override: bool = False) -> _DomainT:
        new = copy(self)
        new.set_sampler(sampler, allow_override)
        return new


class Sampler:
    """Base class of methods to draw values from a domain. Subclasses implement `draw`."""

    def sample(
        self, domain: Domain, config: Value = None, size: int = 1, random_state: RandomState = None
    ) -> Value:
        """Return one value in the domain's type, or `size` > 1 values."""
        values = self.draw(domain, config, size, as_random_source(random_state))
        return values if size > 1 else domain.cast(values[0])

    def draw(self, domain: Value, config: Value, size: int, source: RandomSource) -> Value:
        """Return `size` values as an array or list."""
        raise NotImplementedError

    def __str__(self) -> str:
        """Return the name of the public class."""
        names = (kind.__name__ for kind in type(self).__mro__)
        return next(name for name in names if not name.startswith("_"))


class BaseSampler(Sampler):
    """Base class of samplers without a distribution."""

    def __str__(self) -> str:
        return "Base"


class Uniform(Sampler):
    """Uniform distribution."""


class LogUniform(Sampler):
    """Uniform distribution of the logarithm. `base` has no effect on the distribution and is kept
    for compatibility.
    """

    def __init__(self, base: float = 10) -> None:
        self.base = base


class Normal(Sampler):
    """Normal distribution with `mean` and standard deviation `sd` > 0."""

    def __init__(self, mean: float = 0.0, sd: float = 0.0) -> None:
        if not sd > 0:
            raise ValueError(
                f"A normal distribution needs a standard deviation above 0, not sd={sd!r}."
            )
        self.mean = mean
        self.sd = sd


class Grid(Sampler):
    """Marker of a domain whose values are all tried."""

    def draw(self, domain: Value, config: Value, size: int, source: RandomSource) -> Value:
        raise RuntimeError("A grid cannot be sampled: all its values are tried in order.")


class Quantized(Sampler):
    """Round the values of `sampler` to multiples of `q`, including both bounds.

    For integers, the inner sampler draws the multiple, so multiples have its distribution. With
    `q=1`, the upper bound of integers stays excluded, as without quantization.
    """

    def __init__(self, sampler: Sampler, q: float) -> None:
        if not isinstance(sampler, Sampler):
            raise TypeError(f"Quantized needs a sampler, not {sampler!r}.")
        self.sampler = sampler
        self.q = _quantum(q)

    def get_sampler(self) -> Sampler:
        """Return the sampler whose values are rounded."""
        return self.sampler

    def draw(self, domain: Value, config: Value, size: int, source: RandomSource) -> Value:
        if isinstance(domain, Integer):
            multiples = copy(domain)
            multiples.lower, multiples.upper = _multiples(domain, self.q)
            values = np.multiply(self.sampler.draw(multiples, config, size, source), self.q)
        else:
            values = (
                np.round(np.divide(self.sampler.draw(domain, config, size, source), self.q))
                * self.q
            )
            # Clip, because 3 * 0.1 is a little more than 0.3; add 0 to convert -0 to 0.
            values = np.clip(values, domain.lower, domain.upper) + 0.0
        return [domain.cast(value) for value in values]


class _FloatUniform(Uniform):
    def draw(self, domain: Float, config: Value, size: int, source: RandomSource) -> Value:
        return source.uniform(domain.lower, domain.upper, size=size)


class _FloatLogUniform(LogUniform):
    def draw(self, domain: Float, config: Value, size: int, source: RandomSource) -> Value:
        values = np.exp(source.uniform(np.log(domain.lower), np.log(domain.upper), size=size))
        # exp(log(x)) can differ from x by a rounding error.
        return np.minimum(np.maximum(values, domain.lower), domain.upper)


class _FloatNormal(Normal):
    def draw(self, domain: Float, config: Value, size: int, source: RandomSource) -> Value:
        return source.normal(self.mean, self.sd, size=size)


class _IntegerUniform(Uniform):
    def draw(self, domain: Integer, config: Value, size: int, source: RandomSource) -> Value:
        return _integers(source, domain.lower, domain.upper, size)


class _IntegerLogUniform(LogUniform):
    def draw(self, domain: Integer, config: Value, size: int, source: RandomSource) -> Value:
        values = np.exp(source.uniform(np.log(domain.lower), np.log(domain.upper), size=size))
        return np.clip(np.floor(values).astype(np.int64), domain.lower, domain.upper - 1)


class _CategoricalUniform(Uniform):
    def draw(self, domain: Categorical, config: Value, size: int, source: RandomSource) -> Value:
        # Draw indices, because numpy's `choice` would convert the categories to one type.
        return [
            domain.categories[index] for index in _integers(source, 0, len(domain.categories), size)
        ]


class _Call(BaseSampler):
    def draw(self, domain: Function, config: Value, size: int, source: RandomSource) -> Value:
        if not domain.pass_config:
            return [domain.func() for _ in range(size)]
        configs = config if isinstance(config, list) else [config] * size
        specs = (SpecView(one) if isinstance(one, dict) else one for one in configs[:size])
        return [unwrap(domain.func(spec)) for spec in specs]


class _Range(Domain):
    """Base of domains with bounds."""

    lower: Value
    upper: Value

    def is_valid(self, value: Value) -> bool:
        return _is_number(value) and bool(self.lower <= value <= self.upper)

    @property
    def domain_str(self) -> str:
        return f"({self.lower}, {self.upper})"


class Float(_Range):
    """Real numbers between `lower` and `upper`; None for no bound."""

    default_sampler_cls = _FloatUniform

    def __init__(self, lower: float | None, upper: float | None) -> None:
        self.lower = -math.inf if lower is None else _number(lower, "lower")
        self.upper = math.inf if upper is None else _number(upper, "upper")
        _check_order(self.lower, self.upper)

    def cast(self, value: Value) -> float:
        return float(value)

    def uniform(self) -> Float:
        """Return a copy with a uniform distribution; ValueError unless both bounds are finite."""
        if math.isinf(self.lower) or math.isinf(self.upper):
            raise ValueError(
                f"A uniform distribution needs two finite bounds, not lower={self.lower} and "
                f"upper={self.upper}."
            )
        return self._with(_FloatUniform())

    def loguniform(self, base: float = 10) -> Float:
        """Return a copy with a log-uniform distribution; ValueError unless the bounds are positive
        and finite. `base` has no effect.
        """
        _check_logarithm(self.lower, self.upper)
        return self._with(_FloatLogUniform(base))

    def normal(self, mean: float = 0.0, sd: float = 1.0) -> Float:
        """Return a copy with a normal distribution; ValueError if the domain has a bound."""
        if math.isfinite(self.lower) or math.isfinite(self.upper):
            raise ValueError(
                f"A normal distribution has no bounds, but lower={self.lower} and "
                f"upper={self.upper} were given. Omit them."
            )
        return self._with(_FloatNormal(mean, sd))

    def quantized(self, q: float) -> Float:
        """Return a copy with multiples of `q`; ValueError unless the bounds are multiples of it."""
        _quantum(q)
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if math.isfinite(bound) and not math.isclose(bound / q, round(bound / q)):
                raise ValueError(
                    f"{name}={bound} is not divisible by the quantization factor q={q}. Choose a "
                    f"multiple of it."
                )
        return self._with(Quantized(self.get_sampler(), q), allow_override=True)


class Integer(_Range):
    """Integers from `lower` (inclusive) to `upper` (exclusive, but inclusive if quantized)."""

    default_sampler_cls = _IntegerUniform

    def __init__(self, lower: int, upper: int) -> None:
        self.lower = _whole_number(lower, "lower")
        self.upper = _whole_number(upper, "upper")
        _check_order(self.lower, self.upper)

    def cast(self, value: Value) -> int:
        return int(value)

    def uniform(self) -> Integer:
        """Return a copy with a uniform distribution."""
        return self._with(_IntegerUniform())

    def loguniform(self, base: float = 10) -> Integer:
        """Return a copy with a log-uniform distribution; ValueError unless `lower` is positive.
        `base` has no effect.
        """
        _check_logarithm(self.lower, self.upper)
        return self._with(_IntegerLogUniform(base))

    def quantized(self, q: int) -> Integer:
        """Return a copy with multiples of `q`; ValueError if none is within the bounds."""
        q = _whole_number(_quantum(q), "q")
        first, end = _multiples(self, q)
        if end <= first:
            raise ValueError(
                f"There is no multiple of q={q} between lower={self.lower} and "
                f"upper={self.upper}. Widen the bounds or decrease q."
            )
        return self._with(Quantized(self.get_sampler(), q), allow_override=True)


class Categorical(Domain):
    """One of a list of values of any type."""

    default_sampler_cls = _CategoricalUniform

    def __init__(self, categories: Iterable[Value]) -> None:
        if not isinstance(categories, Iterable):
            raise TypeError(
                f"`categories` must be a list of values to choose from, not {categories!r}."
            )
        self.categories = list(categories)
        if not self.categories:
            raise ValueError("There are no values to choose from: `categories` is empty.")

    def uniform(self) -> Categorical:
        """Return a copy with a uniform distribution."""
        return self._with(_CategoricalUniform())

    def grid(self) -> Categorical:
        """Return a copy whose values are all tried."""
        return self._with(Grid())

    def __len__(self) -> int:
        return len(self.categories)

    def __getitem__(self, item: int) -> Value:
        return self.categories[item]

    def is_valid(self, value: Value) -> bool:
        return value in self.categories

    @property
    def domain_str(self) -> str:
        return f"{self.categories}"


class Function(Domain):
    """Return value of `func`, which takes no arguments, or the partly resolved configuration (see
    `spec_view`).
    """

    default_sampler_cls = _Call

    def __init__(self, func: Callable[..., Value]) -> None:
        self.func = func
        self.pass_config = _takes_config(func)

    def is_function(self) -> bool:
        return True

    def is_valid(self, value: Value) -> bool:
        return True

    @property
    def domain_str(self) -> str:
        return f"({getattr(self.func, '__name__', self.func)})"


def uniform(lower: float, upper: float) -> Float:
    """Sample a real number uniformly between `lower` and `upper`."""
    return Float(lower, upper).uniform()


def quniform(lower: float, upper: float, q: float) -> Float:
    """Sample like `uniform`, rounded to multiples of `q`. Both bounds are inclusive and must be
    multiples of `q`.
    """
    return Float(lower, upper).uniform().quantized(q)


def loguniform(lower: float, upper: float, base: float = 10) -> Float:
    """Sample a real number log-uniformly between `lower` > 0 and `upper`. `base` has no effect."""
    return Float(lower, upper).loguniform(base)


def qloguniform(lower: float, upper: float, q: float, base: float = 10) -> Float:
    """Sample like `loguniform`, rounded to multiples of `q`. Both bounds are inclusive and must be
    multiples of `q`.
    """
    return Float(lower, upper).loguniform(base).quantized(q)


def choice(categories: Sequence[Value]) -> Categorical:
    """Sample one of `categories` uniformly. They may contain further domains, which are resolved if
    they are chosen.
    """
    return Categorical(categories).uniform()


def randint(lower: int, upper: int) -> Integer:
    """Sample an integer uniformly from `lower` (inclusive) to `upper` (exclusive)."""
    _check_not_empty(lower, upper)
    return Integer(lower, upper).uniform()


def lograndint(lower: int, upper: int, base: float = 10) -> Integer:
    """Sample an integer log-uniformly from `lower` > 0 (inclusive) to `upper` (exclusive). `base`
    has no effect.
    """
    _check_not_empty(lower, upper)
    return Integer(lower, upper).loguniform(base)


def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """Sample a multiple of `q` from `lower` to `upper`, inclusive (exclusive for `q=1`)."""
    return Integer(lower, upper).uniform().quantized(q)


def qlograndint(lower: int, upper: int, q: int, base: float = 10) -> Integer:
    """Sample a multiple of `q` log-uniformly from `lower` > 0 to `upper`, inclusive (exclusive for
    `q=1`).
    """
    return Integer(lower, upper).loguniform(base).quantized(q)


def randn(mean: float = 0.0, sd: float = 1.0) -> Float:
    """Sample a real number from a normal distribution."""
    return Float(None, None).normal(mean, sd)


def qrandn(mean: float, sd: float, q: float) -> Float:
    """Sample like `randn`, rounded to multiples of `q`."""
    return Float(None, None).normal(mean, sd).quantized(q)


def sample_from(func: Callable[..., Value]) -> Function:
    """Use the return value of `func`, which may depend on other parameters.

    Args:
        func: Function without arguments, or of the configuration:
            `lambda config: config["width"] * 2`, or as older programs write,
            `lambda spec: spec.config.width * 2`. Parameters that it reads are resolved first. If it
            returns a domain, the value is drawn from the domain.
    """
    return Function(func)


def _integers(source: RandomSource, lower: int, upper: int, size: int) -> Value:
    if isinstance(source, np.random.Generator):
        return source.integers(lower, upper, size=size)
    return source.randint(lower, upper, size=size, dtype=np.int64)


def _multiples(domain: Integer, q: float) -> tuple[int, int]:
    """Return (first, end) such that multiples `q * i` for `first <= i < end` are in `domain`."""
    whole = int(q)
    return -(-domain.lower // whole), domain.upper // whole + (0 if whole == 1 else 1)


def _takes_config(func: Callable[..., Value]) -> bool:
    if not callable(func):
        raise TypeError(
            f"sample_from needs a function, not {func!r}. Put constants into the search space "
            f"directly."
        )
    try:
        signature = inspect.signature(func)
    except ValueError:
        # Compiled functions without a signature, such as numpy's, are called without arguments.
        return False
    try:
        signature.bind({})
    except TypeError:
        try:
            signature.bind()
        except TypeError:
            raise ValueError(
                f"A function for sample_from takes no arguments, or the configuration, but "
                f"{func!r} takes {signature}."
            ) from None
        return False
    return True


def _is_number(value: Value) -> bool:
    return isinstance(value, numbers.Real | np.number)


def _number(value: Value, name: str) -> float:
    if not _is_number(value) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, not {value!r}.")
    if math.isnan(value):
        raise ValueError(f"{name} must be a number, not NaN.")
    return value  # type: ignore[no-any-return]


def _whole_number(value: Value, name: str) -> int:
    if _number(value, name) != value // 1 or math.isinf(value):
        raise ValueError(
            f"{name} must be an integer, not {value!r}. Use uniform() or quniform() for fractions."
        )
    return int(value)


def _quantum(q: Value) -> Value:
    if not _number(q, "q") > 0 or math.isinf(q):
        raise ValueError(f"The quantization factor must be above 0, not q={q!r}.")
    return q


def _check_order(lower: float, upper: float) -> None:
    if lower > upper:
        raise ValueError(
            f"The lower bound lower={lower} is above the upper bound upper={upper}. Swap them."
        )


def _check_not_empty(lower: int, upper: int) -> None:
    if lower == upper:
        raise ValueError(
            f"There is no integer from lower={lower} to upper={upper}, which is exclusive. "
            f"Increase upper by 1."
        )


def _check_logarithm(lower: float, upper: float) -> None:
    if not lower > 0 or math.isinf(upper):
        raise ValueError(
            f"A log-uniform distribution needs positive and finite bounds, not lower={lower} and "
            f"upper={upper}. Give the values, not their logarithms."
        )
