"""Trainers as trials of `syncline.tune`: what `TorchTrainer.as_trainable` returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from syncline.tune.execution.placement_groups import Gang, PlacementGroupFactory
from syncline.tune.trainable.trainable import Trainable
from syncline.util.sgd.torch.trainer import TorchTrainer, scaling_of

FILE = "trainer.checkpoint"
"""The trainer's file in a checkpoint."""

TuneStep = Callable[..., dict[str, Any]]


class BaseTorchTrainable(Trainable):
    """A trial that is a trainer; subclasses say which. Reports, per step, the results of an epoch
    and of the validation after it.
    """

    trainer_cls: type[TorchTrainer]
    trainer_arguments: Mapping[str, Any]
    override_tune_step: TuneStep | None

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        """A bundle for each worker; the trial itself needs nothing."""
        scaling = scaling_of(**cls.trainer_arguments)
        return Gang([scaling.bundle()] * scaling.max_workers)

    @property
    def trainer(self) -> TorchTrainer:
        """The trainer."""
        return self._trainer

    def setup(self, config: dict[str, Any]) -> None:
        """Make the trainer; `config` overrides its own."""
        arguments = {
            **self.trainer_arguments,
            "config": {**(self.trainer_arguments.get("config") or {}), **config},
        }
        self._trainer = self.trainer_cls(**arguments)

    def step(self) -> dict[str, Any]:
        """An epoch and a validation, or what the program has put in their place."""
        if self.override_tune_step is not None:
            return self.override_tune_step(self._trainer, {"iteration": self.training_iteration})
        return {**self._trainer.train(), **self._trainer.validate()}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the trainer's state."""
        self._trainer.save(os.path.join(checkpoint_dir, FILE))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Take it back."""
        self._trainer.load(os.path.join(checkpoint, FILE))

    def cleanup(self) -> None:
        """End the workers."""
        self._trainer.shutdown()


def make_trainable(
    trainer_cls: type[TorchTrainer], arguments: Mapping[str, Any], step: TuneStep | None
) -> type[BaseTorchTrainable]:
    """The class of trials whose trainers are `trainer_cls(**arguments)`. ValueError or TypeError
    for arguments that no trainer takes.
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
