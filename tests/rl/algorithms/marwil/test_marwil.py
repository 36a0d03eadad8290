"""MARWIL: its loss against a naive loop, the moving average, bad options."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from syncline.rl.algorithms.marwil import MARWILConfig
from syncline.rl.columns.names import Columns
from syncline.rl.offline.returns_to_go import BOOTSTRAP_DISCOUNTS, LAST_OBS
from tests.rl.algorithms.learners import batch_of, learner_of

OBS = gym.spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = gym.spaces.Discrete(4)


def config(**options):
    return (
        MARWILConfig()
        .environment("CartPole-v1")
        .offline_data(input_="somewhere")
        .training(**options)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=1)
    )


def rows(count=6):
    batch = batch_of(OBS, ACTIONS, rows=count)
    random = torch.Generator().manual_seed(1)
    batch[Columns.RETURNS_TO_GO] = torch.randn(count, generator=random)
    batch[BOOTSTRAP_DISCOUNTS] = torch.tensor([0.0, 0.5, 0.9] * (count // 3))
    batch[LAST_OBS] = torch.randn((count, 3), generator=random)
    return batch


def loss_of(learner, batch):
    module = learner.module["default_policy"]
    return learner.compute_loss_for_module(
        module_id="default_policy",
        config=learner.config,
        batch=batch,
        fwd_out=module.forward_train(batch),
    ).item()


def test_loss_is_that_of_a_loop():
    learner = learner_of(
        config(
            beta=0.8,
            vf_coeff=0.3,
            moving_average_sqd_adv_norm_start=2.0,
            moving_average_sqd_adv_norm_update_rate=0.25,
        ),
        OBS,
        ACTIONS,
    )
    module, batch = learner.module["default_policy"], rows()
    advantages, logps = [], []
    for row in range(6):
        now = {Columns.OBS: batch[Columns.OBS][row][None]}
        last = module.compute_values({Columns.OBS: batch[LAST_OBS][row][None]}).item()
        target = batch[Columns.RETURNS_TO_GO][row] + batch[BOOTSTRAP_DISCOUNTS][row] * last
        advantages.append((target - module.compute_values(now)).item())
        logits = module.forward_inference(now)[Columns.ACTION_DIST_INPUTS][0]
        logps.append(torch.log_softmax(logits, -1)[batch[Columns.ACTIONS][row]].item())
    square = sum(a * a for a in advantages) / 6
    c = math.sqrt(2.0 + 0.25 * (square - 2.0))
    policy = -sum(math.exp(0.8 * a / c) * p for a, p in zip(advantages, logps, strict=True)) / 6
    assert loss_of(learner, batch) == pytest.approx(policy + 0.3 * 0.5 * square, rel=1e-5)
    state = learner.get_state()
    other = learner_of(config(), OBS, ACTIONS)
    other.set_state(state)
    assert other.square_norms["default_policy"].item() == pytest.approx(c * c)


def test_without_weights_it_is_cloning():
    learner = learner_of(config(beta=0.0), OBS, ACTIONS)
    module, batch = learner.module["default_policy"], rows()
    logits = module.forward_inference(batch)[Columns.ACTION_DIST_INPUTS]
    expected = torch.nn.functional.cross_entropy(logits, batch[Columns.ACTIONS])
    assert loss_of(learner, batch) == pytest.approx(expected.item(), rel=1e-5)


def test_bad_options_are_named():
    with pytest.raises(ValueError, match=r"`beta=2` must be between 0 and 1"):
        config(beta=2).validate()
    with pytest.raises(ValueError, match=r"MARWIL learns from recorded data"):
        MARWILConfig().environment("CartPole-v1").validate()
