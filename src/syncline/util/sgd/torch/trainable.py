"""`BaseTorchTrainable`: trainers as trials of `syncline.tune`, for `TorchTrainer.as_trainable`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from syncline.tune.execution.placement_groups import Gang, PlacementGroupFactory
from syncline.tune.trainable.trainable import Trainable
from syncline.util.sgd.torch.value_types import Config, Metrics
from syncline.util.sgd.torch.workers import scaling_of

FILE = "trainer.checkpoint"
"""Name of the trainer's file in a checkpoint."""

TuneStep = Callable[..., Metrics]


class Trainer(Protocol):
    """The methods of `TorchTrainer` that a trial calls."""

    def train(self) -> Mapping[str, object]: ...
    def validate(self) -> Mapping[str, object]: ...
    def save(self, checkpoint: str) -> object: ...
    def load(self, checkpoint: str) -> None: ...
    def shutdown(self) -> None: ...


class BaseTorchTrainable(Trainable):
    """A trial that trains with a trainer; a subclass defines the trainer.

    Each step reports the results of one epoch and of the validation after it.
    """

    trainer_cls: Callable[..., Trainer]
    trainer_arguments: Config
    override_tune_step: TuneStep | None

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        """Return one bundle per worker; the trial itself needs no resources."""
        scaling = scaling_of(**cls.trainer_arguments)
        return Gang([scaling.bundle()] * scaling.max_workers)

    @property
    def trainer(self) -> Trainer:
        """The trainer of this trial."""
        return self._trainer

    def setup(self, config: dict[str, Any]) -> None:
        """Create the trainer; `config` overrides the trainer's own."""
        arguments = {
            **self.trainer_arguments,
            "config": {**(self.trainer_arguments.get("config") or {}), **config},
        }
        self._trainer = self.trainer_cls(**arguments)

    def step(self) -> Metrics:
        """Run an epoch and a validation, or `override_tune_step`."""
        if self.override_tune_step is not None:
            return self.override_tune_step(self._trainer, {"iteration": self.training_iteration})
        return {**self._trainer.train(), **self._trainer.validate()}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save the trainer's state."""
        self._trainer.save(os.path.join(checkpoint_dir, FILE))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Load the trainer's state."""
        self._trainer.load(os.path.join(checkpoint, FILE))

    def cleanup(self) -> None:
        """Shut the trainer down."""
        self._trainer.shutdown()


def make_trainable(
    trainer_cls: Callable[..., Trainer], arguments: Mapping[str, object], step: TuneStep | None
) -> type[BaseTorchTrainable]:
    """Return a class of trials that train with `trainer_cls(**arguments)`.

    Raises:
        ValueError, TypeError: The trainer does not accept the arguments.
    """
    return type(
        "TorchTrainable",
        (BaseTorchTrainable,),
        {
            "__doc__": BaseTorchTrainable.__doc__,
            "trainer_cls": trainer_cls,
            "trainer_arguments": dict(arguments),
            "override_tune_step": staticmethod(step) if step is not None else None,
        },
    )
