"""`Acting`: computes actions of an algorithm's modules for the observations of a program.

Observations pass the connectors as in a runner, but filters do not learn from them. Modules with
memory get their state and return the next one. Connectors that look back, such as frame stacking,
see the episode if the program passes it, otherwise only the observation. With several agents,
connectors need the episode because it names the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np

from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, leaves, map_tree, row, stack_trees
from syncline.rl.connectors.pipeline import ConnectorPipelineV2
from syncline.rl.envs.checks import mismatch
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.metrics.names import (
    COMPONENT_ENV_TO_MODULE_CONNECTOR,
    COMPONENT_MODULE_TO_ENV_CONNECTOR,
)
from syncline.rl.modules.acting import ActingPolicy
from syncline.rl.runners.actions import actions_for_env
from syncline.rl.runners.connections import Connections
from syncline.rl.value_types import CheckedSpace, ModuleType

_WITH_ARRAYS = (
    gym.spaces.Box,
    gym.spaces.Discrete,
    gym.spaces.MultiDiscrete,
    gym.spaces.MultiBinary,
)


class Acting:
    """Computes actions with one module. Not thread-safe.

    Args:
        module: The module.
        pipelines: Connectors before and after the module, by name; may be empty.
        normalize_actions: The module acts in [-1, 1].
        clip_actions: Clip actions to their bounds.
        seed: Seed for sampling actions.
        multi_agent: The connectors belong to an algorithm with several agents.
    """

    def __init__(
        self,
        module: ModuleType,
        pipelines: Mapping[str, ConnectorPipelineV2],
        *,
        normalize_actions: bool,
        clip_actions: bool,
        seed: int,
        multi_agent: bool = False,
    ) -> None:
        self.module = module
        self._multi_agent = multi_agent
        self._policy: ActingPolicy = module.acting_policy()
        self._normalize = normalize_actions
        self._clip = clip_actions
        self._random = np.random.default_rng(seed)
        self._connections: Connections | None = None
        if pipelines:
            self._connections = Connections(
                pipelines[COMPONENT_ENV_TO_MODULE_CONNECTOR],
                pipelines[COMPONENT_MODULE_TO_ENV_CONNECTOR],
                MetricsLogger(),
            )
            if multi_agent and not self._connections.are_needed:
                self._connections = None

    def initial_state(self) -> StateDict:
        """Return the module's state at the beginning of an episode; empty without memory."""
        state: StateDict = map_tree(np.asarray, self.module.get_initial_state())
        return state

    def act(
        self,
        observations: Sequence[Tree],
        states: Sequence[Tree] | None = None,
        *,
        explore: bool,
        episodes: Sequence[SingleAgentEpisode] | None = None,
        for_env: bool = True,
    ) -> tuple[list[Tree], list[Tree], dict[str, Tree]]:
        """Return actions, next states, and the other columns of the module's output.

        Args:
            observations: Observations of N environments, as arrays, lists or numbers.
            states: State of the module for each observation; None for the initial state.
            explore: Draw actions; otherwise take the most probable ones.
            episodes: Episodes that end with these observations.
            for_env: Return actions as environments get them: unsquashed or clipped.

        Raises:
            ValueError: With several agents, the connectors cannot tell which agent acts.
        """
        unknown = episodes is None or any(each.agent_id is None for each in episodes)
        if self._multi_agent and self._connections is not None and unknown:
            raise ValueError(
                "With several agents, the connectors need to know which agent an observation "
                "belongs to. Pass `episode=`, a SingleAgentEpisode with its `agent_id`, such as "
                "`multi_agent_episode.agent_episodes[agent]`."
            )
        if episodes is None:
            episodes = [self._episode(each) for each in observations]
        count = len(episodes)
        obs = self._observed(list(episodes), explore)
        state = None
        if self.module.is_stateful():
            given = [self.initial_state()] * count if states is None else states
            state = stack_trees(np.stack, [self._as_state(each) for each in given])
        columns, next_state = self._policy.act(obs, self._noise(count), explore, state)
        if self._connections is not None:
            columns = self._connections.act(self.module, list(episodes), columns, explore=explore)
        actions = columns.pop(Columns.ACTIONS)
        chosen = columns.pop(Columns.ACTIONS_FOR_ENV, None) if for_env else None
        if chosen is None:
            chosen = self._for_env(actions) if for_env else actions
        return (
            [row(chosen, n) for n in range(count)],
            [] if next_state is None else [row(next_state, n) for n in range(count)],
            {Columns.ACTIONS: actions, **columns},
        )

    def _episode(self, observation: Tree) -> SingleAgentEpisode:
        space = self.module.observation_space
        if self._connections is not None:
            space = self._connections.env_to_module.input_observation_space or space
        return SingleAgentEpisode(
            observations=[as_observation(space, observation)],
            observation_space=space,
            action_space=self.module.action_space,
        )

    def _observed(self, episodes: list[SingleAgentEpisode], explore: bool) -> Tree:
        if self._connections is None:
            observed = [each.get_observations(-1) for each in episodes]
        else:
            with _not_learning(self._connections.env_to_module):
                observed = self._connections.observe(self.module, episodes, explore=explore)
        return stack_trees(np.stack, [map_tree(np.asarray, each) for each in observed])

    def _noise(self, count: int) -> np.ndarray:
        shape = (count, self._policy.noise_size)
        if self._policy.noise_kind == "uniform":
            return self._random.random(shape)
        return self._random.standard_normal(shape)

    def _as_state(self, state: Tree) -> Tree:
        """Return a state in the structure of the module; a list contains its leaves in order."""
        initial: object = self.initial_state()
        if not isinstance(state, (list, tuple)) or isinstance(initial, (list, tuple)):
            return map_tree(np.asarray, state)
        if len(state) != len(leaves(initial)):
            raise ValueError(
                f"`state` has {len(state)} parts, but the module's state has "
                f"{len(leaves(initial))}. Begin with `get_policy().get_initial_state()`."
            )
        parts = iter(state)
        return map_tree(lambda _: np.asarray(next(parts)), initial)

    def _for_env(self, actions: Tree) -> Tree:
        function: Callable[[Tree], Tree] | None = actions_for_env(
            self.module.action_space, normalize=self._normalize, clip=self._clip
        )
        return actions if function is None else function(actions)


def as_observation(space: CheckedSpace, value: Any) -> Tree:
    """Return an observation as arrays; convert lists and numbers to the dtype of the space.

    Raises:
        ValueError: The lists or numbers do not form an observation of the space.
    """
    if isinstance(space, gym.spaces.Dict) and isinstance(value, Mapping):
        known = space.spaces
        return {key: as_observation(known.get(key), each) for key, each in value.items()}
    if isinstance(space, gym.spaces.Tuple) and isinstance(value, (list, tuple)):
        if len(space) == len(value):
            return tuple(map(as_observation, space, value))
    elif isinstance(value, (list, tuple, int, float)) and isinstance(space, _WITH_ARRAYS):
        problem = mismatch(space, value)
        if problem is not None:
            raise ValueError(f"Cannot compute an action: the {problem}.")
        return np.asarray(value, space.dtype)
    return map_tree(np.asarray, value)


@contextmanager
def _not_learning(pipeline: ConnectorPipelineV2) -> Iterator[None]:
    """Freeze the statistics of filters within the block."""
    learning = [each for each in pipeline.connectors if getattr(each, "update_stats", False)]
    for each in learning:
        vars(each)["update_stats"] = False
    try:
        yield
    finally:
        for each in learning:
            vars(each)["update_stats"] = True
