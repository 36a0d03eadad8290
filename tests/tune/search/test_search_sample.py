"""Domains: their bounds, their steps, what they refuse, and that a seed repeats them."""

import pickle
import time
from collections import Counter

import numpy as np
import pytest

from syncline.tune.search import (
    choice,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from syncline.tune.search.sample import (
    Categorical,
    Float,
    Grid,
    Integer,
    LogUniform,
    Normal,
    Quantized,
    Uniform,
)

MANY = 2000


def drawn(domain):
    return domain.sample(size=MANY, random_state=0)


@pytest.mark.parametrize(
    ("domain", "low", "high"),
    [
        (uniform(-2, 3), -2, 3),
        (loguniform(1e-4, 1e-1), 1e-4, 1e-1),
        (quniform(0, 0.3, 0.1), 0, 0.3),
        (qloguniform(0.5, 8, 0.5), 0.5, 8),
    ],
)
def test_floats_stay_between_their_bounds(domain, low, high):
    values = drawn(domain)
    assert min(values) >= low
    assert max(values) <= high
    assert max(values) - min(values) > 0.9 * (high - low)
    assert type(domain.sample(random_state=0)) is float


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (randint(1, 4), {1, 2, 3}),
        (randint(-2, 1), {-2, -1, 0}),
        (qrandint(0, 6, 2), {0, 2, 4, 6}),
        (qrandint(1, 7, 3), {3, 6}),
        (qrandint(4, 4, 2), {4}),
        (qrandint(1, 4), {1, 2, 3}),
        (lograndint(1, 5), {1, 2, 3, 4}),
        (qlograndint(2, 8, 2), {2, 4, 6, 8}),
        (quniform(0, 1, 0.25), {0.0, 0.25, 0.5, 0.75, 1.0}),
        (choice(["a", 1, None]), {"a", 1, None}),
    ],
)
def test_every_value_comes_up_and_no_other(domain, expected):
    assert set(drawn(domain)) == expected
    assert all(domain.is_valid(value) for value in expected)


def test_multiples_between_the_bounds_are_equally_likely():
    counts = Counter(qrandint(0, 10, 5).sample(size=9000, random_state=0))
    assert all(abs(count - 3000) < 300 for count in counts.values())


def test_log_uniform_draws_every_order_of_magnitude_as_often():
    counts = Counter(np.floor(np.log10(loguniform(1e-3, 1).sample(size=9000, random_state=0))))
    assert all(abs(counts[magnitude] - 3000) < 300 for magnitude in (-3, -2, -1))


def test_normal_has_mean_and_deviation():
    values = randn(10, 2).sample(size=9000, random_state=0)
    assert abs(np.mean(values) - 10) < 0.1
    assert abs(np.std(values) - 2) < 0.1
    assert all(value % 5 == 0 for value in qrandn(0, 10, 5).sample(size=100, random_state=0))


def test_categories_keep_their_types_and_identity():
    marker = object()
    values = choice([1, "1", marker, [1]]).sample(size=100, random_state=0)
    assert marker in values
    assert {type(value) for value in values} == {int, str, object, list}


@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState, int])
def test_a_seed_repeats_every_draw(kind):
    domains = [
        uniform(0, 1),
        quniform(0, 10, 2),
        loguniform(1, 9),
        randint(0, 99),
        lograndint(1, 99),
        choice(range(50)),
        randn(),
    ]
    assert [domain.sample(random_state=kind(7)) for domain in domains] == [
        domain.sample(random_state=kind(7)) for domain in domains
    ]


def test_without_a_seed_numpys_global_state_counts():
    np.random.seed(3)
    first = uniform(0, 1).sample()
    np.random.seed(3)
    assert uniform(0, 1).sample() == first
    assert uniform(0, 1).sample() != first


def test_a_generator_moves_on():
    generator = np.random.default_rng(0)
    assert uniform(0, 1).sample(random_state=generator) != uniform(0, 1).sample(
        random_state=generator
    )


def test_what_searchers_read():
    domain = quniform(0, 10, 2)
    assert (domain.lower, domain.upper) == (0, 10)
    assert isinstance(domain.get_sampler(), Quantized)
    assert domain.get_sampler().q == 2
    assert isinstance(domain.get_sampler().get_sampler(), Uniform)
    assert isinstance(loguniform(1, 2).sampler, LogUniform)
    assert loguniform(1, 2, base=2).sampler.base == 2
    normal = randn(1, 2).sampler
    assert isinstance(normal, Normal)
    assert (normal.mean, normal.sd) == (1, 2)
    assert (choice([1, 2]).categories, len(choice([1, 2])), choice([1, 2])[1]) == ([1, 2], 2, 2)
    assert isinstance(Categorical([1]).grid().sampler, Grid)
    assert sample_from(lambda: 1).is_function()
    assert uniform(1, 2).domain_str == "(1, 2)"
    assert randint(1, 5).domain_str == "(1, 5)"


