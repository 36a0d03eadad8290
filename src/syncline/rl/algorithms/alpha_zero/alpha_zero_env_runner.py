"""`AlphaZeroEnvRunner`: plays games with tree search and records the search policies."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from syncline.rl.algorithms.alpha_zero.ranked_rewards import ranked
from syncline.rl.algorithms.alpha_zero.search import Search, SearchOptions, tree_policy
from syncline.rl.algorithms.alpha_zero.simulator import Position, Simulator
from syncline.rl.columns.fragment import Fragment
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import map_tree, stack_trees
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.envs.env_context import EnvContext
from syncline.rl.envs.registry import resolve_env
from syncline.rl.metrics.names import DEFAULT_MODULE_ID
from syncline.rl.modules.rl_module import MultiRLModule
from syncline.rl.runners.noise import generator, seed_or_random
from syncline.rl.runners.sample import EpisodeResult, Sample, SampleTimes
from syncline.rl.value_types import ModuleType, Space, StateDict, Tree

MCTS_POLICIES = "mcts_policies"
"""Column of the search policies, [B, A]."""


@dataclass(kw_only=True)
class _Move:
    """A move of a game, before its outcome is known."""

    position: Position
    action: int
    policy: np.ndarray
    reward: float = 0.0


@dataclass(kw_only=True)
class _Game:
    """A game in progress."""

    number: int
    """Global index among all games that run concurrently."""
    random: np.random.Generator
    position: Position
    began: float
    moves: list[_Move] = field(default_factory=list)


class AlphaZeroEnvRunner:
    """Plays `num_envs_per_env_runner` games concurrently on one environment.

    Args:
        config: The algorithm's options.
        worker_index: 0 in the algorithm's process, else 1 to `num_env_runners`.
        clock: Source of time in seconds.
    """

    def __init__(
        self,
        *,
        config: AlgorithmConfig,
        worker_index: int = 0,
        clock: Callable[[], float] = time.perf_counter,
        **_: object,
    ) -> None:
        self.config: AlgorithmConfig = config
        self.worker_index = worker_index
        self._clock = clock
        self.num_envs = config.num_envs_per_env_runner
        maker = resolve_env(config.env)
        context = EnvContext(
            config.env_config or {}, worker_index=worker_index, num_workers=config.num_env_runners
        )
        self.simulator = Simulator(maker.make(context), maker.name)
        self.weights_version = 0
        spec = config.get_multi_rl_module_spec(spaces=self.get_spaces(), inference_only=True)
        self.module: ModuleType = spec.build()
        self._games: list[_Game] = []

    @property
    def env(self) -> Any:
        """The environment."""
        return self.simulator.env

    @property
    def envs(self) -> list[Any]:
        """The environment, as a list."""
        return [self.simulator.env]

    def get_spaces(self) -> dict[str, tuple[Space, Space]]:
        """Return observation and action space by module id."""
        simulator = self.simulator
        return {DEFAULT_MODULE_ID: (simulator.observation_space, simulator.action_space)}

    def share_modules(self, modules: MultiRLModule) -> None:
        """Evaluate positions with the module of the learner."""
        self.module = modules

    # -- playing

    def search(self, *, threshold: float | None = None, noise: bool = False) -> Search:
        """Return a search with the current weights.

        Args:
            threshold: Return that counts as a win; None without ranked rewards.
            noise: Add noise at the roots, for exploration.
        """
        given = self.config.mcts_config
        options = SearchOptions(
            simulations=given["num_simulations"],
            puct=given["puct_coefficient"],
            gamma=self.config.gamma,
            noise_share=given["dirichlet_epsilon"] if noise else 0.0,
            noise_concentration=given["dirichlet_noise"],
        )
        module = self.module[DEFAULT_MODULE_ID]
        return Search(
            self.simulator,
            module.evaluate_positions,
            options,
            lambda position: edge_reward(position, threshold),
        )

    def sample_complete(
        self, least_steps: int, *, threshold: float | None = None, **_: object
    ) -> Sample:
        """Play until finished games have `least_steps` moves; the next call continues the others.

        Args:
            least_steps: Minimum number of moves.
            threshold: Return that counts as a win; None without ranked rewards.
        """
        if not self._games:
            first = max(self.worker_index - 1, 0) * self.num_envs
            for number in range(first, first + self.num_envs):
                self._games.append(self._new(number, self._generator(number)))
        began = self._clock()
        finished: list[_Game] = []
        steps = 0
        search = self.search(threshold=threshold, noise=self.config.explore)
        while steps < least_steps:
            for game in self._move(search, self._games, explore=self.config.explore):
                finished.append(game)
                steps += len(game.moves)
                self._games[self._games.index(game)] = self._new(game.number, game.random)
        return self._hand_over(finished, threshold, self._clock() - began)

    def sample_episodes(self, count: int, *, explore: bool | None = None, **_: object) -> Sample:
        """Play `count` games; unless `explore`, without noise and with the most visited moves."""
        explore = self.config.explore if explore is None else explore
        began = self._clock()
        search = self.search(noise=explore)
        games = [self._new(number, self._generator(number)) for number in range(count)]
        playing, finished = list(games), []
        while playing:
            for game in self._move(search, playing, explore=explore):
                playing.remove(game)
                finished.append(game)
        return self._hand_over(finished, None, self._clock() - began)

    def _generator(self, number: int) -> np.random.Generator:
        return generator(seed_or_random(self.config.seed), number, "explore")

    def _new(self, number: int, random: np.random.Generator) -> _Game:
        position = self.simulator.reset(int(random.integers(2**31)))
        return _Game(number=number, random=random, position=position, began=self._clock())

    def _move(self, search: Search, games: Sequence[_Game], *, explore: bool) -> list[_Game]:
        """Make a move in every game; return the games that are over."""
        given = self.config.mcts_config
        visits = search.run([each.position for each in games], [each.random for each in games])
        policies = tree_policy(visits, given["temperature"])
        over = []
        for game, policy in zip(games, policies, strict=True):
            if explore and not given["argmax_tree_policy"]:
                action = int(game.random.choice(len(policy), p=policy))
            else:
                action = int(policy.argmax())
            move = _Move(position=game.position, action=action, policy=policy)
            game.moves.append(move)
            game.position = self.simulator.step(game.position, action)
            move.reward = game.position.reward
            if game.position.is_over:
                over.append(game)
        return over

    # -- results

    def _hand_over(self, games: list[_Game], threshold: float | None, seconds: float) -> Sample:
        steps = sum(len(game.moves) for game in games)
        return Sample(
            fragments={DEFAULT_MODULE_ID: self._fragment(games, threshold)},
            episodes=[self._result(game) for game in games],
            env_steps=steps,
            module_steps={DEFAULT_MODULE_ID: steps},
            times=SampleTimes(total_s=seconds),
        )

    def _result(self, game: _Game) -> EpisodeResult:
        returns = game.position.returns
        several = len(returns) > 1
        return EpisodeResult(
            env=game.number,
            episode_return=sum(returns.values()),
            length=len(game.moves),
            duration_s=self._clock() - game.began,
            agent_returns=dict(returns) if several else {},
        )

    def _fragment(self, games: list[_Game], threshold: float | None) -> Fragment:
        """Return the moves of finished games, concatenated to one trajectory."""
        moves = [move for game in games for move in game.moves]
        ends = np.cumsum([len(game.moves) for game in games]) - 1
        terminated = np.zeros((len(moves), 1), bool)
        terminated[ends, 0] = True
        targets = [
            value
            for game in games
            for value in value_targets(game.moves, game.position, self.config.gamma, threshold)
        ]
        obs = stack_trees(np.stack, [move.position.obs for move in moves])
        final = stack_trees(np.stack, [game.position.obs for game in games])
        return Fragment(
            obs=map_tree(lambda leaf: np.concatenate([leaf, leaf[-1:]])[:, None], obs),
            columns={
                Columns.ACTIONS: np.array([move.action for move in moves])[:, None],
                MCTS_POLICIES: np.stack([move.policy for move in moves])[:, None].astype(
                    np.float32
                ),
                Columns.VALUE_TARGETS: np.array(targets, np.float32)[:, None],
            },
            rewards=np.array([move.reward for move in moves], np.float32)[:, None],
            terminated=terminated,
            truncated=np.zeros_like(terminated),
            final_at=np.stack([ends, np.zeros_like(ends)], 1),
            final_obs=final,
            first_step=np.zeros(1, np.int64),
            episode=np.zeros(1, np.int64),
            env=np.array([games[0].number]),
            weights_version=self.weights_version,
        )

    # -- state

    def set_weights(self, weights: StateDict, version: int) -> None:
        """Set the weights of the module, by module id."""
        for module_id, state in weights.items():
            self.module[module_id].set_state(state)
        self.weights_version = version

    def get_state(self) -> StateDict:
        """Return the games in progress with their random states."""
        return {"games": copy.deepcopy(self._games)}

    def set_state(self, state: StateDict) -> bool:
        """Continue with the games of `get_state`."""
        self._games = copy.deepcopy(state["games"])
        return True

    def ping(self) -> str:
        """Return "pong"."""
        return "pong"

    def stop(self) -> None:
        """Close the environment."""
        self.simulator.close()


def edge_reward(position: Position, threshold: float | None) -> float:
    """Return the reward of the step to a position; with a threshold, only the last step has one."""
    if threshold is None:
        return position.reward
    return ranked(sum(position.returns.values()), threshold) if position.is_over else 0.0


def value_targets(
    moves: Sequence[Tree], end: Position, gamma: float, threshold: float | None
) -> list[float]:
    """Return z of every move: its discounted future rewards for the player who made it.

    Rewards of another player count as losses.
    """
    if threshold is not None:
        return [edge_reward(end, threshold)] * len(moves)
    targets: list[float] = []
    following, player = 0.0, end.player
    for move in reversed(moves):
        sign = 1.0 if move.position.player == player else -1.0
        following = move.reward + gamma * sign * following
        player = move.position.player
        targets.append(following)
    return targets[::-1]
