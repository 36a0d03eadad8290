"""`RemoteLearner`: the actor around one of several learners.

Each learner gets the whole batch, prepares it like a single learner, and computes the gradients of
its share of every minibatch; the mean of these gradients is the gradient of the whole minibatch. So
all learners have the same weights, random numbers and batch statistics, and take the same steps.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any, cast

from syncline.core.engine import current_engine
from syncline.core.host import interface_of
from syncline.rl.columns.trees import map_tree
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.runners.threads import limited_threads
from syncline.rl.value_types import CallArguments, LearnerType, StateDict, Tree
from syncline.train.backend import GroupPlan
from syncline.train.torch import process_group


class RemoteLearner:
    """Creates a learner in its process and forwards calls to it.

    Args:
        config: The algorithm's options, including a seed.
        module_spec: Specification of the modules.
        rank: Rank of the learner.
    """

    def __init__(self, config: AlgorithmConfig, module_spec: object, rank: int) -> None:
        cpus = config.num_cpus_per_learner
        self._threads = 1 if cpus == "auto" else max(int(cpus), 1)
        self.world_rank = rank
        self.world_size = config.num_learners
        with limited_threads(self._threads):
            self._learner: LearnerType = config.learner_class(
                config=config, module_spec=module_spec
            )
            self._learner.build()
        self._state_before: StateDict | None = None

    def address(self) -> str:
        """Return the address of this machine."""
        return current_engine().node_address()

    def open_rendezvous(self, host: str, timeout_s: float) -> int:
        """Open the store of rank 0 on a free port of this machine; return the port."""
        return process_group.open_rendezvous(host, self.world_size, timeout_s)

    def join(self, plan: GroupPlan) -> None:
        """Join the other learners."""
        interface = None if plan.loopback else interface_of(plan.addresses[self.world_rank])
        for name, value in process_group.default_environment(plan, interface).items():
            os.environ.setdefault(name, value)
        process_group.enter_group(cast("Any", self), plan)
        self._learner.rank, self._learner.num_learners = self.world_rank, self.world_size

    def update(self, method: str, sent: CallArguments) -> Any:
        """Call a training method of the learner; keep the state before the call.

        Args:
            method: Name of the method.
            sent: Its arguments; `batch` may be rows by module id.
        """
        self._state_before = self.get_state()
        args, options = sent
        if options.get("batch") is not None:
            batch = {
                module_id: self._learner.batch_of_rows(rows)
                for module_id, rows in options["batch"].items()
            }
            options = {**options, "batch": batch}
        with limited_threads(self._threads):
            return getattr(self._learner, method)(*args, **options)

    def state_before_update(self) -> StateDict | None:
        """Return the state before the latest update, or None."""
        return self._state_before

    def get_state(self) -> Any:
        """Return a copy of the learner's state."""
        return map_tree(copy.copy, self._learner.get_state())

    def set_state(self, state: Tree) -> None:
        """Set the learner's state."""
        self._learner.set_state(state)

    def apply(self, function: Callable[..., object], *args: object, **kwargs: object) -> Any:
        """Return `function(learner, …)`."""
        return function(self._learner, *args, **kwargs)