def test_casts_return_copies_and_refuse_a_second_sampler():
    plain = Float(1, 10)
    assert isinstance(plain.loguniform().sampler, LogUniform)
    assert plain.sampler is None
    assert isinstance(Integer(1, 10).loguniform().quantized(3).sampler.sampler, LogUniform)
    with pytest.raises(ValueError, match="already has the sampler Uniform, so LogUniform"):
        plain.uniform().loguniform()
    with pytest.raises(RuntimeError, match="cannot be sampled"):
        Categorical([1]).grid().sample()


def test_domains_can_be_pickled():
    for domain in (
        quniform(0, 10, 2),
        lograndint(1, 9),
        choice([1]),
        randn(),
        Categorical([1]).grid(),
    ):
        assert pickle.loads(pickle.dumps(domain)).domain_str == domain.domain_str


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: uniform(3, 1), "lower=3 is above the upper bound upper=1"),
        (lambda: randint(9, 2), "lower=9 is above the upper bound upper=2"),
        (lambda: randint(3, 3), "to upper=3, which is exclusive"),
        (lambda: lograndint(3, 3), "to upper=3, which is exclusive"),
        (lambda: randint(1, 2.5), "upper must be an integer, not 2.5"),
        (lambda: loguniform(0, 1), "positive.*lower=0 and upper=1"),
        (lambda: loguniform(-4, -1), "not their logarithms"),
        (lambda: lograndint(0, 5), "positive.*lower=0"),
        (lambda: uniform(0, float("inf")), "finite"),
        (lambda: uniform(float("nan"), 1), "lower must be a number, not NaN"),
        (lambda: Float(None, 1).uniform(), "two finite bounds"),
        (lambda: Float(0, 1).normal(), "no bounds"),
        (lambda: quniform(0, 1, 0), "above 0, not q=0"),
        (lambda: qrandint(0, 10, -2), "above 0, not q=-2"),
        (lambda: quniform(0.1, 1, 0.25), r"lower=0.1 is not divisible .* q=0.25"),
        (lambda: quniform(0, 1.1, 0.25), r"upper=1.1 is not divisible .* q=0.25"),
        (lambda: qrandint(1, 2, 5), "no multiple of q=5 between lower=1 and upper=2"),
        (lambda: randn(0, 0), "above 0, not sd=0"),
        (lambda: choice([]), "no values to choose from"),
        (lambda: sample_from(lambda a, b: 1), "takes no arguments, or the configuration"),
    ],
)
def test_what_has_no_value_is_refused_when_it_is_built(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: uniform("0.1", 1), "lower must be a number, not '0.1'"),
        (lambda: choice(5), "must be a list of values to choose from, not 5"),
        (lambda: sample_from(3), "needs a function, not 3"),
        (lambda: Quantized(2, 2), "needs a sampler"),
    ],
)
def test_what_is_of_a_wrong_type_is_refused_when_it_is_built(build, message):
    with pytest.raises(TypeError, match=message):
        build()


def test_whole_numbers_may_be_written_as_floats():
    assert randint(1, 1e3).upper == 1000
    assert type(randint(1, 1e3).upper) is int


@pytest.mark.parametrize(
    "function",
    [
        lambda config: config["x"] * 2,
        lambda config: config.x * 2,
        lambda spec: spec.config.x * 2,
        lambda spec: spec["config"]["x"] * 2,
        lambda config: config.get("x") * 2,
        lambda: 6,
    ],
)
@pytest.mark.parametrize(
    "config", [{"x": 3}, {"config": {"x": 3}}], ids=["configuration", "specification"]
)
def test_functions_read_the_configuration_in_any_way(function, config):
    assert sample_from(function).sample(config) == 6


def test_a_function_gets_each_configuration_of_a_list():
    assert sample_from(lambda config: config["x"]).sample([{"x": 1}, {"x": 2}], size=2) == [1, 2]


def test_functions_without_a_signature_are_called_without_arguments():
    assert sample_from(time.time).sample({}) > 0
