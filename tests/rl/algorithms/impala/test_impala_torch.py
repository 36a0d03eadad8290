"""IMPALA: its gradient against the paper's recursion, staleness, exact resume, dead runners."""

import os
import signal
import time

import numpy as np
import pytest
import torch

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.impala import IMPALAConfig, ImpalaConfig
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import leaves
from syncline.rl.learners.torch.train_batch import as_tensors


def small_config(config=None, **training):
    return (
        (config or IMPALAConfig())
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=3, rollout_fragment_length=12)
        .training(train_batch_size_per_learner=60, lr=0.01, **training)
        .rl_module(model_config={"fcnet_hiddens": [8], "fcnet_activation": "tanh"})
        .reporting(min_time_s_per_iteration=0)
        .debugging(seed=3)
    )


def weights(algo):
    return [np.asarray(leaf) for leaf in leaves(algo.get_weights())]


def train_until(algo, holds):
    """Train until a condition holds, which the driver notices at some time."""
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        algo.train()


def reference_vtrace(log_ratios, rewards, values, next_values, ends, gamma, rho, pg_rho):
    """v_s and advantages of one trajectory, as the sums of the paper's equation (1)."""
    ratios = np.exp(log_ratios)
    clipped, traces = np.minimum(ratios, rho), np.minimum(ratios, 1.0)
    deltas = clipped * (rewards + gamma * next_values - values)
    length = len(rewards)
    targets = np.zeros(length)
    for s in range(length):
        factor, total = 1.0, 0.0
        for t in range(s, length):
            total += factor * deltas[t]
            if ends[t]:
                break
            factor *= gamma * traces[t]
        targets[s] = values[s] + total
    following = np.array(
        [next_values[t] if ends[t] or t + 1 == length else targets[t + 1] for t in range(length)]
    )
    return targets, np.minimum(ratios, pg_rho) * (rewards + gamma * following - values)


def test_the_batch_has_the_targets_of_the_paper():
    algo = small_config().build_algo()
    (sample,) = algo.env_runner_group.sample_steps()
    fragment = sample.fragments["default_policy"]
    noise = np.random.default_rng(0).normal(0, 0.4, fragment.rewards.shape).astype(np.float32)
    fragment.columns[Columns.ACTION_LOGP] = fragment.columns[Columns.ACTION_LOGP] + noise
    learner = algo.learner_group._learner
    found = learner.postprocess("default_policy", algo.config, fragment)
    values, next_values = learner.values("default_policy", fragment)
    for n in range(fragment.width):
        targets, advantages = reference_vtrace(
            -noise[:, n], fragment.rewards[:, n], values[:, n], next_values[:, n],
            fragment.done[:, n], 0.99, 1.0, 1.0,
        )  # fmt: skip
        np.testing.assert_allclose(found[Columns.VALUE_TARGETS][:, n], targets, rtol=2e-4)
        np.testing.assert_allclose(
            found[Columns.ADVANTAGES][:, n], advantages, rtol=1e-3, atol=1e-4
        )
    algo.stop()


def test_log_probabilities_of_the_sampling_weights_are_those_that_were_recorded():
    for model in ({}, {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5}):
        config = small_config().rl_module(model_config={"fcnet_hiddens": [8], **model})
        algo = config.build_algo()
        (sample,) = algo.env_runner_group.sample_steps()
        fragment = sample.fragments["default_policy"]
        learner = algo.learner_group._learner
        ratios = learner.log_ratios(learner.module["default_policy"], fragment)
        np.testing.assert_allclose(ratios, 0.0, atol=1e-5)
        algo.stop()


def test_loss_is_policy_gradient_value_error_and_entropy():
    algo = small_config(entropy_coeff=0.1, vf_loss_coeff=0.25).build_algo()
    (sample,) = algo.env_runner_group.sample_steps()
    fragment = sample.fragments["default_policy"]
    learner = algo.learner_group._learner
    learner.before_gradient_based_update(timesteps={})
    batch = learner.build_batch("default_policy", [fragment]).columns
    out = learner.module["default_policy"].forward_train(batch)
    loss = learner.compute_loss_for_module(
        module_id="default_policy", config=algo.config, batch=batch, fwd_out=out
    )
    logits = out[Columns.ACTION_DIST_INPUTS]
    policy = torch.distributions.Categorical(logits=logits)
    values = learner.module["default_policy"].compute_values(as_tensors({}, learner.device) | batch)
    expected = (
        -(batch[Columns.ADVANTAGES] * policy.log_prob(batch[Columns.ACTIONS])).mean()
        + 0.25 * 0.5 * (values - batch[Columns.VALUE_TARGETS]).square().mean()
        - 0.1 * policy.entropy().mean()
    )
    torch.testing.assert_close(loss, expected)
    algo.stop()


