"""Learners without algorithms, and random batches for them."""

import numpy as np

from syncline.rl.buffers.replay_columns import N_STEP, WEIGHTS
from syncline.rl.columns.names import Columns
from syncline.rl.learners.torch.train_batch import as_tensors


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
