"""`RemoteLearnerGroup`: several learners in other processes, which form a torch process group.

Covered: start, updates of all learners, weights, restarts after the death of a learner. Not
covered: the division of a batch among learners (`torch/remote_learner`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from syncline.core import api
from syncline.core.refs import AnyRef
from syncline.core.remote import remote
from syncline.exceptions import GetTimeoutError, RayActorError, RayTaskError
from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.trees import first_leaf
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.group import LearnerGroup, fragments_of
from syncline.rl.learners.torch.remote_learner import RemoteLearner
from syncline.rl.metrics.names import COMPONENT_LEARNER
from syncline.rl.modules.rl_module import MultiRLModule, MultiRLModuleSpec
from syncline.rl.runners.sample import Sample
from syncline.rl.value_types import Batch, Components, LearnerType, Options, Results
from syncline.train.backend import LOOPBACK, GroupPlan, choose_backend

logger = logging.getLogger("syncline")

COLLECTIVE_TIMEOUT_S = 600.0
"""Seconds that a learner waits for the others in a collective operation before it fails."""
RESCUE_S = 60.0
"""Seconds within which a surviving learner must return its state."""
MAX_RESTARTS_IN_A_ROW = 3
"""Number of restarts without a successful update after which the error is raised."""


class RemoteLearnerGroup(LearnerGroup):
    """Learners in other processes; the modules in this process are copies for acting.

    If a learner dies, all learners are restarted with the state before the update, which is then
    repeated. The result equals that of an undisturbed run.

    Args:
        config: The algorithm's options.
        module_spec: Specification of the modules.
    """

    def __init__(self, *, config: AlgorithmConfig, module_spec: MultiRLModuleSpec) -> None:
        self.config = config
        self._module_spec = module_spec
        self.weights_version = 0
        self._busy_s = 0.0
        self._sent = config.copy(copy_frozen=False)
        if config.seed is None:  # all learners must draw the same random numbers
            self._sent.seed = int.from_bytes(os.urandom(4), "little") >> 1
        self._added: list[tuple[str, Options]] = []
        here = self._sent.copy(copy_frozen=False)
        here.num_gpus_per_learner = here.num_gpus = 0
        self._learner: LearnerType = config.learner_class(config=here, module_spec=module_spec)
        self._learner.build()  # for acting and checkpoints; it never trains
        self._was_handed_out = False
        self._local_version = -1
        self._weights: dict[str, StateDict] = {}
        self.num_restarts = 0
        self._failures_in_row = 0
        self._learners: list[LearnerType] = []
        self._start()

    # -- processes

    def _start(self) -> None:
        config = self.config
        cpus = config.num_cpus_per_learner
        actor_class = remote(RemoteLearner).options(
            num_cpus=(0 if config.num_gpus_per_learner else 1) if cpus == "auto" else cpus,
            num_gpus=config.num_gpus_per_learner,
            resources=config.custom_resources_per_learner or None,
        )
        self._learners = [
            actor_class.remote(self._sent, self._module_spec, rank)
            for rank in range(config.num_learners)
        ]
        addresses = self._all("address")
        one_node = len(set(addresses)) == 1
        host = LOOPBACK if one_node else addresses[0]
        port = api.get(self._learners[0].open_rendezvous.remote(host, COLLECTIVE_TIMEOUT_S))
        plan = GroupPlan(
            backend=choose_backend(None, gpus=bool(config.num_gpus_per_learner)),
            host=host,
            port=port,
            timeout_s=COLLECTIVE_TIMEOUT_S,
            publish_address=False,
            loopback=one_node,
            addresses=() if one_node else tuple(addresses),
        )
        self._all("join", plan)
        for method, options in self._added:
            self._all("apply", _call(method, options))

    def _all(self, method: str, *args: object) -> list[Any]:
        """Call a method of all learners; return their answers by rank."""
        refs = [getattr(learner, method).remote(*args) for learner in self._learners]
        found: list[Any] = api.get(refs)
        return found

    def _restart(self, error: Exception) -> None:
        """Restart all learners with the state before the failed update."""
        self._failures_in_row += 1
        if self._failures_in_row > MAX_RESTARTS_IN_A_ROW:
            raise error
        state = self._rescued_state()
        for learner in self._learners:
            api.kill(learner)
        self.num_restarts += 1
        logger.warning(
            "A learner died. All %d learners are restarted with %s: %s",
            self.config.num_learners,
            "the state before the update, which is repeated"
            if state is not None
            else "the weights of the runners and new optimizer states",
            error,
        )
        self._start()
        if state is not None:
            self._all("set_state", api.put(state))
        elif self._weights:
            self._all("apply", _set_weights, api.put(self._weights))

    def _rescued_state(self) -> Any:
        refs = [learner.state_before_update.remote() for learner in self._learners]
        for ref in refs:
            try:
                state = api.get(ref, timeout=RESCUE_S)
            except (RayActorError, GetTimeoutError):
                continue
            if state is not None:
                return state
        return None

    def _train(self, method: str, *args: object, **options: object) -> list[Any]:
        """Call a training method of all learners; repeat it if a learner dies."""
        self._push()
        self.weights_version += 1
        began = time.perf_counter()
        sent = api.put((args, options))
        while True:
            refs = [learner.update.remote(method, sent) for learner in self._learners]
            try:
                found: list[Any] = self._gather(refs)
                break
            except RayActorError as error:
                self._restart(error)
        self._failures_in_row = 0
        self._busy_s += time.perf_counter() - began
        return found

    def _gather(self, refs: list[AnyRef]) -> list[Any]:
        """Return the values; if a process died, raise its error rather than errors it caused.

        Raises:
            RayActorError: A learner died.
        """
        failures: list[Exception] = []
        found = []
        for ref in refs:
            try:
                found.append(api.get(ref))
            except (RayActorError, RayTaskError) as error:
                failures.append(error)
        for failure in failures:
            if isinstance(failure, RayActorError):
                raise failure
        if failures:
            raise failures[0]
        return found

    # -- learning

    @property
    def is_local(self) -> bool:
        """True if the learner is in this process."""
        return False

    @property
    def is_remote(self) -> bool:
        """True if learners are in other processes."""
        return True

    @property
    def local_modules(self) -> MultiRLModule:
        """Copies of the modules in this process, with the current weights."""
        self.get_weights()
        modules: MultiRLModule = self._learner.module
        return modules

    def update(
        self, *, samples: Sequence[Sample] | None = None, batch: object = None, **options: object
    ) -> Results:
        """Train on samples, or on batches by module; return the metrics of rank 0."""
        fragments = None if samples is None else fragments_of(samples)
        result: Results = self._train("update", fragments, batch=batch, **options)[0]
        return result

    def batch_of_rows(self, columns: dict[str, Batch]) -> Batch:
        """Convert rows by module id to batches for `update`."""
        return columns

    def update_on_rows(self, columns: dict[str, Batch], *, timesteps: dict[str, int]) -> Results:
        """Take one step on rows by module id; return their errors. Metrics: `reduce_metrics`."""
        found = self._train("update_on_rows", columns, timesteps=timesteps)
        return {
            module_id: _joined(
                [each[module_id] for each in found], len(first_leaf(columns[module_id]))
            )
            for module_id in found[0]
        }

    def reduce_metrics(self) -> list[Results]:
        """Return the metrics of rank 0 since the previous call, for `aggregate`."""
        return [api.get(self._learners[0].apply.remote(_call("reduce_metrics", {})))]

    def foreach_learner(self, func: Callable[[LearnerType], object], **_: object) -> list[Any]:
        """Return `func(learner)` of every learner."""
        return self._all("apply", func)

    # -- weights and state

    def get_weights(self, module_ids: Collection[str] | None = None) -> dict[str, StateDict]:
        """Return the states of modules by id, for acting."""
        self._push()
        if self._local_version != self.weights_version:
            self._weights = api.get(self._learners[0].apply.remote(_get_weights))
            _set_weights(self._learner, self._weights)
            self._local_version = self.weights_version
        return {
            module_id: state
            for module_id, state in self._weights.items()
            if module_ids is None or module_id in module_ids
        }

    def set_weights(self, weights: dict[str, StateDict]) -> None:
        """Set the states of modules by id."""
        self._push()
        self._all("apply", _set_weights, api.put(weights))
        self._local_version = -1

    def add_module(self, **options: object) -> None:
        """Add a module; see `TorchLearner.add_module`."""
        self._change_modules("add_module", options)
        self._local_version = -1

    def remove_module(self, module_id: str, **options: object) -> None:
        """Remove a module; see `TorchLearner.remove_module`."""
        self._change_modules("remove_module", {"module_id": module_id, **options})
        self._weights.pop(module_id, None)

    def _change_modules(self, method: str, options: dict[str, object]) -> None:
        self._push()
        self._all("apply", _call(method, options))
        _call(method, options)(self._learner)
        self._added.append((method, options))

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: object,
    ) -> StateDict:
        """Return the state, equal on all ranks, from rank 0, and the version of the weights."""
        self._push()
        state: StateDict = {"weights_version": self.weights_version}
        if self._check_component(COMPONENT_LEARNER, components, not_components):
            state[COMPONENT_LEARNER] = api.get(self._learners[0].get_state.remote())
        return state

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        self.weights_version = state.get("weights_version", self.weights_version)
        if COMPONENT_LEARNER in state:
            self._all("set_state", api.put(state[COMPONENT_LEARNER]))
        self._local_version = -1

    def get_checkpointable_components(self) -> Components:
        """Return the learner of this process with the state of the remote ones."""
        self._push()
        self._learner.set_state(api.get(self._learners[0].get_state.remote()))
        self._was_handed_out = True
        return [(COMPONENT_LEARNER, self._learner)]

    def _push(self) -> None:
        """Send the state of the local learner to the others, for example after a restore."""
        if self._was_handed_out:
            self._was_handed_out = False
            self._all("set_state", api.put(self._learner.get_state()))
            self._local_version = -1

    def shutdown(self) -> None:
        """Stop the learners."""
        for learner in self._learners:
            api.kill(learner)
        self._learners = []


def make_learner_group(*, config: AlgorithmConfig, module_spec: MultiRLModuleSpec) -> LearnerGroup:
    """Create the learners of a configuration, in this process or in others."""
    if config.num_remote_learners:
        return RemoteLearnerGroup(config=config, module_spec=module_spec)
    return LearnerGroup(config=config, module_spec=module_spec)


def _joined(shares: list[np.ndarray], rows: int) -> np.ndarray:
    """Combine the errors of the learners' shares to those of all rows."""
    whole = len(shares[0]) == rows  # a batch that is too small to divide
    return shares[0] if whole else np.concatenate(shares)


def _call(method: str, options: dict[str, object]) -> Callable[[LearnerType], object]:
    return lambda learner: getattr(learner, method)(**options)


def _get_weights(learner: LearnerType) -> Any:
    return learner.get_weights()


def _set_weights(learner: LearnerType, weights: dict[str, StateDict]) -> None:
    for module_id, state in weights.items():
        learner.module[module_id].set_state(state)
