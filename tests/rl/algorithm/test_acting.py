"""`compute_single_action(s)` and `get_policy`, on the current stack."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from syncline.rl.algorithm.acting import as_observation
from syncline.rl.algorithms.ppo import PPOConfig
from syncline.rl.columns.names import Columns
from syncline.rl.connectors.to_module.frame_stacking import FrameStackingEnvToModule
from syncline.rl.connectors.to_module.mean_std_filter import MeanStdFilter
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.older.policy import Policy


def built(env="Pendulum-v1", **options):
    model = options.pop("model_config", {"fcnet_hiddens": [16]})
    config = (
        PPOConfig()
        .environment(env)
        .env_runners(num_env_runners=0, **options)
        .rl_module(model_config=model)
        .training(train_batch_size=64, minibatch_size=32, num_epochs=1)
        .debugging(seed=1)
    )
    return config.build_algo()


def test_actions_are_unsquashed_and_repeatable_without_exploration():
    algo = built()
    obs = np.array([1.0, 0.0, 0.5], np.float32)
    action = algo.compute_single_action(obs, explore=False)
    out = algo.get_module().forward_inference({"obs": torch.from_numpy(obs)[None]})
    mean = out[Columns.ACTION_DIST_INPUTS][0, 0]
    np.testing.assert_allclose(action, np.clip(2.0 * mean.numpy(), -2, 2)[None], rtol=1e-5)
    np.testing.assert_array_equal(action, algo.compute_single_action(obs, explore=False))
    drawn = {float(algo.compute_single_action(obs)[0]) for _ in range(5)}
    assert len(drawn) == 5
    raw = algo.compute_single_action(obs, explore=False, unsquash_action=False)
    np.testing.assert_allclose(raw * 2.0, action, rtol=1e-5)
    by_key = algo.compute_actions({"a": obs, "b": obs}, explore=False)
    np.testing.assert_allclose(by_key["b"], action, rtol=1e-5)
    with pytest.raises(KeyError, match=r"Unknown module 'defualt_policy'.*default_policy"):
        algo.compute_single_action(obs, policy_id="defualt_policy")
    algo.stop()


def test_connectors_apply_and_filters_do_not_learn():
    algo = built(
        env_to_module_connector=lambda env, spaces, device: [
            MeanStdFilter(),
            FrameStackingEnvToModule(num_frames=2),
        ]
    )
    algo.train()
    known = algo.connectors.env_to_module["MeanStdFilter"]
    before = repr(known.get_state())
    frames = [np.array([1.0, 0.0, v], np.float32) for v in (0.5, 0.1)]
    alone = algo.compute_single_action(frames[1], explore=False)
    episode = SingleAgentEpisode(
        observations=list(frames), actions=[np.zeros(1)], rewards=[0.0], len_lookback_buffer=0
    )
    with_history = algo.compute_single_action(frames[1], explore=False, episode=episode)
    assert not np.allclose(alone, with_history)
    assert repr(known.get_state()) == before
    assert known.update_stats
    algo.stop()


def test_states_of_modules_with_memory():
    algo = built("CartPole-v1", model_config={"use_lstm": True, "lstm_cell_size": 8})
    obs = np.zeros(4, np.float32)
    state = algo.get_policy().get_initial_state()
    assert {each.shape for each in state} == {(1, 8)}
    action, first, outputs = algo.compute_single_action(obs, state, explore=False)
    assert action in (0, 1)
    assert isinstance(first, list)
    assert np.abs(first[0]).sum() > 0
    assert outputs[Columns.ACTION_DIST_INPUTS].shape == (2,)
    _, second, _ = algo.compute_single_action(obs, first, explore=False)
    assert not np.allclose(first[0], second[0])
    with pytest.raises(ValueError, match="get_initial_state"):
        algo.compute_single_action(obs, [state[0]])
    algo.stop()


def test_policy_of_older_programs(tmp_path):
    algo = built("CartPole-v1")
    policy = algo.get_policy()
    env = gym.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    action, states, outputs = policy.compute_single_action(obs, explore=False)
    assert env.action_space.contains(int(action))
    assert states == []
    actions, _, _ = policy.compute_actions(np.stack([obs, obs]), explore=False)
    assert actions.tolist() == [action, action]
    before = policy.get_weights()
    rows = {
        Columns.OBS: np.stack([obs] * 8),
        Columns.ACTIONS: np.ones(8, np.int64),
        Columns.ACTION_LOGP: np.full(8, -0.7, np.float32),
        Columns.ACTION_DIST_INPUTS: np.zeros((8, 2), np.float32),
        Columns.ADVANTAGES: np.ones(8, np.float32),
        Columns.VALUE_TARGETS: np.ones(8, np.float32),
    }
    result = policy.learn_on_batch(rows)
    assert np.isfinite(result["default_policy"]["policy_loss"])
    assert any(not np.array_equal(before[k], policy.get_weights()[k]) for k in before)
    policy.set_weights(before)
    loaded = Policy.from_checkpoint(algo.save_to_path(tmp_path))["default_policy"]
    assert loaded.compute_single_action(obs, explore=False)[0] == action
    algo.stop()


def test_lists_and_numbers_stand_for_arrays():
    algo = built()
    obs = [1, 0, 0.5]
    action = algo.compute_single_action(obs, explore=False)
    as_array = algo.compute_single_action(np.array(obs, np.float32), explore=False)
    np.testing.assert_array_equal(action, as_array)
    both = algo.compute_actions([obs, obs], explore=False)
    np.testing.assert_allclose(both, [action] * 2, rtol=1e-5)
    np.testing.assert_array_equal(algo.compute_actions({"a": obs}, explore=False)["a"], action)
    with pytest.raises(ValueError, match=r"shape \(2,\), but the space has \(3,\)"):
        algo.compute_single_action(obs[:2])
    algo.stop()


def test_nested_lists_follow_their_space():
    space = gym.spaces.Dict(
        {"one": gym.spaces.Discrete(3), "two": gym.spaces.Tuple([gym.spaces.MultiBinary(2)])}
    )
    made = as_observation(space, {"one": 2, "two": [[1, 0]]})
    assert made["one"].dtype == np.int64
    assert isinstance(made["two"], tuple)
    assert made["two"][0].dtype == np.int8
    images = gym.spaces.Box(0, 255, (1, 2), np.uint8)
    assert as_observation(images, [[3, 4]]).dtype == np.uint8
