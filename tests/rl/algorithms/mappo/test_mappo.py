"""The critic sees the state and the policy does not; cooperation; independent PPO of agents."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.mappo import MAPPOConfig
from syncline.rl.algorithms.mappo.central_state import CentralStateEnv
from syncline.rl.algorithms.mappo.torch.central_critic_torch_module import (
    CentralCriticTorchRLModule,
)
from syncline.rl.algorithms.ppo import PPOConfig
from syncline.rl.columns.names import Columns
from syncline.rl.envs.examples.multi_agent import MultiAgentCartPole
from syncline.rl.envs.multi_agent_env import MultiAgentEnv

AGENTS = ["a", "b", "c"]


class AllTogether(MultiAgentEnv):
    """Each agent sees a bit of its own; the team gets 1 if all agents name theirs. Ten steps."""

    def __init__(self, config=None):
        self.agents = self.possible_agents = list(AGENTS)
        super().__init__()
        self.observation_spaces = dict.fromkeys(AGENTS, gym.spaces.Box(0, 1, (1,), np.float32))
        self.action_spaces = dict.fromkeys(AGENTS, gym.spaces.Discrete(2))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._obs(), {}

    def _obs(self):
        self.bits = self.np_random.integers(2, size=3)
        bits = self.bits.astype(np.float32)
        return {agent: bits[n : n + 1] for n, agent in enumerate(AGENTS)}

    def step(self, action_dict):
        right = all(action_dict[agent] == self.bits[n] for n, agent in enumerate(AGENTS))
        self.time += 1
        over = self.time == 10
        return (
            self._obs(),
            dict.fromkeys(AGENTS, right / 3),
            {"__all__": False},
            {"__all__": over},
            {},
        )


class Relay(MultiAgentEnv):
    """One agent after the other observes and acts."""

    def __init__(self, config=None):
        self.agents = self.possible_agents = list(AGENTS)
        super().__init__()
        self.observation_spaces = dict.fromkeys(AGENTS, gym.spaces.Discrete(4))
        self.action_spaces = dict.fromkeys(AGENTS, gym.spaces.Discrete(2))

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return {"a": 1}, {}

    def step(self, action_dict):
        self.time += 1
        agent = AGENTS[self.time % 3]
        over = {"__all__": self.time == 6}
        return {agent: self.time % 4}, {agent: 1.0}, over, {"__all__": False}, {}


def config(env=AllTogether, **model):
    return (
        MAPPOConfig()
        .environment(env)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .training(train_batch_size=200, minibatch_size=100, num_epochs=2, lr=0.003, gamma=0.5)
        .rl_module(model_config={"fcnet_hiddens": [16], **model})
        .debugging(seed=1)
    )


def module(**parts):
    torch.manual_seed(0)
    space = {"obs": gym.spaces.Box(-1, 1, (2,)), "state": gym.spaces.Box(-1, 1, (5,)), **parts}
    return CentralCriticTorchRLModule(
        observation_space=gym.spaces.Dict(space),
        action_space=gym.spaces.Discrete(3),
        model_config={"fcnet_hiddens": [8]},
    )


def test_state_has_the_latest_observations_of_all_agents_and_the_agents_number():
    env = CentralStateEnv(Relay())
    obs, _ = env.reset()
    hot = np.eye(4)
    zeros = np.zeros(4)
    assert set(obs) == {"a"}
    np.testing.assert_array_equal(obs["a"]["state"], [*hot[1], *zeros, *zeros, 1, 0, 0])
    obs, rewards, *_ = env.step({"a": 0})
    np.testing.assert_array_equal(obs["b"]["state"], [*hot[1], *hot[1], *zeros, 0, 1, 0])
    assert (obs["b"]["obs"], rewards) == (1, {"b": 1.0})
    obs, *_ = env.step({"b": 0})
    np.testing.assert_array_equal(obs["c"]["state"], [*hot[1], *hot[1], *hot[2], 0, 0, 1])
    assert env.get_observation_space("c").contains(obs["c"])


def test_states_of_the_environment_and_masks_stay_as_they_are():
    class Masked(Relay):
        def __init__(self, config=None):
            super().__init__()
            entry = gym.spaces.Dict(
                {"obs": gym.spaces.Discrete(4), "action_mask": gym.spaces.MultiBinary(2)}
            )
            self.observation_spaces = dict.fromkeys(AGENTS, entry)

        def reset(self, *, seed=None, options=None):
            obs, infos = super().reset()
            return {"a": {"obs": obs["a"], "action_mask": np.array([1, 0])}}, infos

    obs, _ = CentralStateEnv(Masked()).reset()
    assert set(obs["a"]) == {"obs", "action_mask", "state"}
    assert len(obs["a"]["state"]) == 15


def test_policy_depends_on_the_observation_and_value_on_the_state_alone():
    made = module()
    obs, state = torch.randn(2, 4, 2), torch.randn(2, 4, 5)

    def policy(obs, state):
        return made.forward_train({Columns.OBS: {"obs": obs, "state": state}})[
            Columns.ACTION_DIST_INPUTS
        ]

    def value(obs, state):
        return made.compute_values({Columns.OBS: {"obs": obs, "state": state}})

    assert torch.equal(policy(obs[0], state[0]), policy(obs[0], state[1]))
    assert not torch.equal(policy(obs[0], state[0]), policy(obs[1], state[0]))
    assert torch.equal(value(obs[0], state[0]), value(obs[1], state[0]))
    assert not torch.equal(value(obs[0], state[0]), value(obs[0], state[1]))


def test_masked_actions_are_never_taken():
    made = module(action_mask=gym.spaces.MultiBinary(3))
    acting = made.acting_policy()
    rows = 500
    obs = {
        "obs": np.zeros((rows, 2), np.float32),
        "state": np.zeros((rows, 5), np.float32),
        "action_mask": np.tile(np.array([0, 1, 1], np.int8), (rows, 1)),
    }
    noise = np.random.default_rng(0).random((rows, acting.noise_size))
    columns, _ = acting.act(obs, noise, explore=True)
    assert set(columns[Columns.ACTIONS]) == {1, 2}
    assert np.isfinite(columns[Columns.ACTION_LOGP]).all()


def test_critic_is_not_sent_to_runners():
    made = module()
    assert not any("vf" in name or "critic" in name for name in made.get_state(inference_only=True))


@pytest.mark.parametrize("model", [{}, {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 5}])
def test_iteration_and_checkpoint(model, tmp_path):
    algo = config(**model).build_algo()
    result = algo.train()
    assert result["env_runners"]["num_env_steps_sampled"] == 200
    assert result["env_runners"]["num_module_steps_sampled"]["default_policy"] == 600
    assert np.isfinite(result["learners"]["default_policy"]["vf_loss"])
    restored = Algorithm.from_checkpoint(algo.save_to_path(tmp_path / "checkpoint"))
    before, after = (each.get_weights()["default_policy"] for each in (algo, restored))
    assert all((before[name] == after[name]).all() for name in before)
    restored.train()
    algo.stop()
    restored.stop()


def test_single_agent_environments_are_refused():
    with pytest.raises(Exception, match=r"MAPPO needs a MultiAgentEnv.*Use PPO"):
        config("CartPole-v1").build_algo()


# -- learning


@pytest.mark.long
@pytest.mark.parametrize("shared", [True, False])
def test_team_learns_to_act_together(shared):
    made = config().training(train_batch_size=500, num_epochs=4, entropy_coeff=0.01)
    if not shared:
        made.multi_agent(policies=set(AGENTS), policy_mapping_fn=lambda agent, episode, **_: agent)
    algo = made.build_algo()
    best = 0.0
    for _ in range(40):
        best = max(best, algo.train()["env_runners"]["episode_return_mean"])
        if best >= 8.0:
            break
    algo.stop()
    assert best >= 8.0  # 1.25 by chance, at most 10


@pytest.mark.long
@pytest.mark.parametrize("shared", [True, False])
def test_independent_ppo_learns_cartpole_of_two_agents(shared):
    modules = {"all"} if shared else {"0", "1"}
    algo = (
        PPOConfig()
        .environment(MultiAgentCartPole, env_config={"num_agents": 2})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .training(train_batch_size=1024, minibatch_size=256, num_epochs=8, lr=0.003)
        .training(lambda_=0.95, vf_clip_param=10_000.0, use_kl_loss=False)
        .rl_module(model_config={"fcnet_hiddens": [32], "vf_share_layers": False})
        .multi_agent(
            policies=modules,
            policy_mapping_fn=lambda agent, episode, **_: "all" if shared else str(agent),
        )
        .debugging(seed=1)
        .build_algo()
    )
    best = 0.0
    for _ in range(40):
        best = max(best, algo.train()["env_runners"]["episode_return_mean"])
        if best >= 400:
            break
    algo.stop()
    assert best >= 400  # two agents of 200 each
