"""`TorchRunner`: operator, epochs and state of one worker; and the functions that the group calls.

A worker process has one runner. It does all work in one thread, because torch keeps state per
thread, such as the CUDA device.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from syncline.core import random_states
from syncline.optional import load
from syncline.train.backend import Worker
from syncline.train.session import get_session, set_session
from syncline.train.torch.device import move_to
from syncline.train.torch.process_group import use_assigned_device
from syncline.util.sgd.torch.constants import NUM_STEPS, SCHEDULER_STEP, USE_FP16
from syncline.util.sgd.torch.passes import Passes, set_epoch
from syncline.util.sgd.torch.session import OperatorSession
from syncline.util.sgd.torch.training_operator import OperatorOptions, TrainingOperator
from syncline.util.sgd.torch.value_types import Config, Metrics, StateDict
from syncline.util.sgd.utils import TimerCollection

if TYPE_CHECKING:
    from syncline.data import DataIterator

DATASET_BATCH = 32
"""Rows in a batch of a dataset if the trainer's `config` has no `batch_size`."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Arguments for every worker of a trainer."""

    operator_cls: type[TrainingOperator]
    config: Config
    options: OperatorOptions
    initialization_hook: Callable[[], object] | None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """State of one worker, for its replacement."""

    state: StateDict | None
    """Result of `TorchRunner.state_dict`; None if this rank uses rank 0's."""
    loader: Mapping[str, object]
    """Position in its training loader."""
    random: Mapping[str, object]
    """Random-number states."""


