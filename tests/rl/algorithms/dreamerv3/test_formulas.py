"""The formulas of DreamerV3 against naive loops and closed forms."""

import math

import numpy as np
import pytest
import torch

from syncline.rl.algorithms.dreamerv3.torch.formulas import (
    TwoHot,
    balanced_kl,
    draw,
    kl_divergence,
    lambda_returns,
    mixed_probabilities,
    straight_through,
    symexp,
    symlog,
)


def test_symexp_inverts_symlog():
    x = torch.tensor([-1e4, -3.0, -0.1, 0.0, 0.5, 7.0, 1e6], dtype=torch.float64)
    assert symlog(torch.tensor(math.e - 1.0)).item() == pytest.approx(1.0)
    torch.testing.assert_close(symexp(symlog(x)), x)


def naive_two_hot(value, bins):
    """Return the distribution of a number over ascending bins, by search."""
    found = np.zeros(len(bins))
    if value <= bins[0] or value >= bins[-1]:
        found[0 if value <= bins[0] else -1] = 1.0
        return found
    upper = next(i for i, each in enumerate(bins) if each > value)
    share = (value - bins[upper - 1]) / (bins[upper] - bins[upper - 1])
    found[upper - 1], found[upper] = 1.0 - share, share
    return found


def test_two_hot_shares_a_number_between_its_neighbours():
    two_hot = TwoHot(num_bins=9)
    order = two_hot.bins.argsort()
    ascending = two_hot.bins[order].double().numpy()
    assert ascending[4] == 0.0
    np.testing.assert_allclose(ascending, -ascending[::-1])
    assert ascending[-1] == pytest.approx(math.exp(20.0) - 1.0, rel=1e-5)
    values = torch.tensor([-1e10, -2000.0, -1.5, 0.0, 0.25, 147.0, 5e5, 1e10])
    encoded = two_hot.encode(values)
    for value, found in zip(values.tolist(), encoded[:, order].numpy(), strict=True):
        np.testing.assert_allclose(found, naive_two_hot(value, ascending), atol=1e-6)
    inside = values[1:-1]
    torch.testing.assert_close(encoded[1:-1] @ two_hot.bins, inside, rtol=1e-4, atol=1e-4)


def test_two_hot_loss_is_the_cross_entropy_to_each_target():
    two_hot = TwoHot()
    torch.manual_seed(0)
    logits = torch.randn(3, 5, 255, requires_grad=True)
    targets = [10.0 * torch.randn(3, 5), torch.randn(3, 5)]
    losses = two_hot.loss(logits, *targets)
    assert losses.shape == (2, 3, 5)
    for loss, target in zip(losses, targets, strict=True):
        expected = -(two_hot.encode(target) * torch.log_softmax(logits, -1)).sum(-1)
        torch.testing.assert_close(loss, expected)


def test_two_hot_mean_is_exactly_zero_at_first_and_then_the_expected_value():
    two_hot = TwoHot()
    assert two_hot.mean(torch.zeros(4, 255)).tolist() == [0.0] * 4
    logits = torch.full((255,), -40.0)
    logits[5], logits[9] = 0.0, 1.0
    weights = torch.softmax(logits.double(), -1)
    expected = (weights * two_hot.bins.double()).sum()
    assert two_hot.mean(logits).item() == pytest.approx(expected.item(), rel=1e-5)


def test_regression_by_two_hot_finds_the_mean():
    two_hot = TwoHot()
    targets = torch.tensor([3.0, 3.0, 3.0, 43.0])
    logits = torch.zeros(255, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.5)
    for _ in range(400):
        optimizer.zero_grad()
        two_hot.loss(logits.expand(4, -1), targets).mean().backward()
        optimizer.step()
    assert two_hot.mean(logits.detach()).item() == pytest.approx(13.0, rel=0.02)


def test_one_percent_of_every_distribution_is_uniform():
    found = mixed_probabilities(torch.tensor([1000.0, 0.0, 0.0, 0.0]))
    np.testing.assert_allclose(found, [0.9925, 0.0025, 0.0025, 0.0025], atol=1e-6)


