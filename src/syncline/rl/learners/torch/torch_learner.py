"""`TorchLearner`: updates the weights of modules.

Covered: conversion of fragments to batches, minibatches, gradients, optimizers, schedules, metrics,
state. Not covered: the losses (subclasses of the algorithms) and several learners (`group`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from syncline.rl.checkpointable import Checkpointable, StateDict
from syncline.rl.columns.fragment import Fragment, concatenate
from syncline.rl.columns.names import Columns
from syncline.rl.columns.sequences import sequences
from syncline.rl.columns.trees import Tree, first_leaf, map_tree
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.module_change import ModuleChange
from syncline.rl.connectors.pipeline import ConnectorPipelineV2
from syncline.rl.learners.torch.learner_connectors import LearnerConnectors
from syncline.rl.learners.torch.optimizers import DEFAULT_OPTIMIZER, Gradients, Optimizers
from syncline.rl.learners.torch.train_batch import (
    Batch,
    TrainBatch,
    as_tensor,
    as_tensors,
    share_of,
)
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.metrics.names import (
    ALL_MODULES,
    COMPONENT_OPTIMIZER,
    COMPONENT_RL_MODULE,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_TRAINED,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
    NUM_MODULE_STEPS_TRAINED,
    NUM_MODULE_STEPS_TRAINED_LIFETIME,
    NUM_TRAINABLE_PARAMETERS,
)
from syncline.rl.modules.rl_module import MultiRLModule, MultiRLModuleSpec, RLModule
from syncline.rl.value_types import (
    CallArguments,
    Components,
    ModuleType,
    OptionMapping,
    OptionSchedule,
    Results,
)

ROWS_AT_ONCE = 8192
"""Rows per pass without gradients."""


class TorchLearner(Checkpointable):
    """Owns modules, optimizers and the update. Subclasses define the loss.

    Override `compute_loss_for_module` and, if needed, `postprocess`,
    `configure_optimizers_for_module`, `postprocess_gradients_for_module`,
    `before_gradient_based_update` and `after_gradient_based_update`. Not thread-safe.

    Args:
        config: The algorithm's options.
        module_spec: Specification of the modules.
        module: Existing modules, if any.
    """

    def __init__(
        self,
        *,
        config: AlgorithmConfig,
        module_spec: MultiRLModuleSpec | None = None,
        module: MultiRLModule | None = None,
    ) -> None:
        self.config = config
        self._module_spec = module_spec
        self._given_module = module
        self.metrics = MetricsLogger()
        self.updates = 0
        """Number of calls of `update`."""
        self.optimizers = Optimizers()
        scaler_class = config._torch_grad_scaler_class
        self._scaler: Any = None if scaler_class is None else scaler_class()
        self._compiled: dict[str, Callable[..., Batch]] = {}
        self._schedulers: dict[
            torch.optim.Optimizer, list[torch.optim.lr_scheduler.LRScheduler]
        ] = {}
        self.rank = 0
        """Rank among the learners of a group."""
        self.num_learners = 1
        """Number of learners in the group; each processes its share of every minibatch."""
        self._device = torch.device("cpu")

    # -- building

    def build(self) -> None:
        """Create modules and optimizers."""
        self._device = self._choose_device()
        with self._seeded(0):
            spec, module = self._module_spec, self._given_module
            if module is None:
                assert spec is not None
                module = spec.build()
        assert isinstance(module, MultiRLModule)
        self._module = module
        for each in module.values():
            self._move(each)
        self.connectors = self._make_connectors()
        self.configure_optimizers()

    def _move(self, module: RLModule) -> None:
        """Move a module to the device; skip rule-based modules, which are not torch modules."""
        network = _network(module)
        if isinstance(network, nn.Module):
            network.to(self._device)

    def _make_connectors(self) -> LearnerConnectors:
        first = next(iter(self._module.values()), None)
        pipeline = self.config.build_learner_connector(
            getattr(first, "observation_space", None),
            getattr(first, "action_space", None),
            self._device,
        )
        return LearnerConnectors(pipeline, self._module, self.metrics)

    @property
    def _learner_connector(self) -> ConnectorPipelineV2:
        """Connectors from episodes to batches; subclasses may add connectors after `build`."""
        return self.connectors.pipeline

    def _choose_device(self) -> torch.device:
        if not self.config.num_gpus_per_learner and not self.config.num_gpus:
            return torch.device("cpu")
        if not torch.cuda.is_available():
            raise RuntimeError(
                f"`num_gpus_per_learner={self.config.num_gpus_per_learner}` needs a GPU, but torch "
                "finds none on this machine. Set `learners(num_gpus_per_learner=0)`, or install a "
                "GPU build of torch."
            )
        return torch.device(
            "cuda", self.config.local_gpu_idx if not self.config.num_learners else 0
        )

    @contextmanager
    def _seeded(self, number: int) -> Iterator[None]:
        """Seed torch within the block, so that its random numbers depend only on the seed and
        `number`.
        """
        if self.config.seed is None:
            yield
            return
        random = torch.default_generator  # torch.manual_seed also captures a stack trace
        before = random.get_state()
        random.manual_seed((self.config.seed << 32) + number)
        try:
            yield
        finally:
            random.set_state(before)

    @property
    def module(self) -> MultiRLModule:
        """The modules, by id."""
        return self._module

    @property
    def device(self) -> torch.device:
        """Device of the modules."""
        return self._device

    @property
    def distributed(self) -> bool:
        """True with several learners."""
        return self.num_learners > 1

    def should_module_be_updated(self, module_id: str, multi_agent_batch: object = None) -> bool:
        """Return True if a module is trained."""
        train = self.config.policies_to_train
        if train is None:
            return True
        if callable(train):
            return bool(train(module_id, multi_agent_batch))
        return module_id in train

    # -- optimizers

    def configure_optimizers(self) -> None:
        """Create the optimizers of all trainable modules."""
        for module_id in self.module:
            if self.should_module_be_updated(module_id):
                self.configure_optimizers_for_module(
                    module_id, self.config.get_config_for_module(module_id)
                )

    def configure_optimizers_for_module(self, module_id: str, config: AlgorithmConfig) -> None:
        """Create the optimizers of a module: by default Adam for all of its parameters."""
        parameters = self.get_parameters(self.module[module_id])
        if parameters:
            self.register_adam(module_id, DEFAULT_OPTIMIZER, parameters, config.lr)

    def register_adam(
        self,
        module_id: str,
        optimizer_name: str,
        params: Sequence[nn.Parameter],
        lr: OptionSchedule | None,
        eps: float = 1e-8,
    ) -> None:
        """Create Adam for parameters of a module, and make them views of one vector."""
        self.optimizers.register_adam(module_id, optimizer_name, params, lr, eps)

    def register_optimizer(
        self,
        *,
        module_id: str = ALL_MODULES,
        optimizer_name: str = DEFAULT_OPTIMIZER,
        optimizer: torch.optim.Optimizer,
        params: Sequence[nn.Parameter],
        lr_or_lr_schedule: OptionSchedule | None = None,
    ) -> None:
        """Register an optimizer of a module, with a learning rate or schedule."""
        self.optimizers.register(module_id, optimizer_name, optimizer, lr_or_lr_schedule)

    def get_optimizer(
        self, module_id: str, optimizer_name: str = DEFAULT_OPTIMIZER
    ) -> torch.optim.Optimizer:
        """Return an optimizer of a module."""
        return self.optimizers.of_module(module_id)[optimizer_name]

    def get_optimizers_for_module(
        self, module_id: str = ALL_MODULES
    ) -> list[tuple[str, torch.optim.Optimizer]]:
        """Return the names and optimizers of a module."""
        return list(self.optimizers.of_module(module_id).items())

    def get_parameters(self, module: RLModule) -> list[nn.Parameter]:
        """Return the parameters of a module."""
        network = _network(module)
        return list(network.parameters()) if isinstance(network, nn.Module) else []

    def get_param_ref(self, param: nn.Parameter) -> nn.Parameter:
        """Return the key of a parameter in dictionaries of gradients: itself."""
        return param

    def filter_param_dict_for_optimizer(
        self, param_dict: Gradients, optimizer: torch.optim.Optimizer
    ) -> Gradients:
        """Return the entries of an optimizer's parameters."""
        return self.optimizers.own_gradients(optimizer, param_dict)

    # -- batches

    def build_batch(self, module_id: str, fragments: Sequence[Fragment]) -> TrainBatch:
        """Return the batch of a module from sampled fragments."""
        config = self.config.get_config_for_module(module_id)
        fragments = concatenate(fragments)
        if self.connectors.make_batches:
            batch = self.connectors.batch(module_id, fragments)
            self.finish_batch(module_id, config, batch)
            return batch
        if self.connectors.exist:
            fragments = [self.connectors.changed(module_id, each) for each in fragments]
        batch = TrainBatch.join([self._batch_of(module_id, config, each) for each in fragments])
        self.finish_batch(module_id, config, batch)
        return batch

    def postprocess(
        self, module_id: str, config: AlgorithmConfig, fragment: Fragment
    ) -> dict[str, Tree]:
        """Return additional columns [T, N, …], such as advantages."""
        return {}

    def finish_batch(self, module_id: str, config: AlgorithmConfig, batch: TrainBatch) -> None:
        """Change the whole batch of a module, for example standardize a column."""

    def _batch_of(self, module_id: str, config: AlgorithmConfig, fragment: Fragment) -> TrainBatch:
        columns = {**fragment.step_columns(), **self.postprocess(module_id, config, fragment)}
        module = self.module[module_id]
        if not module.is_stateful():
            rows = fragment.rows(columns)
            return TrainBatch(columns=as_tensors(rows, self.device), num_rows=fragment.num_steps)
        pieces = sequences(fragment)
        made = as_tensors(
            {name: pieces.column(column) for name, column in columns.items()}, self.device
        )
        states = as_tensors({Columns.STATE_IN: pieces.states(initial_state(module))}, self.device)
        made.update(states)
        made[Columns.LOSS_MASK] = as_tensor(pieces.mask, self.device)
        return TrainBatch(columns=made, num_rows=int(pieces.length.sum()), is_sequence=True)

    def connected_rows(self, module_id: str, rows: dict[str, Tree]) -> dict[str, Tree]:
        """Apply the user-defined connectors to rows of a replay buffer."""
        return self.connectors.changed_rows(module_id, rows) if self.connectors.exist else rows

    def batch_of_rows(self, columns: Mapping[str, Tree]) -> TrainBatch:
        """Convert rows [B, …], such as recorded steps, to a batch."""
        return TrainBatch(
            columns=as_tensors(dict(columns), self.device), num_rows=len(first_leaf(columns))
        )

    def update_on_rows(
        self, columns: Mapping[str, dict[str, Tree]], *, timesteps: Mapping[str, int]
    ) -> dict[str, np.ndarray]:
        """Take one step on rows by module id; return their errors, [B], if there are any.

        Unlike `update`, it returns no metrics; `reduce_metrics` returns them.
        """
        batch = {
            module_id: self.batch_of_rows(self.connected_rows(module_id, rows))
            for module_id, rows in columns.items()
            if module_id in self.module and self.should_module_be_updated(module_id)
        }
        self.run_update(batch=batch, timesteps=timesteps)
        return {}

    def values(self, module_id: str, fragment: Fragment) -> tuple[np.ndarray, np.ndarray]:
        """Return V(s_t) and V(s_{t+1}) of a module's value function, both [T, N], float32.

        V(s_{t+1}) belongs to the same episode, and is 0 after terminal states.
        """
        module = self.module[module_id]
        if module.is_stateful():
            values, following = self._values_of_sequences(module, fragment)
        else:
            values, following = self._values_of_rows(module, fragment)
        following[fragment.terminated] = 0.0
        return values, following

    def _values_of_rows(
        self, module: RLModule, fragment: Fragment
    ) -> tuple[np.ndarray, np.ndarray]:
        length, width = fragment.length, fragment.width
        flat = map_tree(
            lambda obs, final: np.concatenate([obs.reshape(-1, *obs.shape[2:]), final]),
            fragment.obs,
            fragment.final_obs,
        )
        found = self._compute_values(module, {Columns.OBS: flat})
        of_obs = found[: (length + 1) * width].reshape(length + 1, width)
        following = of_obs[1:].copy()
        times, trajectories = fragment.final_at.T
        following[times, trajectories] = found[(length + 1) * width :]
        return of_obs[:-1], following

    def _values_of_sequences(
        self, module: RLModule, fragment: Fragment
    ) -> tuple[np.ndarray, np.ndarray]:
        pieces = sequences(fragment)
        found = self._compute_values(
            module,
            {
                Columns.OBS: pieces.observations(),
                Columns.STATE_IN: pieces.states(initial_state(module)),
            },
        )
        return pieces.scatter(found[:, :-1]), pieces.scatter(found[:, 1:])

    def _compute_values(self, module: RLModule, columns: dict[str, Tree]) -> np.ndarray:
        batch = TrainBatch(columns=as_tensors(columns, self.device), num_rows=0)
        size = batch.size
        compute: Any = module
        with torch.no_grad():
            parts = [
                compute.compute_values(batch.select(slice(start, start + ROWS_AT_ONCE)))
                for start in range(0, size, ROWS_AT_ONCE)
            ]
        found: np.ndarray = torch.cat(parts).float().cpu().numpy()
        return found

    # -- the update

    def update(
        self,
        fragments: Mapping[str, Sequence[Fragment]] | None = None,
        *,
        batch: Mapping[str, TrainBatch] | None = None,
        timesteps: Mapping[str, int] | None = None,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        shuffle_batch_per_epoch: bool = False,
    ) -> Results:
        """Train on fragments or prepared batches; return the metrics since the previous call.

        Args:
            fragments: Sampled fragments by module id.
            batch: Batches by module id.
            timesteps: Lifetime counts for schedules, such as sampled environment steps.
            num_epochs: Passes over the batches.
            minibatch_size: Minibatch size in rows; None for whole batches.
            shuffle_batch_per_epoch: Shuffle rows before each pass.
        """
        self.run_update(
            fragments,
            batch=batch,
            timesteps=timesteps,
            num_epochs=num_epochs,
            minibatch_size=minibatch_size,
            shuffle_batch_per_epoch=shuffle_batch_per_epoch,
        )
        return self.reduce_metrics()

    def reduce_metrics(self) -> Results:
        """Return the metrics since the previous call."""
        return self.metrics.reduce(compile=False)

    def run_update(
        self,
        fragments: Mapping[str, Sequence[Fragment]] | None = None,
        *,
        batch: Mapping[str, TrainBatch] | None = None,
        timesteps: Mapping[str, int] | None = None,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        shuffle_batch_per_epoch: bool = False,
    ) -> None:
        """Train like `update`, without returning metrics."""
        timesteps = dict(timesteps or {})
        step = int(timesteps.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0))
        self.updates += 1
        self.optimizers.bind()
        schedulers = self._all_schedulers() if self.config._torch_lr_scheduler_classes else ()
        with self._seeded(self.updates):
            self.before_gradient_based_update(timesteps=timesteps)
            for key, rate in self.optimizers.set_learning_rates(step):
                self.metrics.log_value(key, rate, window=1)
            if batch is None:
                batch = {
                    module_id: self.build_batch(module_id, parts)
                    for module_id, parts in (fragments or {}).items()
                    if module_id in self.module and self.should_module_be_updated(module_id)
                }
            for _ in range(num_epochs):
                self._run_epoch(batch, minibatch_size, shuffle_batch_per_epoch)
            self.share_buffers(batch)
            self._log_rows(
                {module_id: each.num_rows * num_epochs for module_id, each in batch.items()}
            )
            for scheduler in schedulers:
                scheduler.step()
            self.after_gradient_based_update(timesteps=timesteps)

    def _run_epoch(
        self, batches: Mapping[str, TrainBatch], minibatch_size: int | None, shuffle: bool
    ) -> None:
        counts = {
            module_id: batch.num_minibatches((minibatch_size or 0) * self.num_learners)
            for module_id, batch in batches.items()
        }
        running = {
            module_id: batch.minibatches(
                counts[module_id], torch.randperm(batch.size).to(self.device) if shuffle else None
            )
            for module_id, batch in batches.items()
        }
        for number in range(max(counts.values(), default=0)):
            self._update_once(
                {
                    module_id: next(minibatches)
                    for module_id, minibatches in running.items()
                    if number < counts[module_id]
                }
            )

    def _update_once(self, batch: dict[str, Batch]) -> None:
        """Take one step of all optimizers of the modules in the batch."""
        self.optimizers.zero_gradients(batch)
        own, weights = self.own_share(batch)
        losses = self.losses_of(own)
        gradients = self.compute_gradients(self.weighted(losses, weights))
        self.average_gradients(batch, gradients)
        self.apply_gradients(self.postprocess_gradients(gradients))

    def losses_of(self, batch: dict[str, Batch]) -> dict[str, torch.Tensor]:
        """Return the losses of a training pass; with `torch_autocast`, in mixed precision."""
        if self.config.torch_autocast is None:
            return self.compute_losses(fwd_out=self.forward_train(batch), batch=batch)
        dtype = getattr(torch, self.config.torch_autocast)
        with torch.autocast(self.device.type, dtype=dtype):
            # Probabilities and sums need full precision; matrix products do not.
            outputs = map_tree(_in_float32, self.forward_train(batch))
            losses = self.compute_losses(fwd_out=outputs, batch=batch)
        return {module_id: loss.float() for module_id, loss in losses.items()}

    # -- several learners

    def own_share(self, batch: dict[str, Batch]) -> tuple[dict[str, Batch], dict[str, float]]:
        """Return this learner's share of the modules' batches, and the weights of its losses."""
        if not self.distributed:
            return batch, {}
        shares = {
            module_id: share_of(columns, self.rank, self.num_learners)
            for module_id, columns in batch.items()
        }
        return (
            {module_id: share for module_id, (share, _) in shares.items()},
            {module_id: weight for module_id, (_, weight) in shares.items()},
        )

    def weighted(
        self, losses: dict[str, torch.Tensor], weights: dict[str, float]
    ) -> dict[str, torch.Tensor]:
        """Multiply the losses by their weights, if given."""
        return {
            module_id: loss if weights.get(module_id, 1.0) == 1.0 else loss * weights[module_id]
            for module_id, loss in losses.items()
        }

    def average_gradients(self, module_ids: Collection[str], gradients: Gradients) -> None:
        """Average the gradients of modules over all learners, in place, and unscale them."""
        if self.distributed:
            self.optimizers.average(module_ids, self.num_learners)
            for parameter in list(gradients):
                gradients[parameter] = parameter.grad
        if self._scaler is not None:
            self.optimizers.unscale(module_ids, self._scaler)

    def share_buffers(self, module_ids: Collection[str]) -> None:
        """Set the buffers of modules in all learners to those of rank 0.

        Buffers, such as the running means of batch normalization, are not parameters: each learner
        computes them from its own share of the batch. Called at the end of every update.
        """
        if not self.distributed:
            return
        groups: dict[torch.dtype, list[torch.Tensor]] = {}
        for module_id in module_ids:
            network = _network(self.module[module_id])
            for buffer in network.buffers() if isinstance(network, nn.Module) else ():
                groups.setdefault(buffer.dtype, []).append(buffer)
        for buffers in groups.values():
            flat = torch.cat([each.detach().flatten() for each in buffers])
            torch.distributed.broadcast(flat, 0)
            start = 0
            for buffer in buffers:
                stop = start + buffer.numel()
                buffer.detach().copy_(flat[start:stop].view(buffer.shape))
                start = stop

    def average(self, value: float) -> float:
        """Return the mean of a number over all learners. Collective call."""
        if not self.distributed:
            return value
        tensor = torch.tensor([value], dtype=torch.float64)
        if torch.distributed.get_backend() == "nccl":
            tensor = tensor.to(self.device)
        torch.distributed.all_reduce(tensor)
        return float(tensor) / self.num_learners

    def forward_train(self, batch: dict[str, Batch]) -> Batch:
        """Return the outputs of the training pass, by module id."""
        return {
            module_id: self._forward_train_of(module_id)(columns)
            for module_id, columns in batch.items()
        }

    def _forward_train_of(self, module_id: str) -> Any:
        """Return the training pass of a module, compiled with `torch_compile_learner`."""
        config = self.config
        if not config.torch_compile_learner:
            return self.module[module_id].forward_train
        if module_id not in self._compiled:
            self._compiled[module_id] = torch.compile(
                self.module[module_id].forward_train,
                backend=config.torch_compile_learner_dynamo_backend,
                mode=config.torch_compile_learner_dynamo_mode,
            )
        return self._compiled[module_id]

    def compute_losses(self, *, fwd_out: Batch, batch: dict[str, Batch]) -> dict[str, torch.Tensor]:
        """Return the losses by module id."""
        losses = {}
        for module_id, out in fwd_out.items():
            module: ModuleType = self.module[module_id]
            config = self.config.get_config_for_module(module_id)
            if hasattr(module, "compute_self_supervised_loss"):
                loss = module.compute_self_supervised_loss(
                    learner=self,
                    module_id=module_id,
                    config=config,
                    batch=batch[module_id],
                    fwd_out=out,
                )
            else:
                loss = self.compute_loss_for_module(
                    module_id=module_id, config=config, batch=batch[module_id], fwd_out=out
                )
            if hasattr(module, "adjust_loss"):  # a network from older releases
                loss = module.adjust_loss(loss, batch[module_id])
                self.metrics.log_dict(module.loss_metrics(), key=module_id, window=1)
            losses[module_id] = loss
            self.metrics.log_value((module_id, "total_loss"), loss, window=1)
        return losses

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig, batch: Batch, fwd_out: Batch
    ) -> torch.Tensor:
        """Return the loss of a module, a tensor without dimensions.

        Args:
            module_id: The module.
            config: Its options.
            batch: Its columns, [B, …] or [S, L, …].
            fwd_out: Output of `forward_train`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no loss: override `compute_loss_for_module(self, *, "
            "module_id, config, batch, fwd_out)`."
        )

    def compute_gradients(self, loss_per_module: Mapping[str, torch.Tensor]) -> Gradients:
        """Return the gradients of the sum of the losses, by parameter."""
        total: Any = sum(loss_per_module.values())
        if self._scaler is not None:
            total = self._scaler.scale(total)
        total.backward()
        return {
            parameter: parameter.grad
            for module_id in loss_per_module
            for optimizer in self.optimizers.of_module(module_id).values()
            for parameter in self.optimizers.parameters(optimizer)
            if parameter.grad is not None
        }

    def postprocess_gradients(self, gradients_dict: Gradients) -> Gradients:
        """Return the gradients to apply: by default clipped, module by module."""
        made: Gradients = {}
        for module_id in self.optimizers.module_ids:
            own = {
                parameter: gradient
                for optimizer in self.optimizers.of_module(module_id).values()
                for parameter, gradient in self.optimizers.own_gradients(
                    optimizer, gradients_dict
                ).items()
            }
            if own:
                made.update(
                    self.postprocess_gradients_for_module(
                        module_id=module_id,
                        config=self.config.get_config_for_module(module_id),
                        module_gradients_dict=own,
                    )
                )
        return made

    def postprocess_gradients_for_module(
        self, *, module_id: str, config: AlgorithmConfig, module_gradients_dict: Gradients
    ) -> Gradients:
        """Return the gradients of a module to apply: by default clipped by `config.grad_clip`."""
        if config.grad_clip is None and not config.log_gradients:
            return module_gradients_dict
        for name, optimizer in self.optimizers.of_module(module_id).items():
            norm = self.optimizers.clip(
                optimizer, module_gradients_dict, config.grad_clip, config.grad_clip_by
            )
            self.metrics.log_value((module_id, f"gradients_{name}_global_norm"), norm, window=1)
        return module_gradients_dict

    def apply_gradients(self, gradients_dict: Gradients) -> None:
        """Take one step of the optimizers whose parameters have gradients."""
        self.optimizers.apply(
            gradients_dict,
            skip_unless_finite=self.config.torch_skip_nan_gradients,
            scaler=self._scaler,
        )

    def _schedulers_of(
        self, optimizer: torch.optim.Optimizer
    ) -> list[torch.optim.lr_scheduler.LRScheduler]:
        """Return torch's learning rate schedulers, which step once per update."""
        classes = self.config._torch_lr_scheduler_classes or ()
        if optimizer not in self._schedulers:
            self._schedulers[optimizer] = [make(optimizer) for make in classes]
        return self._schedulers[optimizer]

    def _all_schedulers(self) -> list[torch.optim.lr_scheduler.LRScheduler]:
        return [
            scheduler
            for module_id in self.optimizers.module_ids
            for optimizer in self.optimizers.of_module(module_id).values()
            for scheduler in self._schedulers_of(optimizer)
        ]

    def _log_rows(self, rows: Mapping[str, int]) -> None:
        """Count trained rows by module id."""
        for module_id, count in rows.items():
            for key, reduce in (
                (NUM_MODULE_STEPS_TRAINED, "sum"),
                (NUM_MODULE_STEPS_TRAINED_LIFETIME, "lifetime_sum"),
            ):
                self.metrics.log_value((module_id, key), count, reduce=reduce)
            self.metrics.log_value(
                (module_id, NUM_TRAINABLE_PARAMETERS), self._num_parameters(module_id), window=1
            )
        most = max(rows.values(), default=0)
        self.metrics.log_value((ALL_MODULES, NUM_ENV_STEPS_TRAINED), most, reduce="sum")
        self.metrics.log_value(
            (ALL_MODULES, NUM_ENV_STEPS_TRAINED_LIFETIME), most, reduce="lifetime_sum"
        )

    def _num_parameters(self, module_id: str) -> int:
        return sum(
            parameter.numel()
            for optimizer in self.optimizers.of_module(module_id).values()
            for parameter in self.optimizers.parameters(optimizer)
        )

    def before_gradient_based_update(self, *, timesteps: dict[str, int]) -> None:
        """Prepare an update. Called before the first minibatch."""

    def after_gradient_based_update(self, *, timesteps: dict[str, int]) -> None:
        """Finish an update, for example move target networks. Called after the last minibatch."""

    # -- adding and removing modules

    def add_module(
        self,
        *,
        module_id: str,
        module_spec: Any,
        config_overrides: OptionMapping | None = None,
        new_should_module_be_updated: Any = None,
    ) -> None:
        """Add a module. The seed and its id determine its initial weights."""
        with self._seeded((1 << 31) | (zlib.crc32(module_id.encode()) >> 1)):
            module = module_spec.build()
        self.module.add_module(module_id, module)
        self._move(module)
        self.config = ModuleChange(
            module_id=module_id,
            spec=module_spec,
            overrides=config_overrides,
            to_train=new_should_module_be_updated,
        ).changed(self.config)
        if self.should_module_be_updated(module_id):
            self.configure_optimizers_for_module(
                module_id, self.config.get_config_for_module(module_id)
            )

    def remove_module(self, module_id: str, *, new_should_module_be_updated: Any = None) -> None:
        """Remove a module and its optimizers."""
        self.optimizers.remove(module_id)
        self._compiled.pop(module_id, None)
        self.module.remove_module(module_id)
        change = ModuleChange(module_id=module_id, spec=None, to_train=new_should_module_be_updated)
        self.config = change.changed(self.config)

    # -- state

    def get_weights(self, module_ids: Collection[str] | None = None) -> dict[str, StateDict]:
        """Return the states of modules by id, for acting."""
        return {
            module_id: module.get_state(inference_only=True)
            for module_id, module in self.module.items()
            if module_ids is None or module_id in module_ids
        }

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> StateDict:
        """Return modules, optimizers and counters."""
        state: StateDict = {"updates": self.updates, "metrics": self.metrics.get_state()}
        if self._scaler is not None:
            state["scaler"] = self._scaler.state_dict()
        if self._schedulers:
            state["schedulers"] = [each.state_dict() for each in self._all_schedulers()]
        if self._check_component(COMPONENT_OPTIMIZER, components, not_components):
            state[COMPONENT_OPTIMIZER] = self.optimizers.get_state()
        if self._check_component(COMPONENT_RL_MODULE, components, not_components):
            state[COMPONENT_RL_MODULE] = self.module.get_state(**kwargs)
        return state

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        if COMPONENT_RL_MODULE in state:
            self.module.set_state(state[COMPONENT_RL_MODULE])
        self.optimizers.set_state(state.get(COMPONENT_OPTIMIZER, {}))
        self.updates = state.get("updates", self.updates)
        if self._scaler is not None and "scaler" in state:
            self._scaler.load_state_dict(state["scaler"])
        if "schedulers" in state:
            for scheduler, saved in zip(self._all_schedulers(), state["schedulers"], strict=True):
                scheduler.load_state_dict(saved)
        if "metrics" in state:
            self.metrics.set_state(state["metrics"])

    def get_checkpointable_components(self) -> Components:
        """Return the modules."""
        return [(COMPONENT_RL_MODULE, self.module)]

    def get_ctor_args_and_kwargs(self) -> CallArguments:
        """Return the arguments of the constructor."""
        return (), {"config": self.config, "module_spec": self._module_spec}

    def shutdown(self) -> None:
        """Release the resources of the learner."""


def _network(module: RLModule) -> Any:
    found: object = module.unwrapped() if hasattr(module, "unwrapped") else module
    return found


def _in_float32(output: Any) -> Any:
    low = isinstance(output, torch.Tensor) and output.dtype in (torch.bfloat16, torch.float16)
    return output.float() if low else output


def initial_state(module: RLModule) -> Tree:
    """Return the state at the beginning of episodes as arrays without a batch dimension."""
    return map_tree(lambda leaf: np.asarray(_to_array(leaf)), module.get_initial_state())


def _to_array(leaf: Tree) -> Tree:
    return leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else leaf
