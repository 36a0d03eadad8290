"""Search spaces: what a parameter's value may be, and how it is drawn.

Covered: the functions that programs call (`uniform` to `sample_from`), the domains that they return
(`Float`, `Integer`, `Categorical`, `Function`) and the samplers inside (`Uniform`, `LogUniform`,
`Normal`, `Quantized`, `Grid`), whose attributes searchers read to translate a space for their
libraries. A domain that can give no value is refused when it is built. Under a seed, numpy's
generators make every draw repeatable. Not covered: spaces with several parameters, see
`variant_generator`.
"""

from __future__ import annotations

import inspect
import math
import numbers
import operator
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from syncline.tune.search.spec_view import SpecView, Unresolved, unwrapped

RandomSource: TypeAlias = np.random.Generator | np.random.RandomState
RandomState: TypeAlias = RandomSource | int | None
"""What seeds a draw: a numpy generator of either kind (which moves on), an int (the same draw each
time), None (numpy's global state).
"""

_DomainT = TypeVar("_DomainT", bound="Domain")


def as_random_source(random_state: RandomState) -> RandomSource:
    """The generator that `random_state` names."""
    if random_state is None:
        # The global state, so that a program that calls `numpy.random.seed` repeats itself.
        source: np.random.RandomState = np.random.mtrand._rand
        return source
    if isinstance(random_state, np.random.Generator | np.random.RandomState):
        return random_state
    return np.random.default_rng(operator.index(random_state))


def fresh_generator() -> np.random.Generator:
    """A generator of its own, seeded from numpy's global state: other each time, but the same in a
    program that seeds that one.
    """
    return np.random.default_rng(np.random.randint(0, 2**32, size=4, dtype=np.uint32))


class Domain(Unresolved):
    """The values that one parameter may take, with a sampler that draws from them.

    Domains are not changed once they are built: `.uniform()`, `.quantized(q)` and the like return
    copies.
    """

    sampler: Sampler | None = None
    default_sampler_cls: ClassVar[type[Sampler] | None] = None

    def cast(self, value: Any) -> Any:
        """`value` in the Python type of this domain."""
        return value

    def set_sampler(self, sampler: Sampler, allow_override: bool = False) -> None:
        """Draws with `sampler` from now on. ValueError if there is one already and `allow_override`
        is False.
        """
        if self.sampler and not allow_override:
            raise ValueError(
                f"{self!r} draws with {self.sampler} already: {sampler} cannot be set too. Start from a fresh domain."
            )
        self.sampler = sampler

    def get_sampler(self) -> Sampler:
        """The sampler that was set, or the domain's usual one."""
        if self.sampler is None:
            assert self.default_sampler_cls is not None, f"{type(self).__name__} has no sampler"
            return self.default_sampler_cls()
        return self.sampler

    def sample(self, config: Any = None, size: int = 1, random_state: RandomState = None) -> Any:
        """Draws one value, or with `size` > 1 an array (numbers) or list of them. Only functions
        look at `config`.
        """
        return self.get_sampler().sample(self, config=config, size=size, random_state=random_state)

    def is_grid(self) -> bool:
        """Whether every value is to be tried, instead of drawing."""
        return isinstance(self.sampler, Grid)

    def is_function(self) -> bool:
        """Whether a function of the program gives the value."""
        return False

    def is_valid(self, value: Any) -> bool:
        """Whether `value` lies in this domain; bounds count as inside."""
        raise NotImplementedError

    @property
    def domain_str(self) -> str:
        """The domain for people: `(0.1, 1.0)`."""
        return "(unknown)"

    def __repr__(self) -> str:
        sampler = "" if self.sampler is None else f", {self.sampler}"
        return f"{type(self).__name__}{self.domain_str}{sampler}"

    def _with(self: _DomainT, sampler: Sampler, allow_override: bool = False) -> _DomainT:
        new = copy(self)
        new.set_sampler(sampler, allow_override)
        return new