def test_draws_have_the_given_frequencies():
    probabilities = torch.tensor([0.1, 0.2, 0.7])
    uniform = (torch.arange(1000) + 0.5) / 1000
    found = draw(probabilities.expand(1000, -1), uniform)
    assert found.sum(0).tolist() == [100, 200, 700]
    assert draw(probabilities, torch.tensor(1.0)).tolist() == [0, 0, 1]


def test_draws_pass_the_gradient_of_the_probabilities():
    logits = torch.randn(4, 3, requires_grad=True)
    weights = torch.randn(4, 3)
    drawn = straight_through(torch.softmax(logits, -1), torch.rand(4))
    assert drawn.detach().sum(-1).tolist() == [1.0] * 4
    (found,) = torch.autograd.grad((drawn * weights).sum(), logits)
    (expected,) = torch.autograd.grad((torch.softmax(logits, -1) * weights).sum(), logits)
    torch.testing.assert_close(found, expected)


def test_kl_is_the_sum_over_variables():
    torch.manual_seed(1)
    p, q = torch.softmax(torch.randn(2, 3, 4, 5), -1)
    expected = torch.zeros(3)
    for b in range(3):
        for k in range(4):
            for c in range(5):
                expected[b] += p[b, k, c] * math.log(p[b, k, c] / q[b, k, c])
    torch.testing.assert_close(kl_divergence(p, q), expected)


def test_balanced_kl_trains_each_side_alone_and_stops_below_one_nat():
    torch.manual_seed(2)
    posterior = (4.0 * torch.randn(6, 3, 4)).requires_grad_()
    prior = torch.randn(6, 3, 4, requires_grad=True)
    dynamics, representation = balanced_kl(torch.softmax(posterior, -1), torch.softmax(prior, -1))
    torch.testing.assert_close(dynamics, representation)
    assert (dynamics >= 1.0).all()
    only_prior = torch.autograd.grad(dynamics.sum(), [posterior, prior], allow_unused=True)
    only_posterior = torch.autograd.grad(
        representation.sum(), [posterior, prior], allow_unused=True
    )
    assert only_prior[0] is None
    assert only_prior[1].abs().sum() > 0
    assert only_posterior[1] is None
    assert only_posterior[0].abs().sum() > 0
    close = torch.zeros(1, 3, 4, requires_grad=True)
    almost = torch.softmax(close + 0.01 * torch.randn(1, 3, 4), -1)
    free, _ = balanced_kl(torch.softmax(torch.zeros(1, 3, 4), -1), almost)
    assert free.item() == 1.0
    (gradient,) = torch.autograd.grad(free.sum(), close)
    assert not gradient.any()


@pytest.mark.parametrize("lambda_", [0.0, 0.5, 0.95, 1.0])
def test_lambda_returns_equal_the_mean_of_n_step_returns(lambda_):
    generator = np.random.default_rng(0)
    horizon, width = 6, 4
    rewards = generator.normal(size=(horizon + 1, width))
    values = generator.normal(size=(horizon + 1, width))
    discounts = 0.9 * generator.uniform(size=(horizon + 1, width))
    discounts[3, 0] = 0.0

    def n_step(t, n, i):
        total, factor = 0.0, 1.0
        for k in range(t + 1, t + n + 1):
            total += factor * rewards[k, i]
            factor *= discounts[k, i]
        return total + factor * values[t + n, i]

    expected = np.zeros((horizon, width))
    for t in range(horizon):
        longest = horizon - t
        for i in range(width):
            for n in range(1, longest):
                expected[t, i] += (1 - lambda_) * lambda_ ** (n - 1) * n_step(t, n, i)
            expected[t, i] += lambda_ ** (longest - 1) * n_step(t, longest, i)
    found = lambda_returns(*map(torch.from_numpy, (rewards, values, discounts)), lambda_)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-9)
