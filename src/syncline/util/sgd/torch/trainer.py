"""`TorchTrainer`: workers that train one epoch per call and survive the death of any of them."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch

from syncline.core import api
from syncline.optional import require
from syncline.train.errors import TrainingFailedError
from syncline.train.torch_backend import TorchConfig
from syncline.util.sgd.torch.constants import NCCL_TIMEOUT_S, VALID_SCHEDULER_STEP
from syncline.util.sgd.torch.results import reduced
from syncline.util.sgd.torch.runner import Plan, Snapshot
from syncline.util.sgd.torch.training_operator import OperatorOptions, TrainingOperator
from syncline.util.sgd.torch.value_types import Creator, Info, Metrics, StateDict
from syncline.util.sgd.torch.workers import (
    LocalWorkers,
    RemoteWorkers,
    WorkerDied,
    Workers,
    scaling_of,
)

logger = logging.getLogger("syncline")

RETRIES = 3
"""Retries of calls other than an epoch, such as a validation, when workers die."""


class TorchTrainer:
    """Trains the models of a `TrainingOperator` on several workers, one epoch per call of `train`.

    Pass an operator class, or creators. After every epoch the trainer keeps the state of the
    workers. When a worker dies, all workers restart from that state and repeat the interrupted call
    on the same samples with the same random numbers.
    Args:
        training_operator_cls: A `TrainingOperator` subclass; alternatively pass the creators.
        model_creator, data_creator, optimizer_creator, loss_creator, scheduler_creator: As in
            `TrainingOperator.register_creators`.
        serialize_data_creation: Call `data_creator` on one worker per machine at a time.
        initialization_hook: Function to call on every worker before its operator is created.
        config: Configuration for the operator and the creators.
        num_workers: Number of workers.
        num_cpus_per_worker: CPUs of each worker.
        use_gpu: Reserve a GPU for each worker; "auto" does so if this process sees one.
        backend: "nccl", "gloo", or "auto": NCCL with GPUs.
        wrap_ddp: Wrap registered models in `DistributedDataParallel`.
        timeout_s: Seconds that a collective operation may take.
        use_fp16: Mixed precision: float16 on GPUs, bfloat16 on CPUs.
        use_tqdm: Show a progress bar of rank 0's epochs.
        add_dist_sampler: Shard registered loaders over the ranks; if False, each rank reads all.
        scheduler_step_freq: When registered schedulers step: "batch", "epoch", or "manual" for
            `update_scheduler`.
        use_local: Run a single worker in this process; no effect with several workers.

    Raises:
        ValueError, TypeError: An argument is invalid, or the resources do not exist.
        ImportError: `use_tqdm` without tqdm.
        TrainingFailedError: Workers died while they started.
    """

    def __init__(
        self,
        *,
        training_operator_cls: type[TrainingOperator] | None = None,
        model_creator: Creator | None = None,
        data_creator: Creator | None = None,
        optimizer_creator: Creator | None = None,
        loss_creator: Creator | None = None,
        scheduler_creator: Creator | None = None,
        serialize_data_creation: bool = False,
        initialization_hook: Callable[[], object] | None = None,
        config: Mapping[str, object] | None = None,
        num_workers: int = 1,
        num_cpus_per_worker: float = 1,
        use_gpu: bool | str = "auto",
        backend: str = "auto",
        wrap_ddp: bool = True,
        timeout_s: float = NCCL_TIMEOUT_S,
        use_fp16: bool = False,
        use_tqdm: bool = False,
        add_dist_sampler: bool = True,
        scheduler_step_freq: str | None = None,
        use_local: bool = False,
    ) -> None:
        if scheduler_step_freq is not None and scheduler_step_freq not in VALID_SCHEDULER_STEP:
            raise ValueError(
                f"`scheduler_step_freq={scheduler_step_freq!r}` is unknown: use one of "
                f"{', '.join(sorted(VALID_SCHEDULER_STEP))}."
            )
        if use_fp16 not in (True, False):
            raise ValueError(
                f"`use_fp16={use_fp16!r}` must be True or False; mixed precision is `torch.amp`."
            )
        if use_tqdm:
            require("tqdm", purpose="`use_tqdm=True`", install="tqdm")
        creators = {
            "model_creator": model_creator,
            "optimizer_creator": optimizer_creator,
            "data_creator": data_creator,
            "loss_creator": loss_creator,
            "scheduler_creator": scheduler_creator,
        }
        plan = Plan(
            operator_cls=_operator_cls(training_operator_cls, creators, serialize_data_creation),
            config=dict(config or {}),
            options=OperatorOptions(
                use_fp16=use_fp16,
                use_tqdm=use_tqdm,
                wrap_ddp=wrap_ddp,
                add_dist_sampler=add_dist_sampler,
                scheduler_step_freq=scheduler_step_freq,
            ),
            initialization_hook=initialization_hook,
        )
        scaling = scaling_of(
            num_workers=num_workers, num_cpus_per_worker=num_cpus_per_worker, use_gpu=use_gpu
        )
        self._workers: Workers
        if _runs_here(num_workers, use_local):
            self._workers = LocalWorkers(plan, use_gpu=scaling.use_gpu)
        else:
            torch_config = TorchConfig(
                backend=None if backend == "auto" else backend, timeout_s=timeout_s
            )
            self._workers = RemoteWorkers(plan, scaling=scaling, torch_config=torch_config)
        self._snapshots: list[Snapshot] | None = None
        """States to restart the workers from; None: with a new operator."""
        self._is_current = True
        """False if the workers changed since the snapshots were taken."""
        self._is_shut_down = False
        self._finalizer = weakref.finalize(self, _stop_workers, self._workers)
        self._finalizer.atexit = False
        try:
            self._run_with_retries(RETRIES, "the setup", lambda: None)
        except BaseException:
            self.shutdown(force=True)
            raise

    # -- epochs

    def train(
        self,
        num_steps: int | None = None,
        profile: bool = False,
        reduce_results: bool = True,
        max_retries: int = 3,
        info: Mapping[str, object] | None = None,
        dataset: object = None,
    ) -> Any:
        """Train one epoch on every worker.

        Args:
            num_steps: Number of batches per worker after which the epoch ends; the next epoch
                continues there, across the end of the loader.
            profile: Add `profile`, a dict of rank 0's times: `mean_train_epoch_s`.
            reduce_results: If False, return a list with the result of each rank.
            max_retries: Number of times to repeat the epoch from its start when workers die. 0
                also avoids the cost of keeping the state.
            info: Values for the operator's `train_epoch` and `train_batch`.
            dataset: A `syncline.data.Dataset` to train on instead of the registered loader: batches
                of `config["batch_size"]` rows (default 32), one tensor per column, the last column
                being the target. Rows that do not divide among the workers are dropped.

        Returns:
            A dict: `epoch` (number of epochs so far), `num_samples` (samples of all workers,
            including the padding of uneven shards), `batch_count` (batches of a worker),
            `train_loss` (mean over samples), `last_train_loss` (mean of the workers' last batches),
            and `x` and `last_x` for every metric `x` of the operator: numbers are averaged over
            workers, weighted by their samples; other values are those of rank 0.

        Raises:
            TrainingFailedError: Workers died more often than allowed.
            Exception: An error of the operator's code is raised unchanged. The next call starts
                workers from the state after the last epoch.
        """
        if max_retries < 0:
            raise ValueError(f"`max_retries={max_retries}` is negative: give 0 or more.")
        keeps = max_retries > 0 and isinstance(self._workers, RemoteWorkers)
        values = dict(info or {})

        def epoch() -> list[tuple[Metrics, Snapshot | None]]:
            try:
                if dataset is None:
                    return self._workers.run("train_epoch", num_steps, profile, values, keeps)
                return self._workers.run_with_shards(
                    "train_epoch", num_steps, profile, values, keeps, dataset=dataset
                )
            except Exception:
                self._workers.kill()  # healthy workers are in the middle of the epoch too
                raise

        outcomes = self._run_with_retries(max_retries, "the epoch", epoch, keeps=keeps)
        snapshots = [snapshot for _, snapshot in outcomes if snapshot is not None]
        self._is_current = bool(snapshots)
        self._snapshots = snapshots or self._snapshots
        return _result([result for result, _ in outcomes], reduce_results)

    def validate(
        self,
        num_steps: int | None = None,
        profile: bool = False,
        reduce_results: bool = True,
        info: Mapping[str, object] | None = None,
    ) -> Any:
        """Validate on the registered validation loader, from its start; arguments as in `train`.

        Returns:
            A dict: `num_samples`, `batch_count`, `val_loss`, `val_accuracy` (share of correct
            predictions if targets are classes), each with its `last_...`, and other metrics of the
            operator; with `reduce_results=False` a list by rank.
        """
        values = dict(info or {})
        results = self._run_with_retries(
            RETRIES,
            "the validation",
            lambda: self._workers.run("validate", num_steps, profile, values),
            keeps=isinstance(self._workers, RemoteWorkers),
        )
        return _result(results, reduce_results)

    def update_scheduler(self, metric: float | None = None) -> None:
        """Step the registered schedulers on all workers, for `scheduler_step_freq="manual"`.

        `metric` is passed on to `scheduler.step`.
        """
        self._once("update_scheduler", metric)

    # -- models and state

    def get_model(self, to_cpu: bool = False) -> Any:
        """Return the trained model as it was registered; a list if there are several.

        Models from other processes are copies on the CPU.
        """
        models = self._run_with_retries(
            RETRIES, "get_model", lambda: self._workers.run_first("models")
        )
        if to_cpu or isinstance(self._workers, RemoteWorkers):
            models = [deepcopy(model).cpu() for model in models]
        return models[0] if len(models) == 1 else models

    def state_dict(self) -> StateDict:
        """Return a copy of epoch, models, optimizers, schedulers and operator state, on the CPU."""
        state = self._run_with_retries(
            RETRIES, "state_dict", lambda: self._workers.run_first("state_dict")
        )
        return deepcopy(state)

    def load_state_dict(self, state_dict: Mapping[str, object], blocking: bool = True) -> None:
        """Load the result of `state_dict` into all workers, independent of their number.

        Always waits, so `blocking` has no effect.
        """
        self._once("load_state_dict", dict(state_dict))

    def save(self, checkpoint: str) -> str:
        """Write `state_dict` to the file `checkpoint` and return its path."""
        torch.save(self.state_dict(), checkpoint)
        return checkpoint

    def load(self, checkpoint: str) -> None:
        """Load a file written by `save`. It is unpickled, so load only files that you trust."""
        self.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=False))

    # -- workers

    def apply_all_workers(self, fn: Callable[[], object]) -> list[Any]:
        """Call `fn()` on every worker; return the results by rank."""
        return self._once("apply", fn)

    def apply_all_operators(self, fn: Callable[[TrainingOperator], object]) -> list[Any]:
        """Call `fn(operator)` on every worker; return the results by rank."""
        return self._once("apply_to_operator", fn)

    def get_local_operator(self) -> TrainingOperator:
        """Return the operator of a worker in this process (`use_local`).

        Raises:
            RuntimeError: The workers are in other processes.
        """
        if not isinstance(self._workers, LocalWorkers):
            raise RuntimeError(
                "The operators are in other processes: use `apply_all_operators(fn)`, or one "
                "worker with `use_local=True`."
            )
        return self._workers.runner.operator

    def shutdown(self, force: bool = False) -> None:
        """End the workers and release their resources; with `force`, without letting them finish.

        The trainer cannot be used afterwards.
        """
        self._is_shut_down = True
        self._snapshots = None
        self._finalizer.detach()
        self._workers.stop(force=force)

    @classmethod
    def as_trainable(
        cls,
        *,
        override_tune_step: Callable[[TorchTrainer, Info], Metrics] | None = None,
        **kwargs: object,
    ) -> type[Any]:
        """Return a class for `tune.run` and `Tuner` whose trials train with these arguments.

        The configuration of a trial overrides `config`. A step reports the results of an epoch and
        a validation, or of `override_tune_step(trainer, {"iteration": steps done before})`. A trial
        reserves the resources of its workers together.
        """
        # Imported on demand: it loads `syncline.tune`, which trainers alone do not need.
        from syncline.util.sgd.torch.trainable import make_trainable

        return make_trainable(cls, kwargs, override_tune_step)

    # -- inside

    def _once(self, method: str, *args: object) -> list[Any]:
        """Run a method that may change the workers and must not be repeated."""
        results: list[Any] = self._run_with_retries(
            0, f"`{method}`", lambda: self._workers.run(method, *args)
        )
        self._is_current = False
        return results

    def _run_with_retries(
        self, max_retries: int, what: str, work: Callable[[], object], *, keeps: bool = False
    ) -> Any:
        """Call `work()` on running workers, and repeat it from the snapshots when a worker dies.

        With `keeps`, take snapshots first.
        """
        if self._is_shut_down:
            raise RuntimeError("The trainer was shut down: create a new one.")
        deaths = 0
        while True:
            try:
                if not self._workers.is_running:
                    self._workers.start(self._snapshots)
                    self._is_current = True
                if keeps and (self._snapshots is None or not self._is_current):
                    self._snapshots, self._is_current = self._workers.run("snapshot"), True
                return work()
            except WorkerDied as death:
                deaths += 1
                description = f"Rank {death.rank} died during {what}"
                if deaths > max_retries or not self._is_current:
                    raise TrainingFailedError(
                        self._failure(description, death.cause, deaths)
                    ) from death.cause
                logger.warning(
                    "%s, which is repeated %s (%d of %d): %s",
                    description,
                    self._starting_point(),
                    deaths,
                    max_retries,
                    death.cause,
                )

    def _starting_point(self) -> str:
        state = self._snapshots[0].state if self._snapshots else None
        return (
            f"with the state after epoch {state['epoch']}"
            if state and state["epoch"]
            else "with the trainer's initial state"
        )

    def _failure(self, description: str, cause: BaseException, deaths: int) -> str:
        tries = "" if deaths == 1 else f", tried {deaths} times"
        lost = "" if self._is_current else ", and later changes are lost"
        return (
            f"{description}{tries}: {cause}\nThe next call of the trainer starts new workers "
            f"{self._starting_point()}{lost}. `trainer.train(max_retries=…)` repeats an epoch."
        )


def _stop_workers(workers: Workers) -> None:
    """Stop the workers of a dropped trainer, in another thread because this one may hold a lock."""
    if api.is_initialized():
        threading.Thread(target=workers.stop, kwargs={"force": True}, daemon=True).start()


def _operator_cls(
    given: object, creators: Mapping[str, Any], serialize_data_creation: bool
) -> type[TrainingOperator]:
    if given is None:
        if creators["model_creator"] is None or creators["optimizer_creator"] is None:
            raise ValueError(
                "TorchTrainer needs `training_operator_cls`, or `model_creator` and "
                "`optimizer_creator`."
            )
        return TrainingOperator.from_creators(
            **creators, serialize_data_creation=serialize_data_creation
        )
    if not isinstance(given, type) or not issubclass(given, TrainingOperator):
        raise TypeError(
            f"`training_operator_cls={given!r}` is not a subclass of TrainingOperator: pass the "
            "class itself."
        )
    also = [name for name, creator in creators.items() if creator is not None]
    if also:
        raise ValueError(
            f"`training_operator_cls` excludes {', '.join(also)}: call the creators in the "
            "operator's `setup`."
        )
    return given


def _runs_here(num_workers: int, use_local: bool) -> bool:
    is_inline = api.ensure_engine().is_local_mode
    if is_inline and num_workers > 1:
        raise ValueError(
            f"`num_workers={num_workers}` needs {num_workers} processes, but "
            "`syncline.init(local_mode=True)` has one: set `num_workers=1`, or omit `local_mode`."
        )
    return is_inline or (use_local and num_workers == 1)


def _result(results: Sequence[Metrics], reduce_results: bool) -> Any:
    return reduced(results) if reduce_results else list(results)