class Sampler:
    """How values are drawn from a domain. Subclasses implement `draw`."""

    def sample(
        self, domain: Domain, config: Any = None, size: int = 1, random_state: RandomState = None
    ) -> Any:
        """One value in the domain's type, or `size` > 1 of them."""
        values = self.draw(domain, config, size, as_random_source(random_state))
        return values if size > 1 else domain.cast(values[0])

    def draw(self, domain: Any, config: Any, size: int, source: RandomSource) -> Any:
        """`size` values, as an array or list."""
        raise NotImplementedError

    def __str__(self) -> str:
        return type(self).__name__.lstrip("_")


class BaseSampler(Sampler):
    """Samplers that follow no distribution of their own."""

    def __str__(self) -> str:
        return "Base"


class Uniform(Sampler):
    """Every value is equally likely."""

    def __str__(self) -> str:
        return "Uniform"


class LogUniform(Sampler):
    """The value's logarithm is uniform. `base` is kept for programs that read it: it changes
    nothing in the distribution.
    """

    def __init__(self, base: float = 10) -> None:
        self.base = base

    def __str__(self) -> str:
        return "LogUniform"


class Normal(Sampler):
    """A normal distribution around `mean` with the standard deviation `sd` > 0."""

    def __init__(self, mean: float = 0.0, sd: float = 0.0) -> None:
        if not sd > 0:
            raise ValueError(
                f"A normal distribution needs a standard deviation above 0, not sd={sd!r}."
            )
        self.mean = mean
        self.sd = sd

    def __str__(self) -> str:
        return "Normal"


class Grid(Sampler):
    """Marks a domain of which every value is tried."""

    def draw(self, domain: Any, config: Any, size: int, source: RandomSource) -> Any:
        raise RuntimeError("A grid is gone through, value by value: nothing is drawn from it.")


class Quantized(Sampler):
    """Rounds what `sampler` draws to multiples of `q`; both bounds can come up.

    On integers, the inner sampler draws which multiple of `q` it is, so each is as likely as that
    sampler says. With `q=1` the upper bound of integers stays excluded, as it is without
    quantization.
    """

    def __init__(self, sampler: Sampler, q: float) -> None:
        if not isinstance(sampler, Sampler):
            raise TypeError(f"Quantized needs a sampler to round the values of, not {sampler!r}.")
        self.sampler = sampler
        self.q = _quantum(q)

    def get_sampler(self) -> Sampler:
        """The sampler whose values are rounded."""
        return self.sampler

    def draw(self, domain: Any, config: Any, size: int, source: RandomSource) -> Any:
        if isinstance(domain, Integer):
            multiples = copy(domain)
            multiples.lower, multiples.upper = _multiples(domain, self.q)
            values = np.multiply(self.sampler.draw(multiples, config, size, source), self.q)
        else:
            values = (
                np.round(np.divide(self.sampler.draw(domain, config, size, source), self.q))
                * self.q
            )
            # 3 * 0.1 is a little more than 0.3; and adding 0 makes 0 of -0.
            values = np.clip(values, domain.lower, domain.upper) + 0.0
        return [domain.cast(value) for value in values]


class _FloatUniform(Uniform):
    def draw(self, domain: Float, config: Any, size: int, source: RandomSource) -> Any:
        return source.uniform(domain.lower, domain.upper, size=size)


class _FloatLogUniform(LogUniform):
    def draw(self, domain: Float, config: Any, size: int, source: RandomSource) -> Any:
        values = np.exp(source.uniform(np.log(domain.lower), np.log(domain.upper), size=size))
        # exp(log(x)) may miss x by a rounding error.
        return np.minimum(np.maximum(values, domain.lower), domain.upper)


class _FloatNormal(Normal):
    def draw(self, domain: Float, config: Any, size: int, source: RandomSource) -> Any:
        return source.normal(self.mean, self.sd, size=size)


