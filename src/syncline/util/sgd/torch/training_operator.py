"""`TrainingOperator`: models, data and loops of one worker; subclass it, or pass creators.

Covered: registering models, optimizers, losses, schedulers and loaders; the default loops for one
model with batches `(feature, ..., target)`. Not covered: operators from Lightning modules; NVIDIA's
Apex, which `torch.amp` has replaced.
"""

from __future__ import annotations

import fcntl
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

from syncline.core.lifecycle import ensure_engine
from syncline.train.session import get_session
from syncline.train.torch.device import get_device, move_to
from syncline.train.torch.loader import prepare_data_loader
from syncline.train.torch.model import prepare_model
from syncline.util.sgd.torch.constants import (
    SCHEDULER_STEP,
    SCHEDULER_STEP_BATCH,
    SCHEDULER_STEP_EPOCH,
)
from syncline.util.sgd.torch.value_types import Batch, Config, Creator, Info, Metrics, StateDict
from syncline.util.sgd.utils import NUM_SAMPLES, AverageMeterCollection


@dataclass(frozen=True, kw_only=True)
class OperatorOptions:
    """Settings of the trainer for its operators."""

    use_fp16: bool = False
    """Compute in mixed precision."""
    use_tqdm: bool = False
    """Show a progress bar on rank 0."""
    wrap_ddp: bool = True
    """Wrap registered models in `DistributedDataParallel`."""
    add_dist_sampler: bool = True
    """Shard registered loaders over the ranks; otherwise each rank reads all."""
    scheduler_step_freq: str | None = None
    """When schedulers step: "batch", "epoch" or "manual"."""


