"""`TorchRunner`: one worker's operator, its epochs and its state; and the functions with which a
group's workers are told what to do.

A worker process has one runner. All that it does happens in one thread, because torch keeps much
per thread: the CUDA device, modes.
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

from syncline.optional import load
from syncline.train import random_states
from syncline.train.backend import Worker
from syncline.train.session import get_session, set_session
from syncline.train.torch.device import move_to
from syncline.train.torch.process_group import use_assigned_device
from syncline.util.sgd.torch.constants import NUM_STEPS, SCHEDULER_STEP, USE_FP16
from syncline.util.sgd.torch.passes import Passes, set_epoch
from syncline.util.sgd.torch.session import OperatorSession
from syncline.util.sgd.torch.training_operator import OperatorOptions, TrainingOperator
from syncline.util.sgd.utils import TimerCollection

if TYPE_CHECKING:
    from syncline.data import DataIterator

DATASET_BATCH = 32
"""Rows of a dataset in a batch, where the trainer's `config` has no `batch_size`."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What every worker of a trainer is made of."""

    operator_cls: type[TrainingOperator]
    config: Mapping[str, Any]
    options: OperatorOptions
    initialization_hook: Callable[[], Any] | None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Where one worker was, for one that takes its place."""

    state: dict[str, Any] | None
    """What `TorchRunner.state_dict` returned; None where rank 0's holds for this rank too."""
    loader: Mapping[str, Any]
    """How far it was in its training loader."""
    random: Mapping[str, Any]
    """Its random generators."""


