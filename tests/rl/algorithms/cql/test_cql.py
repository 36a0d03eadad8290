"""CQL: its penalty against a naive loop, cloning first, the learned weight, bad options."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from syncline.rl.algorithms.cql import CQLConfig
from syncline.rl.columns.names import Columns
from tests.rl.algorithms.learners import batch_of, learner_of

OBS = gym.spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = gym.spaces.Box(-2, 2, (2,), np.float32)


def config(**options):
    return (
        CQLConfig()
        .environment("Pendulum-v1")
        .offline_data(input_="somewhere")
        .training(num_actions=4, **options)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=1)
    )


def test_gaps_are_those_of_a_loop():
    learner = learner_of(config(temperature=0.5), OBS, ACTIONS)
    module = learner.module["default_policy"]
    batch = batch_of(OBS, ACTIONS, rows=5)
    torch.manual_seed(7)
    found = learner._gaps(module, learner.config, batch)
    torch.manual_seed(7)
    kinds = learner._drawn(module, batch, 5, 4)
    for critic, gap in zip(module.critics.each, found, strict=True):
        expected = 0.0
        for row in range(5):
            total = 0.0
            for actions, logp in kinds:
                for number in range(4):
                    pair = torch.cat([batch[Columns.OBS][row], actions[4 * row + number]])[None]
                    weighted = critic.layers(pair).item() - logp[row, number].item()
                    total += math.exp(weighted / 0.5)
            recorded = torch.cat([batch[Columns.OBS][row], batch[Columns.ACTIONS][row]])[None]
            expected += (0.5 * math.log(total) - critic.layers(recorded).item()) / 5
        assert gap.item() == pytest.approx(expected, rel=1e-4)


def test_drawn_actions_have_their_densities():
    learner = learner_of(config(), OBS, ACTIONS)
    module = learner.module["default_policy"]
    batch = batch_of(OBS, ACTIONS, rows=5)
    (_, uniform), (actions, logp), (next_actions, next_logp) = learner._drawn(module, batch, 5, 4)
    assert uniform[0, 0].item() == pytest.approx(math.log(0.25))
    for name, drawn, given in (("obs", actions, logp), ("new_obs", next_actions, next_logp)):
        repeated = {Columns.OBS: batch[name].repeat_interleave(4, 0)}
        expected = module.policy(repeated).logp(drawn).view(5, 4)
        torch.testing.assert_close(given, expected, rtol=1e-3, atol=1e-3)


def updated(learner, times):
    rows = batch_of(OBS, ACTIONS, rows=32, arrays=True)
    for _ in range(times):
        learner.update_on_rows({"default_policy": rows}, timesteps={})


def test_policy_clones_in_the_first_updates():
    learner = learner_of(config(bc_iters=60, actor_lr=0.02), OBS, ACTIONS)
    module = learner.module["default_policy"]
    batch = batch_of(OBS, ACTIONS, rows=32)

    def likelihood():
        return module.policy(batch).logp(batch[Columns.ACTIONS]).mean().item()

    before = likelihood()
    updated(learner, 60)
    cloned = likelihood()
    assert cloned > before + 0.5
    updated(learner, 60)
    assert likelihood() < cloned


def test_penalty_makes_values_of_recorded_actions_larger_than_of_others():
    def gap(weight):
        learner = learner_of(config(min_q_weight=weight, critic_lr=0.01), OBS, ACTIONS)
        updated(learner, 100)
        batch = batch_of(OBS, ACTIONS, rows=32)
        return learner._gaps(learner.module["default_policy"], learner.config, batch).mean().item()

    assert gap(5.0) < gap(0.0) - 0.5


def test_learned_weight_grows_while_the_gap_is_above_the_threshold():
    learner = learner_of(config(lagrangian=True, lagrangian_thresh=-100.0), OBS, ACTIONS)
    updated(learner, 5)
    weight = learner.log_penalty_weights["default_policy"]
    assert weight.item() > 0
    other = learner_of(config(lagrangian=True, lagrangian_thresh=100.0), OBS, ACTIONS)
    updated(other, 5)
    assert other.log_penalty_weights["default_policy"].item() < 0
    other.set_state(learner.get_state())
    assert other.log_penalty_weights["default_policy"].item() == weight.item()


def test_bad_options_are_named():
    with pytest.raises(ValueError, match=r"`temperature=0`"):
        config(temperature=0).validate()
    with pytest.raises(ValueError, match="CQL needs a Box action space"):
        learner_of(config(), OBS, gym.spaces.Discrete(3))
    with pytest.raises(ValueError, match=r"CQL learns from recorded data"):
        CQLConfig().environment("Pendulum-v1").validate()
