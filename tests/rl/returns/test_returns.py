"""Advantages and targets against sums written from their definitions."""

import numpy as np
import pytest

from syncline.rl.returns.gae import gae
from syncline.rl.returns.lambda_returns import lambda_returns
from syncline.rl.returns.n_step import discounted_returns
from syncline.rl.returns.vtrace import vtrace

STEPS, WIDTH, GAMMA, LAMBDA = 13, 3, 0.9, 0.7


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture
def steps(random):
    """Rewards, values, next values and ends with episodes of several lengths."""
    rewards, values, next_values = random.normal(size=(3, STEPS, WIDTH)).astype(np.float32)
    ends = random.random((STEPS, WIDTH)) < 0.25
    return rewards, values, next_values, ends


def last_of_episode(ends, t, n):
    while t < STEPS - 1 and not ends[t, n]:
        t += 1
    return t


def test_gae_is_the_discounted_sum_of_errors_until_the_end_of_the_episode(steps):
    rewards, values, next_values, ends = steps
    deltas = rewards + GAMMA * next_values - values
    expected = np.zeros((STEPS, WIDTH))
    for n in range(WIDTH):
        for t in range(STEPS):
            for k in range(t, last_of_episode(ends, t, n) + 1):
                expected[t, n] += (GAMMA * LAMBDA) ** (k - t) * deltas[k, n]
    np.testing.assert_allclose(
        gae(rewards, values, next_values, ends, GAMMA, LAMBDA), expected, rtol=1e-5, atol=1e-6
    )


def test_gae_with_lambda_1_and_no_values_is_the_discounted_return(steps):
    rewards, _, _, ends = steps
    zeros = np.zeros_like(rewards)
    np.testing.assert_allclose(
        gae(rewards, zeros, zeros, ends, GAMMA, 1.0), discounted_returns(rewards, ends, GAMMA)
    )


def test_discounted_returns(steps):
    rewards, _, _, ends = steps
    expected = np.zeros((STEPS, WIDTH))
    for n in range(WIDTH):
        for t in range(STEPS):
            for k in range(t, last_of_episode(ends, t, n) + 1):
                expected[t, n] += GAMMA ** (k - t) * rewards[k, n]
    np.testing.assert_allclose(
        discounted_returns(rewards, ends, GAMMA), expected, rtol=1e-5, atol=1e-6
    )


def naive_vtrace(ratios, rewards, values, next_values, ends, clip_rho):
    """Equation 1 of the paper, as a sum over k of products over i."""
    rho, c = np.minimum(ratios, clip_rho), np.minimum(ratios, 1.0)
    deltas = rho * (rewards + GAMMA * next_values - values)
    targets = values.astype(np.float64).copy()
    for n in range(WIDTH):
        for t in range(STEPS):
            product = 1.0
            for k in range(t, last_of_episode(ends, t, n) + 1):
                targets[t, n] += product * deltas[k, n]
                product *= GAMMA * c[k, n]
    return targets


def test_vtrace_targets_are_those_of_the_paper(steps, random):
    rewards, values, next_values, ends = steps
    log_ratios = random.normal(size=(STEPS, WIDTH)) * 0.5
    targets, advantages = vtrace(
        log_ratios, rewards, values, next_values, ends, GAMMA, clip_rho=1.3, clip_pg_rho=1.1
    )
    expected = naive_vtrace(np.exp(log_ratios), rewards, values, next_values, ends, 1.3)
    np.testing.assert_allclose(targets, expected, rtol=1e-5, atol=1e-5)
    # Within an episode, next_values plus the correction of the next step is its target.
    for t, n in [(0, 0), (4, 1), (11, 2)]:
        following = next_values[t, n]
        if not ends[t, n]:
            following += targets[t + 1, n] - values[t + 1, n]
        expected_advantage = min(np.exp(log_ratios[t, n]), 1.1) * (
            rewards[t, n] + GAMMA * following - values[t, n]
        )
        assert advantages[t, n] == pytest.approx(expected_advantage, rel=1e-4)


def test_vtrace_on_policy_gives_n_step_returns(random):
    rewards, values = random.normal(size=(2, STEPS, WIDTH))
    next_values = np.concatenate([values[1:], random.normal(size=(1, WIDTH))])
    ends = np.zeros((STEPS, WIDTH), bool)
    targets, _ = vtrace(np.zeros_like(rewards), rewards, values, next_values, ends, GAMMA)
    expected = next_values[-1]
    for t in range(STEPS - 1, -1, -1):
        expected = rewards[t] + GAMMA * expected
        np.testing.assert_allclose(targets[t], expected, rtol=1e-5)


@pytest.mark.parametrize("lambda_", [0.0, 0.5, 1.0])
def test_lambda_returns_mix_n_step_returns(random, lambda_):
    rewards, next_values = random.normal(size=(2, 5, 1))
    discounts = np.full((5, 1), GAMMA)

    def n_step(t, n):
        total = sum(GAMMA**k * rewards[t + k, 0] for k in range(n))
        return total + GAMMA**n * next_values[t + n - 1, 0]

    for t in range(5):
        longest = 5 - t
        expected = sum(
            (1 - lambda_) * lambda_ ** (n - 1) * n_step(t, n) for n in range(1, longest)
        ) + lambda_ ** (longest - 1) * n_step(t, longest)
        found = lambda_returns(rewards, next_values, discounts, lambda_)
        assert found[t, 0] == pytest.approx(expected, rel=1e-5)
