"""Automatic memory snapshots of prepared models and their optimizers.

With `RunConfig(snapshot=SnapshotConfig())`, every step of an optimizer that trains a prepared model
makes a snapshot due. It is taken when the program requests its next batch from a prepared data
loader or a dataset shard: by then the program has done everything that belongs to the step, such as
the step of a learning-rate schedule. In a program without such a reader it is taken before the next
forward pass, when the program has already drawn its next batch.

After a restart, models and prepared optimizers are restored when the first pass over a reader
begins, at the latest before the first forward pass and the first step, so that the program may load
its checkpoint before, as it does without snapshots. Gradients are not captured.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from syncline.train.session import TrainSession, automatic_snapshots
from syncline.train.snapshots.rank_snapshots import RankSnapshots
from syncline.train.snapshots.torch_tensors import LocalTensor, is_sharded, local_part

_current: AutomaticSnapshots | None = None
"""Snapshots of this process's session."""


def follow_model(
    model: nn.Module, session: TrainSession, scaler: torch.amp.GradScaler | None
) -> None:
    """Add a prepared model, and the session's gradient scaler, to the automatic snapshots of the
    session, if it has them.
    """
    global _current
    snapshots = automatic_snapshots(session)
    if snapshots is None:
        return
    if _current is None or _current.session is not session:
        if _current is not None:
            _current.close()
        _current = AutomaticSnapshots(session, snapshots)
    _current.scaler = scaler
    _current.add(model)


def follow_optimizer(optimizer: Optimizer, session: TrainSession) -> None:
    """Restore a prepared optimizer early, if the session has automatic snapshots."""
    if _current is not None and _current.session is session:
        _current.prepare(optimizer)