class _IntegerUniform(Uniform):
    def draw(self, domain: Integer, config: Any, size: int, source: RandomSource) -> Any:
        return _integers(source, domain.lower, domain.upper, size)


class _IntegerLogUniform(LogUniform):
    def draw(self, domain: Integer, config: Any, size: int, source: RandomSource) -> Any:
        values = np.exp(source.uniform(np.log(domain.lower), np.log(domain.upper), size=size))
        return np.clip(np.floor(values).astype(np.int64), domain.lower, domain.upper - 1)


class _CategoricalUniform(Uniform):
    def draw(self, domain: Categorical, config: Any, size: int, source: RandomSource) -> Any:
        # By index: numpy's `choice` would turn the categories into one type.
        return [
            domain.categories[index] for index in _integers(source, 0, len(domain.categories), size)
        ]


class _Call(BaseSampler):
    def draw(self, domain: Function, config: Any, size: int, source: RandomSource) -> Any:
        if not domain.pass_config:
            return [domain.func() for _ in range(size)]
        configs = config if isinstance(config, list) else [config] * size
        return [unwrapped(domain.func(_as_spec(configs[i]))) for i in range(size)]


class Float(Domain):
    """Real numbers between `lower` and `upper`; None means unbounded on that side."""

    default_sampler_cls = _FloatUniform

    def __init__(self, lower: float | None, upper: float | None) -> None:
        self.lower = -math.inf if lower is None else _number(lower, "lower")
        self.upper = math.inf if upper is None else _number(upper, "upper")
        _check_order(self.lower, self.upper)

    def cast(self, value: Any) -> float:
        return float(value)

    def uniform(self) -> Float:
        """Every value is equally likely. ValueError unless both bounds are finite."""
        if math.isinf(self.lower) or math.isinf(self.upper):
            raise ValueError(
                f"A uniform distribution needs two finite bounds, not lower={self.lower} and upper={self.upper}."
            )
        return self._with(_FloatUniform())

    def loguniform(self, base: float = 10) -> Float:
        """Every order of magnitude is equally likely. ValueError unless 0 < lower and upper is
        finite. `base` changes nothing.
        """
        _check_logarithm(self.lower, self.upper)
        return self._with(_FloatLogUniform(base))

    def normal(self, mean: float = 0.0, sd: float = 1.0) -> Float:
        """A normal distribution; ValueError if the domain has a bound."""
        if math.isfinite(self.lower) or math.isfinite(self.upper):
            raise ValueError(
                f"A normal distribution has no bounds, but lower={self.lower} and upper={self.upper} were given: leave them out."
            )
        return self._with(_FloatNormal(mean, sd))

    def quantized(self, q: float) -> Float:
        """Only multiples of `q`. ValueError unless both bounds are multiples of it."""
        _quantum(q)
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if math.isfinite(bound) and not math.isclose(bound / q, round(bound / q)):
                raise ValueError(
                    f"{name}={bound} is not divisible by the quantization factor q={q}: choose a bound that is a multiple of it."
                )
        return self._with(Quantized(self.get_sampler(), q), allow_override=True)

    def is_valid(self, value: Any) -> bool:
        return _is_number(value) and bool(self.lower <= value <= self.upper)

    @property
    def domain_str(self) -> str:
        return f"({self.lower}, {self.upper})"


