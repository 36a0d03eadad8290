"""Lightning callbacks for trials: `TuneReportCheckpointCallback` reports metrics and checkpoints,
`TuneReportCallback` metrics only.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from syncline.train.checkpoint import Checkpoint
from syncline.train.lightning.library import pl
from syncline.tune.context import report

logger = logging.getLogger("syncline")

HOOKS = frozenset(name.removeprefix("on_") for name in dir(pl.Callback) if name.startswith("on_"))
"""Hooks of Lightning without `on_`."""


class TuneCallback(pl.Callback):  # type: ignore[misc]  # Lightning has two packages
    """Base of callbacks that run the same code at chosen hooks: override
    `_handle(trainer, pl_module)`.

    Args:
        on: Hooks of Lightning without `on_`, such as "validation_end": one name or several.

    Raises:
        ValueError: Unknown hook.
    """

    def __init__(self, on: str | Sequence[str] = "validation_end") -> None:
        super().__init__()
        hooks = (on,) if isinstance(on, str) else tuple(on)
        unknown = sorted(set(hooks) - HOOKS)
        if unknown:
            raise ValueError(
                f"on={on!r}: Lightning has no hook {', '.join(unknown)}: use one of "
                f"{', '.join(sorted(HOOKS))}."
            )
        for hook in hooks:
            setattr(self, f"on_{hook}", self._at_hook)

    def _at_hook(
        self, trainer: Any, pl_module: object = None, *_args: object, **_kwargs: object
    ) -> None:
        if not trainer.sanity_checking:
            self._handle(trainer, pl_module)

    def _handle(self, trainer: Any, pl_module: object) -> None:
        raise NotImplementedError(
            f"{type(self).__name__} has no `_handle`: define `_handle(self, trainer, pl_module)`."
        )


class TuneReportCheckpointCallback(TuneCallback):
    """Reports metrics and Lightning's own checkpoint to the search.

    Args:
        metrics: Metrics of `trainer.callback_metrics` to report: one name, several, or {reported
            name: logged name}; None for all.
        filename: File in the checkpoint. To continue, call
            `trainer.fit(…, ckpt_path=os.path.join(directory, filename))`.
        save_checkpoints: Report checkpoints.
        on: Hooks of Lightning without `on_`.

    Raises:
        ValueError: Unknown hook.
    """

    def __init__(
        self,
        metrics: str | Sequence[str] | Mapping[str, str] | None = None,
        filename: str = "checkpoint",
        save_checkpoints: bool = True,
        on: str | Sequence[str] = "validation_end",
    ) -> None:
        super().__init__(on)
        chosen = (metrics,) if isinstance(metrics, str) else metrics
        self._names = (
            dict(chosen) if isinstance(chosen, Mapping) else {name: name for name in chosen or ()}
        )
        self._filename = filename
        self._save_checkpoints = save_checkpoints

    def _handle(self, trainer: Any, pl_module: object) -> None:
        logged = {name: value.item() for name, value in trainer.callback_metrics.items()}
        values = (
            {name: logged[source] for name, source in self._names.items() if source in logged}
            if self._names
            else logged
        )
        missing = sorted(set(self._names.values()) - set(logged))
        if missing:
            # It may be logged later: Lightning validates before it trains.
            logger.warning(
                "Metrics %s are not reported, because the model has not logged them yet.",
                ", ".join(missing),
            )
        if not values:
            return
        if not self._save_checkpoints:
            report(values)
            return
        with tempfile.TemporaryDirectory(prefix="syncline-checkpoint-") as directory:
            trainer.save_checkpoint(os.path.join(directory, self._filename), weights_only=False)
            report(values, checkpoint=Checkpoint.from_directory(directory))


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports metrics without checkpoints."""

    def __init__(
        self,
        metrics: str | Sequence[str] | Mapping[str, str] | None = None,
        on: str | Sequence[str] = "validation_end",
    ) -> None:
        super().__init__(metrics, save_checkpoints=False, on=on)
