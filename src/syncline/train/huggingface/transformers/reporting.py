"""`RayTrainReportCallback`: the checkpoints and metrics of a `transformers.Trainer` as reports of
the run.

A checkpoint has one directory, `CHECKPOINT_NAME`: what the `Trainer` saved as `checkpoint-<step>`
in its `output_dir`. Ranks may share an `output_dir` (one machine, a network filesystem) or have
their own; where several see the same one, the lowest of them reports it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

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


class RayTrainReportCallback(transformers.TrainerCallback):
    """Reports each checkpoint that the `Trainer` saves, with all that it has logged so far: the
    latest value of every name.

    When it saves, `TrainingArguments(save_strategy=..., save_steps=...)` say. Let it evaluate no
    more rarely (`eval_strategy`), or the reported evaluation is an older one.
    `trainer.train(resume_from_checkpoint=os.path.join(directory,
    RayTrainReportCallback.CHECKPOINT_NAME))` continues from `directory`, the files of a checkpoint.
    """

    CHECKPOINT_NAME = "checkpoint"

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the `Trainer` before anything is saved: delete what an earlier attempt has
        left, killed while it reported.
        """
        if get_session("huggingface.transformers.RayTrainReportCallback").local_rank == 0:
            for left in Path(args.output_dir).glob(f"{TEMPORARY_PREFIX}*"):
                shutil.rmtree(left, ignore_errors=True)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the `Trainer` on every rank when it has saved."""
        metrics: dict[str, Any] = {}
        for logged in state.log_history:
            metrics.update(logged)
        # Not the newest one that lies there: an earlier attempt may have come further than the
        # checkpoint that this one started from.
        saved = Path(args.output_dir, f"checkpoint-{state.global_step}")
        whole = reports_directory(saved)
        with tempfile.TemporaryDirectory(
            prefix=TEMPORARY_PREFIX, dir=args.output_dir if whole else None
        ) as directory:
            if whole:
                shutil.copytree(
                    saved, Path(directory, self.CHECKPOINT_NAME), copy_function=link_or_copy
                )
            report(metrics, Checkpoint.from_directory(directory))


def reports_directory(directory: Path) -> bool:
    """Whether this rank reports what lies in `directory`. Called on all ranks; when it returns, all
    of them have written.

    It does if the directory exists and no lower rank sees the same one.
    """
    session = get_session("huggingface.transformers.RayTrainReportCallback")
    place = (session.node_rank, str(directory.resolve())) if directory.is_dir() else None
    places = [place]
    if dist.is_initialized():
        places = [None] * dist.get_world_size()
        dist.all_gather_object(places, place)
    return place is not None and place not in places[: session.world_rank]


def link_or_copy(source: str, target: str) -> None:
    """Let `target` be the same file as `source`, or a copy where the filesystem has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)
