"""TQC: quantile regression against a naive loop, truncation, bad options."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from syncline.rl.algorithms.tqc import TQCConfig
from syncline.rl.algorithms.tqc.torch.tqc_torch_learner import quantile_huber_loss
from syncline.rl.columns.names import Columns
from syncline.rl.modules.default_model_config import DefaultModelConfig
from tests.rl.algorithms.learners import batch_of, learner_of

OBS = gym.spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = gym.spaces.Box(-2, 2, (2,), np.float32)


def config(**options):
    return (
        TQCConfig()
        .environment("Pendulum-v1")
        .training(n_quantiles=5, n_critics=3, **options)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=1)
    )


def test_quantile_loss_is_that_of_a_loop():
    random = torch.Generator().manual_seed(0)
    values = torch.randn((2, 3, 4), generator=random) * 2
    targets = torch.randn((3, 6), generator=random) * 2
    found = quantile_huber_loss(values, targets)
    for c in range(2):
        for b in range(3):
            total = 0.0
            for k in range(4):
                tau = (2 * k + 1) / 8
                for m in range(6):
                    u = (targets[b, m] - values[c, b, k]).item()
                    huber = 0.5 * u * u if abs(u) <= 1 else abs(u) - 0.5
                    total += abs(tau - (u < 0)) * huber
            assert found[c, b].item() == pytest.approx(total / 24, rel=1e-5)


def test_minimum_of_the_loss_is_at_the_quantiles():
    draws = torch.linspace(0, 1, 201)[None]
    values = torch.zeros((1, 1, 5), requires_grad=True)
    optimizer = torch.optim.Adam([values], lr=0.02)
    for _ in range(800):
        optimizer.zero_grad()
        quantile_huber_loss(values * 100, draws * 100).sum().backward()
        optimizer.step()
    expected = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9])
    torch.testing.assert_close(values.detach()[0, 0], expected, atol=0.01, rtol=0)


def test_targets_leave_out_the_largest_quantiles_of_all_critics_together():
    learner = learner_of(config(top_quantiles_to_drop_per_net=2, gamma=0.9), OBS, ACTIONS)
    module = learner.module["default_policy"]
    batch = batch_of(OBS, ACTIONS, rows=4, n_step=2)
    torch.manual_seed(3)
    found = learner._targets(module, learner.config, batch, torch.tensor(0.5))
    assert found.shape == (4, 15 - 3 * 2)
    torch.manual_seed(3)
    following = {Columns.OBS: batch[Columns.NEXT_OBS]}
    actions, logp = module.policy(following).sample_and_logp()
    quantiles = module.targets(following, actions)
    for row in range(4):
        kept = sorted(quantiles[:, row].flatten().tolist())[:9]
        factor = 0.0 if batch[Columns.TERMINATEDS][row] else 0.81
        expected = [
            batch[Columns.REWARDS][row].item() + factor * (z - 0.5 * logp[row].item()) for z in kept
        ]
        np.testing.assert_allclose(found[row].numpy(), expected, rtol=1e-5, atol=1e-6)


def test_an_update_changes_critics_and_policy():
    learner = learner_of(config(), OBS, ACTIONS)
    module = learner.module["default_policy"]
    before = [p.detach().clone() for p in (*module.pi.parameters(), *module.critics.parameters())]
    errors = learner.update_on_rows(
        {"default_policy": batch_of(OBS, ACTIONS, rows=16, arrays=True)}, timesteps={}
    )
    assert errors["default_policy"].shape == (16,)
    after = [*module.pi.parameters(), *module.critics.parameters()]
    assert all((a != b).any() for a, b in zip(before, after, strict=True))


def test_bad_options_are_named():
    with pytest.raises(ValueError, match=r"`top_quantiles_to_drop_per_net=5`.*`n_quantiles=5`"):
        config(top_quantiles_to_drop_per_net=5).validate()
    with pytest.raises(ValueError, match="TQC needs a Box action space"):
        learner_of(config(), OBS, gym.spaces.Discrete(3))


@pytest.mark.long
def test_tqc_swings_the_pendulum_up():
    algo = (
        TQCConfig()
        .environment("Pendulum-v1")
        .training(
            actor_lr=1e-3,
            critic_lr=1e-3,
            alpha_lr=1e-3,
            gamma=0.98,
            train_batch_size_per_learner=128,
            num_steps_sampled_before_learning_starts=500,
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 50_000},
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="relu"))
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=1000)
        .evaluation(evaluation_duration=10, evaluation_config={"explore": False})
        .debugging(seed=1)
        .build_algo()
    )
    best = -np.inf
    for iteration in range(20):
        algo.train()
        if iteration >= 3:
            best = max(best, algo.evaluate()["env_runners"]["episode_return_mean"])
        if best >= -250:
            break
    algo.stop()
    assert best >= -250