class TorchRunner:
    """One worker. Made, and used, inside the worker's session."""

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
        """The worker's operator."""
        return self._operator

    def train_epoch(
        self,
        num_steps: int | None,
        profile: bool,
        info: Mapping[str, Any],
        keep: bool,
        share: DataIterator | None = None,
    ) -> tuple[dict[str, Any], Snapshot | None]:
        """Train an epoch: its result, and if `keep` where the worker is now."""
        if share is not None:
            batches: Iterable[Any] = islice(self._rows(share), num_steps)
            left = num_steps
        else:
            self._require(self._operator.train_loader, "train", "training loader")
            batches, left = self._passes.batches(num_steps), self._passes.left(num_steps)
        told = {
            "epoch_idx": self._epochs,
            NUM_STEPS: num_steps,
            SCHEDULER_STEP: self._options.scheduler_step_freq,
        }
        with self._timed("train_epoch", profile):
            result = self._operator.train_epoch(
                self._shown(batches, left), {USE_FP16: self._options.use_fp16, **told, **info}
            )
        if num_steps is None:
            self._passes.restart()  # an operator that leaves its loop early has ended the epoch
        self._epochs += 1
        result = {"epoch": self._epochs, **result, **self._profiled(profile)}
        return result, self.snapshot() if keep else None

    def validate(
        self, num_steps: int | None, profile: bool, info: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Validate on the first `num_steps` batches, None for all. Training is the same without:
        its random numbers are its own.
        """
        loader = self._operator.validation_loader
        self._require(loader, "validate", "validation loader")
        set_epoch(loader, self._epochs)
        with self._timed("validation", profile), _randomness_left_alone():
            result = self._operator.validate(
                islice(loader, num_steps), {NUM_STEPS: num_steps, **info}
            )
        return {**result, **self._profiled(profile)}

    def update_scheduler(self, metric: float | None) -> None:
        """Step every scheduler; with a metric, it is given to them."""
        for scheduler in self._operator.schedulers:
            scheduler.step() if metric is None else scheduler.step(metric)

    def models(self) -> list[torch.nn.Module]:
        """The models as they were registered."""
        return self._operator.original_models

    def apply(self, function: Callable[[], Any]) -> Any:
        """Call a function of the program's here."""
        return function()

    def apply_to_operator(self, function: Callable[[TrainingOperator], Any]) -> Any:
        """Call a function of the program's with the operator."""
        return function(self._operator)

    # -- state

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds, tensors on the CPU; they are the live ones where the worker
        computes there.
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
        """Take it back. ValueError if it is of other numbers of models, optimizers or
        schedulers.
        """
        state = deepcopy(
            dict(state)
        )  # optimizers keep the tensors that they load, which may lie where nobody may write
        operator = self._operator
        registered = {
            "models": operator.original_models,
            "optimizers": operator.optimizers,
            "schedulers": operator.schedulers,
        }
        for name, holders in registered.items():
            if len(state[name]) != len(holders):
                raise ValueError(
                    f"the checkpoint has {len(state[name])} {name}, but the operator registers {len(holders)}, so it cannot be loaded: use "
                    "the operator that saved it."
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
        """Where this worker is. Replicas of a model are equal, so only rank 0 keeps the model;
        unless nothing keeps them equal.
        """
        keeps_state = self._operator.world_rank == 0 or not self._options.wrap_ddp
        return Snapshot(
            state=self.state_dict() if keeps_state else None,
            loader=self._passes.state_dict(),
            random=random_states.capture(),
        )

    def restore(self, snapshot: Snapshot, state: Mapping[str, Any]) -> None:
        """Go on at a snapshot, whose state is `state`."""
        self.load_state_dict(state)
        self._passes.load_state_dict(snapshot.loader)
        random_states.restore(snapshot.random)

    # -- inside

    def _require(self, loader: Any, method: str, what: str) -> None:
        if loader is None:
            raise ValueError(
                f"`trainer.{method}()` has no {what}: return one from `data_creator`, or call `self.register_data(...)` in the operator's "
                "`setup`."
            )

    def _timed(self, name: str, profile: bool) -> Any:
        return self._timers.record(name) if profile else nullcontext()

    def _profiled(self, profile: bool) -> dict[str, Any]:
        return {"profile": self._timers.stats()} if profile else {}

    def _shown(self, batches: Iterable[Any], total: int | None) -> Iterable[Any]:
        """With a progress bar, if this is rank 0 and the trainer wants one."""
        if not self._options.use_tqdm or self._operator.world_rank != 0:
            return batches
        tqdm = load("tqdm", purpose="`use_tqdm=True`", install="tqdm").tqdm
        bar: Iterable[Any] = tqdm(
            batches, desc=f"epoch {self._epochs + 1}", total=total, unit="batch"
        )
        return bar

    def _rows(self, share: DataIterator) -> Iterator[tuple[Any, ...]]:
        """Batches of a dataset: the tensors of its columns, the last one being the target; Python's
        floats as models have them.
        """
        size = self._operator.config.get("batch_size", DATASET_BATCH)
        for columns in share.iter_torch_batches(batch_size=size, device=self._operator.device):
            yield tuple(
                each.to(torch.get_default_dtype()) if each.dtype == torch.float64 else each
                for each in columns.values()
            )


@contextmanager
def _randomness_left_alone() -> Iterator[None]:
    """A block that moves no random generator for those after it."""
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
    """Take a place in the group."""
    global _thread
    if visible_gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(visible_gpus)
    set_session(OperatorSession(worker, world_size=world_size, use_gpu=use_gpu))
    _thread = ThreadPoolExecutor(1, thread_name_prefix="syncline-sgd")


def start_runner(plan: Plan, snapshot: Snapshot | None, state: Mapping[str, Any] | None) -> None:
    """Make the operator; let it go on at a snapshot if there is one."""
    _in_thread(_make, plan, snapshot, state)


def call_runner(method: str, *args: Any) -> Any:
    """Call a method of this process's runner."""
    return _in_thread(getattr(_runner, method), *args)


def _make(plan: Plan, snapshot: Snapshot | None, state: Mapping[str, Any] | None) -> None:
    global _runner
    if get_session().gpu_ids:
        use_assigned_device()
    _runner = TorchRunner(plan)
    if snapshot is not None and state is not None:
        _runner.restore(snapshot, state)


def _in_thread(function: Callable[..., Any], *args: Any) -> Any:
    assert _thread is not None, "enter_session comes first"
    return _thread.submit(function, *args).result()
