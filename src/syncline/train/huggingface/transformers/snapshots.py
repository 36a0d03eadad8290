"""Memory snapshots of a `transformers.Trainer`, after each optimizer step.

A snapshot has the contents of the `Trainer`'s checkpoints. A restart writes them to a temporary
directory, with the file names of a checkpoint, and passes it as `resume_from_checkpoint`.
`prepare_trainer` adds both if the run takes automatic snapshots. Covered: models that every rank
has. Not covered: FSDP and DeepSpeed, and gradients that are accumulated since the last optimizer
step.
"""

from __future__ import annotations

import json
import logging
import random
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.trainer_callback import ExportableState

from syncline.train.session import automatic_snapshots, current_session, get_session
from syncline.train.snapshots.rank_snapshots import RankSnapshots

logger = logging.getLogger("syncline")


class SnapshotTrainer:
    """Mixin for a `transformers.Trainer`."""

    _resumed_directory: str | None = None

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Train, from the snapshot that the attempt starts from, which is newer than every
        checkpoint, or as the program asks.
        """
        snapshots = _automatic_snapshots(self)
        state = None if snapshots is None else snapshots.automatic_state()
        if state is not None:
            directory = tempfile.mkdtemp(prefix="syncline-snapshot-")
            self._resumed_directory = resume_from_checkpoint = directory
            write_checkpoint(Path(directory), state)
        try:
            return super().train(resume_from_checkpoint, *args, **kwargs)  # type: ignore[misc]
        finally:
            self._remove_resumed()

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Take a snapshot when everything that belongs to a step, or to an epoch, is done."""
        super()._maybe_log_save_evaluate(*args, **kwargs)  # type: ignore[misc]
        self._remove_resumed()
        snapshots = _automatic_snapshots(self)
        if snapshots is None:
            return
        if snapshots.advance_automatic():
            session = get_session("huggingface.transformers")
            snapshots.take_automatic(
                checkpoint_state(self), session.readers.capture(), session.next_report
            )

    def _remove_resumed(self) -> None:
        directory, self._resumed_directory = self._resumed_directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)


def warn_if_not_covered(trainer: Any) -> None:
    """Log a warning if the run takes automatic snapshots, but none of this trainer."""
    session = current_session()
    if session is None or session.world_rank or automatic_snapshots(session) is None:
        return
    if _is_sharded(trainer):
        logger.warning(
            "`RunConfig(snapshot=…)` takes no memory snapshots of a `transformers.Trainer` with "
            "FSDP or DeepSpeed: restarts continue from the last checkpoint."
        )


def _automatic_snapshots(trainer: Any) -> RankSnapshots | None:
    snapshots = automatic_snapshots(current_session())
    return None if snapshots is None or _is_sharded(trainer) else snapshots


def _is_sharded(trainer: Any) -> bool:
    return bool(trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled)


def checkpoint_state(trainer: Any) -> Mapping[str, Any]:
    """Return the state that the `Trainer` writes to a checkpoint, without a copy of its tensors."""
    progress = asdict(trainer.state)
    for each in [*trainer.callback_handler.callbacks, trainer.control]:
        if isinstance(each, ExportableState):
            name, state = type(each).__name__, each.state()
            if isinstance(progress["stateful_callbacks"].get(name), list):
                progress["stateful_callbacks"][name].append(state)
            else:
                progress["stateful_callbacks"][name] = state
    scaler = getattr(trainer.accelerator, "scaler", None)
    return {
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "scheduler": trainer.lr_scheduler.state_dict(),
        "scaler": None if scaler is None else scaler.state_dict(),
        "progress": json.dumps(progress),
        "process": trainer.args.process_index if trainer.args.world_size > 1 else None,
        "random": {
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "cpu": torch.random.get_rng_state(),
            **_cuda_state(trainer),
        },
    }


def _cuda_state(trainer: Any) -> Mapping[str, Any]:
    if not torch.cuda.is_available():
        return {}
    if trainer.args.world_size > 1:
        return {"cuda": torch.cuda.random.get_rng_state_all()}
    return {"cuda": torch.cuda.random.get_rng_state()}


def write_checkpoint(directory: Path, state: Mapping[str, Any]) -> None:
    """Write the files of the `Trainer`'s checkpoint of this rank."""
    torch.save(state["model"], directory / "pytorch_model.bin")
    torch.save(state["optimizer"], directory / "optimizer.pt")
    torch.save(state["scheduler"], directory / "scheduler.pt")
    if state["scaler"] is not None:
        torch.save(state["scaler"], directory / "scaler.pt")
    process = state["process"]
    name = "rng_state.pth" if process is None else f"rng_state_{process}.pth"
    torch.save(state["random"], directory / name)
    (directory / "trainer_state.json").write_text(state["progress"])
