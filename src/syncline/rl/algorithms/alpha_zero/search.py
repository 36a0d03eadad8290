"""Batched Monte-Carlo tree search of many games, with a network instead of rollouts.

Silver et al. 2017 (https://arxiv.org/abs/1712.01815): in each simulation every game descends its
tree by argmax_a Q(s, a) + c P(s, a) sqrt(1 + sum_b N(s, b)) / (1 + N(s, a)) and adds one position;
Q is 0 for unvisited actions. The network evaluates the new positions of all games in one call.
Trees are arrays, so selection and backup of all games take a few array operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from syncline.rl.algorithms.alpha_zero.simulator import Position, Simulator

Evaluate = Callable[[Sequence[Position]], tuple[np.ndarray, np.ndarray]]
"""Returns priors [B, A] and values [B] of positions for the player to move."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of a search."""

    simulations: int
    """Simulations per move."""
    puct: float
    """c: weight of exploration."""
    gamma: float = 1.0
    """Discount of later rewards."""
    noise_share: float = 0.0
    """Weight of Dirichlet noise in the priors of the root."""
    noise_concentration: float = 0.03
    """Concentration of the noise; small values favor few actions."""


class Search:
    """The trees of G games.

    Args:
        simulator: Computes the positions after actions.
        evaluate: The network.
        options: Options of the search.
        edge_reward: Reward of the step to a position.
    """

    def __init__(
        self,
        simulator: Simulator,
        evaluate: Evaluate,
        options: SearchOptions,
        edge_reward: Callable[[Position], float] = lambda position: position.reward,
    ) -> None:
        self._simulator = simulator
        self._evaluate = evaluate
        self._options = options
        self._edge_reward = edge_reward

    def run(
        self, roots: Sequence[Position], randoms: Sequence[np.random.Generator] | None = None
    ) -> np.ndarray:
        """Return the visits [G, A] of the actions at the roots.

        Args:
            roots: Positions that are not over.
            randoms: Generators of the games, for the noise at the roots; None for no noise.
        """
        games, actions = len(roots), self._simulator.num_actions
        nodes = self._options.simulations + 1
        shape = (games, nodes, actions)
        self._visits = np.zeros(shape, np.int64)
        self._value_sums = np.zeros(shape)
        self._priors = np.zeros(shape)
        self._rewards = np.zeros(shape)
        self._signs = np.ones(shape)  # -1 if the action passes the turn to another player
        self._children = np.full(shape, -1, np.int64)
        self._masks = np.zeros(shape, bool)
        self._is_over = np.zeros((games, nodes), bool)
        self._positions = [[root] for root in roots]
        priors, _ = self._evaluate(roots)
        for game, root in enumerate(roots):
            self._masks[game, 0] = root.mask
            self._priors[game, 0] = priors[game]
            if randoms is not None and self._options.noise_share:
                self._add_noise(game, randoms[game])
        for _ in range(self._options.simulations):
            self._simulate()
        visits: np.ndarray = self._visits[:, 0].copy()
        return visits

    def root_values(self) -> np.ndarray:
        """Return the mean value of each action at the roots, [G, A]; 0 without visits."""
        values: np.ndarray = self._value_sums[:, 0] / np.maximum(self._visits[:, 0], 1)
        return values

    def _add_noise(self, game: int, random: np.random.Generator) -> None:
        share, mask = self._options.noise_share, self._masks[game, 0]
        concentration = np.full(int(mask.sum()), self._options.noise_concentration)
        noise = np.zeros(len(mask))
        noise[mask] = random.dirichlet(concentration)
        self._priors[game, 0] = (1.0 - share) * self._priors[game, 0] + share * noise

    def _simulate(self) -> None:
        path = self._select()
        values = np.zeros(len(self._positions))
        # The deepest step of each game is its last one.
        ends: dict[int, tuple[int, int]] = {}
        for games, at, chosen in path:
            for game, node, action in zip(games, at, chosen, strict=True):
                ends[int(game)] = int(node), int(action)
        fresh: list[tuple[int, int]] = []
        for game, (node, action) in ends.items():
            if self._children[game, node, action] < 0:
                made = self._expand(game, node, action)
                if not self._is_over[game, made]:
                    fresh.append((game, made))
        if fresh:
            games, made_nodes = np.array(fresh).T
            found = [self._positions[game][node] for game, node in fresh]
            priors, leaf_values = self._evaluate(found)
            self._priors[games, made_nodes] = priors
            self._masks[games, made_nodes] = np.stack([each.mask for each in found])
            values[games] = leaf_values
        self._back_up(path, values)

    def _select(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return the steps of all games: (games, nodes, actions) for every depth."""
        games = np.arange(len(self._positions))
        nodes = np.zeros(len(games), np.int64)
        path = []
        while len(games):
            visits = self._visits[games, nodes]
            q = self._value_sums[games, nodes] / np.maximum(visits, 1)
            total = np.sqrt(1.0 + visits.sum(1, keepdims=True))
            u = self._options.puct * self._priors[games, nodes] * total / (1.0 + visits)
            actions = np.where(self._masks[games, nodes], q + u, -np.inf).argmax(1)
            path.append((games, nodes, actions))
            following = self._children[games, nodes, actions]
            goes_on = (following >= 0) & ~self._is_over[games, following]
            games, nodes = games[goes_on], following[goes_on]
        return path

    def _expand(self, game: int, node: int, action: int) -> int:
        """Add the position after an action; return its node."""
        positions = self._positions[game]
        before = positions[node]
        after = self._simulator.step(before, action)
        made = len(positions)
        positions.append(after)
        self._children[game, node, action] = made
        self._rewards[game, node, action] = self._edge_reward(after)
        self._signs[game, node, action] = 1.0 if after.player == before.player else -1.0
        self._is_over[game, made] = after.is_over
        return made

    def _back_up(
        self, path: list[tuple[np.ndarray, np.ndarray, np.ndarray]], values: np.ndarray
    ) -> None:
        """Add the values of the leaves to all steps on their paths."""
        for games, nodes, actions in reversed(path):
            at = games, nodes, actions
            values[games] = self._rewards[at] + self._options.gamma * (
                self._signs[at] * values[games]
            )
            self._value_sums[at] += values[games]
            self._visits[at] += 1


def tree_policy(visits: np.ndarray, exponent: float) -> np.ndarray:
    """Return the probabilities N^exponent / sum N^exponent, [G, A], for visits [G, A]."""
    shares = visits / visits.max(1, keepdims=True)
    powers = shares**exponent
    policy: np.ndarray = powers / powers.sum(1, keepdims=True)
    return policy
