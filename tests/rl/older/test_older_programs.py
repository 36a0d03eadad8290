"""Programs in the style of releases before 2.0, as their users wrote them."""

import gymnasium as gym
import numpy as np
import pytest
from torch import nn

from syncline import rllib, tune
from syncline.rllib.agents import ppo
from syncline.rllib.agents.callbacks import DefaultCallbacks
from syncline.rllib.agents.dqn import DQNTrainer
from syncline.rllib.agents.ppo import DEFAULT_CONFIG, PPOTrainer
from syncline.rllib.agents.registry import get_agent_class
from syncline.rllib.agents.trainer import with_common_config
from syncline.rllib.agents.trainer_template import build_trainer
from syncline.rllib.algorithms.ppo import PPO, PPOConfig
from syncline.rllib.algorithms.sac import SACConfig
from syncline.rllib.env.multi_agent_env import make_multi_agent
from syncline.rllib.models import ModelCatalog
from syncline.rllib.models.torch.torch_modelv2 import TorchModelV2
from syncline.rllib.policy.policy import PolicySpec
from syncline.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch, concat_samples

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

SMALL = {
    "num_workers": 0,
    "framework": "torch",
    "train_batch_size": 200,
    "sgd_minibatch_size": 50,
    "num_sgd_iter": 2,
    "seed": 1,
}


