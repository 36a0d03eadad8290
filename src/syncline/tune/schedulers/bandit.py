"""A Gaussian process bandit with a time-varying reward, in numpy.

Bogunovic, Scarlett, Cevher: Time-Varying Gaussian Process Bandit Optimization, AISTATS 2016,
https://arxiv.org/abs/1601.06650, for the kernel; Desautels, Krause, Burdick: Parallelizing
Exploration-Exploitation Tradeoffs in Gaussian Process Bandit Optimization, JMLR 15, 2014, for
pending points with an unknown reward: they reduce the uncertainty around them without changing the
mean.

Arrays: n observations, d hyperparameters, inputs of 1 time + 1 reward at the start of the interval
+ d hyperparameters, all scaled to 0..1.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

MAX_OBSERVATIONS = 100
"""Number of latest observations to use: the reward drifts, and the cost is cubic in the number."""
_CANDIDATES = 500
_LENGTH_SCALES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
_DRIFTS = (0.0, 0.1, 0.3)
_NOISES = (1e-4, 1e-2, 1e-1)
_LIMIT = 2.0


@dataclass(frozen=True)
class Kernel:
    """k(x, x') = (1 - drift)^(|t - t'| / 2) * exp(-|z - z'|^2 / length_scale); z are all inputs
    but the time.
    """

    length_scale: float
    drift: float
    noise: float

    def __call__(self, left: Array, right: Array) -> Array:
        """Return the covariances, shape (len(left), len(right))."""
        return self.covariance(*_distances(left, right))

    def covariance(self, ages: Array, squares: Array) -> Array:
        """Return the covariances for `ages`, the distances in time, and `squares`, the squared
        distances in all other inputs.
        """
        covariance: Array = np.exp(
            ages * (0.5 * np.log1p(-self.drift)) - squares / self.length_scale
        )
        return covariance


def suggest(
    observed: Array, context: Array, bounds: Array, pending: Array, generator: np.random.Generator
) -> Array:
    """Return the hyperparameters with the highest upper confidence bound.

    Args:
        observed: Shape (n, 3 + d): time and reward at the start of an interval, d hyperparameters,
            gain per unit of time; oldest first.
        context: Shape (2,): time and reward at the start of the next interval.
        bounds: Shape (d, 2): minimum and maximum.
        pending: Shape (m, d): hyperparameters of other trials in the same interval.
        generator: Random generator for candidates.

    Returns:
        Shape (d,), within the bounds; random if there are too few observations.
    """
    low, high = bounds[:, 0], bounds[:, 1]
    observed = observed[-MAX_OBSERVATIONS:]
    gains = observed[:, -1]
    if len(observed) < 2 or np.ptp(gains) == 0:
        drawn: Array = generator.uniform(low, high)
        return drawn
    starts = np.vstack([observed[:, :2], context])
    interval = np.stack([starts.min(axis=0), starts.max(axis=0)], axis=1)
    inputs = np.hstack([_scaled(observed[:, :2], interval), _scaled(observed[:, 2:-1], bounds)])
    start = _scaled(context[None, :], interval)
    targets = np.clip((gains - gains.mean()) / gains.std(), -_LIMIT, _LIMIT)
    kernel = fit(inputs, targets)
    pending_inputs = (
        np.hstack([np.repeat(start, len(pending), axis=0), _scaled(pending, bounds)])
        if len(pending)
        else inputs[:0]
    )

    def bound(points: Array) -> Array:
        full = np.hstack([np.repeat(start, len(points), axis=0), points])
        return upper_bound(kernel, inputs, targets, pending_inputs, full)

    candidates = generator.uniform(size=(_CANDIDATES, len(bounds)))
    best = candidates[np.argmax(bound(candidates))]
    for spread in (0.1, 0.02):
        near = np.clip(
            best + generator.normal(scale=spread, size=(_CANDIDATES // 5, len(bounds))), 0, 1
        )
        near = np.vstack([best, near])
        best = near[np.argmax(bound(near))]
    chosen: Array = low + best * (high - low)
    return chosen


def fit(inputs: Array, targets: Array) -> Kernel:
    """Return the kernel of a grid with the highest likelihood of `targets`, shape (n,). The
    amplitude is computed in closed form.
    """
    ages, squares = _distances(inputs, inputs)
    best, likeliest = -np.inf, Kernel(1.0, 0.0, _NOISES[-1])
    for scale, drift in itertools.product(_LENGTH_SCALES, _DRIFTS):
        covariance = Kernel(scale, drift, 0.0).covariance(ages, squares)
        for noise in _NOISES:
            likelihood = _log_likelihood(covariance + noise * np.eye(len(targets)), targets)
            if likelihood > best:
                best, likeliest = likelihood, Kernel(scale, drift, noise)
    return likeliest


def upper_bound(
    kernel: Kernel, inputs: Array, targets: Array, pending: Array, points: Array
) -> Array:
    """Return mean + sqrt(beta) * standard deviation at `points`, shape (len(points),). `pending`
    affects only the deviation.
    """
    beta = 0.2 + max(0.0, float(np.log(0.4 * len(inputs))))
    mean = kernel(points, inputs) @ np.linalg.solve(_noisy(kernel, inputs), targets)
    every = np.vstack([inputs, pending])
    across = kernel(points, every)
    explained = (across * np.linalg.solve(_noisy(kernel, every), across.T).T).sum(axis=1)
    bound: Array = mean + np.sqrt(beta * np.clip(1 - explained, 0, None))
    return bound


def _log_likelihood(covariance: Array, targets: Array) -> float:
    lower = np.linalg.cholesky(covariance)
    whitened = np.linalg.solve(lower, targets)
    amplitude = max(float(whitened @ whitened) / len(targets), 1e-12)
    return -0.5 * len(targets) * float(np.log(amplitude)) - float(np.log(np.diag(lower)).sum())


def _noisy(kernel: Kernel, inputs: Array) -> Array:
    covariance = kernel(inputs, inputs)
    covariance[np.diag_indices(len(inputs))] += kernel.noise
    return covariance


def _distances(left: Array, right: Array) -> tuple[Array, Array]:
    """Return the distances in time and the squared distances in all other inputs, each of shape
    (len(left), len(right)).
    """
    return np.abs(left[:, None, 0] - right[None, :, 0]), (
        (left[:, None, 1:] - right[None, :, 1:]) ** 2
    ).sum(axis=2)


def _scaled(values: Array, bounds: Array) -> Array:
    """Scale values from `bounds`, shape (columns, 2), to 0..1."""
    low, high = bounds[:, 0], bounds[:, 1]
    scaled: Array = np.clip((values - low) / np.where(high > low, high - low, 1.0), 0, 1)
    return scaled
