"""Files of the experiment directory that the controller changes: it copies and deletes checkpoints,
appends lines, and removes leftovers of a kill.

Not covered: checkpoints that trials write (`workers/trial_runner.py`), the journal, and files of
loggers.
"""

from __future__ import annotations

import hashlib
import logging
import posixpath
import time
from collections.abc import Sequence

from syncline.storage import filesystem as files
from syncline.train.checkpoint import Checkpoint
from syncline.train.storage.context import StorageContext, checkpoint_dir_name
from syncline.tune.controller import events
from syncline.tune.controller.events import Instruction
from syncline.tune.controller.state import TuneMachine
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import EXPR_ERROR_FILE

logger = logging.getLogger("syncline")


def is_own(trial: Trial, checkpoint: Checkpoint) -> bool:
    """Return True if the trial made the checkpoint, not a trainer inside it."""
    return trial.storage.contains(checkpoint) and "/" not in trial.storage.name_of(checkpoint)


def delete(trial: Trial, checkpoint: Checkpoint) -> None:
    """Delete a checkpoint, unless a trainer inside the trial made it: trainers delete their own."""
    if not is_own(trial, checkpoint):
        return
    try:
        trial.storage.delete(checkpoint)
    except OSError as error:
        logger.warning(
            "The checkpoint %s is no longer needed but cannot be deleted: %s",
            checkpoint.path,
            error,
        )


def append_lines(storage: StorageContext, lines: Sequence[tuple[str, str]]) -> None:
    """Append (file name, line) pairs to files of the experiment directory."""
    for name, line in lines:
        data = line.rstrip("\n").encode() + b"\n"
        if storage.local:
            with open(files.join(storage.experiment_fs_path, name), "ab") as file:
                file.write(data)
        else:
            storage.files.write(name, (storage.files.read(name) or b"") + data)


def append_error(trial: Trial) -> None:
    """Append the latest failure of a trial to its error file."""
    moment = time.strftime("%Y-%m-%d_%H-%M-%S")
    number = max(trial.num_failures, 1)
    text = f"Failure # {number} (occurred at {moment})\n{trial.error_text}\n\n"
    trial_files = trial.storage.files
    trial_files.write(EXPR_ERROR_FILE, (trial_files.read(EXPR_ERROR_FILE) or b"") + text.encode())


def discard_unknown(trial: Trial) -> None:
    """Delete unfinished and unregistered checkpoints of a trial. It must not have a process."""
    own = [
        entry.checkpoint
        for entry in trial.checkpoints.registered
        if is_own(trial, entry.checkpoint)
    ]
    try:
        trial.storage.discard_staged(keep=[trial.storage.name_of(checkpoint) for checkpoint in own])
    except OSError as error:
        logger.warning("Unfinished checkpoints in %s cannot be deleted: %s", trial.path, error)


def clean_up(machine: TuneMachine, last: Sequence[Instruction]) -> None:
    """Make the experiment directory consistent with the search after a kill.

    Args:
        machine: The restored search, with its current directory.
        last: Instructions of the last event before the kill, which may not be carried out yet.
    """
    confirmed = {do.trial_id for do in last if isinstance(do, events.ConfirmCheckpoint)}
    for trial in machine.trials:
        if not trial.is_finished() or trial.trial_id in confirmed:
            discard_unknown(trial)
    storage = machine.rules.storage
    try:
        storage.discard_staged()  # partial files of the record and of snapshots
    except OSError as error:
        logger.warning(
            "Unfinished files in %s cannot be deleted: %s", storage.experiment_fs_path, error
        )
    for do in last:
        if isinstance(do, events.DeleteCheckpoint):
            trial_directory, name = posixpath.split(do.checkpoint.path)
            owner = machine.get_trial(do.trial_id)
            # The experiment directory may have been moved since.
            if owner is not None and posixpath.basename(trial_directory) == owner.relative_logdir:
                delete(owner, owner.storage.checkpoint(name))
        elif isinstance(do, events.AppendLines):
            append_lines(storage, _missing(storage, do.lines))


def copied(trial: Trial, do: events.CopyCheckpoint) -> events.CheckpointCopied:
    """Copy a checkpoint and return the event; a failure is logged."""
    try:
        checkpoint = copy_verified(trial, do.source, do.checkpoint_index)
    except OSError as error:
        logger.warning(
            "The trial %s keeps its own weights: the checkpoint %s cannot be copied: %s",
            trial,
            do.source.path,
            error,
        )
        return events.CheckpointCopied(trial_id=do.trial_id, checkpoint=None, problem=str(error))
    return events.CheckpointCopied(trial_id=do.trial_id, checkpoint=checkpoint)


def copy_verified(trial: Trial, source: Checkpoint, index: int) -> Checkpoint:
    """Copy `source` to checkpoint number `index` of the trial and compare the hashes.

    Raises:
        OSError: The copy failed or differs.
    """
    storage, name = trial.storage, checkpoint_dir_name(index)
    before = digest(source)
    staged = storage.stage(source, name, rank=0, token=f"copy-{index}")
    storage.sync(staged or name)
    copy = storage.commit(name, [staged])
    after = digest(copy)
    if before != after:
        storage.delete(copy)
        raise OSError(
            f"{copy.path!r} is a copy of {source.path!r} but differs from it (sha256 {after} and "
            f"{before}): the storage is probably failing."
        )
    return copy


def digest(checkpoint: Checkpoint) -> str:
    """Return the SHA-256 of the names and contents of a checkpoint's files."""
    total = hashlib.sha256()
    for name in sorted(files.list_directory(checkpoint.filesystem, checkpoint.path).files):
        total.update(name.encode() + b"\0")
        with checkpoint.filesystem.open_input_stream(files.join(checkpoint.path, name)) as stream:
            while chunk := stream.read(1 << 20):
                total.update(chunk)
    return total.hexdigest()


def _missing(storage: StorageContext, lines: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the lines that were not written before the kill; they are written in order."""
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
