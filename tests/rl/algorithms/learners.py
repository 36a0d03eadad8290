"""Learners without algorithms, and random batches for them."""

import numpy as np
import pytest
import torch

from syncline.rl.buffers.replay_columns import DISCOUNTS, N_STEP, WEIGHTS
from syncline.rl.columns.names import Columns
from syncline.rl.learners.torch.train_batch import as_tensors
from syncline.rl.metrics.metrics_logger import MetricsLogger


def learner_of(config, observation_space, action_space):
    """Return the built learner of a configuration."""
    config.validate()
    spec = config.get_multi_rl_module_spec(
        spaces={"default_policy": (observation_space, action_space)}
    )
    learner = config.learner_class(config=config, module_spec=spec)
    learner.build()
    return learner


def batch_of(observation_space, action_space, *, rows, n_step=1, seed=0, arrays=False):
    """Return transitions: every third one is terminal."""
    random = np.random.default_rng(seed)
    shape = observation_space.shape
    if action_space.shape:
        actions = random.uniform(-1, 1, (rows, *action_space.shape)).astype(np.float32)
    else:
        actions = random.integers(action_space.n, size=rows)
    columns = {
        Columns.OBS: random.normal(size=(rows, *shape)).astype(np.float32),
        Columns.NEXT_OBS: random.normal(size=(rows, *shape)).astype(np.float32),
        Columns.ACTIONS: actions,
        Columns.REWARDS: random.normal(size=rows).astype(np.float32),
        Columns.TERMINATEDS: np.arange(rows) % 3 == 0,
        Columns.TRUNCATEDS: np.zeros(rows, bool),
        N_STEP: np.full(rows, n_step),
        WEIGHTS: np.ones(rows, np.float32),
    }
    return columns if arrays else as_tensors(columns, "cpu")


def trained(config, observation_space, action_space, *, autograd, updates=4, weights=False):
    """Return a learner after some updates on rows, the latest errors and the metrics.

    Args:
        config: The algorithm's options.
        observation_space: Space of observations.
        action_space: Space of actions.
        autograd: Replace a method by itself: every override leads to autograd.
        updates: Number of updates.
        weights: Give rows different weights.
    """
    learner = learner_of(config, observation_space, action_space)
    if autograd:
        learner.compute_loss_for_module = learner.compute_loss_for_module
    errors = {}
    for number in range(updates):
        rows = batch_of(observation_space, action_space, rows=17, seed=number, arrays=True)
        rows[DISCOUNTS] = np.where(rows[Columns.TERMINATEDS], 0.0, 0.9).astype(np.float32)
        if weights:
            rows[WEIGHTS] = np.linspace(0.1, 1.0, 17).astype(np.float32)
        steps = {"num_env_steps_sampled_lifetime": 300 * number}
        errors = learner.update_on_rows({"default_policy": rows}, timesteps=steps)
    learner.was_direct = learner._direct["default_policy"].step is not None
    return learner, errors["default_policy"], MetricsLogger.peek_results(learner.reduce_metrics())


def assert_same_training(config, observation_space, action_space, **options):
    """Check that updates without autograd are those with autograd; the config makes new ones."""
    found = [
        trained(config(), observation_space, action_space, autograd=autograd, **options)
        for autograd in (False, True)
    ]
    (direct, errors, metrics), (usual, expected_errors, expected) = found
    assert direct.was_direct
    assert not usual.was_direct
    np.testing.assert_allclose(errors, expected_errors, atol=2e-5)
    states = [each.module["default_policy"].state_dict() for each in (direct, usual)]
    for name, value in states[1].items():
        torch.testing.assert_close(states[0][name], value, atol=2e-5, rtol=1e-4)
    for owner, values in expected.items():
        assert metrics[owner] == pytest.approx(values, rel=1e-3, abs=1e-5), owner
