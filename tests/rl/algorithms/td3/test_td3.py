"""TD3 and DDPG: targets, delay, noise, bad options; and that TD3 learns a swing-up."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from syncline.rl.algorithms.td3 import DDPGConfig, TD3Config
from syncline.rl.columns.names import Columns
from syncline.rl.modules.default_model_config import DefaultModelConfig
from syncline.rl.modules.rl_module import RLModuleSpec
from tests.rl.algorithms.learners import batch_of, learner_of

OBS = gym.spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = gym.spaces.Box(-2, 2, (2,), np.float32)


def config(made=TD3Config, **options):
    return (
        made()
        .environment("Pendulum-v1")
        .training(**options)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=1)
    )


def test_targets_are_the_smaller_discounted_value_of_the_target_policy():
    learner = learner_of(config(smooth_target_policy=False, gamma=0.9), OBS, ACTIONS)
    module = learner.module["default_policy"]
    with torch.no_grad():
        for each in module.target_policy.parameters():
            each += 0.1
    batch = batch_of(OBS, ACTIONS, rows=5, n_step=3)
    found = learner._targets(module, learner.config, batch)
    next_actions = module.target_policy({Columns.OBS: batch[Columns.NEXT_OBS]})
    for row in range(5):
        pair = torch.cat([batch[Columns.NEXT_OBS][row], next_actions[row]])[None]
        values = [critic.layers(pair).item() for critic in module.target_critics.each]
        future = 0.0 if batch[Columns.TERMINATEDS][row] else 0.9**3 * min(values)
        assert found[row].item() == pytest.approx(batch[Columns.REWARDS][row].item() + future, 1e-5)


def test_noise_of_the_target_policy_is_limited():
    learner = learner_of(config(target_noise=100.0, target_noise_clip=0.5), OBS, ACTIONS)
    module = learner.module["default_policy"]
    seen = []
    module.forward_target = lambda batch, actions: seen.append(actions) or actions.sum(-1)
    batch = batch_of(OBS, ACTIONS, rows=200)
    learner._targets(module, learner.config, batch)
    plain = module.target_policy({Columns.OBS: batch[Columns.NEXT_OBS]})
    moved = (seen[0] - plain).abs()
    assert moved.max() <= 0.5 + 1e-6
    assert (moved > 0.49).float().mean() > 0.5
    assert seen[0].abs().max() <= 1.0


def weights(network):
    return [value.numpy().copy() for value in network.state_dict().values()]


def changed(network, before):
    return any((a != b).any() for a, b in zip(weights(network), before, strict=True))


def test_policy_and_targets_move_in_every_second_update():
    learner = learner_of(config(policy_delay=2), OBS, ACTIONS)
    module = learner.module["default_policy"]
    parts = [module.policy, module.target_policy, module.target_critics, module.critics]
    moved = []
    for _ in range(4):
        before = [weights(part) for part in parts]
        learner.update_on_rows(
            {"default_policy": batch_of(OBS, ACTIONS, rows=16, arrays=True)}, timesteps={}
        )
        moved.append([changed(part, old) for part, old in zip(parts, before, strict=True)])
    assert moved == [[False, False, False, True], [True, True, True, True]] * 2


def test_ddpg_has_one_critic_no_delay_and_no_noise_on_targets():
    learner = learner_of(
        config(DDPGConfig, num_steps_sampled_before_learning_starts=1), OBS, ACTIONS
    )
    module = learner.module["default_policy"]
    assert len(module.critics.each) == 1
    assert learner.config.policy_delay == 1
    batch = batch_of(OBS, ACTIONS, rows=5)
    one, other = (learner._targets(module, learner.config, batch) for _ in range(2))
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_exploration_adds_scaled_noise_and_stays_in_the_bounds():
    spec = RLModuleSpec(
        module_class=config().get_default_rl_module_spec().module_class,
        catalog_class=config().get_default_rl_module_spec().catalog_class,
        observation_space=OBS,
        action_space=ACTIONS,
        model_config={"fcnet_hiddens": [8], "exploration_noise": [(0, 0.5), (100, 0.1)]},
        inference_only=True,
    )
    acting = spec.build().acting_policy()
    obs = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    noise = np.random.default_rng(1).normal(size=(50, 2))
    greedy = acting.act(obs, noise, explore=False)[0][Columns.ACTIONS]
    for step, stddev in ((0, 0.5), (50, 0.3), (1000, 0.1)):
        acting.set_step(step)
        found = acting.act(obs, noise, explore=True)[0][Columns.ACTIONS]
        expected = np.clip(greedy + stddev * noise, -1, 1)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_default_critics_have_hidden_layers():
    learner = learner_of(TD3Config().environment("Pendulum-v1"), OBS, ACTIONS)
    shapes = [tuple(p.shape) for p in learner.module["default_policy"].critics.each[0].parameters()]
    assert (256, 256) in shapes


def test_bad_options_and_spaces_are_named():
    with pytest.raises(ValueError, match=r"`lr=0.1` has no effect: TD3 has.*actor_lr"):
        config(lr=0.1).validate()
    with pytest.raises(ValueError, match="`policy_delay=0`"):
        config(policy_delay=0).validate()
    with pytest.raises(ValueError, match="needs a Box action space"):
        learner_of(config(), OBS, gym.spaces.Discrete(3))


@pytest.mark.long
def test_td3_swings_the_pendulum_up():
    algo = (
        TD3Config()
        .environment("Pendulum-v1")
        .training(
            train_batch_size_per_learner=128,
            num_steps_sampled_before_learning_starts=1000,
            replay_buffer_config={"capacity": 50_000},
            gamma=0.98,
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="relu"))
        .reporting(min_sample_timesteps_per_iteration=1000, metrics_num_episodes_for_smoothing=10)
        .evaluation(evaluation_duration=10, evaluation_config={"explore": False})
        .debugging(seed=1)
        .build_algo()
    )
    best = -np.inf
    for iteration in range(25):
        algo.train()
        if iteration >= 5:
            best = max(best, algo.evaluate()["env_runners"]["episode_return_mean"])
        if best >= -250:
            break
    algo.stop()
    assert best >= -250
