"""`LearnerGroup`: the learners of an algorithm, in its process or in others."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from syncline.rl.checkpointable import Checkpointable, StateDict
from syncline.rl.columns.fragment import Fragment
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.module_change import ModuleChange
from syncline.rl.metrics.names import COMPONENT_LEARNER
from syncline.rl.modules.rl_module import MultiRLModule, MultiRLModuleSpec
from syncline.rl.runners.sample import Sample
from syncline.rl.runners.threads import limited_threads
from syncline.rl.value_types import Batch, CallArguments, Components, LearnerType, Results


class LearnerGroup(Checkpointable):
    """One learner in this process.

    Not thread-safe.

    Args:
        config: The algorithm's options.
        module_spec: Specification of the modules.
    """

    def __init__(self, *, config: AlgorithmConfig, module_spec: MultiRLModuleSpec) -> None:
        self.config = config
        self._module_spec = module_spec
        self.weights_version = 0
        self._busy_s = 0.0
        with self._threads():
            self._learner: LearnerType = config.learner_class(
                config=config, module_spec=module_spec
            )
            self._learner.build()

    def _threads(self) -> Any:
        return limited_threads(max(int(self.config.num_cpus_for_main_process), 1))

    @property
    def is_local(self) -> bool:
        """True if the learner is in this process."""
        return True

    @property
    def local_modules(self) -> MultiRLModule:
        """The modules of the learner in this process."""
        modules: MultiRLModule = self._learner.module
        return modules

    @property
    def is_remote(self) -> bool:
        """True if learners are in other processes."""
        return False

    def update(
        self, *, samples: Sequence[Sample] | None = None, batch: object = None, **options: object
    ) -> Results:
        """Train on samples, or on batches by module; see `TorchLearner.update`."""
        self.weights_version += 1
        began = time.perf_counter()
        with self._threads():
            result: Results = self._learner.update(
                None if samples is None else fragments_of(samples), batch=batch, **options
            )
        self._busy_s += time.perf_counter() - began
        return result

    def take_busy_s(self) -> float:
        """Return the seconds of updates since the last call."""
        busy_s, self._busy_s = self._busy_s, 0.0
        return busy_s

    def batch_of_rows(self, columns: dict[str, Batch]) -> Batch:
        """Convert rows by module id to batches for `update`."""
        return {module_id: self._learner.batch_of_rows(rows) for module_id, rows in columns.items()}

    def update_on_rows(self, columns: dict[str, Batch], *, timesteps: dict[str, int]) -> Results:
        """Take one step on rows by module id; return their errors. Metrics: `reduce_metrics`."""
        self.weights_version += 1
        began = time.perf_counter()
        with self._threads():
            errors: Results = self._learner.update_on_rows(columns, timesteps=timesteps)
        self._busy_s += time.perf_counter() - began
        return errors

    def reduce_metrics(self) -> list[Results]:
        """Return the metrics of every learner since the previous call, for `aggregate`."""
        return [self._learner.reduce_metrics()]

    def foreach_learner(self, func: Callable[[LearnerType], object], **_: object) -> list[Any]:
        """Return `func(learner)` of every learner."""
        return [func(self._learner)]

    def get_weights(self, module_ids: Collection[str] | None = None) -> dict[str, StateDict]:
        """Return the states of modules by id, for acting."""
        weights: dict[str, StateDict] = self._learner.get_weights(module_ids)
        return weights

    def set_weights(self, weights: dict[str, StateDict]) -> None:
        """Set the states of modules by id."""
        for module_id, state in weights.items():
            self._learner.module[module_id].set_state(state)

    def change_modules(self, change: ModuleChange) -> None:
        """Add or remove a module in all learners."""
        if change.spec is None:
            self.remove_module(change.module_id, new_should_module_be_updated=change.to_train)
        else:
            self.add_module(
                module_id=change.module_id,
                module_spec=change.spec,
                config_overrides=change.overrides,
                new_should_module_be_updated=change.to_train,
            )

    def add_module(self, **options: object) -> None:
        """Add a module; see `TorchLearner.add_module`."""
        self._learner.add_module(**options)

    def remove_module(self, module_id: str, **options: object) -> None:
        """Remove a module; see `TorchLearner.remove_module`."""
        self._learner.remove_module(module_id, **options)

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: object,
    ) -> StateDict:
        """Return the learner's state and the version of the weights."""
        state: StateDict = {"weights_version": self.weights_version}
        if self._check_component(COMPONENT_LEARNER, components, not_components):
            state[COMPONENT_LEARNER] = self._learner.get_state(**kwargs)
        return state

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        self.weights_version = state.get("weights_version", self.weights_version)
        if COMPONENT_LEARNER in state:
            self._learner.set_state(state[COMPONENT_LEARNER])

    def get_checkpointable_components(self) -> Components:
        """Return the learner."""
        return [(COMPONENT_LEARNER, self._learner)]

    def get_ctor_args_and_kwargs(self) -> CallArguments:
        """Return the arguments of the constructor."""
        return (), {"config": self.config, "module_spec": self._module_spec}

    def shutdown(self) -> None:
        """Release the resources of the learner."""
        self._learner.shutdown()


def fragments_of(samples: Sequence[Sample]) -> dict[str, list[Fragment]]:
    """Return the fragments of samples by module id."""
    found: dict[str, list[Fragment]] = {}
    for sample in samples:
        for module_id, fragment in sample.fragments.items():
            found.setdefault(module_id, []).append(fragment)
    return found
