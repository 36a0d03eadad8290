"""`ConnectorStates`: the connectors of an algorithm's runners, their merged state, and files.

Connectors in different processes update their state independently, for example the means of a
filter. After each training step their changes are merged and the result is sent to all runners.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

import cloudpickle

from syncline.rl.checkpointable import Checkpointable, StateDict
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.connectors.pipeline import ConnectorPipelineV2
from syncline.rl.metrics.names import (
    COMPONENT_ENV_TO_MODULE_CONNECTOR,
    COMPONENT_MODULE_TO_ENV_CONNECTOR,
)
from syncline.rl.runners.group import EnvRunnerGroup
from syncline.rl.runners.sample import Sample
from syncline.rl.value_types import CallArguments, Components

logger = logging.getLogger("syncline")


class ConnectorStates(Checkpointable):
    """The pipelines of an algorithm's process.

    They belong to its local runner if it has one; otherwise they are copies of the first runner's.

    Args:
        config: The algorithm's options.
        group: The runners that sample for training.
    """

    STATE_FILE_NAME = "state"

    def __init__(self, config: AlgorithmConfig, group: EnvRunnerGroup) -> None:
        self.config = config
        self._group = group
        self._changes: dict[int, StateDict] = {}
        self._pipelines: dict[str, ConnectorPipelineV2] | None = None

    @property
    def pipelines(self) -> dict[str, ConnectorPipelineV2]:
        """Connectors from environments to modules, and from modules to environments, by name."""
        local = self._group.local_env_runner
        if local is not None:
            return _pipelines_of(local)
        if self._pipelines is None:
            (self._pipelines,) = self._group.foreach_env_runner(
                _pipelines_of, remote_worker_ids=self._group.healthy_env_runner_ids()[:1]
            )
            for pipeline in self._pipelines.values():
                pipeline.reset_state()  # the runner's changes arrive with its samples
        return self._pipelines

    @property
    def env_to_module(self) -> ConnectorPipelineV2:
        """Connectors from environments to modules."""
        return self.pipelines[COMPONENT_ENV_TO_MODULE_CONNECTOR]

    @property
    def module_to_env(self) -> ConnectorPipelineV2:
        """Connectors from modules to environments."""
        return self.pipelines[COMPONENT_MODULE_TO_ENV_CONNECTOR]

    # -- merging

    def note(self, samples: Iterable[Sample]) -> None:
        """Remember the changes that arrived with samples."""
        for sample in samples:
            if sample.connectors is not None and sample.runner:
                self._changes[sample.runner] = (
                    self._joined([self._changes[sample.runner], sample.connectors])
                    if sample.runner in self._changes
                    else sample.connectors
                )

    def merge(self) -> None:
        """Merge the remembered changes into the state, and send it to all runners."""
        if not self._changes or not self.config.merge_env_runner_states:
            return
        changes = [self._changes[index] for index in sorted(self._changes)]
        self._changes = {}
        merged = {
            name: pipeline.merge_states([each[name] for each in changes])
            for name, pipeline in self.pipelines.items()
        }
        self.set_state(merged)
        if self.config.broadcast_env_runner_states:
            self._group.set_merged_connectors(merged)

    def _joined(self, states: list[StateDict]) -> StateDict:
        """Combine the changes of one runner from several samples; by default keep the last ones."""
        return {
            name: pipeline.join_changes([each[name] for each in states])
            for name, pipeline in self.pipelines.items()
        }

    def send_to(self, group: EnvRunnerGroup) -> None:
        """Send the state to other runners, such as those for evaluation."""
        state = {
            name: {**pipeline.get_state(), **pipeline.merge_states([])}
            for name, pipeline in self.pipelines.items()
        }
        if any(state.values()):
            group.set_merged_connectors(state)

    # -- state

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: object,
    ) -> StateDict:
        """Return the states of both pipelines, by name."""
        return {
            name: pipeline.get_state()
            for name, pipeline in self.pipelines.items()
            if self._check_component(name, components, not_components)
        }

    def set_state(self, state: StateDict) -> None:
        """Set the states of both pipelines."""
        for name, pipeline in self.pipelines.items():
            if name in state:
                pipeline.set_state(state[name])

    def get_checkpointable_components(self) -> Components:
        """Return the pipelines that can be pickled."""
        return [(name, each) for name, each in self.pipelines.items() if _can_be_saved(name, each)]

    def get_ctor_args_and_kwargs(self) -> CallArguments:
        """Return no arguments: an algorithm creates this object."""
        return (), {}


def _pipelines_of(runner: object) -> dict[str, ConnectorPipelineV2]:
    get = getattr(runner, "get_pipelines", dict)  # user-defined runners may lack it
    pipelines: dict[str, ConnectorPipelineV2] = get()
    return pipelines


def _can_be_saved(name: str, pipeline: ConnectorPipelineV2) -> bool:
    try:
        cloudpickle.dumps(pipeline.get_ctor_args_and_kwargs())
    except Exception as error:
        logger.warning(
            "The checkpoint lacks %s: its connectors cannot be pickled (%s: %s). Do not store "
            "environments and open files in their attributes.",
            name,
            type(error).__name__,
            error,
        )
        return False
    return True
