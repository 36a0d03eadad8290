"""APPO: the ratio to the target policy, its updates, the circular buffer, exact resume."""

import numpy as np
import pytest
import torch

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.appo import APPOConfig
from syncline.rl.algorithms.appo.torch.appo_torch_learner import TARGET_LOGP
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import leaves


def small_config(**training):
    return (
        APPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=3, rollout_fragment_length=10)
        .training(train_batch_size_per_learner=60, lr=0.01, entropy_coeff=0.0, **training)
        .rl_module(model_config={"fcnet_hiddens": [8], "fcnet_activation": "tanh"})
        .reporting(min_time_s_per_iteration=0)
        .debugging(seed=3)
    )


def weights(algo):
    return [np.asarray(leaf) for leaf in leaves(algo.get_weights())]


def test_loss_clips_the_ratio_to_the_target_policy():
    algo = small_config(clip_param=0.2, vf_loss_coeff=0.0).build_algo()
    for _ in range(4):
        algo.train()  # the policy has left its target
    (sample,) = algo.env_runner_group.sample_steps()
    learner = algo.learner_group._learner
    batch = learner.build_batch("default_policy", [sample.fragments["default_policy"]]).columns
    batch[Columns.ACTION_LOGP] = batch[Columns.ACTION_LOGP] + 0.3 * torch.randn(30)
    out = learner.module["default_policy"].forward_train(batch)
    loss = learner.compute_loss_for_module(
        module_id="default_policy", config=algo.config, batch=batch, fwd_out=out
    )
    logp = torch.distributions.Categorical(logits=out[Columns.ACTION_DIST_INPUTS]).log_prob(
        batch[Columns.ACTIONS]
    )
    mu, target, advantages = (
        batch[name] for name in (Columns.ACTION_LOGP, TARGET_LOGP, Columns.ADVANTAGES)
    )
    assert not torch.allclose(target, logp)
    ratio = torch.clamp(torch.exp(mu - target), 0, 2) * torch.exp(logp - mu)
    expected = -torch.minimum(ratio * advantages, torch.clamp(ratio, 0.8, 1.2) * advantages).mean()
    torch.testing.assert_close(loss, expected)
    algo.stop()


def test_the_target_follows_after_as_many_passes_as_configured():
    algo = small_config(
        circular_buffer_num_batches=2,
        circular_buffer_iterations_per_batch=2,
        target_network_update_freq=1,
    ).build_algo()
    learner = algo.learner_group._learner
    are_equal = []
    for _ in range(8):
        algo.train()
        own = leaves(learner.module["default_policy"].get_state())
        target = leaves(learner.target("default_policy").get_state())
        are_equal.append(all(np.array_equal(a, b) for a, b in zip(own, target, strict=True)))
    assert are_equal == [False, False, False, True] * 2
    algo.stop()


def test_each_batch_is_used_twice():
    algo = small_config().build_algo()
    for _ in range(6):
        result = algo.train()
    trained = result["learners"]["default_policy"]["num_module_steps_trained_lifetime"]
    assert trained == 6 * 60
    assert result["num_env_steps_sampled_lifetime"] in (180, 210, 240)
    algo.stop()


def test_kl_coefficient_adapts_when_the_target_moves():
    algo = small_config(
        use_kl_loss=True,
        kl_target=1e-9,
        circular_buffer_num_batches=1,
        target_network_update_freq=1,
    ).build_algo()
    for _ in range(2):
        result = algo.train()
    assert result["learners"]["default_policy"]["curr_kl_coeff"] == pytest.approx(1.5)
    algo.stop()


@pytest.mark.parametrize("iterations", [2, 3])
def test_restored_run_ends_with_the_same_weights(tmp_path, iterations):
    algo = small_config(use_kl_loss=True, circular_buffer_num_batches=2).build_algo()
    for _ in range(iterations):
        algo.train()
    path = algo.save_to_path(tmp_path / "checkpoint")
    for _ in range(5):
        algo.train()
    end = weights(algo)
    algo.stop()
    restored = Algorithm.from_checkpoint(path)
    for _ in range(5):
        restored.train()
    for one, other in zip(end, weights(restored), strict=True):
        np.testing.assert_array_equal(one, other)
    restored.stop()


def test_defaults_are_those_of_the_contract():
    config = APPOConfig()
    assert (config.clip_param, config.use_kl_loss, config.target_network_update_freq) == (
        0.4,
        False,
        2,
    )
    assert config.circular_buffer_num_batches == 8
    assert config.circular_buffer_iterations_per_batch == 2
    assert config.passes_per_target_update == 32
    with pytest.raises(ValueError, match="circular_buffer_num_batches=0"):
        small_config(circular_buffer_num_batches=0).validate()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("runners", [0, 2])
def test_appo_learns_cart_pole(runners):
    config = (
        APPOConfig()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=runners,
            num_envs_per_env_runner=4 if runners else 8,
            rollout_fragment_length=32,
        )
        .training(lr=0.001, train_batch_size_per_learner=256, entropy_coeff=0.0, grad_clip=0.5)
        .training(circular_buffer_num_batches=4, target_network_update_freq=1)
        .rl_module(model_config={"fcnet_hiddens": [64, 64], "vf_share_layers": False})
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=5000)
        .debugging(seed=0)
    )
    algo = config.build_algo()
    best = 0.0
    for _ in range(200):
        best = max(best, algo.train()["env_runners"]["episode_return_mean"])
        if best >= 450:
            break
    algo.stop()
    assert best >= 450
