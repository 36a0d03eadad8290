"""`EpisodeValues`: getters and setters of the values of single-agent episodes."""

from __future__ import annotations

import numpy as np

from syncline.rl.columns.names import Columns
from syncline.rl.episodes.lookback import Indices, InfiniteLookbackBuffer
from syncline.rl.value_types import Batch, Tree


class EpisodeValues:
    """Getters and setters of `SingleAgentEpisode`."""

    __slots__ = ()

    id_: str
    t: int
    t_started: int
    is_terminated: bool
    is_truncated: bool
    observations: InfiniteLookbackBuffer
    infos: InfiniteLookbackBuffer
    actions: InfiniteLookbackBuffer
    rewards: InfiniteLookbackBuffer
    extra_model_outputs: dict[str, InfiniteLookbackBuffer]

    def get_observations(
        self,
        indices: Indices = None,
        *,
        neg_index_as_lookback: bool = False,
        fill: object = None,
        one_hot_discrete: bool = False,
    ) -> Tree:
        """Return observations: one for an int, else a list, or arrays after `to_numpy`.

        Args:
            indices: An int, a list of ints or a slice; None for all except the lookback. -1 is the
                last value.
            neg_index_as_lookback: Negative indices count back from the start: -1 is the last value
                of the lookback.
            fill: Number for values out of range. If None, ints out of range raise IndexError, and
                slices omit values out of range.
            one_hot_discrete: Return Discrete and MultiDiscrete parts as one-hot vectors.
        """
        return self.observations.get(
            indices,
            neg_index_as_lookback=neg_index_as_lookback,
            fill=fill,
            one_hot_discrete=one_hot_discrete,
        )

    def get_infos(
        self, indices: Indices = None, *, neg_index_as_lookback: bool = False, fill: object = None
    ) -> Tree:
        """Return infos; arguments as for `get_observations`."""
        return self.infos.get(indices, neg_index_as_lookback=neg_index_as_lookback, fill=fill)

    def get_actions(
        self,
        indices: Indices = None,
        *,
        neg_index_as_lookback: bool = False,
        fill: object = None,
        one_hot_discrete: bool = False,
    ) -> Tree:
        """Return actions; arguments as for `get_observations`."""
        return self.actions.get(
            indices,
            neg_index_as_lookback=neg_index_as_lookback,
            fill=fill,
            one_hot_discrete=one_hot_discrete,
        )

    def get_rewards(
        self, indices: Indices = None, *, neg_index_as_lookback: bool = False, fill: object = None
    ) -> Tree:
        """Return rewards; arguments as for `get_observations`."""
        return self.rewards.get(indices, neg_index_as_lookback=neg_index_as_lookback, fill=fill)

    def get_extra_model_outputs(
        self,
        key: str,
        indices: Indices = None,
        *,
        neg_index_as_lookback: bool = False,
        fill: object = None,
    ) -> Tree:
        """Return another output of the module; other arguments as for `get_observations`."""
        return self.extra_model_outputs[key].get(
            indices, neg_index_as_lookback=neg_index_as_lookback, fill=fill
        )

    def set_observations(
        self, *, new_data: object, at_indices: Indices = None, neg_index_as_lookback: bool = False
    ) -> None:
        """Overwrite observations.

        Args:
            new_data: One observation for an int, otherwise one per index.
            at_indices: An int, a list of ints or a slice; None for all except the lookback.
            neg_index_as_lookback: Negative indices count back from the start.

        Raises:
            IndexError: An index is out of range, or the number of observations does not match.
        """
        self.observations.set(
            new_data, at_indices=at_indices, neg_index_as_lookback=neg_index_as_lookback
        )

    def set_actions(
        self, *, new_data: object, at_indices: Indices = None, neg_index_as_lookback: bool = False
    ) -> None:
        """Overwrite actions; arguments as for `set_observations`."""
        self.actions.set(
            new_data, at_indices=at_indices, neg_index_as_lookback=neg_index_as_lookback
        )

    def set_rewards(
        self, *, new_data: object, at_indices: Indices = None, neg_index_as_lookback: bool = False
    ) -> None:
        """Overwrite rewards; arguments as for `set_observations`."""
        self.rewards.set(
            new_data, at_indices=at_indices, neg_index_as_lookback=neg_index_as_lookback
        )

    def set_extra_model_outputs(
        self,
        *,
        key: str,
        new_data: object,
        at_indices: Indices = None,
        neg_index_as_lookback: bool = False,
    ) -> None:
        """Overwrite another output of the module; arguments as for `set_observations`.

        Raises:
            KeyError: The output does not exist. Add it as an item of `extra_model_outputs`.
        """
        self.extra_model_outputs[key].set(
            new_data, at_indices=at_indices, neg_index_as_lookback=neg_index_as_lookback
        )

    def get_data_dict(self) -> Batch:
        """Return the steps as columns by name, without the last observation."""
        length = self.t - self.t_started
        last_only = [False] * max(length - 1, 0)
        columns: Batch = {
            Columns.TERMINATEDS: [*last_only, self.is_terminated][:length],
            Columns.TRUNCATEDS: [*last_only, self.is_truncated][:length],
            Columns.T: list(range(self.t_started, self.t)),
            Columns.EPS_ID: [self.id_] * length,
        }
        if self.rewards.finalized:
            columns = {name: np.array(values) for name, values in columns.items()}
        return {
            **columns,
            Columns.OBS: self.get_observations(slice(None, -1)),
            Columns.INFOS: self.get_infos(slice(None, -1)),
            Columns.ACTIONS: self.get_actions(),
            Columns.REWARDS: self.get_rewards(),
            **{key: self.get_extra_model_outputs(key) for key in self.extra_model_outputs},
        }
