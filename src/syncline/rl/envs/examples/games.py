"""Games of two players: cooperative, turn-based, and simultaneous."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from gymnasium import spaces

from syncline.rl.envs.multi_agent_env import (
    ALL_AGENTS,
    ENV_STATE,
    MultiAgentDict,
    MultiAgentEnv,
    MultiAgentStep,
)
from syncline.rl.value_types import OptionMapping, Space, Tree


class TwoStepGame(MultiAgentEnv):
    """The cooperative game of the QMIX paper (Rashid et al. 2018).

    Agent 0 chooses state 2A or 2B. In 2A the team gets 7 for any actions; in 2B it gets 8 if both
    choose 1, 0 if both choose 0, else 1. The best team return is 8; methods that add the values of
    the agents find 7. Each agent gets half of the reward.

    Configuration: `one_hot_state_encoding` (False), `separate_state_space` (False: observations
    without the key "state"), `actions_are_logits` (False: actions are probabilities).
    """

    def __init__(self, env_config: Mapping[str, object] | None = None) -> None:
        config = env_config or {}
        self._agent_ids = {0, 1}
        self.possible_agents = [0, 1]
        self.agents = [0, 1]
        super().__init__()
        self.actions_are_logits = config.get("actions_are_logits", False)
        self.one_hot_state_encoding = config.get("one_hot_state_encoding", False)
        self.with_state = self.one_hot_state_encoding and config.get("separate_state_space", False)
        self.action_space = spaces.Discrete(2)
        self.state = 0
        if not self.one_hot_state_encoding:
            self.observation_space = spaces.Discrete(6)
        elif self.with_state:
            self.observation_space = spaces.Dict(
                {
                    "obs": spaces.MultiDiscrete([2, 2, 2, 3]),
                    ENV_STATE: spaces.MultiDiscrete([2, 2, 2]),
                }
            )
        else:
            self.observation_space = spaces.MultiDiscrete([2, 2, 2, 3])
        self.observation_spaces = dict.fromkeys([0, 1], self.observation_space)
        self.action_spaces = dict.fromkeys([0, 1], self.action_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[MultiAgentDict, MultiAgentDict]:
        super().reset(seed=seed)
        self.state = 0
        return self._obs(), {}

    def step(self, action_dict: MultiAgentDict) -> MultiAgentStep:
        if self.actions_are_logits:
            action_dict = {
                agent: int(self.np_random.choice(2, p=chances))
                for agent, chances in action_dict.items()
            }
        over = self.state != 0
        if self.state == 0:
            reward = 0.0
            self.state = 1 if action_dict[0] == 0 else 2
        elif self.state == 1:
            reward = 7.0
        else:
            reward = {0: 0.0, 1: 1.0, 2: 8.0}[int(action_dict[0] + action_dict[1])]
        return (
            self._obs(),
            {0: reward / 2.0, 1: reward / 2.0},
            {ALL_AGENTS: over},
            {ALL_AGENTS: False},
            {agent: {"done": over} for agent in (0, 1)},
        )

    def _obs(self) -> MultiAgentDict:
        return {agent: self._obs_of(agent) for agent in (0, 1)}

    def _obs_of(self, agent: int) -> Tree:
        if not self.one_hot_state_encoding:
            return self.state + 3 * agent
        one_hot = np.eye(3, dtype=np.int64)[self.state]
        obs = np.concatenate([one_hot, [agent + 1]])
        return {"obs": obs, ENV_STATE: one_hot} if self.with_state else obs


class TwoStepGameWithGroupedAgents(MultiAgentEnv):
    """`TwoStepGame` with both agents as the one agent "agents"."""

    def __init__(self, env_config: Mapping[str, object] | None = None) -> None:
        self._agent_ids = {"agents"}
        super().__init__()
        self.env = TwoStepGame(env_config).with_agent_groups({"agents": [0, 1]})
        self.observation_spaces = self.env.observation_spaces
        self.action_spaces = self.env.action_spaces
        self.observation_space = spaces.Dict(dict(self.observation_spaces or {}))
        self.action_space = spaces.Dict(dict(self.action_spaces or {}))

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[MultiAgentDict, MultiAgentDict]:
        return self.env.reset(seed=seed, options=options)

    def step(self, action_dict: MultiAgentDict) -> MultiAgentStep:
        return self.env.step(action_dict)


class GuessTheNumberGame(MultiAgentEnv):
    """Agent 0 picks a number; agent 1 asks questions until it guesses the number.

    An action is (relation, number) and asks "is your number lower (0) or higher (1) than this", or
    "is it this" (2). Agent 1 gets 1 for the answer yes, and 100 for the right guess, which costs
    agent 0 100. Agent 0 gets 1 for every other question, and 100 when the steps run out.

    Configuration: `max_number` (3), `max_steps` (20).
    """

    MAX_NUMBER = 3
    MAX_STEPS = 20

    def __init__(self, config: OptionMapping | None = None) -> None:
        config = config or {}
        self._agent_ids = {0, 1}
        self.possible_agents = [0, 1]
        self.agents = [0, 1]
        super().__init__()
        self.max_number = config.get("max_number", self.MAX_NUMBER)
        self.max_steps = config.get("max_steps", self.MAX_STEPS)
        self.observation_space = spaces.Discrete(2)
        self.action_space = spaces.MultiDiscrete([3, self.max_number])
        self.number: int | None = None
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[MultiAgentDict, MultiAgentDict]:
        super().reset(seed=seed)
        self.steps, self.number = 0, None
        return {0: 0}, {}

    def step(self, action_dict: MultiAgentDict) -> MultiAgentStep:
        if 0 in action_dict:
            self.number = int(action_dict[0][1])
            going = {0: False, ALL_AGENTS: False}
            return {1: 0}, {0: 0}, going, dict(going), {}
        if self.number is None:
            raise ValueError("Agent 0 must pick a number first: reset the environment.")
        relation, guess = (int(part) for part in action_dict[1])
        self.steps += 1
        right = relation == 2 and guess == self.number
        out_of_steps = self.steps >= self.max_steps
        if relation == 2:
            rewards = {1: 100 * right, 0: -100 * right}
        else:
            yes = guess > self.number if relation == 0 else guess < self.number
            rewards = {1: int(yes), 0: 1}
        if out_of_steps and not right:
            rewards[0] = 100
        over = right or out_of_steps
        obs = {0: 0, 1: 0} if over else {1: 0}
        terminateds = {1: right, ALL_AGENTS: right}
        truncateds = {1: False, ALL_AGENTS: out_of_steps and not right}
        return obs, rewards, terminateds, truncateds, {}


_ROCK, _PAPER, _SCISSORS, _LIZARD, _SPOCK = range(5)
_BEATS = {
    _ROCK: (_SCISSORS, _LIZARD),
    _PAPER: (_ROCK, _SPOCK),
    _SCISSORS: (_PAPER, _LIZARD),
    _LIZARD: (_SPOCK, _PAPER),
    _SPOCK: (_SCISSORS, _ROCK),
}


def _outcome(one: int, two: int) -> tuple[int, int]:
    """Return the rewards of both players for their moves."""
    if two in _BEATS[one]:
        return 1, -1
    return (-1, 1) if one in _BEATS[two] else (0, 0)


class RockPaperScissors(MultiAgentEnv):
    """Two players make ten simultaneous moves; the observation is the opponent's last move.

    The winner of a move gets 1, the loser -1. Configuration: `sheldon_cooper_mode` (False) adds
    lizard and spock.
    """

    ROCK, PAPER, SCISSORS, LIZARD, SPOCK = _ROCK, _PAPER, _SCISSORS, _LIZARD, _SPOCK
    WIN_MATRIX = {(one, two): _outcome(one, two) for one in range(5) for two in range(5)}
    """Rewards of both players by their moves."""

    def __init__(self, config: Mapping[str, object] | None = None) -> None:
        self.possible_agents = ["player1", "player2"]
        self.agents = ["player1", "player2"]
        super().__init__()
        self.sheldon_cooper_mode = bool((config or {}).get("sheldon_cooper_mode"))
        moves = spaces.Discrete(5 if self.sheldon_cooper_mode else 3)
        self.observation_spaces = dict.fromkeys(self.possible_agents, moves)
        self.action_spaces = dict.fromkeys(self.possible_agents, moves)
        self.num_moves = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[MultiAgentDict, MultiAgentDict]:
        super().reset(seed=seed)
        self.num_moves = 0
        return {"player1": 0, "player2": 0}, {}

    def step(self, action_dict: MultiAgentDict) -> MultiAgentStep:
        self.num_moves += 1
        one, two = int(action_dict["player1"]), int(action_dict["player2"])
        first, second = self.WIN_MATRIX[one, two]
        return (
            {"player1": two, "player2": one},
            {"player1": first, "player2": second},
            {ALL_AGENTS: self.num_moves >= 10},
            {ALL_AGENTS: False},
            {},
        )


class TicTacToe(MultiAgentEnv):
    """Turn-based game of two players on a board of 3 x 3.

    The player to move observes the nine fields: 1 for its own, -1 for the opponent's, 0 for empty
    ones. A player that completes a row gets 1, the other -1. A move to an occupied field costs 0.5
    and ends the turn. After 30 moves the game is truncated.

    Configuration: `action_mask` (False) makes observations dicts with the keys `obs` and
    `action_mask`.
    """

    WIN_LINES = [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 8],
        [0, 3, 6],
        [1, 4, 7],
        [2, 5, 8],
        [0, 4, 8],
        [2, 4, 6],
    ]

    def __init__(self, config: Mapping[str, object] | None = None) -> None:
        self.possible_agents = ["player1", "player2"]
        self.agents = ["player1", "player2"]
        super().__init__()
        self.with_mask = bool((config or {}).get("action_mask"))
        fields: Space = spaces.Box(-1.0, 1.0, (9,), np.float32)
        if self.with_mask:
            fields = spaces.Dict({"obs": fields, "action_mask": spaces.MultiBinary(9)})
        self.observation_spaces = dict.fromkeys(self.possible_agents, fields)
        self.action_spaces = dict.fromkeys(self.possible_agents, spaces.Discrete(9))
        self.max_timesteps = 30
        self.board = np.zeros(9, np.float32)
        self.current_player = "player1"
        self.timestep = 0

    @property
    def _opponent(self) -> str:
        return "player2" if self.current_player == "player1" else "player1"

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[MultiAgentDict, MultiAgentDict]:
        super().reset(seed=seed)
        self.board = np.zeros(9, np.float32)
        self.current_player = self.possible_agents[int(self.np_random.integers(2))]
        self.timestep = 0
        return {self.current_player: self._obs(self.board)}, {}

    def _obs(self, board: np.ndarray) -> Tree:
        if not self.with_mask:
            return board.copy()
        return {"obs": board.copy(), "action_mask": (board == 0).astype(np.int8)}

    def get_state(self) -> tuple[np.ndarray, str, int]:
        """Return the state of the game."""
        return self.board.copy(), self.current_player, self.timestep

    def set_state(self, state: tuple[np.ndarray, str, int]) -> None:
        """Restore a state."""
        board, self.current_player, self.timestep = state
        self.board = board.copy()

    def step(self, action_dict: MultiAgentDict) -> MultiAgentStep:
        field = int(action_dict[self.current_player])
        self.timestep += 1
        reward = 0.0
        won = drawn = False
        if self.board[field] != 0:
            reward = -0.5
        else:
            self.board[field] = 1.0
            won = any(all(self.board[i] == 1 for i in line) for line in self.WIN_LINES)
            drawn = not won and bool(self.board.all())
        over = won or drawn
        out_of_time = not over and self.timestep >= self.max_timesteps
        player, opponent = self.current_player, self._opponent
        if over or out_of_time:
            obs = {player: self._obs(self.board), opponent: self._obs(-self.board)}
            rewards = {player: 1.0 if won else reward, opponent: -1.0 if won else 0.0}
        else:
            self.board = -self.board
            self.current_player = opponent
            obs, rewards = {opponent: self._obs(self.board)}, {player: reward}
        return obs, rewards, {ALL_AGENTS: over}, {ALL_AGENTS: out_of_time}, {}

    def render(self) -> str:
        """Return the board as text: X for the player to move, O for the opponent."""
        symbols = {0: " ", 1: "X", -1: "O"}
        cells = [symbols[int(value)] for value in self.board]
        rows = [" " + " | ".join(cells[i : i + 3]) + " " for i in (0, 3, 6)]
        return "\n" + "\n-----------\n".join(rows) + "\n"
