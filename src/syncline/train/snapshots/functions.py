"""Functions for training functions: `snapshot`, `get_snapshot`, `register_state` and `save`."""

from __future__ import annotations

import os
from typing import Any

from syncline.train.checkpoint import Checkpoint
from syncline.train.session import get_session
from syncline.train.snapshots.capture import is_stateful
from syncline.train.snapshots.config import check_seconds


def snapshot(state: object, *, every_s: float | None = None) -> None:
    """Copy the state of this rank into shared memory, where it survives the processes of the run.

    Every rank calls this equally often, usually once per step, after the step's last change of the
    state. If a worker dies, the next attempt starts from the newest snapshot that all ranks have:
    `get_snapshot` returns its state, and data loaders and random-number generators continue there.
    The snapshot remains for ten minutes after the program has died, and a rerun of the same name
    starts from it if it is newer than the last checkpoint.

    Contiguous tensors are copied at the speed of memory; the first two snapshots of a process take
    a few times longer, as the system allocates memory for them. Two snapshots per rank are kept.
    If they do not fit into memory, an error is logged once, and no more are taken.

    Args:
        state: Tensors, arrays and plain values in dictionaries, lists and tuples, and objects with
            `state_dict` and `load_state_dict`, such as modules and optimizers.
        every_s: Seconds between two snapshots; None for a snapshot in every call.

    Raises:
        TypeError: Part of `state` cannot be captured, such as a generator or a socket; the message
            names it.
        ValueError: `every_s` is negative, or `RunConfig(snapshot=…)` takes automatic snapshots.
        RuntimeError: Outside of a training function, or the attempt starts from a snapshot that
            `get_snapshot` has not returned yet.
    """
    session = get_session("snapshot")
    check_seconds("`train.snapshot(every_s=…)`", every_s or 0.0)
    snapshots = session.snapshots
    if snapshots is None:
        return
    if snapshots.spec.is_automatic:
        raise ValueError(
            "`train.snapshot()` was called although `RunConfig(snapshot=…)` takes automatic "
            "snapshots. Set `SnapshotConfig(automatic=False)`, or register the state with "
            "`train.register_state()` and leave the call out."
        )
    if snapshots.advance(every_s or 0.0):
        snapshots.take(state, session.readers.capture(), session.next_report)


def get_snapshot() -> Any:
    """Return the state of this rank in the memory snapshot that this attempt starts from.

    Call it at the start of the training function, before `get_checkpoint`: if there is a snapshot,
    it is newer than every checkpoint. Tensors are on the CPU, and objects that have `state_dict`
    are returned as their state dicts. Random-number generators are restored.

    Returns:
        The `state` of `snapshot`; None if the attempt does not start from a snapshot, in later
        calls, and with automatic snapshots.

    Raises:
        RuntimeError: Outside of a training function.
    """
    session = get_session("get_snapshot")
    snapshots = session.snapshots
    if snapshots is None or snapshots.spec.is_automatic:
        return None
    if not snapshots.is_fetched:
        session.readers.restore_random_without_reader()
    return snapshots.load()


def save(state: object, *, file_name: str = "state.pt") -> Checkpoint:
    """Copy the state of this rank into shared memory; return a checkpoint of it for `report`.

    Another process serializes the state with `torch.save` and brings the file to the storage, so
    with ASYNC the training function waits only for the copy:

        checkpoint = train.save({"model": model, "optimizer": optimizer, "epoch": epoch})
        train.report(metrics, checkpoint, checkpoint_upload_mode=train.CheckpointUploadMode.ASYNC)

    Two states per rank may be on their way; further calls wait. The checkpoint has one file, for
    `torch.load`, and can be reported once; its memory is released by the report or with the object.
    A state that does not fit into memory is written by this call, and so it is with
    `num_workers=0`, or while the program keeps two checkpoints that it has not reported.

    Args:
        state: As in `snapshot`.
        file_name: Name of the file. If several ranks save, give each one its own name.

    Raises:
        TypeError: Part of `state` cannot be saved; the message names it. Or `file_name` is not a
            string.
        ValueError: `file_name` is not a plain name.
        RuntimeError: Outside of a training function.
    """
    if not isinstance(file_name, str):
        raise TypeError(f'`train.save(file_name={file_name!r})` is not a string: pass "state.pt".')
    if not file_name or os.path.basename(file_name) != file_name or file_name in (".", ".."):
        raise ValueError(
            f"`train.save(file_name={file_name!r})` must be a file name without directories."
        )
    return get_session("save").save(state, file_name)


def register_state(**values: object) -> None:
    """Add state of the program to automatic snapshots, and restore it if the attempt starts from
    one.

    Call it after the program has loaded a checkpoint, if any. Without automatic snapshots it only
    checks its arguments.

    Args:
        **values: Objects with `state_dict` and `load_state_dict` (learning-rate schedules, averaged
            models), and dictionaries of plain values, tensors and arrays, whose items are replaced.

    Raises:
        TypeError: A value is neither.
        ValueError: A name is registered already.
        RuntimeError: Outside of a training function.
    """
    session = get_session("register_state")
    for name, value in values.items():
        if not isinstance(value, dict) and not is_stateful(value):
            raise TypeError(
                f"`register_state({name}=…)` got a {type(value).__name__}, which has no "
                "`state_dict()` and `load_state_dict(state)`: pass an object that has them, or a "
                "dictionary whose items the program changes."
            )
        if session.snapshots is not None:
            session.snapshots.register(name, value)
