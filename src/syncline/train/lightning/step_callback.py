"""`StepCallback`: base of callbacks that act after each optimizer step."""

from __future__ import annotations

from syncline.train.lightning.library import pl
from syncline.train.lightning.loaders import Trainer


class StepCallback(pl.Callback):
    """Calls `after_step` after each optimizer step, except after the last batch of an epoch.

    Between two optimizer steps there are accumulated gradients, which checkpoints lack.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last_step = 0

    def on_train_start(self, trainer: Trainer, pl_module: object) -> None:
        """Start counting at the step from which training resumes."""
        self._last_step = trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: object, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Call `after_step` if the batch ended a step."""
        stepped = trainer.global_step != self._last_step
        self._last_step = trainer.global_step
        if stepped and not trainer.is_last_batch:
            self.after_step(trainer)

    def after_step(self, trainer: Trainer) -> None:
        """Act on a step. Subclasses act on the end of an epoch in `on_train_epoch_end`."""
        raise NotImplementedError
