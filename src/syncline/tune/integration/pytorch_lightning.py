"""Lightning's callbacks for trials: `TuneReportCheckpointCallback` reports metrics and checkpoints,
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
"""Lightning's hooks, without their `on_`."""


class TuneCallback(pl.Callback):  # type: ignore[misc]  # which of Lightning's packages is known when it runs
    """Base of callbacks that do one thing at chosen hooks: override `_handle(trainer, pl_module)`.

    Args:
        on: At which hooks: one or several of Lightning's names without their `on_`, such as
        "validation_end".

    Raises:
        ValueError: For a hook that does not exist.
    """

    def __init__(self, on: str | Sequence[str] = "validation_end") -> None:
        super().__init__()
        hooks = (on,) if isinstance(on, str) else tuple(on)
        unknown = sorted(set(hooks) - HOOKS)
        if unknown:
            raise ValueError(
                f"on={on!r}: {', '.join(unknown)} is no hook of Lightning: there are {', '.join(sorted(HOOKS))}."
            )
        for hook in hooks:
            setattr(self, f"on_{hook}", self._at_hook)

    def _at_hook(
        self, trainer: Any, pl_module: Any = None, *_arguments: Any, **_named: Any
    ) -> None:
        if not trainer.sanity_checking:
            self._handle(trainer, pl_module)

    def _handle(self, trainer: Any, pl_module: Any) -> None:
        raise NotImplementedError(
            f"{type(self).__name__} does nothing at its hooks: define `_handle(self, trainer, pl_module)`."
        )


class TuneReportCheckpointCallback(TuneCallback):
    """Reports metrics to the search, and Lightning's own checkpoint with them.

    Args:
        metrics: Which of `trainer.callback_metrics`: one name, several, or {name to report: logged
        name}; all if None. filename: The checkpoint's file: `trainer.fit(…,
        ckpt_path=os.path.join(directory, filename))` continues from it. save_checkpoints: Whether
        there are checkpoints at all. on: At which hooks, as Lightning names them, without `on_`.

    Raises:
        ValueError: For a hook that does not exist.
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

    def _handle(self, trainer: Any, pl_module: Any) -> None:
        logged = {name: value.item() for name, value in trainer.callback_metrics.items()}
        values = (
            {name: logged[source] for name, source in self._names.items() if source in logged}
            if self._names
            else logged
        )
        missing = sorted(set(self._names.values()) - set(logged))
        if missing:
            # A metric may only be logged later: training goes first through a validation, say.
            logger.warning(
                "Metrics %s are not reported, because the model has not logged them by now.",
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
    """Reports metrics and no checkpoints."""

    def __init__(
        self,
        metrics: str | Sequence[str] | Mapping[str, str] | None = None,
        on: str | Sequence[str] = "validation_end",
    ) -> None:
        super().__init__(metrics, save_checkpoints=False, on=on)
