"""Files of the experiment directory that the controller changes itself: checkpoints are copied and
deleted, lines added to files; and what a kill has left is put in order.

Not covered: the checkpoints that trials write (`workers/runner.py`), the journal, the files of
loggers.
"""

from __future__ import annotations

import hashlib
import logging
import posixpath
from collections.abc import Sequence

from syncline.train import filesystem as files
from syncline.train.checkpoint import Checkpoint
from syncline.train.storage import StorageContext, checkpoint_dir_name
from syncline.tune.controller import events
from syncline.tune.controller.events import Instruction
from syncline.tune.controller.state import TuneMachine
from syncline.tune.experiment.trial import Trial

logger = logging.getLogger("syncline")


def is_own(trial: Trial, checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint was made by the trial, and not by a trainer in it."""
    return trial.storage.contains(checkpoint) and "/" not in trial.storage.name_of(checkpoint)


def delete(trial: Trial, checkpoint: Checkpoint) -> None:
    """Delete a checkpoint, unless it lies with a trainer that made it, which keeps those that it
    wants to.
    """
    if not is_own(trial, checkpoint):
        return
    try:
        trial.storage.delete(checkpoint)
    except OSError as error:
        logger.warning(
            "the checkpoint %s is not kept any more but cannot be deleted: %s",
            checkpoint.path,
            error,
        )


def write_lines(storage: StorageContext, lines: Sequence[tuple[str, str]]) -> None:
    """Add lines to files of the experiment directory: (name of the file, line)."""
    for name, line in lines:
        data = line.rstrip("\n").encode() + b"\n"
        if storage.local:
            with open(files.join(storage.experiment_fs_path, name), "ab") as file:
                file.write(data)
        else:
            storage.files.write(name, (storage.files.read(name) or b"") + data)


def discard_unknown(trial: Trial) -> None:
    """Delete unfinished checkpoints in a trial's directory, and those that the controller never
    heard of. No process of the trial runs.
    """
    own = [
        entry.checkpoint
        for entry in trial.checkpoints.registered
        if is_own(trial, entry.checkpoint)
    ]
    try:
        trial.storage.discard_staged(keep=[trial.storage.name_of(checkpoint) for checkpoint in own])
    except OSError as error:
        logger.warning("unfinished checkpoints in %s cannot be deleted: %s", trial.path, error)


def tidy(machine: TuneMachine, last: Sequence[Instruction]) -> None:
    """Put the experiment directory in order after a kill.

    Args:
        machine: The restored search, where its directory lies now.
        last: What follows from the last event before the kill, and may not have been carried out.
    """
    confirmed = {do.trial_id for do in last if isinstance(do, events.Confirm)}
    for trial in machine.trials:
        if not trial.is_finished() or trial.trial_id in confirmed:
            discard_unknown(trial)
    storage = machine.rules.storage
    try:
        storage.discard_staged()  # halves of files of the record and of snapshots
    except OSError as error:
        logger.warning(
            "unfinished files in %s cannot be deleted: %s", storage.experiment_fs_path, error
        )
    for do in last:
        if isinstance(do, events.Delete):
            trial_directory, name = posixpath.split(do.checkpoint.path)
            owner = machine.get_trial(do.trial_id)
            # The experiment directory may have been moved since.
            if owner is not None and posixpath.basename(trial_directory) == owner.relative_logdir:
                delete(owner, owner.storage.checkpoint(name))
        elif isinstance(do, events.WriteLines):
            write_lines(storage, _missing(storage, do.lines))


def copy_verified(trial: Trial, source: Checkpoint, index: int) -> Checkpoint:
    """Make a copy of `source` the trial's checkpoint of that number, and compare the two by hash.
    OSError where they differ.
    """
    storage, name = trial.storage, checkpoint_dir_name(index)
    before = digest(source)
    staged = storage.stage(source, name, rank=0, token=f"donated-{index}")
    storage.force(staged or name)
    copy = storage.commit(name, [staged])
    after = digest(copy)
    if before != after:
        storage.delete(copy)
        raise OSError(
            f"{copy.path!r} differs from {source.path!r}, of which it is a copy (sha256 {after} and {before}): the disk is failing"
        )
    return copy


def digest(checkpoint: Checkpoint) -> str:
    """A hash of the names and contents of a checkpoint's files."""
    total = hashlib.sha256()
    for name in sorted(files.list_directory(checkpoint.filesystem, checkpoint.path).files):
        total.update(name.encode() + b"\0")
        with checkpoint.filesystem.open_input_stream(files.join(checkpoint.path, name)) as stream:
            while chunk := stream.read(1 << 20):
                total.update(chunk)
    return total.hexdigest()


def _missing(storage: StorageContext, lines: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those of `lines` that were not written before the kill. They were written in their order."""
    missing: list[tuple[str, str]] = []
    for name in dict.fromkeys(name for name, _ in lines):
        wanted = [line.rstrip("\n").encode() + b"\n" for other, line in lines if other == name]
        content = storage.files.read(name) or b""
        written = next(
            count
            for count in range(len(wanted), -1, -1)
            if content.endswith(b"".join(wanted[:count]))
        )
        missing += [(name, line.decode()) for line in wanted[written:]]
    return missing