def test_one_iteration_is_one_update_and_everything_is_trained_once():
    algo = small_config().build_algo()
    for number in range(1, 4):
        result = algo.train()
        assert algo.plan.updates == number
    learner = result["learners"]["default_policy"]
    assert learner["num_module_steps_trained_lifetime"] == result["num_env_steps_sampled_lifetime"]
    assert learner["diff_num_grad_updates_vs_sampler_policy"] == 0
    assert result["timers"]["learner_idle_s"] > 0
    algo.stop()


def test_restored_run_ends_with_the_same_weights(tmp_path):
    algo = small_config().build_algo()
    for _ in range(2):
        algo.train()
    path = algo.save_to_path(tmp_path / "checkpoint")
    for _ in range(3):
        algo.train()
    end = weights(algo)
    algo.stop()
    restored = Algorithm.from_checkpoint(path)
    for _ in range(3):
        restored.train()
    for one, other in zip(end, weights(restored), strict=True):
        np.testing.assert_array_equal(one, other)
    restored.stop()


def test_rmsprop_and_names_of_older_releases():
    algo = small_config(ImpalaConfig(), opt_type="rmsprop", minibatch_size="auto").build_algo()
    optimizer = algo.learner_group._learner.get_optimizer("default_policy")
    assert isinstance(optimizer, torch.optim.RMSprop)
    assert optimizer.defaults["alpha"] == 0.99
    algo.train()
    algo.stop()
    with pytest.raises(ValueError, match="opt_type='sgd'"):
        small_config(opt_type="sgd").validate()


def test_defaults_are_those_of_the_contract():
    config = IMPALAConfig()
    assert (config.lr, config.train_batch_size_per_learner, config.rollout_fragment_length) == (
        5e-4,
        500,
        50,
    )
    assert (config.grad_clip, config.vf_loss_coeff, config.entropy_coeff) == (40, 0.5, 0.01)
    assert (config.num_env_runners, config.num_learners) == (2, 1)
    assert (config.broadcast_interval, config.min_time_s_per_iteration) == (1, 10)


def test_fragments_of_complete_episodes():
    algo = small_config().env_runners(batch_mode="complete_episodes").build_algo()
    batches = []
    algo._driver._update = batches.append
    algo.training_step()
    fragments = [sample.fragments["default_policy"] for sample in batches[0]]
    assert all(fragment.num_steps >= 36 for fragment in fragments)
    for fragment in fragments:
        assert (
            fragment.done[fragment.valid].sum() == (fragment.ends & fragment.valid).sum()
        )  # no episode is cut
    algo.stop()


@pytest.mark.processes
def test_training_goes_on_after_runners_are_killed():
    config = small_config().env_runners(num_env_runners=2)
    algo = config.build_algo()
    for _ in range(3):
        algo.train()
    for pid in algo.env_runner_group.foreach_env_runner(lambda runner: os.getpid()):
        os.kill(pid, signal.SIGKILL)
    before = algo.plan.updates
    train_until(algo, lambda: algo.env_runner_group.num_remote_worker_restarts == 2)
    result = algo.train()
    assert algo.plan.updates > before
    assert result["learners"]["default_policy"]["diff_num_grad_updates_vs_sampler_policy"] >= 0
    algo.stop()


@pytest.mark.processes
def test_a_checkpoint_holds_all_fragments_that_were_requested(tmp_path):
    algo = small_config().env_runners(num_env_runners=2).build_algo()
    for _ in range(3):
        algo.train()
    path = algo.save_to_path(tmp_path / "checkpoint")
    sampled = algo._steps_sampled
    waiting = sum(sample.env_steps for sample in algo._driver._fragments.values())
    saved = weights(algo)
    algo.stop()
    restored = Algorithm.from_checkpoint(path)
    assert restored._steps_sampled == sampled
    trained = restored._steps_sampled - 3 * 72  # two fragments of 36 steps are a batch
    assert sum(each.env_steps for each in restored._driver._fragments.values()) == waiting
    assert waiting == trained
    for one, other in zip(saved, weights(restored), strict=True):
        np.testing.assert_array_equal(one, other)
    restored.train()
    assert restored.plan.updates == 4
    restored.stop()


@pytest.mark.processes
def test_a_lost_runner_is_missed_by_nobody():
    config = small_config().env_runners(num_env_runners=2)
    algo = config.fault_tolerance(
        restart_failed_env_runners=False, ignore_env_runner_failures=True
    ).build_algo()
    algo.train()
    first, _ = algo.env_runner_group.foreach_env_runner(lambda runner: os.getpid())
    os.kill(first, signal.SIGKILL)
    train_until(algo, lambda: algo.env_runner_group.num_healthy_remote_workers() == 1)
    updates = algo.plan.updates
    algo.train()
    assert algo.plan.updates == updates + 1
    algo.stop()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("runners", [0, 2])
def test_impala_learns_cart_pole(runners):
    config = (
        IMPALAConfig()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=runners,
            num_envs_per_env_runner=4 if runners else 8,
            rollout_fragment_length=32,
        )
        .training(lr=0.001, train_batch_size_per_learner=256, entropy_coeff=0.0, grad_clip=0.5)
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
