"""IQL: its losses against naive loops, expectiles, bad options."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from syncline.rl.algorithms.iql import IQLConfig
from syncline.rl.algorithms.iql.torch.iql_torch_learner import expectile_loss
from syncline.rl.columns.names import Columns
from tests.rl.algorithms.learners import batch_of, learner_of

OBS = gym.spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = gym.spaces.Box(-2, 2, (2,), np.float32)


def config(**options):
    return (
        IQLConfig()
        .environment("Pendulum-v1")
        .offline_data(input_="somewhere")
        .training(**options)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=1)
    )


def test_losses_are_those_of_a_loop():
    learner = learner_of(config(beta=2.0, expectile=0.7, gamma=0.9), OBS, ACTIONS)
    module = learner.module["default_policy"]
    with torch.no_grad():
        for each in module.targets.parameters():
            each += 0.1
    batch = batch_of(OBS, ACTIONS, rows=6)
    loss = learner.compute_loss_for_module(
        module_id="default_policy", config=learner.config, batch=batch, fwd_out={}
    )
    value, critic, policy = 0.0, 0.0, 0.0
    for row in range(6):
        pair = torch.cat([batch[Columns.OBS][row], batch[Columns.ACTIONS][row]])[None]
        now, after = ({Columns.OBS: batch[name][row][None]} for name in ("obs", "new_obs"))
        q = min(each.layers(pair).item() for each in module.targets.each)
        u = q - module.vf(now).item()
        value += (0.7 if u > 0 else 0.3) * u * u / 6
        future = 0.0 if batch[Columns.TERMINATEDS][row] else 0.9 * module.vf(after).item()
        for each in module.critics.each:
            error = each.layers(pair).item() - batch[Columns.REWARDS][row].item() - future
            critic += error * error / 6
        logp = module.policy(now).logp(batch[Columns.ACTIONS][row][None]).item()
        policy -= min(math.exp(2.0 * u), 100.0) * logp / 6
    assert loss.item() == pytest.approx(value + critic + policy, rel=1e-4)


def test_each_loss_reaches_its_own_network_only():
    learner = learner_of(config(), OBS, ACTIONS)
    module = learner.module["default_policy"]
    batch = batch_of(OBS, ACTIONS, rows=6)
    policy = module.policy(batch).logp(batch[Columns.ACTIONS]).mean()
    learner.optimizers.zero_gradients(["default_policy"])
    loss = learner.compute_loss_for_module(
        module_id="default_policy", config=learner.config, batch=batch, fwd_out={}
    )
    loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in module.vf.parameters())
    assert all(p.grad is None for p in module.targets.parameters())
    assert policy.requires_grad


def test_expectile_of_a_sample_minimizes_the_loss():
    sample = torch.tensor([0.0, 1.0, 2.0, 10.0])
    grid = torch.linspace(0, 10, 10_001)
    losses = expectile_loss(sample[None] - grid[:, None], 0.9).mean(1)
    best = grid[losses.argmin()]
    above, below = (sample - best).clamp(min=0).sum(), (best - sample).clamp(min=0).sum()
    assert (0.9 * above).item() == pytest.approx((0.1 * below).item(), rel=1e-2)


def test_bad_options_are_named():
    with pytest.raises(ValueError, match=r"`expectile=1.0`"):
        config(expectile=1.0).validate()
    with pytest.raises(ValueError, match=r"`beta=0` must be positive"):
        config(beta=0).validate()
    with pytest.raises(ValueError, match=r"`lr=0.1` has no effect: IQL has"):
        config(lr=0.1).validate()
    with pytest.raises(ValueError, match="IQL needs a Box action space"):
        learner_of(config(), OBS, gym.spaces.Discrete(3))
    with pytest.raises(ValueError, match=r"IQL learns from recorded data"):
        IQLConfig().environment("Pendulum-v1").validate()