class Integer(Domain):
    """Whole numbers from `lower` up to, without, `upper`; quantized ones reach `upper`, see
    `Quantized`.
    """

    default_sampler_cls = _IntegerUniform

    def __init__(self, lower: int, upper: int) -> None:
        self.lower = _whole_number(lower, "lower")
        self.upper = _whole_number(upper, "upper")
        _check_order(self.lower, self.upper)

    def cast(self, value: Any) -> int:
        return int(value)

    def uniform(self) -> Integer:
        """Every value is equally likely."""
        return self._with(_IntegerUniform())

    def loguniform(self, base: float = 10) -> Integer:
        """Every order of magnitude is equally likely. ValueError unless 0 < lower. `base` changes
        nothing.
        """
        _check_logarithm(self.lower, self.upper)
        return self._with(_IntegerLogUniform(base))

    def quantized(self, q: int) -> Integer:
        """Only multiples of the whole number `q`. ValueError if none lies between the bounds."""
        q = _whole_number(_quantum(q), "q")
        first, end = _multiples(self, q)
        if end <= first:
            raise ValueError(
                f"No multiple of q={q} lies between lower={self.lower} and upper={self.upper}: widen the bounds or lower q."
            )
        return self._with(Quantized(self.get_sampler(), q), allow_override=True)

    def is_valid(self, value: Any) -> bool:
        return _is_number(value) and bool(self.lower <= value <= self.upper)

    @property
    def domain_str(self) -> str:
        return f"({self.lower}, {self.upper})"


class Categorical(Domain):
    """One of a list of any values."""

    default_sampler_cls = _CategoricalUniform

    def __init__(self, categories: Iterable[Any]) -> None:
        if not isinstance(categories, Iterable):
            raise TypeError(
                f"The values to choose from must be a list or the like, not {categories!r}."
            )
        self.categories = list(categories)
        if not self.categories:
            raise ValueError("There are no values to choose from: the list is empty.")

    def uniform(self) -> Categorical:
        """Every value is equally likely."""
        return self._with(_CategoricalUniform())

    def grid(self) -> Categorical:
        """Every value is tried."""
        return self._with(Grid())

    def __len__(self) -> int:
        return len(self.categories)

    def __getitem__(self, item: int) -> Any:
        return self.categories[item]

    def is_valid(self, value: Any) -> bool:
        return value in self.categories

    @property
    def domain_str(self) -> str:
        return f"{self.categories}"


class Function(Domain):
    """What `func` returns; it takes nothing, or the configuration as far as it is drawn (see
    `spec_view`).
    """

    default_sampler_cls = _Call

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func
        self.pass_config = _takes_config(func)

    def is_function(self) -> bool:
        return True

    def is_valid(self, value: Any) -> bool:
        return True

    @property
    def domain_str(self) -> str:
        return f"({getattr(self.func, '__name__', self.func)})"


def uniform(lower: float, upper: float) -> Float:
    """A real number between `lower` and `upper`, every value equally likely."""
    return Float(lower, upper).uniform()


def quniform(lower: float, upper: float, q: float) -> Float:
    """`uniform`, rounded to multiples of `q`; both bounds can come up, and must be multiples of
    `q`.
    """
    return Float(lower, upper).uniform().quantized(q)


def loguniform(lower: float, upper: float, base: float = 10) -> Float:
    """A real number between `lower` > 0 and `upper`, every order of magnitude equally likely.
    `base` changes nothing.
    """
    return Float(lower, upper).loguniform(base)


def qloguniform(lower: float, upper: float, q: float, base: float = 10) -> Float:
    """`loguniform`, rounded to multiples of `q`; both bounds can come up, and must be multiples of
    `q`.
    """
    return Float(lower, upper).loguniform(base).quantized(q)


def choice(categories: Sequence[Any]) -> Categorical:
    """One of `categories`, each equally likely. They may hold further domains, which are drawn once
    they are chosen.
    """
    return Categorical(categories).uniform()


def randint(lower: int, upper: int) -> Integer:
    """A whole number from `lower` up to, without, `upper`."""
    _check_not_empty(lower, upper)
    return Integer(lower, upper).uniform()


def lograndint(lower: int, upper: int, base: float = 10) -> Integer:
    """A whole number from `lower` > 0 up to, without, `upper`, every order of magnitude equally
    likely. `base` changes nothing.
    """
    _check_not_empty(lower, upper)
    return Integer(lower, upper).loguniform(base)


