"""Several learners compute what one computes; they survive the death of one of them."""

import os
import signal

import numpy as np
import pytest
import torch

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.a2c import A2CConfig
from syncline.rl.algorithms.alpha_zero import AlphaZeroConfig
from syncline.rl.algorithms.appo import APPOConfig
from syncline.rl.algorithms.dqn import DQNConfig
from syncline.rl.algorithms.mbpo import MBPOConfig
from syncline.rl.algorithms.ppo import PPOConfig
from syncline.rl.algorithms.qmix import QMixConfig
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import leaves
from syncline.rl.learners.torch.train_batch import masked_mean, share_of
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.modules.torch.actor_critic import DefaultPPOTorchRLModule

MODEL = {"fcnet_hiddens": [8], "fcnet_activation": "tanh"}


def weights(algo):
    return [np.asarray(leaf) for leaf in leaves(algo.get_weights())]


def assert_close(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


def common(config, learners, rows=60):
    return (
        config.environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=3)
        .learners(num_learners=learners)
        .training(lr=0.003, train_batch_size_per_learner=rows // max(learners, 1))
        .rl_module(model_config=MODEL)
        .reporting(min_time_s_per_iteration=0)
        .debugging(seed=4)
    )


def ppo(learners, **model):
    return (
        common(PPOConfig(), learners)
        .training(num_epochs=2, minibatch_size=20 // max(learners, 1), grad_clip=0.5)
        .training(kl_coeff=0.5, kl_target=1e-4)
        .rl_module(model_config={**MODEL, **model})
    )


CONFIGS = {
    "ppo": ppo,
    "ppo_lstm": lambda learners: ppo(learners, use_lstm=True, lstm_cell_size=4, max_seq_len=7),
    "a2c": lambda learners: common(A2CConfig(), learners).training(microbatch_size=17),
    "appo": lambda learners: common(APPOConfig(), learners).env_runners(rollout_fragment_length=10),
    "dqn": lambda learners: (
        common(DQNConfig(), learners, rows=32)
        .training(num_steps_sampled_before_learning_starts=20)
        .reporting(min_sample_timesteps_per_iteration=60)
    ),
}


def trained(config, iterations):
    algo = config.build_algo()
    for _ in range(iterations):
        algo.train()
    found = weights(algo)
    algo.stop()
    return found


# -- shares, without processes


@pytest.mark.parametrize("size", [2, 7, 30])
@pytest.mark.parametrize("count", [2, 3])
def test_weighted_means_of_shares_are_the_mean(size, count):
    batch = {"x": torch.randn(size, 4), Columns.LOSS_MASK: torch.rand(size, 4) > 0.3}
    batch[Columns.LOSS_MASK][:, 0] = True
    for columns in (batch, {"x": batch["x"]}):
        shares = [share_of(columns, rank, count) for rank in range(count)]
        mean = sum(masked_mean(share["x"], share) * weight for share, weight in shares) / count
        torch.testing.assert_close(mean, masked_mean(columns["x"], columns))


@pytest.mark.parametrize("config", [MBPOConfig, QMixConfig, AlphaZeroConfig])
def test_algorithms_that_learn_in_one_process_refuse_several_learners(config):
    with pytest.raises(ValueError, match="num_learners=2.*set it to 0"):
        config().environment("CartPole-v1").learners(num_learners=2).build_algo()


@pytest.mark.processes
def test_missing_gpus_are_an_error():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ValueError, match="num_gpus_per_learner=1"):
        ppo(2).learners(num_gpus_per_learner=1).build_algo()


# -- with processes


@pytest.mark.processes
@pytest.mark.parametrize("name", CONFIGS)
def test_two_learners_give_the_update_of_one(name):
    assert_close(trained(CONFIGS[name](1), 2), trained(CONFIGS[name](2), 2))


class Normalized(DefaultPPOTorchRLModule):
    def setup(self):
        super().setup()
        self.norm = torch.nn.BatchNorm1d(4)

    def _forward_train(self, batch):
        return super()._forward_train({**batch, "obs": self.norm(batch["obs"])})


@pytest.mark.processes
def test_running_means_are_those_of_the_first_learner():
    made = ppo(2).rl_module(rl_module_spec=RLModuleSpec(module_class=Normalized))
    algo = made.build_algo()
    algo.train()
    one, other = algo.learner_group.foreach_learner(
        lambda learner: learner.module["default_policy"].norm.running_mean.numpy()
    )
    assert np.abs(one).max() > 0
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(one, algo.get_module().norm.running_mean.numpy())
    algo.stop()


@pytest.mark.processes
def test_a_killed_learner_does_not_change_the_result():
    expected = trained(ppo(2), 4)
    algo = ppo(2).build_algo()
    algo.train()
    for rank in (0, 1):
        pids = algo.learner_group.foreach_learner(lambda learner: os.getpid())
        os.kill(pids[rank], signal.SIGKILL)
        algo.train()
    algo.train()
    assert algo.learner_group.num_restarts == 2
    found = weights(algo)
    algo.stop()
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.processes
def test_learners_that_all_die_go_on_from_the_last_weights():
    algo = ppo(2).build_algo()
    algo.train()
    before = weights(algo)
    for pid in algo.learner_group.foreach_learner(lambda learner: os.getpid()):
        os.kill(pid, signal.SIGKILL)
    algo.train()
    found = weights(algo)
    assert any((a != b).any() for a, b in zip(before, found, strict=True))
    assert max(np.abs(a - b).max() for a, b in zip(before, found, strict=True)) < 0.1
    algo.stop()


@pytest.mark.processes
def test_an_error_of_the_loss_is_raised_and_not_repeated():
    algo = ppo(2).build_algo()
    algo.learner_group.foreach_learner(
        lambda learner: setattr(learner, "compute_losses", _broken_loss)
    )
    with pytest.raises(ZeroDivisionError):
        algo.train()
    assert algo.learner_group.num_restarts == 0
    algo.stop()


def _broken_loss(**_):
    raise ZeroDivisionError("broken")


@pytest.mark.processes
def test_checkpoint_of_two_learners_restores_into_two_and_into_one(tmp_path):
    algo = ppo(2).build_algo()
    algo.train()
    path = algo.save_to_path(tmp_path / "checkpoint")
    saved = weights(algo)
    algo.train()
    end = weights(algo)
    algo.stop()
    restored = Algorithm.from_checkpoint(path)
    assert_close(weights(restored), saved)
    restored.train()
    for one, other in zip(weights(restored), end, strict=True):
        np.testing.assert_array_equal(one, other)
    restored.stop()
    single = ppo(1).build_algo()
    single.restore_from_path(path)
    assert_close(weights(single), saved)
    single.train()
    assert_close(weights(single), end)
    single.stop()
