"""`TorchTrainer`: workers that train one epoch for each call, and survive the death of any of
them.
"""

from __future__ import annotations

import importlib
import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch

from syncline.core import api
from syncline.optional import require
from syncline.train.config import ScalingConfig
from syncline.train.errors import TrainingFailedError
from syncline.train.torch_backend import TorchConfig
from syncline.util.sgd.torch.constants import NCCL_TIMEOUT_S, VALID_SCHEDULER_STEP
from syncline.util.sgd.torch.results import reduced
from syncline.util.sgd.torch.runner import Plan, Snapshot
from syncline.util.sgd.torch.training_operator import OperatorOptions, TrainingOperator
from syncline.util.sgd.torch.workers import LocalWorkers, RemoteWorkers, WorkerDied, Workers

logger = logging.getLogger("syncline")

RETRIES = 3
"""How often what is no epoch, such as a validation, is tried again when workers die."""


class TorchTrainer:
    """Trains the models of a `TrainingOperator` on several workers, an epoch for each call of
    `train`.

    The operator is given as a class, or made from creators. After every epoch the trainer keeps the
    workers' state; when a worker dies, all are started again from there, and what was under way is
    done once more, on the same samples with the same random numbers.

    Args:
        training_operator_cls: A `TrainingOperator` subclass; or else the creators.
        model_creator, data_creator, optimizer_creator, loss_creator, scheduler_creator: As in
            `TrainingOperator.register_creators`.
        serialize_data_creation: The workers of a machine call `data_creator` one after another.
        initialization_hook: Called without arguments on every worker, before its operator is made.
        config: The operator's `config`, and what creators get.
        num_workers: How many workers there are.
        num_cpus_per_worker: CPUs of each.
        use_gpu: Whether each has a GPU too; "auto": if this process sees one.
        backend: "nccl", "gloo", or "auto": NCCL with GPUs.
        wrap_ddp: Whether registered models are wrapped in `DistributedDataParallel`.
        timeout_s: Seconds that a collective operation may take.
        use_fp16: Mixed precision: float16 on GPUs, bfloat16 on CPUs.
        use_tqdm: Show a progress bar of rank 0's epochs.
        add_dist_sampler: Every rank reads its share of registered loaders; False: each reads all.
        scheduler_step_freq: When registered schedulers step: "batch", "epoch", or "manual" for
            `update_scheduler`.
        use_local: A single worker runs in this process. Of several none does.

    Raises:
        ValueError, TypeError: Arguments that cannot be meant; resources that there are not.
        ImportError: `use_tqdm` without tqdm.
        TrainingFailedError: Workers died while they started.
    """

    def __init__(
        self,
        *,
        training_operator_cls: type[TrainingOperator] | None = None,
        model_creator: Callable[..., Any] | None = None,
        data_creator: Callable[..., Any] | None = None,
        optimizer_creator: Callable[..., Any] | None = None,
        loss_creator: Callable[..., Any] | None = None,
        scheduler_creator: Callable[..., Any] | None = None,
        serialize_data_creation: bool = False,
        initialization_hook: Callable[[], Any] | None = None,
        config: Mapping[str, Any] | None = None,
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
                f"`scheduler_step_freq={scheduler_step_freq!r}` is not one of {', '.join(sorted(VALID_SCHEDULER_STEP))}."
            )
        if use_fp16 not in (True, False):
            raise ValueError(
                f"`use_fp16={use_fp16!r}` must be True or False: mixed precision is that of `torch.amp`."
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
        self._kept: list[Snapshot] | None = (
            None  # where the workers begin when they are started again; None: with a new operator
        )
        self._is_current = True  # nothing has changed since then
        self._is_shut_down = False
        self._finalizer = weakref.finalize(self, _give_back, self._workers)
        self._finalizer.atexit = False
        try:
            self._persistently(RETRIES, "the set-up", lambda: None)
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
        info: Mapping[str, Any] | None = None,
        dataset: Any = None,
    ) -> Any:
        """Train an epoch on every worker.

        Args:
            num_steps: End it after so many batches on each worker; the next epoch goes on where
                this one ends, over the loader's end.
            profile: Add `profile`, a dict of rank 0's times: `mean_train_epoch_s`.
            reduce_results: False returns a list with every rank's own result.
            max_retries: How often the epoch is run again from its beginning when workers die. 0
                also saves keeping the state.
            info: For the operator's `train_epoch` and `train_batch`.
            dataset: A `syncline.data.Dataset` to train on instead of the registered loader: batches
                of `config["batch_size"]` rows (32 without), a tensor for each column, the last
                column being the target. Rows that do not divide among the workers are dropped.

        Returns:
            A dict: `epoch` (number of epochs so far), `num_samples` (samples of all workers; the
            end of a share that is filled up counts), `batch_count` (batches of a worker),
            `train_loss` (mean over samples), `last_train_loss` (mean of the workers' last batches),
            and `x` and `last_x` for every metric `x` that the operator returns: numbers averaged
            over workers, weighted by their samples, everything else as rank 0 has it.

        Raises:
            TrainingFailedError: Workers died more often than allowed. What the operator's code
            raises comes as it is; the next call starts
                workers again from the state after the last epoch.
        """
        if max_retries < 0:
            raise ValueError(f"`max_retries={max_retries}` is negative: give 0 or more.")
        keeps = max_retries > 0 and isinstance(self._workers, RemoteWorkers)
        told = dict(info or {})

        def epoch() -> list[tuple[dict[str, Any], Snapshot | None]]:
            try:
                if dataset is None:
                    return self._workers.run("train_epoch", num_steps, profile, told, keeps)
                return self._workers.run_with_shares(
                    "train_epoch", num_steps, profile, told, keeps, dataset=dataset
                )
            except Exception:
                self._workers.kill()  # also those that are well are in the middle of the epoch
                raise

        outcomes = self._persistently(max_retries, "the epoch", epoch, keeps=keeps)
        snapshots = [snapshot for _, snapshot in outcomes if snapshot is not None]
        self._is_current = bool(snapshots)
        self._kept = snapshots or self._kept
        return _result([result for result, _ in outcomes], reduce_results)

    def validate(
        self,
        num_steps: int | None = None,
        profile: bool = False,
        reduce_results: bool = True,
        info: Mapping[str, Any] | None = None,
    ) -> Any:
        """Validate on the registered validation loader, from its beginning; arguments as those of
        `train`.

        Returns:
            A dict: `num_samples`, `batch_count`, `val_loss`, `val_accuracy` (share of right
            answers, where targets are classes), each with its `last_...`, and what else the
            operator returns; or with `reduce_results=False` a list by rank.
        """
        told = dict(info or {})
        results = self._persistently(
            RETRIES,
            "the validation",
            lambda: self._workers.run("validate", num_steps, profile, told),
            keeps=isinstance(self._workers, RemoteWorkers),
        )
        return _result(results, reduce_results)

    def update_scheduler(self, metric: float | None = None) -> None:
        """Step the registered schedulers on all workers, with `scheduler_step_freq="manual"`;
        `metric` is passed on to them.
        """
        self._once("update_scheduler", metric)

    # -- models and state

    def get_model(self, to_cpu: bool = False) -> Any:
        """The trained model as it was registered; a list of several. From workers in other
        processes a copy, always on the CPU.
        """
        models = self._persistently(RETRIES, "get_model", lambda: self._workers.run_first("models"))
        if to_cpu or isinstance(self._workers, RemoteWorkers):
            models = [deepcopy(model).cpu() for model in models]
        return models[0] if len(models) == 1 else models

    def state_dict(self) -> dict[str, Any]:
        """Epoch, models, optimizers, schedulers and what the operator keeps, with tensors on the
        CPU; a copy.
        """
        return deepcopy(
            self._persistently(RETRIES, "state_dict", lambda: self._workers.run_first("state_dict"))
        )

    def load_state_dict(self, state_dict: Mapping[str, Any], blocking: bool = True) -> None:
        """Load what `state_dict` returned into all workers, however many there are now. It always
        waits (`blocking`).
        """
        self._once("load_state_dict", dict(state_dict))

    def save(self, checkpoint: str) -> str:
        """Write `state_dict` to the file `checkpoint`, and return its path."""
        torch.save(self.state_dict(), checkpoint)
        return checkpoint

    def load(self, checkpoint: str) -> None:
        """Load the file that `save` has written; what it holds besides tensors is unpickled, so
        trust its origin.
        """
        self.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=False))

    # -- workers

    def apply_all_workers(self, fn: Callable[[], Any]) -> list[Any]:
        """Call `fn()` on every worker; results by rank."""
        return self._once("apply", fn)

    def apply_all_operators(self, fn: Callable[[TrainingOperator], Any]) -> list[Any]:
        """Call `fn(operator)` on every worker; results by rank."""
        return self._once("apply_to_operator", fn)

    def get_local_operator(self) -> TrainingOperator:
        """The operator of a trainer whose worker is in this process (`use_local`). RuntimeError if
        it is in another.
        """
        if not isinstance(self._workers, LocalWorkers):
            raise RuntimeError(
                "the operators are in processes of their own: use `apply_all_operators(fn)`, or one worker with `use_local=True`."
            )
        return self._workers.runner.operator

    def shutdown(self, force: bool = False) -> None:
        """End the workers and give back what they hold; with `force` without letting them finish.
        The trainer is of no use afterwards.
        """
        self._is_shut_down = True
        self._kept = None
        self._finalizer.detach()
        self._workers.stop(force=force)

    @classmethod
    def as_trainable(
        cls,
        *,
        override_tune_step: Callable[[TorchTrainer, dict[str, Any]], dict[str, Any]] | None = None,
        **kwargs: Any,
    ) -> type[Any]:
        """A class for `tune.run` and `Tuner`: each trial is a trainer with these arguments, whose
        `config` the trial's overrides.

        A step is an epoch and a validation, and reports the results of both; with
        `override_tune_step` what `override_tune_step(trainer, {"iteration": steps done before})`
        returns. A trial reserves its workers' resources together.
        """
        trainable = importlib.import_module(
            "syncline.util.sgd.torch.trainable"
        )  # stands on tune, which trainers alone do not need
        made: type[Any] = trainable.make_trainable(cls, kwargs, override_tune_step)
        return made

    # -- inside

    def _once(self, method: str, *args: Any) -> list[Any]:
        """Run what may change the workers, and what nobody can say whether it may be repeated."""
        results: list[Any] = self._persistently(
            0, f"`{method}`", lambda: self._workers.run(method, *args)
        )
        self._is_current = False
        return results

    def _persistently(
        self, max_retries: int, what: str, work: Callable[[], Any], *, keeps: bool = False
    ) -> Any:
        """`work()`, on workers that run; up to so many times again, from the kept state, when one
        dies. `keeps`: their state first.
        """
        if self._is_shut_down:
            raise RuntimeError("the trainer has been shut down: make a new one.")
        deaths = 0
        while True:
            try:
                if not self._workers.is_running:
                    self._workers.start(self._kept)
                    self._is_current = True
                if keeps and (self._kept is None or not self._is_current):
                    self._kept, self._is_current = self._workers.run("snapshot"), True
                return work()
            except WorkerDied as death:
                deaths += 1
                described = f"rank {death.rank} died during {what}"
                if deaths > max_retries or not self._is_current:
                    raise TrainingFailedError(
                        self._failure(described, death.cause, deaths)
                    ) from death.cause
                logger.warning(
                    "%s, which is run again %s (%d of %d): %s",
                    described,
                    self._beginning(),
                    deaths,
                    max_retries,
                    death.cause,
                )

    def _beginning(self) -> str:
        state = self._kept[0].state if self._kept else None
        return (
            f"with the state after epoch {state['epoch']}"
            if state and state["epoch"]
            else "with the trainer's first state"
        )

    def _failure(self, described: str, cause: BaseException, deaths: int) -> str:
        often = "" if deaths == 1 else f", tried {deaths} times"
        lost = "" if self._is_current else ", and what was done since then is lost"
        return (
            f"{described}{often}: {cause}\nThe trainer's next call starts new workers {self._beginning()}{lost}; `trainer.train()` runs an "
            "epoch again `max_retries` times by itself."
        )


