"""`RayTrainReportCallback`: reports metrics and checkpoints of a `transformers.Trainer`.

A checkpoint has one directory, `CHECKPOINT_NAME`: what the `Trainer` saved as `checkpoint-<step>`
in its `output_dir`. Ranks may share an `output_dir` (one machine, a network filesystem) or have
separate ones. Of the ranks that see the same directory, the lowest one reports it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from syncline.optional import load
from syncline.train.checkpoint import Checkpoint
from syncline.train.session import get_session, report

transformers: Any = load(
    "transformers",
    purpose="`syncline.train.huggingface.transformers`",
    install="syncline[huggingface]",
)


TEMPORARY_PREFIX = ".syncline-"


if TYPE_CHECKING:
    from transformers import TrainerState


class RayTrainReportCallback(transformers.TrainerCallback):
    """Reports each checkpoint that the `Trainer` saves, with the latest value of every logged
    metric.

    `TrainingArguments(save_strategy=..., save_steps=...)` determine when it saves. Evaluate at
    least as often (`eval_strategy`), otherwise the reported evaluation is older than the
    checkpoint. To resume from `directory`, the files of a checkpoint, call
    `trainer.train(resume_from_checkpoint=os.path.join(directory,
    RayTrainReportCallback.CHECKPOINT_NAME))`.
    """

    CHECKPOINT_NAME = "checkpoint"

    def on_train_begin(
        self, args: Any, state: TrainerState, control: object, **kwargs: object
    ) -> None:
        """Delete directories of attempts that were killed while they reported. Called by the
        `Trainer` before anything is saved.
        """
        if get_session("huggingface.transformers.RayTrainReportCallback").local_rank == 0:
            for left in Path(args.output_dir).glob(f"{TEMPORARY_PREFIX}*"):
                shutil.rmtree(left, ignore_errors=True)

    def on_save(self, args: Any, state: TrainerState, control: object, **kwargs: object) -> None:
        """Report the checkpoint. Called by the `Trainer` on every rank after it has saved."""
        metrics: dict[str, float] = {}
        for logged in state.log_history:
            metrics.update(logged)
        # The newest directory may be that of an earlier attempt that came further.
        saved = Path(args.output_dir, f"checkpoint-{state.global_step}")
        whole = is_reporter(saved)
        with tempfile.TemporaryDirectory(
            prefix=TEMPORARY_PREFIX, dir=args.output_dir if whole else None
        ) as directory:
            if whole:
                shutil.copytree(
                    saved, Path(directory, self.CHECKPOINT_NAME), copy_function=link_or_copy
                )
            report(metrics, Checkpoint.from_directory(directory))


def is_reporter(directory: Path) -> bool:
    """Return True if this rank reports `directory`: it exists, and no lower rank sees the same one.

    Must be called on all ranks. When it returns, all of them have saved.
    """
    session = get_session("huggingface.transformers.RayTrainReportCallback")
    own = (session.node_rank, str(directory.resolve())) if directory.is_dir() else None
    seen = [own]
    if dist.is_initialized():
        seen = [None] * dist.get_world_size()
        dist.all_gather_object(seen, own)
    return own is not None and own not in seen[: session.world_rank]


def link_or_copy(source: str, target: str) -> None:
    """Create a hard link to `source`, or a copy if the filesystem has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)
