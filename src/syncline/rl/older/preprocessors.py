"""Preprocessors from older releases, which convert observations to flat arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from syncline.rl.connectors.to_module.preprocessors import SingleAgentObservationPreprocessor
from syncline.rl.episodes.episode_type import EpisodeType
from syncline.rl.value_types import CheckedSpace, Options, Space, Tree


class Preprocessor:
    """Base of preprocessors; implement `_init_shape` and `transform`.

    Args:
        obs_space: Space of the observations.
        options: Options of the network.
    """

    def __init__(self, obs_space: Space, options: Mapping[str, object] | None = None) -> None:
        self._obs_space = obs_space
        self._options = dict(options or {})
        self.shape = tuple(self._init_shape(obs_space, self._options))
        self._size = int(np.prod(self.shape))

    def _init_shape(self, obs_space: Space, options: Options) -> tuple[int, ...]:
        """Return the shape of the results."""
        raise NotImplementedError

    def transform(self, observation: Tree) -> Tree:
        """Return the array for an observation."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Number of elements of the results."""
        return self._size

    @property
    def observation_space(self) -> Space:
        """Space of the results."""
        space: CheckedSpace = gym.spaces.Box(-np.inf, np.inf, self.shape, np.float32)
        if isinstance(self, (DictFlatteningPreprocessor, OneHotPreprocessor)):
            space.original_space = self._obs_space
        return space  # type: ignore[no-any-return]


class NoPreprocessor(Preprocessor):
    """Returns observations unchanged."""

    def _init_shape(self, obs_space: CheckedSpace, options: Options) -> tuple[int, ...]:
        return tuple(obs_space.shape)

    def transform(self, observation: Tree) -> Tree:
        """Return the observation."""
        return observation

    @property
    def observation_space(self) -> Space:
        """The space itself."""
        return self._obs_space


class OneHotPreprocessor(Preprocessor):
    """Encodes integers as one-hot vectors."""

    def _init_shape(self, obs_space: Space, options: Options) -> tuple[int, ...]:
        return (int(gym.spaces.flatdim(obs_space)),)

    def transform(self, observation: Tree) -> np.ndarray:
        """Return the one-hot vector."""
        return np.asarray(gym.spaces.flatten(self._obs_space, observation), np.float32)


class DictFlatteningPreprocessor(OneHotPreprocessor):
    """Flattens Dict and Tuple observations to one vector."""


class TupleFlatteningPreprocessor(DictFlatteningPreprocessor):
    """Flattens Tuple observations to one vector."""


def preprocessor_class(space: Space) -> type[Preprocessor]:
    """Return the class for a space."""
    if isinstance(space, (gym.spaces.Discrete, gym.spaces.MultiDiscrete)):
        return OneHotPreprocessor
    if isinstance(space, gym.spaces.Tuple):
        return TupleFlatteningPreprocessor
    if isinstance(space, gym.spaces.Dict):
        return DictFlatteningPreprocessor
    return NoPreprocessor


class PreprocessorConnector(SingleAgentObservationPreprocessor):
    """A preprocessor as a connector.

    Args:
        preprocessor_class: Class of the preprocessor.
        options: Options of the network.
    """

    def __init__(
        self,
        input_observation_space: CheckedSpace = None,
        input_action_space: Space | None = None,
        *,
        preprocessor_class: type,
        options: Mapping[str, object] | None = None,
        **kwargs: object,
    ) -> None:
        self._class = preprocessor_class
        self._options = dict(options or {})
        self._made: Any = None
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self._kwargs = {"preprocessor_class": preprocessor_class, "options": options}

    def recompute_output_observation_space(
        self, input_observation_space: Space | None, input_action_space: Space | None
    ) -> Any:
        """Return the preprocessor's space."""
        self._made = self._class(input_observation_space, self._options)
        return self._made.observation_space

    def preprocess(self, observation: Tree, episode: EpisodeType) -> Tree:
        """Return the preprocessed observation."""
        return np.asarray(self._made.transform(observation), np.float32)