def _give_back(workers: Workers) -> None:
    """What a trainer holds that the program has dropped; from another thread, as this one may hold
    any lock.
    """
    if api.is_initialized():
        threading.Thread(target=workers.stop, kwargs={"force": True}, daemon=True).start()


def scaling_of(
    *,
    num_workers: int = 1,
    num_cpus_per_worker: float = 1,
    use_gpu: bool | str = "auto",
    **_other: Any,
) -> ScalingConfig:
    """What the workers of a trainer with these arguments hold. ValueError where that cannot be."""
    if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 1:
        raise ValueError(f"`num_workers={num_workers!r}` must be 1 or more.")
    if use_gpu not in (True, False, "auto"):
        raise ValueError(f"`use_gpu={use_gpu!r}` must be True, False or 'auto'.")
    uses_gpu = torch.cuda.is_available() if use_gpu == "auto" else bool(use_gpu)
    resources = {"CPU": num_cpus_per_worker, **({"GPU": 1} if uses_gpu else {})}
    return ScalingConfig(num_workers=num_workers, use_gpu=uses_gpu, resources_per_worker=resources)


def _operator_cls(
    given: Any, creators: Mapping[str, Any], serialize_data_creation: bool
) -> type[TrainingOperator]:
    if given is None:
        if creators["model_creator"] is None or creators["optimizer_creator"] is None:
            raise ValueError(
                "TorchTrainer needs `training_operator_cls`, or else `model_creator` and `optimizer_creator`."
            )
        return TrainingOperator.from_creators(
            **creators, serialize_data_creation=serialize_data_creation
        )
    if not isinstance(given, type) or not issubclass(given, TrainingOperator):
        raise TypeError(
            f"`training_operator_cls={given!r}` is no subclass of TrainingOperator: give the class itself."
        )
    also = [name for name, creator in creators.items() if creator is not None]
    if also:
        raise ValueError(
            f"`training_operator_cls` and {', '.join(also)} exclude each other: call creators in the operator's `setup`."
        )
    return given


def _runs_here(num_workers: int, use_local: bool) -> bool:
    is_inline = api.ensure_engine().is_local_mode
    if is_inline and num_workers > 1:
        raise ValueError(
            f"`num_workers={num_workers}` needs {num_workers} processes, but `syncline.init(local_mode=True)` has this one only: set "
            "`num_workers=1`, or leave `local_mode` out."
        )
    return is_inline or (use_local and num_workers == 1)


def _result(results: Sequence[dict[str, Any]], reduce_results: bool) -> Any:
    return reduced(results) if reduce_results else list(results)
