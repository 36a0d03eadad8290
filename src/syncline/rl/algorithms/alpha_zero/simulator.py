"""`Simulator`: steps an environment from any of its earlier states.

Covered: environments with one agent, turn-based games of several agents, states by `get_state` and
`set_state` of the environment or by its attributes. Not covered: agents that act simultaneously,
stochastic transitions (each step is simulated once and its outcome kept).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from syncline.rl.envs.env_errors import EnvError
from syncline.rl.envs.env_state import get_env_state, set_env_state
from syncline.rl.envs.multi_agent_env import ALL_AGENTS, MultiAgentEnv, all_agents
from syncline.rl.value_types import AgentDict, AgentID, Tree

OBS, ACTION_MASK = "obs", "action_mask"
"""Keys of dict observations."""
ONLY_PLAYER = "player"
"""Player of environments with one agent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """A state of a game with a player to move."""

    state: Tree
    """State of the environment; None if the game is over."""
    obs: Tree
    """Observation of the player."""
    mask: np.ndarray
    """[A]: the actions that are allowed."""
    player: AgentID
    """Player to move."""
    reward: float = 0.0
    """Reward of the step to this position, for the player who took it."""
    is_over: bool = False
    returns: AgentDict[float] = field(default_factory=dict)
    """Sums of all rewards so far, by player."""


class Simulator:
    """Steps any number of games on one environment.

    Args:
        env: An environment with one agent, or a `MultiAgentEnv` whose agents take turns.
        name: Its name in error messages.

    Raises:
        EnvError: Actions are not Discrete, or players have different spaces.
    """

    def __init__(self, env: Any, name: str) -> None:
        self.env = env
        self._name = name
        self._was_reset = False
        self.is_game = isinstance(env, MultiAgentEnv)
        if self.is_game:
            players = all_agents(env)
            found = [
                (env.get_observation_space(each), env.get_action_space(each)) for each in players
            ]
            if any(each != found[0] for each in found):
                raise EnvError(f"AlphaZero needs equal spaces for all players of {name}.")
            self.observation_space, self.action_space = found[0]
        else:
            self.observation_space, self.action_space = env.observation_space, env.action_space
        if not isinstance(self.action_space, spaces.Discrete):
            raise EnvError(
                f"AlphaZero needs Discrete actions, but those of {name} are {self.action_space}."
            )
        self._has_mask = (
            isinstance(self.observation_space, spaces.Dict)
            and ACTION_MASK in self.observation_space.spaces
        )
        self.num_actions = int(self.action_space.n)
        self._start = int(self.action_space.start)
        self._offers_state = not isinstance(env, gym.Wrapper) and all(
            callable(getattr(env, method, None)) for method in ("get_state", "set_state")
        )

    def reset(self, seed: int) -> Position:
        """Return the first position of a new game."""
        obs, _ = self.env.reset(seed=seed)
        self._was_reset = True
        if not self.is_game:
            return self._position(obs, ONLY_PLAYER, 0.0, False, {})
        player = self._turn(obs)
        return self._position(obs[player], player, 0.0, False, {})

    def load(self, state: Tree, player: object = ONLY_PLAYER, obs: Tree = None) -> Position:
        """Return a state of the environment as a position with the player's observation."""
        mask = self._mask(obs)
        return Position(state=state, obs=obs, mask=mask, player=player)

    def step(self, position: Position, action: int) -> Position:
        """Return the position after an action."""
        self._set_state(position.state)
        step = self.env.step(
            {position.player: action + self._start} if self.is_game else action + self._start
        )
        obs, rewards, terminated, truncated, _ = step
        if not self.is_game:
            returns = {ONLY_PLAYER: position.returns.get(ONLY_PLAYER, 0.0) + float(rewards)}
            over = bool(terminated or truncated)
            return self._position(obs, ONLY_PLAYER, float(rewards), over, returns)
        returns = dict(position.returns)
        for player, reward in rewards.items():
            returns[player] = returns.get(player, 0.0) + float(reward)
        over = bool(terminated.get(ALL_AGENTS) or truncated.get(ALL_AGENTS))
        player = position.player if over else self._turn(obs)
        reward = float(rewards.get(position.player, 0.0))
        return self._position(obs.get(player, position.obs), player, reward, over, returns)

    def _position(
        self, obs: Tree, player: object, reward: float, over: bool, returns: AgentDict[float]
    ) -> Position:
        return Position(
            state=None if over else self._get_state(),
            obs=obs,
            mask=self._mask(obs),
            player=player,
            reward=reward,
            is_over=over,
            returns=returns,
        )

    def _mask(self, obs: Tree) -> np.ndarray:
        if not self._has_mask:
            return np.ones(self.num_actions, bool)
        mask: np.ndarray = np.asarray(obs[ACTION_MASK]) > 0
        return mask

    def _turn(self, obs: AgentDict[Tree]) -> Any:
        if len(obs) != 1:
            raise EnvError(
                f"AlphaZero plays turn-based games, but in {self._name} the agents {list(obs)} "
                "have an observation at the same time. Use PPO or QMIX."
            )
        return next(iter(obs))

    def _get_state(self) -> Tree:
        if self._offers_state:
            return self.env.get_state()
        state = get_env_state(self.env)
        if state is None:
            raise EnvError(
                f"AlphaZero returns to earlier states of {self._name}, but they cannot be saved. "
                "Define get_state() and set_state(state) in its class."
            )
        return state

    def _set_state(self, state: Tree) -> None:
        if not self._was_reset:  # some wrappers require a reset
            self.env.reset(seed=0)
            self._was_reset = True
        if self._offers_state:
            self.env.set_state(state)
        else:
            set_env_state(self.env, state)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
