"""`ConnectorPipelineV2`: a sequence of connectors as one connector."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from syncline.rl.checkpointable import StateDict
from syncline.rl.connectors.connector import Batch, ConnectorV2
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.modules.rl_module import RLModule
from syncline.rl.value_types import CallArguments, CheckedSpace, Episodes, Space
from syncline.suggestions import did_you_mean

Place = str | type[ConnectorV2]
"""The class of a connector, or its name."""


class ConnectorPipelineV2(ConnectorV2):
    """A sequence of connectors; each gets the output of the previous one.

    Args:
        input_observation_space: Input space of the first connector.
        input_action_space: Input action space of the first connector.
        connectors: The connectors, in order.
    """

    def __init__(
        self,
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        *,
        connectors: Sequence[ConnectorV2] | None = None,
        **kwargs: object,
    ) -> None:
        self.connectors: list[ConnectorV2] = list(connectors or [])
        super().__init__(input_observation_space, input_action_space, **kwargs)

    def __len__(self) -> int:
        return len(self.connectors)

    def __getitem__(self, place: int | Place) -> ConnectorV2:
        """Return the connector at a position, or of a class or name."""
        return self.connectors[place if isinstance(place, int) else self._index(place)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self.connectors))})"

    def __call__(
        self,
        *,
        rl_module: RLModule,
        batch: Batch,
        episodes: Episodes,
        explore: bool | None = None,
        shared_data: Batch | None = None,
        metrics: MetricsLogger | None = None,
        **kwargs: object,
    ) -> Batch:
        """Call all connectors; return the batch of the last one.

        Raises:
            TypeError: A connector did not return a batch.
        """
        shared_data = {} if shared_data is None else shared_data
        for connector in self.connectors:
            batch = connector(
                rl_module=rl_module,
                batch=batch,
                episodes=episodes,
                explore=explore,
                shared_data=shared_data,
                metrics=metrics,
                **kwargs,
            )
            if not isinstance(batch, dict):
                raise TypeError(
                    f"The connector {connector} returned {type(batch).__name__}; `__call__` must "
                    "return the batch, a dict. Add `return batch` at its end."
                )
        return batch

    # -- order

    def append(self, connector: ConnectorV2) -> None:
        """Add a connector at the end."""
        self._insert(len(self.connectors), connector)

    def prepend(self, connector: ConnectorV2) -> None:
        """Add a connector at the beginning."""
        self._insert(0, connector)

    def insert_before(self, name_or_class: Place, connector: ConnectorV2) -> ConnectorV2:
        """Insert a connector before another one; return it."""
        self._insert(self._index(name_or_class), connector)
        return connector

    def insert_after(self, name_or_class: Place, connector: ConnectorV2) -> ConnectorV2:
        """Insert a connector after another one; return it."""
        self._insert(self._index(name_or_class) + 1, connector)
        return connector

    def remove(self, name_or_class: Place) -> None:
        """Remove a connector.

        Raises:
            ValueError: The pipeline has no connector of this class or name.
        """
        del self.connectors[self._index(name_or_class)]
        self.set_input_spaces(self.input_observation_space, self.input_action_space)

    def _insert(self, index: int, connector: ConnectorV2) -> None:
        self.connectors.insert(index, connector)
        self.set_input_spaces(self.input_observation_space, self.input_action_space)

    def _index(self, place: Place) -> int:
        name = place if isinstance(place, str) else place.__name__
        for index, connector in enumerate(self.connectors):
            if name == type(connector).__name__:
                return index
        names = [type(each).__name__ for each in self.connectors]
        raise ValueError(
            f"The pipeline has no connector {name!r}; it has {names}.{did_you_mean(name, names)}"
        )

    # -- spaces

    def set_input_spaces(self, observation_space: CheckedSpace, action_space: CheckedSpace) -> None:
        """Set the input spaces of the first connector; update those of all."""
        self._input_observation_space = observation_space
        self._input_action_space = action_space
        for connector in self.connectors:
            connector.set_input_spaces(observation_space, action_space)
            observation_space = connector.observation_space
            action_space = connector.action_space
        self._observation_space = observation_space
        self._action_space = action_space

    # -- state

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: object,
    ) -> StateDict:
        """Return the non-empty states of the connectors by position and name."""
        states = {name: each.get_state() for name, each in self._named().items()}
        return {name: state for name, state in states.items() if state}

    def set_state(self, state: StateDict) -> None:
        """Set the states of the connectors in `state`."""
        for name, each in self._named().items():
            if name in state:
                each.set_state(state[name])

    def reset_state(self) -> None:
        """Clear the states of all connectors."""
        for each in self.connectors:
            each.reset_state()

    def merge_states(self, states: list[StateDict]) -> StateDict:
        """Merge the states of this pipeline in several env runners."""
        joined = {
            name: each.merge_states([state[name] for state in states if name in state])
            for name, each in self._named().items()
        }
        return {name: state for name, state in joined.items() if state}

    def take_changes(self) -> StateDict:
        """Return the changes of the connectors; see `ConnectorV2.take_changes`."""
        changes = {name: each.take_changes() for name, each in self._named().items()}
        return {name: each for name, each in changes.items() if each}

    def join_changes(self, changes: list[StateDict]) -> StateDict:
        """Combine successive changes of one runner."""
        return {
            name: each.join_changes([state[name] for state in changes if name in state])
            for name, each in self._named().items()
            if any(name in state for state in changes)
        }

    def set_merged_state(self, state: StateDict) -> None:
        """Set the merged states of the connectors in `state`."""
        for name, each in self._named().items():
            if name in state:
                each.set_merged_state(state[name])

    def _named(self) -> dict[str, ConnectorV2]:
        return {
            f"{index:03d}_{type(each).__name__}": each for index, each in enumerate(self.connectors)
        }

    def get_ctor_args_and_kwargs(self) -> CallArguments:
        """Return the arguments that construct an equal pipeline."""
        args, kwargs = super().get_ctor_args_and_kwargs()
        return args, {**kwargs, "connectors": self.connectors}


class EnvToModulePipeline(ConnectorPipelineV2):
    """Connectors from environments to the module."""


class ModuleToEnvPipeline(ConnectorPipelineV2):
    """Connectors from the module to environments."""


class LearnerConnectorPipeline(ConnectorPipelineV2):
    """Connectors from episodes to the learner's batch."""