class TorchRunner:
    """One worker; created and used inside the worker's session."""

    def __init__(self, plan: Plan) -> None:
        if plan.initialization_hook is not None:
            plan.initialization_hook()
        self._options = plan.options
        self._operator = plan.operator_cls(plan.config, plan.options)
        self._epochs = 0
        self._timers = TimerCollection()
        self._passes = Passes(self._operator.train_loader, lambda: self._epochs)

    @property
    def operator(self) -> TrainingOperator:
        """Operator of this worker."""
        return self._operator

    def train_epoch(
        self,
        num_steps: int | None,
        profile: bool,
        info: Mapping[str, object],
        keep: bool,
        share: DataIterator | None = None,
    ) -> tuple[Metrics, Snapshot | None]:
        """Train an epoch; return its result and, with `keep`, a snapshot."""
        if share is not None:
            batches: Iterable[object] = islice(self._dataset_batches(share), num_steps)
            left = num_steps
        else:
            self._require(self._operator.train_loader, "train", "training loader")
            batches, left = self._passes.batches(num_steps), self._passes.left(num_steps)
        facts = {
            "epoch_idx": self._epochs,
            NUM_STEPS: num_steps,
            SCHEDULER_STEP: self._options.scheduler_step_freq,
        }
        with self._timed("train_epoch", profile):
            result = self._operator.train_epoch(
                self._with_progress(batches, left),
                {USE_FP16: self._options.use_fp16, **facts, **info},
            )
        if num_steps is None:
            self._passes.restart()  # an operator that leaves its loop early has ended the epoch
        self._epochs += 1
        result = {"epoch": self._epochs, **result, **self._profiled(profile)}
        return result, self.snapshot() if keep else None

    def validate(self, num_steps: int | None, profile: bool, info: Mapping[str, object]) -> Metrics:
        """Validate on the first `num_steps` batches, None for all.

        Does not change the random numbers of the training.
        """
        loader = self._operator.validation_loader
        self._require(loader, "validate", "validation loader")
        set_epoch(loader, self._epochs)
        with self._timed("validation", profile), _restored_randomness():
            result = self._operator.validate(
                islice(loader, num_steps), {NUM_STEPS: num_steps, **info}
            )
        return {**result, **self._profiled(profile)}

    def update_scheduler(self, metric: float | None) -> None:
        """Step every scheduler, with `metric` if given."""
        for scheduler in self._operator.schedulers:
            scheduler.step() if metric is None else scheduler.step(metric)

    def models(self) -> list[torch.nn.Module]:
        """Return the models as they were registered."""
        return self._operator.original_models

    def apply(self, function: Callable[[], object]) -> Any:
        """Call a user function in this process."""
        return function()

    def apply_to_operator(self, function: Callable[[TrainingOperator], object]) -> Any:
        """Call a user function with the operator."""
        return function(self._operator)

    # -- state

    def state_dict(self) -> StateDict:
        """Return the state for a checkpoint, with tensors on the CPU.

        On a CPU worker these are the live tensors, not copies.
        """
        operator = self._operator
        tensors = {
            "models": [model.state_dict() for model in operator.original_models],
            "optimizers": [optimizer.state_dict() for optimizer in operator.optimizers],
            "schedulers": [scheduler.state_dict() for scheduler in operator.schedulers],
            "scaler": operator.scaler.state_dict(),
        }
        own = {
            "epoch": self._epochs,
            "global_step": operator.global_step,
            "operator": operator.state_dict(),
        }
        return {**move_to(tensors, torch.device("cpu")), **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state.

        Raises:
            ValueError: It has another number of models, optimizers or schedulers.
        """
        # Optimizers keep the loaded tensors, which may be read-only.
        state = deepcopy(dict(state))
        operator = self._operator
        registered = {
            "models": operator.original_models,
            "optimizers": operator.optimizers,
            "schedulers": operator.schedulers,
        }
        for name, holders in registered.items():
            if len(state[name]) != len(holders):
                raise ValueError(
                    f"The checkpoint has {len(state[name])} {name}, but the operator registers "
                    f"{len(holders)}: use the operator that saved it."
                )
        for name, holders in registered.items():
            for holder, saved in zip(holders, state[name], strict=True):
                holder.load_state_dict(saved)
        if state["scaler"]:  # empty where nothing was scaled
            operator.scaler.load_state_dict(state["scaler"])
        operator.load_state_dict(state["operator"])
        operator.global_step = state["global_step"]
        self._epochs = state["epoch"]
        self._passes.restart()

    def snapshot(self) -> Snapshot:
        """Return the state of this worker.

        Replicas are equal with DDP, so only rank 0 keeps the model then.
        """
        keeps_state = self._operator.world_rank == 0 or not self._options.wrap_ddp
        return Snapshot(
            state=self.state_dict() if keeps_state else None,
            loader=self._passes.state_dict(),
            random=random_states.capture(),
        )

    def restore(self, snapshot: Snapshot, state: Mapping[str, object]) -> None:
        """Resume at a snapshot; `state` is its model state."""
        self.load_state_dict(state)
        self._passes.load_state_dict(snapshot.loader)
        random_states.restore(snapshot.random)

    # -- helpers

    def _require(self, loader: object, method: str, what: str) -> None:
        if loader is None:
            raise ValueError(
                f"`trainer.{method}()` has no {what}: return one from `data_creator`, or call "
                "`self.register_data(...)` in the operator's `setup`."
            )

    def _timed(self, name: str, profile: bool) -> Any:
        return self._timers.record(name) if profile else nullcontext()

    def _profiled(self, profile: bool) -> Metrics:
        return {"profile": self._timers.stats()} if profile else {}

    def _with_progress(self, batches: Iterable[object], total: int | None) -> Iterable[object]:
        """Add a progress bar on rank 0 if the trainer asks for one."""
        if not self._options.use_tqdm or self._operator.world_rank != 0:
            return batches
        tqdm = load("tqdm", purpose="`use_tqdm=True`", install="tqdm").tqdm
        bar: Iterable[object] = tqdm(
            batches, desc=f"epoch {self._epochs + 1}", total=total, unit="batch"
        )
        return bar

    def _dataset_batches(self, share: DataIterator) -> Iterator[tuple[object, ...]]:
        """Yield batches of a dataset as one tensor per column, float64 as the default dtype."""
        size = self._operator.config.get("batch_size", DATASET_BATCH)
        for columns in share.iter_torch_batches(batch_size=size, device=self._operator.device):
            yield tuple(
                each.to(torch.get_default_dtype()) if each.dtype == torch.float64 else each
                for each in columns.values()
            )


@contextmanager
def _restored_randomness() -> Iterator[None]:
    """Run a block and restore all random-number states afterwards."""
    before = random_states.capture()
    try:
        yield
    finally:
        random_states.restore(before)


# -- in the processes of a group

_thread: ThreadPoolExecutor | None = None
_runner: TorchRunner | None = None


def enter_session(
    worker: Worker, world_size: int, use_gpu: bool, visible_gpus: Sequence[str]
) -> None:
    """Set up the session and the thread of this process."""
    global _thread
    if visible_gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(visible_gpus)
    set_session(OperatorSession(worker, world_size=world_size, use_gpu=use_gpu))
    _thread = ThreadPoolExecutor(1, thread_name_prefix="syncline-sgd")


def start_runner(plan: Plan, snapshot: Snapshot | None, state: Mapping[str, object] | None) -> None:
    """Create the operator; restore the snapshot if given."""
    _in_thread(_make, plan, snapshot, state)


def call_runner(method: str, *args: object) -> Any:
    """Call a method of this process's runner."""
    return _in_thread(getattr(_runner, method), *args)


def _make(plan: Plan, snapshot: Snapshot | None, state: Mapping[str, object] | None) -> None:
    global _runner
    if get_session().gpu_ids:
        use_assigned_device()
    _runner = TorchRunner(plan)
    if snapshot is not None and state is not None:
        _runner.restore(snapshot, state)


def _in_thread(function: Callable[..., object], *args: object) -> Any:
    assert _thread is not None, "enter_session must be called first"
    return _thread.submit(function, *args).result()
