"""Upload of checkpoints from a worker to the run directory.

`CheckpointUpload` says how the files of one report reach the storage and performs the upload.
`Uploader` is the thread for work that `report` does not wait for: uploads with ASYNC, and the
synchronization with the disk. It is first in, first out.

Every waiting upload is a checkpoint on the disk of this machine. If uploads are slower than
reports, they would fill it. Therefore `submit` waits while `MAX_WAITING` uploads are queued:
training slows down to the speed of the storage, and a warning is logged once.
"""

from __future__ import annotations

import errno
import logging
import queue
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pyarrow import fs as pyarrow_fs

from syncline import faults
from syncline.storage.filesystem import Listing, list_directory
from syncline.train.checkpoint import Checkpoint, CheckpointUploadMode
from syncline.train.session import ReportCall
from syncline.train.workers.messages import CheckpointPart
from syncline.train.workers.spec import WorkerSpec

T = TypeVar("T")
logger = logging.getLogger("syncline")

MAX_WAITING = 4
"""Uploads of a rank that may wait while one is in progress."""


@dataclass(frozen=True, kw_only=True)
class CheckpointUpload:
    """Upload of the files of one report."""

    spec: WorkerSpec
    call: ReportCall
    checkpoint: Checkpoint
    index: int
    """Number of the report."""
    dir_name: str
    mode: CheckpointUploadMode
    files: Listing | None
    """Files at the time of the call; None if syncline copies nothing or the source is missing."""
    states: bytes
    """Result of `Readers.capture` at the time of the call."""

    @classmethod
    def of(
        cls, call: ReportCall, spec: WorkerSpec, *, index: int, dir_name: str, states: bytes
    ) -> CheckpointUpload:
        """Return the upload of a report and list its files.

        Raises:
            TypeError: The checkpoint of the call is not a `Checkpoint`.
            ValueError: Unknown upload mode.
        """
        checkpoint = call.checkpoint
        if not isinstance(checkpoint, Checkpoint):
            raise TypeError(
                f"report(checkpoint=…) got a {type(checkpoint).__name__} instead of a Checkpoint. "
                "Save the files in a directory and pass `Checkpoint.from_directory(directory)`."
            )
        mode = CheckpointUploadMode(call.upload_mode)
        files = None
        if isinstance(checkpoint, SavedCheckpoint):
            if mode is CheckpointUploadMode.NO_UPLOAD:
                raise ValueError(
                    "report(checkpoint_upload_mode=NO_UPLOAD) got the result of `train.save`, "
                    "whose file is not in the run directory. Use ASYNC."
                )
        elif call.upload_fn is None and mode is not CheckpointUploadMode.NO_UPLOAD:
            try:
                files = list_directory(checkpoint.filesystem, checkpoint.path)
            except FileNotFoundError:
                files = None  # the upload raises
        return cls(
            spec=spec,
            call=call,
            checkpoint=checkpoint,
            index=index,
            dir_name=dir_name,
            mode=mode,
            files=files,
            states=states,
        )

    def run(self, *, owns_source: bool = False) -> CheckpointPart:
        """Bring files and reader states to the storage; return their location.

        Args:
            owns_source: Move the files, because no one else uses them.

        Raises:
            FileNotFoundError: A file is gone.
            OSError: The copy failed.
            ValueError: The checkpoint or the result of `checkpoint_upload_fn` is outside the run
                directory.
        """
        if isinstance(self.checkpoint, SavedCheckpoint):
            return self.checkpoint.write(self)
        storage, rank = self.spec.storage, self.spec.worker.rank
        dir_name, staged = self.dir_name, None
        delete_source = self.call.delete_local
        if delete_source is None:
            delete_source = self.mode.deletes_source_by_default
        deletes = (
            delete_source
            and self.mode is not CheckpointUploadMode.NO_UPLOAD
            and storage.is_separate(self.checkpoint)
        )
        if self.call.upload_fn is not None:
            uploaded = self.call.upload_fn(self.checkpoint, dir_name)
            if not isinstance(uploaded, Checkpoint):
                raise ValueError(
                    f"`checkpoint_upload_fn` returned a {type(uploaded).__name__}. Return a "
                    "Checkpoint for the location of the uploaded files."
                )
            dir_name = storage.name_of(uploaded)
            storage.write_states(dir_name, rank, self.states)
        elif self.mode is CheckpointUploadMode.NO_UPLOAD:
            dir_name = storage.name_of(self.checkpoint)
            storage.write_states(dir_name, rank, self.states)
        else:
            staged = storage.stage(
                self.checkpoint,
                dir_name,
                rank=rank,
                token=f"{self.spec.token}-{self.index:06d}",
                listing=self.files,
                states=self.states,
                move=deletes or owns_source,
            )
        faults.reach("train.uploaded")
        if deletes:
            shutil.rmtree(self.checkpoint.path, ignore_errors=True)
        return CheckpointPart(dir_name=dir_name, staged=staged, validation=self.call.validation)

    def run_later(self) -> CheckpointPart:
        """Run in the upload thread; explain errors caused by deleted files."""
        try:
            return self.run()
        except FileNotFoundError as error:
            if self.files is None:
                raise
            raise FileNotFoundError(
                errno.ENOENT,
                "The files of a checkpoint reported with ASYNC were changed before their upload. "
                "Do not change them after `report`, and use no `tempfile.TemporaryDirectory()` "
                "around it: syncline deletes them",
                error.filename,
            ) from error


class SavedCheckpoint(Checkpoint):
    """Checkpoint in shared memory. `report` has its file written by another process.

    Args:
        path: Local directory for the file until it is in the storage of the run.
        write: Writes the file, brings it to the storage, and releases the memory. Called once, by
            `report`, or with ASYNC by the upload thread.
    """

    def __init__(self, path: str, write: Callable[[CheckpointUpload], CheckpointPart]) -> None:
        super().__init__(path, pyarrow_fs.LocalFileSystem())
        self.write = write


class Uploader(Generic[T]):
    """Calls `upload` with submitted items, in order, in a thread that starts with the first item.

    Args:
        upload: Processes one item.
        fail: Called with the first error, in the thread. All items after it are dropped.
    """

    def __init__(self, upload: Callable[[T], None], fail: Callable[[BaseException], None]) -> None:
        self._upload = upload
        self._fail = fail
        self._queue: queue.Queue[T | None] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._has_warned = False

    def submit(self, item: T) -> None:
        """Queue an item; wait while `MAX_WAITING` items are queued."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="syncline-upload", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "Checkpoint uploads are slower than reports: `report` waits while %d uploads "
                    "are queued, so that they do not fill the disk of this machine. Report "
                    "checkpoints less often, or smaller ones.",
                    MAX_WAITING,
                )
            self._queue.put(item)

    def finish(self, limit_s: float | None = None) -> None:
        """Wait up to `limit_s` for all items. Nothing may be submitted afterwards."""
        if self._thread is None:
            return
        began = time.monotonic()
        try:
            self._queue.put(None, timeout=limit_s)
        except queue.Full:
            return
        self._thread.join(
            None if limit_s is None else max(0.0, limit_s - (time.monotonic() - began))
        )

    def _run(self) -> None:
        failed = False
        while (item := self._queue.get()) is not None:
            try:
                if not failed:
                    self._upload(item)
            except BaseException as error:
                failed = True
                self._fail(error)