def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """A multiple of `q` from `lower` to `upper`, both included; with `q=1`, `upper` is excluded."""
    return Integer(lower, upper).uniform().quantized(q)


def qlograndint(lower: int, upper: int, q: int, base: float = 10) -> Integer:
    """A multiple of `q` from `lower` > 0 to `upper`, both included (`q=1`: without `upper`), by
    order of magnitude.
    """
    return Integer(lower, upper).loguniform(base).quantized(q)


def randn(mean: float = 0.0, sd: float = 1.0) -> Float:
    """A real number, normally distributed."""
    return Float(None, None).normal(mean, sd)


def qrandn(mean: float, sd: float, q: float) -> Float:
    """`randn`, rounded to multiples of `q`."""
    return Float(None, None).normal(mean, sd).quantized(q)


def sample_from(func: Callable[..., Any]) -> Function:
    """What `func` returns, which may depend on other parameters.

    `func` takes nothing, or the configuration: `lambda config: config["width"] * 2`, or as older
    programs have it `lambda spec: spec.config.width * 2`. Parameters that it reads are drawn
    before, whatever their order. It may return a domain, from which the value is then drawn.
    """
    return Function(func)


def _integers(source: RandomSource, lower: int, upper: int, size: int) -> Any:
    if isinstance(source, np.random.Generator):
        return source.integers(lower, upper, size=size)
    return source.randint(lower, upper, size=size, dtype=np.int64)


def _multiples(domain: Integer, q: float) -> tuple[int, int]:
    """(first, end) so that `q` times each whole number from `first` up to, without, `end` lies in
    `domain`.
    """
    whole = int(q)
    return -(-domain.lower // whole), domain.upper // whole + (0 if whole == 1 else 1)


def _as_spec(config: Any) -> Any:
    return SpecView(config) if isinstance(config, dict) else config


def _takes_config(func: Callable[..., Any]) -> bool:
    if not callable(func):
        raise TypeError(
            f"sample_from needs a function, not {func!r}. A fixed value goes into the search space as it is."
        )
    try:
        signature = inspect.signature(func)
    except ValueError:
        # Compiled functions without a signature: such as numpy's, which draw without arguments.
        return False
    try:
        signature.bind({})
    except TypeError:
        try:
            signature.bind()
        except TypeError:
            raise ValueError(
                f"A function for sample_from takes nothing, or the configuration: {func!r} takes {signature}."
            ) from None
        return False
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real | np.number)


def _number(value: Any, name: str) -> float:
    if not _is_number(value) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, not {value!r}.")
    if math.isnan(value):
        raise ValueError(f"{name} must be a number, not NaN.")
    return value  # type: ignore[no-any-return]


def _whole_number(value: Any, name: str) -> int:
    if _number(value, name) != value // 1 or math.isinf(value):
        raise ValueError(
            f"{name} must be a whole number, not {value!r}: use uniform() or quniform() for fractions."
        )
    return int(value)


def _quantum(q: Any) -> Any:
    if not _number(q, "q") > 0 or math.isinf(q):
        raise ValueError(f"The quantization factor must be above 0, not q={q!r}.")
    return q


def _check_order(lower: float, upper: float) -> None:
    if lower > upper:
        raise ValueError(
            f"No value lies between lower={lower} and upper={upper}: the lower bound is above the upper one. Swap them."
        )


def _check_not_empty(lower: int, upper: int) -> None:
    if lower == upper:
        raise ValueError(
            f"There is no value from lower={lower} up to upper={upper}, which is excluded itself: raise upper by 1."
        )


def _check_logarithm(lower: float, upper: float) -> None:
    if not lower > 0 or math.isinf(upper):
        raise ValueError(
            f"A log-uniform distribution needs bounds above 0 and finite, not lower={lower} and upper={upper}. "
            "Give the values themselves, not their logarithms."
        )