class Metrics(DefaultCallbacks):
    def on_episode_start(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        episode.user_data["angles"] = []
        assert worker.config.seed == 1

    def on_episode_step(self, *, worker, base_env, episode, env_index, **kwargs):
        episode.user_data["angles"].append(abs(episode.last_observation_for()[2]))

    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        episode.custom_metrics["angle"] = np.mean(episode.user_data["angles"])
        assert episode.length == episode.total_reward

    def on_train_result(self, *, trainer, result, **kwargs):
        result["seen"] = trainer.iteration


def test_trainer_with_a_copied_default_config_and_callbacks():
    config = ppo.DEFAULT_CONFIG.copy()
    assert config["num_workers"] == 2
    assert config["model"]["fcnet_hiddens"] == [256, 256]
    config.update(SMALL)
    config["model"] = {"fcnet_hiddens": [16], "fcnet_activation": "relu"}
    config["callbacks"] = Metrics
    config["lambda"] = 0.95
    trainer = PPOTrainer(config=config, env="CartPole-v0")
    result = trainer.train()
    assert trainer.config["lambda"] == trainer.config.lambda_ == 0.95
    assert result["episode_reward_mean"] == result["env_runners"]["episode_return_mean"] > 5
    assert result["timesteps_total"] == 200
    assert result["episodes_total"] == result["episodes_this_iter"] > 2
    assert result["seen"] == 1
    stats = result["info"]["learner"]["default_policy"]["learner_stats"]
    assert np.isfinite([stats["total_loss"], stats["kl"], stats["cur_lr"]]).all()
    assert 0 < result["custom_metrics"]["angle_mean"] <= result["custom_metrics"]["angle_max"]
    assert result["sampler_results"]["episode_len_mean"] > 5
    path = trainer.save()
    trainer.stop()
    other = get_agent_class("PPO")(config=config, env="CartPole-v0")
    other.restore(path)
    assert other.iteration == 1
    obs = np.zeros(4, np.float32)
    assert other.compute_action(obs, explore=False) in (0, 1)
    other.stop()


class OldEnv:
    """An environment of gym before 0.26: `reset` returns observations, `step` four values."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config):
        self.length = config["length"]

    def reset(self):
        self.t = 0
        return np.zeros(2, np.float32)

    def step(self, action):
        self.t += 1
        return np.full(2, self.t / 10, np.float32), float(action), self.t >= self.length, {}


class OldModel(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, **custom):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        width = model_config["custom_model_config"]["width"]
        assert custom == {"width": width}
        self.layers = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, num_outputs))
        self.critic = nn.Linear(2, 1)

    def forward(self, input_dict, state, seq_lens):
        self.obs = input_dict["obs"].float()
        return self.layers(self.obs), state

    def value_function(self):
        return self.critic(self.obs).squeeze(1)


@pytest.mark.processes
def test_tune_run_with_a_dictionary_custom_model_and_old_environment(tmp_path):
    ModelCatalog.register_custom_model("old", OldModel)
    tune.register_env("old-env", lambda config: OldEnv(config))
    analysis = tune.run(
        "PPO",
        config={
            **SMALL,
            "env": "old-env",
            "env_config": {"length": 10},
            "lr": tune.grid_search([0.02]),
            "model": {"custom_model": "old", "custom_model_config": {"width": 8}},
        },
        stop={"episode_reward_mean": 9.0, "training_iteration": 40},
        checkpoint_at_end=True,
        storage_path=str(tmp_path),
        metric="episode_reward_mean",
        mode="max",
        verbose=0,
    )
    best = analysis.best_result
    assert best["episode_reward_mean"] >= 9.0
    assert best["config"]["lr"] == 0.02
    restored = PPO.from_checkpoint(analysis.best_checkpoint)
    assert restored.compute_single_action(np.zeros(2, np.float32), explore=False) == 1
    restored.stop()


def test_several_policies_with_options_of_their_own():
    space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    trainer = PPO(
        env=make_multi_agent("CartPole-v1"),
        config={
            **SMALL,
            "env_config": {"num_agents": 2},
            "multiagent": {
                "policies": {
                    "fast": (None, space, gym.spaces.Discrete(2), {"lr": 0.01}),
                    "frozen": PolicySpec(config={"gamma": 0.5}),
                },
                "policy_mapping_fn": lambda agent_id, *args, **kwargs: (
                    "fast" if agent_id == 0 else "frozen"
                ),
                "policies_to_train": ["fast"],
            },
        },
    )
    before = trainer.get_policy("frozen").get_weights()
    result = trainer.train()
    after = trainer.get_policy("frozen").get_weights()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert "total_loss" not in result["info"]["learner"].get("frozen", {})
    assert result["info"]["learner"]["fast"]["learner_stats"]["cur_lr"] == 0.01
    assert result["policy_reward_mean"].keys() == {"fast", "frozen"}
    assert trainer.config.get_config_for_module("frozen").gamma == 0.5
    trainer.stop()


def test_builder_of_early_releases_and_evaluation():
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .framework("torch")
        .rollouts(num_rollout_workers=0, num_envs_per_worker=2, rollout_fragment_length=50)
        .exploration(explore=True, exploration_config={"type": "StochasticSampling"})
        .training(
            sgd_minibatch_size=50,
            num_sgd_iter=1,
            train_batch_size=100,
            model={"use_lstm": True, "lstm_cell_size": 8, "fcnet_hiddens": [8]},
        )
        .resources(num_gpus=0)
        .evaluation(evaluation_interval=1, evaluation_duration=2)
        .debugging(seed=1)
    )
    assert config.is_older
    assert not PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0).is_older
    algo = config.build()
    result = algo.train()
    assert result["evaluation"]["episode_reward_mean"] > 5
    assert result["num_env_steps_sampled"] == 100
    algo.stop()


def test_dqn_explores_as_its_exploration_config_says():
    base = {"num_workers": 0, "env": "CartPole-v1", "seed": 1, "train_batch_size": 8}
    exploration = {
        "type": "EpsilonGreedy",
        "initial_epsilon": 0.5,
        "final_epsilon": 0.1,
        "epsilon_timesteps": 100,
    }
    trainer = DQNTrainer(config={**base, "exploration_config": exploration})
    acting = trainer.env_runner._acting
    acting.set_step(50)
    assert acting.epsilon == pytest.approx(0.3)
    trainer.stop()
    trainer = DQNTrainer(
        config={**base, "exploration_config": {"type": "SoftQ", "temperature": 1e6}}
    )
    drawn = {int(trainer.compute_single_action(np.zeros(4, np.float32))) for _ in range(20)}
    assert drawn == {0, 1}
    assert (
        len({int(trainer.compute_single_action(np.zeros(4), explore=False)) for _ in "1234"}) == 1
    )
    trainer.stop()


def test_noise_on_continuous_actions():
    def sampled(**exploration):
        config = (
            SACConfig()
            .environment("Pendulum-v1")
            .rollouts(num_rollout_workers=0)
            .exploration(exploration_config={"random_timesteps": 0, **exploration})
            .training(train_batch_size=8)
            .debugging(seed=1)
        )
        algo = config.build_algo()
        runner = algo.env_runner
        noisy = runner.sample_steps(50, step=1).fragments["default_policy"].columns["actions"]
        state = runner.get_state()
        after = runner.sample_steps(5).fragments["default_policy"].columns["actions"]
        assert runner.set_state(state)
        again = runner.sample_steps(5).fragments["default_policy"].columns["actions"]
        np.testing.assert_array_equal(after, again)
        algo.stop()
        return noisy[:, 0, 0]

    none = sampled(type="GaussianNoise", stddev=0.0)
    gaussian = sampled(type="GaussianNoise", stddev=0.3) - none
    correlated = sampled(type="OrnsteinUhlenbeckNoise", ou_base_scale=1.0) - none
    assert np.abs(none).max() < 0.3
    assert gaussian.std() > 0.1
    one, other = (np.corrcoef(x[1:], x[:-1])[0, 1] for x in (correlated, gaussian))
    assert one > 0.6
    assert other < 0.6


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("Curiosity", "learner connector"),
        ("ParameterNoise", "noisy=True"),
        ("EpsilonGreedy", "needs action values"),
        ("GausianNoise", "Did you mean 'GaussianNoise'"),
    ],
)
def test_explorations_without_counterpart_are_explained(kind, message):
    with pytest.raises(ValueError, match=message):
        PPOTrainer(config={**SMALL, "env": "CartPole-v1", "exploration_config": {"type": kind}})


def test_trainer_from_a_template():
    assert with_common_config({"model": {"use_lstm": True}})["model"]["fcnet_hiddens"] == [256, 256]
    seen = []
    Mine = build_trainer(
        name="Mine",
        default_config={**DEFAULT_CONFIG, **SMALL},
        validate_config=lambda config: seen.append(config["gamma"]),
    )
    trainer = Mine(env="CartPole-v1", config={"gamma": 0.9})
    assert trainer.train()["timesteps_total"] == 200
    assert seen == [0.9]
    trainer.stop()
    with pytest.raises(ValueError, match="compute_loss_for_module"):
        build_trainer(name="Mine", default_policy=object)


def test_sample_batches():
    batch = SampleBatch({"obs": [[1.0], [2.0], [3.0]], "eps_id": [1, 1, 2], "rewards": [1, 2, 3]})
    assert batch.count == len(batch) == 3
    assert [each.count for each in batch.split_by_episode()] == [2, 1]
    assert batch[1:]["rewards"].tolist() == [2, 3]
    assert [row["rewards"] for row in batch.rows()] == [1, 2, 3]
    both = concat_samples([batch, batch.copy()])
    assert both.count == 6
    assert [each.count for each in both.timeslices(4)] == [4, 2]
    assert sorted(both.shuffle()["rewards"].tolist()) == [1, 1, 2, 2, 3, 3]
    multi = MultiAgentBatch({"a": batch, "b": batch[:1]}, env_steps=3)
    assert (multi.agent_steps(), multi.env_steps()) == (4, 3)
    assert multi["b"]["obs"].tolist() == [[1.0]]
    assert isinstance(MultiAgentBatch.wrap_as_needed({"default_policy": batch}, 3), SampleBatch)
    with pytest.raises(ValueError, match="different columns"):
        concat_samples([batch, SampleBatch({"obs": [[1.0]]})])


def test_modules_of_packages_load_by_attribute():
    assert rllib.agents.ppo.PPOTrainer is PPO