class TrainingOperator:
    """Models, data and loops of one worker; created on every worker.

    A subclass registers its models and loaders in `setup`, and may override the methods below it.
    `register` and `register_data` set `model`, `optimizer`, `criterion`, `scheduler`,
    `train_loader` and `validation_loader`, which the default loops use.
    """

    model: Any = None
    optimizer: Any = None
    criterion: Any = None
    scheduler: Any = None
    train_loader: Any = None
    validation_loader: Any = None

    def __init__(self, config: Mapping[str, object], options: OperatorOptions) -> None:
        session = get_session("TrainingOperator")
        self._config = dict(config)
        self._options = options
        self._device = get_device()
        self._world_rank = session.world_rank
        self._local_rank = session.local_rank
        self._world_size = session.world_size
        self.models: list[nn.Module] = []
        """The registered models, wrapped."""
        self.optimizers: list[Any] = []
        self.schedulers: list[Any] = []
        self.global_step = 0
        """Number of batches that `train_epoch` has trained so far."""
        # float16 underflows without scaling. On CPUs autocast uses bfloat16, which has the range of
        # float32.
        self.scaler = torch.amp.GradScaler(
            self._device.type, enabled=options.use_fp16 and self._device.type == "cuda"
        )
        """Gradient scaler for mixed precision; passes losses on unchanged otherwise."""
        self.setup(self._config)

    # -- for subclasses

    def setup(self, config: dict[str, Any]) -> None:
        """Create models, optimizers and loaders, and call `register` and `register_data`."""
        raise NotImplementedError(
            f"{type(self).__name__} has no `setup(config)`: define it, and call "
            "`self.register(...)` there."
        )

    def register(
        self,
        *,
        models: nn.Module | Sequence[nn.Module],
        optimizers: object,
        criterion: object = None,
        schedulers: object = None,
        ddp_args: Mapping[str, object] | None = None,
        apex_args: Mapping[str, object] | None = None,
    ) -> Any:
        """Move models to the worker's device, make them parallel, and add all to checkpoints.

        Args:
            models: One model or several. With several, override `train_batch` and `validate_batch`,
                or the loops.
            optimizers: One optimizer or several.
            criterion: The loss function.
            schedulers: One learning-rate scheduler or several; the trainer needs
                `scheduler_step_freq` then.
            ddp_args: Arguments of `DistributedDataParallel`.
            apex_args: Ignored.

        Returns:
            `(models, optimizers)`, then `criterion` and `schedulers` if given. Arguments given as
            lists are returned as lists.

        Raises:
            TypeError: A model is not a module.
            ValueError: `schedulers` are given, but the trainer has no `scheduler_step_freq`.
        """
        if schedulers is not None and self._options.scheduler_step_freq is None:
            raise ValueError(
                "A scheduler is registered, but the trainer has no `scheduler_step_freq`: pass "
                "'batch', 'epoch' or 'manual' to TorchTrainer."
            )
        strategy = "ddp" if self._options.wrap_ddp else None
        self.models = [
            prepare_model(model, parallel_strategy=strategy, parallel_strategy_kwargs=ddp_args)  # type: ignore[arg-type]
            for model in _listed(models)
        ]
        self.optimizers, self.schedulers = _listed(optimizers), _listed(schedulers)
        self.model, self.optimizer, self.scheduler = (
            _only(self.models),
            _only(self.optimizers),
            _only(self.schedulers),
        )
        self.criterion = (
            criterion.to(self._device) if isinstance(criterion, nn.Module) else criterion
        )
        registered = [self.models if isinstance(models, (list, tuple)) else self.model, optimizers]
        registered += [] if criterion is None else [self.criterion]
        registered += [] if schedulers is None else [schedulers]
        return tuple(registered)

    def register_data(
        self, *, train_loader: object = None, validation_loader: object = None
    ) -> None:
        """Register the loaders. A `DataLoader` is sharded; other iterables are used unchanged."""
        self.train_loader = self._prepared(train_loader)
        self.validation_loader = self._prepared(validation_loader)

    def register_creators(
        self,
        *,
        model_creator: Creator,
        optimizer_creator: Creator,
        data_creator: Creator | None = None,
        loss_creator: Creator | None = None,
        scheduler_creator: Creator | None = None,
        serialize_data_creation: bool = False,
    ) -> None:
        """Call the creators and register their results.

        Args:
            model_creator: `(config)` to a model, or several.
            optimizer_creator: `(models, config)` to an optimizer, or several.
            data_creator: `(config)` to a training loader, or to `(training loader, validation
                loader)`.
            loss_creator: A module class, such as `nn.MSELoss`, or `(config)` to a loss function.
            scheduler_creator: `(optimizers, config)` to a scheduler, or several.
            serialize_data_creation: Call `data_creator` on one worker per machine at a time, for
                example because it downloads data.
        """
        config = self._config
        models = model_creator(config)
        optimizers = optimizer_creator(models, config)
        is_class = inspect.isclass(loss_creator) and issubclass(loss_creator, nn.Module)
        criterion = (
            None if loss_creator is None else loss_creator() if is_class else loss_creator(config)
        )
        schedulers = None if scheduler_creator is None else scheduler_creator(optimizers, config)
        self.register(
            models=models, optimizers=optimizers, criterion=criterion, schedulers=schedulers
        )
        if data_creator is None:
            return
        with _one_at_a_time() if serialize_data_creation else nullcontext():
            loaders = data_creator(config)
        train_loader, validation_loader = (
            loaders if isinstance(loaders, (tuple, list)) else (loaders, None)
        )
        self.register_data(train_loader=train_loader, validation_loader=validation_loader)

    @classmethod
    def from_creators(
        cls,
        model_creator: Creator,
        optimizer_creator: Creator,
        data_creator: Creator | None = None,
        loss_creator: Creator | None = None,
        scheduler_creator: Creator | None = None,
        serialize_data_creation: bool = False,
    ) -> type[CreatorOperator]:
        """Return an operator class whose `setup` passes these functions to `register_creators`.

        Raises:
            TypeError: A creator is not callable.
        """
        creators = {
            "model_creator": model_creator,
            "optimizer_creator": optimizer_creator,
            "data_creator": data_creator,
            "loss_creator": loss_creator,
            "scheduler_creator": scheduler_creator,
        }
        for name, creator in creators.items():
            is_required = name in ("model_creator", "optimizer_creator")
            if not callable(creator) and (creator is not None or is_required):
                raise TypeError(f"`{name}={creator!r}` is not callable: pass a function.")
        arguments = {**creators, "serialize_data_creation": serialize_data_creation}
        # No module contains the class, so it is pickled by value.
        return type("CustomCreatorOperator", (CreatorOperator,), {"arguments": arguments})

    def should_wrap_dataloader(self, loader: Any) -> bool:
        """Return True if `loader` is sharded: a `DataLoader` without an `IterableDataset`."""
        return isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)

    # -- training

    def train_epoch(self, iterator: Iterable[Batch], info: Info) -> Metrics:
        """Train on every batch of `iterator`.

        Args:
            iterator: Batches.
            info: `num_steps`, `scheduler_step`, `epoch_idx` (index of the epoch, from 0), and the
                `info` of the trainer's `train`.

        Returns:
            `batch_count`, `num_samples`, and for every metric `x` of `train_batch` its mean over
            samples as `x` and its last value as `last_x`.
        """
        meters = AverageMeterCollection()
        show = getattr(iterator, "set_postfix", None)
        for model in self.models:
            model.train()
        for batch_idx, batch in enumerate(iterator):
            metrics = dict(
                self.train_batch(
                    batch, {"batch_idx": batch_idx, "global_step": self.global_step, **info}
                )
            )
            if show is not None and "train_loss" in metrics:
                show({"loss": metrics["train_loss"]}, refresh=False)
            if info.get(SCHEDULER_STEP) == SCHEDULER_STEP_BATCH:
                self._step_schedulers()
            meters.update(metrics, n=metrics.pop(NUM_SAMPLES, 1))
            self.global_step += 1
        if info.get(SCHEDULER_STEP) == SCHEDULER_STEP_EPOCH:
            self._step_schedulers()
        return meters.summary()

    def train_batch(self, batch: Batch, batch_info: Info) -> Metrics:
        """Train one step on one batch, `(feature, ..., target)`.

        Args:
            batch: A batch of the loader.
            batch_info: `info` of the epoch, `batch_idx` (index in the epoch, from 0) and
                `global_step` (batches trained before, over all epochs).

        Returns:
            `train_loss`, and its weight `num_samples`.
        """
        features, target = self._unpacked(batch, "train_batch")
        self.optimizer.zero_grad()
        with self.autocast():
            loss = self.criterion(self.model(*features), target)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return {"train_loss": loss.item(), NUM_SAMPLES: target.size(0)}

    def validate(self, val_iterator: Iterable[Batch], info: Info) -> Metrics:
        """Evaluate every batch of `val_iterator`; return a summary as in `train_epoch`."""
        meters = AverageMeterCollection()
        for model in self.models:
            model.eval()
        with torch.no_grad():
            for batch_idx, batch in enumerate(val_iterator):
                metrics = dict(self.validate_batch(batch, {"batch_idx": batch_idx, **info}))
                meters.update(metrics, n=metrics.pop(NUM_SAMPLES, 1))
        return meters.summary()

    def validate_batch(self, batch: Batch, batch_info: Info) -> Metrics:
        """Evaluate one batch, `(feature, ..., target)`.

        Returns:
            `val_loss`, `num_samples`, and `val_accuracy` from 0 to 1 if targets are classes and
            outputs are class scores.
        """
        features, target = self._unpacked(batch, "validate_batch")
        with self.autocast():
            output = self.model(*features)
            loss = self.criterion(output, target)
        metrics = {"val_loss": loss.item(), NUM_SAMPLES: target.size(0)}
        if isinstance(output, torch.Tensor) and output.ndim > 1 and not target.is_floating_point():
            predicted = output.argmax(1)
            if predicted.shape == target.shape:
                metrics["val_accuracy"] = (predicted == target).float().mean().item()
        return metrics

    # -- checkpoints

    def state_dict(self) -> StateDict:
        """Return additional state for checkpoints, with tensors on the CPU; rank 0's is saved."""
        return {}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`, on every rank."""

    # -- properties

    @property
    def config(self) -> dict[str, Any]:
        """Configuration of the trainer."""
        return self._config

    @property
    def device(self) -> torch.device:
        """Device of this worker's models."""
        return self._device

    @property
    def device_ids(self) -> list[int]:
        """Index of the worker's GPU in a list; empty on a CPU."""
        return [] if self._device.index is None else [self._device.index]

    @property
    def world_rank(self) -> int:
        """World rank of this worker."""
        return self._world_rank

    @property
    def local_rank(self) -> int:
        """Rank of this worker on its machine."""
        return self._local_rank

    @property
    def world_size(self) -> int:
        """Number of workers."""
        return self._world_size

    @property
    def is_distributed(self) -> bool:
        """True if there are several workers."""
        return self._world_size > 1

    @property
    def use_gpu(self) -> bool:
        """True if this worker computes on a GPU."""
        return self._device.type == "cuda"

    @property
    def use_fp16(self) -> bool:
        """True if this worker computes in mixed precision."""
        return self._options.use_fp16

    @property
    def use_tqdm(self) -> bool:
        """True if rank 0 shows a progress bar."""
        return self._options.use_tqdm

    @property
    def scheduler_step_freq(self) -> str | None:
        """When schedulers step."""
        return self._options.scheduler_step_freq

    @property
    def original_models(self) -> list[nn.Module]:
        """Registered models without their DDP wrappers."""
        return [
            model.module if isinstance(model, DistributedDataParallel) else model
            for model in self.models
        ]

    def autocast(self) -> AbstractContextManager[object]:
        """Return a context manager for mixed precision, if the trainer has `use_fp16`."""
        return torch.autocast(self._device.type, enabled=self._options.use_fp16)

    # -- inside

    def _prepared(self, loader: object) -> Any:
        if not isinstance(loader, DataLoader):
            return loader
        share = self._options.add_dist_sampler and self.should_wrap_dataloader(loader)
        return prepare_data_loader(loader, add_dist_sampler=share)

    def _unpacked(self, batch: object, method: str) -> tuple[list[Batch], torch.Tensor]:
        """Return features and target on the device."""
        if self.model is None or self.criterion is None:
            raise RuntimeError(
                f"The default `{method}` needs one model and a criterion, but {len(self.models)} "
                f"models and {'no' if self.criterion is None else 'a'} criterion are registered: "
                "call `self.register(models=..., optimizers=..., criterion=...)` in `setup`, or "
                f"override `{method}` in {type(self).__name__}."
            )
        if not isinstance(batch, (tuple, list)) or len(batch) < 2:
            raise TypeError(
                f"The default `{method}` takes batches (feature, ..., target), but the loader "
                f"yields a {type(batch).__name__}: override `{method}` in a TrainingOperator."
            )
        *features, target = move_to(batch, self._device, non_blocking=True)
        return features, target

    def _step_schedulers(self) -> None:
        for scheduler in self.schedulers:
            scheduler.step()


class CreatorOperator(TrainingOperator):
    """Operator of a trainer with creators; a subclass sets `arguments`."""

    arguments: Config
    """Arguments of `register_creators`."""

    def setup(self, config: dict[str, Any]) -> None:
        """Call the creators."""
        self.register_creators(**self.arguments)


def _listed(given: object) -> list[Any]:
    return [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]


def _only(items: Sequence[object]) -> Any:
    return items[0] if len(items) == 1 else None


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Run a block on one worker of a machine at a time."""
    with open(Path(ensure_engine().session_directory, "sgd-data.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
