"""Example environments: rules, rewards, seeds."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from syncline.rl.envs.checks import mismatch
from syncline.rl.envs.env_context import EnvContext
from syncline.rl.envs.examples import multi_agent as copies
from syncline.rl.envs.examples.actions import (
    ActionMaskEnv,
    CorrelatedActionsEnv,
    NestedSpaceRepeatAfterMeEnv,
)
from syncline.rl.envs.examples.cart_poles import (
    CartPoleCrashing,
    CartPoleSparseRewards,
    CartPoleWithDictObservationSpace,
    ParametricActionsCartPole,
)
from syncline.rl.envs.examples.games import (
    GuessTheNumberGame,
    RockPaperScissors,
    TicTacToe,
    TwoStepGame,
)
from syncline.rl.envs.examples.mazes import CliffWalkingWallEnv, SimpleCorridor
from syncline.rl.envs.examples.memory import (
    RepeatAfterMeEnv,
    RepeatInitialObsEnv,
    StatelessCartPole,
    StatelessPendulum,
)
from syncline.rl.envs.examples.random_env import RandomEnv, RandomLargeObsSpaceEnvContActions
from syncline.rl.envs.multi_agent_env import ALL_AGENTS

SINGLE: list[Any] = [
    StatelessCartPole,
    StatelessPendulum,
    RepeatAfterMeEnv,
    lambda: RepeatAfterMeEnv({"continuous": True}),
    RepeatInitialObsEnv,
    SimpleCorridor,
    CliffWalkingWallEnv,
    RandomEnv,
    RandomLargeObsSpaceEnvContActions,
    NestedSpaceRepeatAfterMeEnv,
    CorrelatedActionsEnv,
    CartPoleSparseRewards,
    CartPoleWithDictObservationSpace,
    lambda: CartPoleCrashing({"p_crash": 0.0}),
]
MULTI: list[Any] = [
    TwoStepGame,
    lambda: TwoStepGame({"one_hot_state_encoding": True}),
    lambda: TwoStepGame({"one_hot_state_encoding": True, "separate_state_space": True}),
    GuessTheNumberGame,
    RockPaperScissors,
    TicTacToe,
    lambda: copies.MultiAgentCartPole({"num_agents": 2}),
    lambda: copies.MultiAgentPendulum({"num_agents": 2}),
    lambda: copies.MultiAgentNestedSpaceRepeatAfterMeEnv({"num_agents": 2}),
]


def episode(env, seed, steps=60):
    """Return everything that a seeded episode with seeded actions shows."""
    env.action_space.seed(seed)
    obs, _ = env.reset(seed=seed)
    seen = [repr(obs)]
    for _ in range(steps):
        assert mismatch(env.observation_space, obs) is None
        obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        seen.append(repr((obs, float(reward), terminated, truncated)))
        if terminated or truncated:
            obs, _ = env.reset()
    return seen


@pytest.mark.parametrize("make", SINGLE)
def test_single_agent_environments_fit_their_spaces_and_follow_the_seed(make):
    first = episode(make(), 3)
    assert episode(make(), 3) == first


@pytest.mark.parametrize("make", MULTI)
def test_multi_agent_environments_fit_their_spaces_and_follow_the_seed(make):
    def play(seed):
        env, rng = make(), np.random.default_rng(seed)
        obs, _ = env.reset(seed=seed)
        seen = [repr(obs)]
        alive = set(env.possible_agents)
        for _ in range(40):
            for agent, value in obs.items():
                assert mismatch(env.get_observation_space(agent), value) is None
            actions = {}
            for agent in obs:
                if agent in alive:
                    space = env.get_action_space(agent)
                    space.seed(int(rng.integers(2**31)))
                    actions[agent] = space.sample()
            obs, rewards, terminateds, truncateds, _ = env.step(actions)
            seen.append(repr((obs, rewards)))
            alive -= {a for a in obs if terminateds.get(a) or truncateds.get(a)}
            if terminateds[ALL_AGENTS] or truncateds[ALL_AGENTS]:
                assert set(obs) >= set(rewards) - {ALL_AGENTS}
                obs, _ = env.reset()
                alive = set(env.possible_agents)
        return seen

    assert play(1) == play(1)


def test_repeat_after_me():
    env = RepeatAfterMeEnv({"repeat_delay": 2, "episode_len": 6})
    obs, _ = env.reset(seed=0)
    shown = [0, 0, obs]
    for step in itertools.count():
        obs, reward, terminated, _, _ = env.step(shown[step])
        shown.append(obs)
        assert reward == 1.0
        if terminated:
            break
    assert step == 4
    env.reset(seed=0)
    assert env.step(1)[1] == -1.0


def test_repeat_initial_obs():
    env = RepeatInitialObsEnv({"episode_len": 3})
    token, _ = env.reset(seed=1)
    assert [env.step(token)[1:3] for _ in range(3)] == [(1, False), (1, False), (1, True)]
    env.reset(seed=1)
    assert env.step(1 - token)[1] == -1
    assert RepeatInitialObsEnv(7).episode_len == 7


def test_stateless_variants_hide_velocities():
    full, less = gym.make("CartPole-v1").unwrapped, StatelessCartPole()
    obs, _ = full.reset(seed=4)
    assert less.reset(seed=4)[0].tolist() == [obs[0], obs[2]]
    assert less.step(1)[0].tolist() == full.step(1)[0][[0, 2]].tolist()
    assert StatelessPendulum({"g": 3.0}).g == 3.0


def test_corridor():
    env = SimpleCorridor({"corridor_length": 2})
    env.reset()
    assert env.step(0)[0].tolist() == [0.0]
    assert env.step(1)[1:3] == (-0.01, False)
    assert env.step(1)[1:3] == (1.0, True)
    with pytest.raises(ValueError, match="corridor_length=1000"):
        SimpleCorridor({"corridor_length": 1000})


def test_cliff_walking_with_walls():
    env = CliffWalkingWallEnv()
    env.reset()
    assert env.step(1)[0] == 36, "the wall is to the right of the start"
    assert env.step(0)[0] == 24
    for _ in range(5):
        env.step(1)
    assert env.step(2)[0] == 29, "the wall is below the path"
    for _ in range(6):
        env.step(1)
    assert env.step(2) == (47, 10, True, False, {})
    assert env.step(3)[0] == 47, "the wall is to the left of the goal"


def test_sparse_cart_pole_goes_back_to_a_state():
    env = CartPoleSparseRewards()
    env.reset(seed=0)
    env.step(1)
    state = env.get_state()
    first = [repr(env.step(a)) for a in (0, 1, 1)]
    again = env.set_state(state)
    assert again["action_mask"].tolist() == [1, 1]
    assert [repr(env.step(a)) for a in (0, 1, 1)] == first
    env.set_state(state)
    total, terminated = 1, False
    while not terminated:
        _, score, terminated, _, _ = env.step(1)
        total += 1
    assert score == total


def test_parametric_actions():
    env = ParametricActionsCartPole(6)
    obs, _ = env.reset(seed=0)
    assert obs["action_mask"].sum() == 2
    for _ in range(5):
        chosen = int(np.flatnonzero(obs["action_mask"])[0])
        assert (obs["avail_actions"][chosen] != 0).all()
        obs, *_ = env.step(chosen)
    with pytest.raises(ValueError, match="is not available"):
        env.step(int(np.flatnonzero(obs["action_mask"] == 0)[0]))


def test_action_masks():
    env = ActionMaskEnv({"action_space": spaces.Discrete(5), "p_terminated": 0.0})
    obs, _ = env.reset(seed=0)
    for _ in range(50):
        assert obs["action_mask"].any()
        obs, *_ = env.step(int(np.flatnonzero(obs["action_mask"])[0]))
    env.valid_actions = np.array([1.0, 0, 1, 1, 1])
    with pytest.raises(ValueError, match="The action 1 is not valid"):
        env.step(1)


def test_correlated_actions():
    env = CorrelatedActionsEnv()
    obs, _ = env.reset(seed=0)
    env.obs = np.array([-0.3], np.float32)
    assert env.step((1, np.array([0.5])))[1] == pytest.approx(-0.3 - 1.2)


def test_random_env_options():
    env = RandomEnv({"p_terminated": 0.0, "max_episode_len": 3, "static_samples": True})
    obs, _ = env.reset(seed=0)
    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    assert env.step(0)[0] == obs
    with pytest.raises(ValueError, match="is not in Discrete"):
        RandomEnv({"check_action_bounds": True}).step(5)


def test_crashing_cart_pole():
    config = EnvContext({"crash_after_n_steps": 3, "p_crash": 0.0}, worker_index=2, vector_index=1)
    env = CartPoleCrashing(config)
    env.reset(seed=0)
    env.step(0)
    env.step(1)
    with pytest.raises(RuntimeError, match="env runner 2, environment 1"):
        env.step(0)
    config["crash_on_worker_indices"] = [7]
    env = CartPoleCrashing(config)
    env.reset(seed=0)
    for action in (0, 1, 0, 1):
        env.step(action)


@pytest.mark.parametrize(("first", "second", "total"), [((0, 1), (1, 0), 7), ((1, 0), (1, 1), 8)])
def test_two_step_game(first, second, total):
    env = TwoStepGame()
    assert env.reset()[0] == {0: 0, 1: 3}
    env.step(dict(enumerate(first)))
    _, rewards, terminateds, _, _ = env.step(dict(enumerate(second)))
    assert sum(rewards.values()) == total
    assert terminateds[ALL_AGENTS]


def test_guess_the_number():
    env = GuessTheNumberGame({"max_number": 10, "max_steps": 3})
    assert env.reset()[0] == {0: 0}
    assert env.step({0: np.array([0, 6])})[0] == {1: 0}
    assert env.step({1: (0, 7)})[1] == {1: 1, 0: 1}
    assert env.step({1: (1, 7)})[1] == {1: 0, 0: 1}
    obs, rewards, terminateds, _, _ = env.step({1: (2, 6)})
    assert rewards == {1: 100, 0: -100}
    assert terminateds[ALL_AGENTS]
    assert set(obs) == {0, 1}
    env.reset()
    env.step({0: (0, 2)})
    for _ in range(3):
        _, rewards, terminateds, truncateds, _ = env.step({1: (2, 3)})
    assert rewards == {1: 0, 0: 100}
    assert (terminateds[ALL_AGENTS], truncateds[ALL_AGENTS]) == (False, True)


def test_rock_paper_scissors():
    game = RockPaperScissors
    assert game.WIN_MATRIX[game.ROCK, game.PAPER] == (-1, 1)
    assert game.WIN_MATRIX[game.LIZARD, game.SPOCK] == (1, -1)
    assert game.WIN_MATRIX[game.SPOCK, game.ROCK] == (1, -1)
    assert all(one == -two for one, two in game.WIN_MATRIX.values())
    env = game({"sheldon_cooper_mode": True})
    assert env.get_action_space("player1").n == 5
    env.reset()
    for step in range(10):
        obs, rewards, terminateds, _, _ = env.step({"player1": 0, "player2": 2})
        assert obs == {"player1": 2, "player2": 0}
        assert rewards == {"player1": 1, "player2": -1}
        assert terminateds[ALL_AGENTS] == (step == 9)


def test_tic_tac_toe():
    env = TicTacToe()
    obs, _ = env.reset(seed=0)
    one = next(iter(obs))
    two = env._opponent
    for player, field in ((one, 0), (two, 3), (one, 1), (two, 4)):
        assert list(obs) == [player]
        obs, rewards, terminateds, _, _ = env.step({player: field})
        assert rewards == {player: 0.0}
    assert obs[one].tolist() == [1, 1, 0, -1, -1, 0, 0, 0, 0]
    assert "X | X |" in env.render()
    obs, rewards, _, _, _ = env.step({one: 3})
    assert rewards == {one: -0.5}
    assert list(obs) == [two]
    obs, rewards, terminateds, truncateds, _ = env.step({two: 5})
    assert rewards == {two: 1.0, one: -1.0}
    assert terminateds[ALL_AGENTS]
    assert obs[one].tolist() == (-obs[two]).tolist()
    obs, _ = env.reset(seed=1)
    env.step({env.current_player: 4})
    for _ in range(29):
        _, _, terminateds, truncateds, _ = env.step({env.current_player: 4})
    assert (terminateds[ALL_AGENTS], truncateds[ALL_AGENTS]) == (False, True)