class AutomaticSnapshots:
    """Automatic snapshots of one session. Used by the thread of the training function.

    Args:
        session: The session.
        snapshots: Its snapshots.
    """

    def __init__(self, session: TrainSession, snapshots: RankSnapshots) -> None:
        self.session = session
        self.scaler: torch.amp.GradScaler | None = None
        """Gradient scaler of the session, if it has one."""
        self._snapshots = snapshots
        self._models: list[nn.Module] = []
        self._optimizers: dict[str, weakref.ref[Optimizer]] = {}
        self._prepared: list[Optimizer] = []
        self._restored: set[int] = set()
        self._pending: _Pending | None = None
        self._is_due = False
        self._hooks = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]
        session.readers.before_batch = self._before_batch
        session.readers.before_pass = self._restore_all

    def prepare(self, optimizer: Optimizer) -> None:
        """Restore an optimizer when the first pass begins, not only before its first step."""
        self._prepared.append(optimizer)

    def close(self) -> None:
        """Stop following optimizers."""
        for hook in self._hooks:
            hook.remove()

    def add(self, model: nn.Module) -> None:
        """Follow a model, in the order of the calls of `prepare_model`."""
        number = len(self._models)
        self._models.append(unwrapped(model))

        def before_forward(module: nn.Module, inputs: object) -> None:
            if not len(self.session.readers):
                self._before_batch()

        def restore(module: nn.Module, inputs: object) -> None:
            for handle in handles:
                handle.remove()
            self._restore_model(number)

        # The module inside of DDP too: programs may call it directly.
        modules = {id(each): each for each in (model, unwrapped(model))}.values()
        for each in modules:
            each.register_forward_pre_hook(before_forward, prepend=True)
        handles = [each.register_forward_pre_hook(restore, prepend=True) for each in modules]

    # -- snapshots

    def _after_step(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        if self._key_of(optimizer):
            self._is_due = True

    def _before_batch(self) -> None:
        if not self._is_due:
            return
        self._is_due = False
        if self._snapshots.advance_automatic():
            session = self.session
            self._snapshots.take_automatic(
                self._state(), session.readers.capture(), session.next_report
            )

    def _state(self) -> Mapping[str, object]:
        """Return the state to save. Parts of the last snapshot that the program has not used since
        the restart are carried over.
        """
        pending = self._loaded()
        optimizers = {key: each() for key, each in self._optimizers.items()}
        return {
            "models": {
                number: pending.models.get(number) or model.state_dict()
                for number, model in enumerate(self._models)
            },
            "optimizers": pending.optimizers
            | {key: each.state_dict() for key, each in optimizers.items() if each is not None},
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
        }

    def _key_of(self, optimizer: Optimizer) -> str:
        """Return the key of an optimizer that trains a followed model; "" for others.

        It consists of the class and the names of the parameters, because optimizers may make their
        first steps in another order after a restart.
        """
        for key, each in self._optimizers.items():
            if each() is optimizer:
                return key
        names = {
            id(parameter): f"{number}.{name}"
            for number, model in enumerate(self._models)
            for name, parameter in model.named_parameters()
        }
        groups = [
            [names.get(id(each), "other") for each in group["params"]]
            for group in optimizer.param_groups
        ]
        if all(name == "other" for group in groups for name in group):
            return ""
        digest = hashlib.sha256(repr(groups).encode()).hexdigest()[:16]
        sizes = " and ".join(str(len(group)) for group in groups)
        key = f"{type(optimizer).__name__} with {sizes} parameters ({digest})"
        self._optimizers[key] = weakref.ref(optimizer)
        return key

    # -- restart

    def _loaded(self) -> _Pending:
        """Return the parts of the snapshot that are not restored yet."""
        if self._pending is None:
            saved = self._snapshots.automatic_state()
            self._pending = (
                _Pending()
                if saved is None
                else _Pending(
                    models=dict(saved["models"]),
                    optimizers=dict(saved["optimizers"]),
                    scaler=saved["scaler"],
                    models_before=len(saved["models"]),
                )
            )
        return self._pending

    def _restore_all(self) -> None:
        """Restore everything that is known when a pass begins. If the snapshot is of the last step,
        no forward pass and no step follow.
        """
        for number in range(len(self._models)):
            self._restore_model(number)
        for optimizer in self._prepared:
            self._before_step(optimizer, (), {})

    def _restore_model(self, number: int) -> None:
        pending = self._loaded()
        if not pending.models_before or number in self._restored:
            return
        self._restored.add(number)
        if not len(self.session.readers):
            self.session.readers.restore_random_without_reader()
        if self.scaler is not None and pending.scaler is not None:
            self.scaler.load_state_dict(pending.scaler)
            pending.scaler = None
        if number >= pending.models_before:
            self._refuse(f"of {pending.models_before} prepared models, but this program has more")
        self._copy(pending.models.pop(number), self._models[number])

    def _copy(self, saved: Mapping[str, Any], model: nn.Module) -> None:
        """Copy the values of a state dict into a model.

        Raises:
            ValueError: The model has another shape.
        """
        current = model.state_dict()
        for name in sorted(saved.keys() ^ current.keys()):
            then, now = (_described(each.get(name)) for each in (saved, current))
            self._refuse(f"of a model whose {name!r} is {then}, but this model's is {now}")
        others = {}
        with torch.no_grad():
            for name, target in current.items():
                value = saved[name]
                value = value.tensor if isinstance(value, LocalTensor) else value
                if not isinstance(target, torch.Tensor):
                    others[name] = value
                    continue
                local = local_part(target)
                if _described(value) != _described(local):
                    self._refuse(
                        f"of a model whose {name!r} is {_described(value)}, but this model's is "
                        f"{_described(local)}"
                    )
                local.copy_(value)
        if others:
            model.load_state_dict(others, strict=False)

    def _before_step(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        known = len(self._optimizers)
        key = self._key_of(optimizer)
        pending = self._loaded()
        if len(self._optimizers) == known or not pending.optimizers:
            return
        if key not in pending.optimizers:
            self._refuse(f"of {', '.join(pending.optimizers)}, but this program has {key}")
        optimizer.load_state_dict(_with_shards(pending.optimizers.pop(key), optimizer))

    def _refuse(self, text: str) -> NoReturn:
        self._snapshots.refuse()
        raise ValueError(
            f"The memory snapshot of step {self._snapshots.spec.resume_step} was taken {text}. It "
            "is not used any more: the next attempt, or the next run of this name, starts from the "
            "last checkpoint."
        )


@dataclass(kw_only=True)
class _Pending:
    """Parts of the snapshot that an attempt starts from, until they are restored."""

    models: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    optimizers: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    scaler: dict[str, Any] | None = None
    models_before: int = 0
    """Number of models in the snapshot."""


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the program's module of a prepared model."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def _described(value: object) -> str:
    """Return type and shape of a value of a state dict."""
    if value is None:
        return "missing"
    if isinstance(value, LocalTensor):
        value = value.tensor
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"


def _with_shards(state: Mapping[str, Any], optimizer: Optimizer) -> dict[str, Any]:
    """Return the state of an optimizer in which the parts of sharded tensors are `DTensor`s."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    by_number = dict(zip(numbers, parameters, strict=True))
    values = {
        number: {key: _shard(value, by_number[number]) for key, value in entries.items()}
        for number, entries in state["state"].items()
    }
    return {**state, "state": values}


def _shard(value: object, parameter: Any) -> object:
    if not isinstance(value, LocalTensor) or not is_sharded(parameter):
        return value.tensor if isinstance(value, LocalTensor) else value
    return type(parameter.data).from_local(
        value.tensor,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
