"""`TrialFiles`: an append-only file per running trial.

If the trial's directory is local, `append` returns after the row was written to the file; killing
the program loses no rows. Remote storage can only replace whole files, so rows are collected in a
temporary directory and uploaded in the background, at each checkpoint and at the trial's end.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syncline.runs.record_files import append_whole
from syncline.tune.logger.background_calls import BackgroundCalls

if TYPE_CHECKING:
    from syncline.train.storage.context import ArrowFiles
    from syncline.tune.experiment.trial import Trial

OPEN_FILES = 128
"""Maximum number of open files per logger; processes are often limited to 1024 descriptors."""
UPLOADS = 4
"""Maximum number of concurrent uploads."""
UPLOAD_TIMEOUT_S = 1800.0
"""Seconds that the end of a search waits for uploads."""


@dataclass(kw_only=True)
class _TrialFile:
    path: str
    """Path of the local file to which rows are appended."""
    name: str
    """The file's name in the trial's directory."""
    files: ArrowFiles | None
    """The trial's directory if it is remote."""
    descriptor: int | None = None


class TrialFiles:
    """The files of one logger. Not thread-safe. A pickled instance is empty.

    Args:
        purpose: Description of the uploads for warnings, such as "Uploading result.json".
    """

    def __init__(self, purpose: str) -> None:
        self._trial_files: dict[str, _TrialFile] = {}
        self._open: dict[str, _TrialFile] = {}
        self._uploading = BackgroundCalls(purpose, threads=UPLOADS)
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def begin(self, trial: Trial, name: str, keep: Callable[[bytes], int]) -> None:
        """Append the rows of `trial` to the file `name` from now on.

        Args:
            trial: The trial that starts or restarts.
            name: The file's name in the trial's directory.
            keep: Returns how many leading bytes of the existing content to keep; the file is
                truncated there. The content is empty if there is no file.
        """
        self._close(trial.trial_id)
        file = self._trial_files.get(trial.trial_id)
        if file is None or file.name != name:
            file = self._trial_files[trial.trial_id] = self._find(trial, name)
        content = _read(file.path)
        size = keep(content)
        if size < len(content):
            os.truncate(file.path, size)

    def is_open(self, trial: Trial) -> bool:
        """Return True between `begin` and `end` of the trial."""
        return trial.trial_id in self._trial_files

    def append(self, trial: Trial, row: bytes) -> None:
        """Append a row. If that fails with OSError (disk full), the file stays unchanged."""
        file = self._trial_files[trial.trial_id]
        if file.descriptor is None:
            self._reopen(trial.trial_id, file)
        assert file.descriptor is not None
        append_whole(file.descriptor, row)

    def rewrite(self, trial: Trial, change: Callable[[bytes], bytes]) -> None:
        """Replace the whole content atomically."""
        self._close(trial.trial_id)
        path = self._trial_files[trial.trial_id].path
        temporary = f"{path}.tmp"
        with open(temporary, "wb") as file:
            file.write(change(_read(path)))
        os.replace(temporary, path)

    def put(self, trial: Trial, name: str, data: bytes) -> None:
        """Write another file to the trial's directory."""
        if trial.local_path is None:
            self._uploading.call(trial.storage.files.write, name, data, key=trial.trial_id)
            return
        path = os.path.join(_existing(trial.local_path), name)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            append_whole(descriptor, data)
        finally:
            os.close(descriptor)

    def upload(self, trial: Trial) -> None:
        """Start to upload the file if the trial's directory is remote."""
        self._upload(trial.trial_id)

    def _upload(self, trial_id: str) -> None:
        file = self._trial_files.get(trial_id)
        if file is not None and file.files is not None:
            self._uploading.call(_upload, file.files, file.name, file.path, key=trial_id)

    def end(self, trial: Trial) -> None:
        """Close the trial's file and start to upload it."""
        self._close(trial.trial_id)
        self.upload(trial)
        file = self._trial_files.pop(trial.trial_id, None)
        if file is not None and file.files is not None:
            self._uploading.call(os.unlink, file.path, key=trial.trial_id)

    def close(self) -> None:
        """Close all files and wait for the uploads."""
        for trial_id in self._trial_files:
            self._close(trial_id)
            self._upload(trial_id)
        self._trial_files.clear()
        self._uploading.close(UPLOAD_TIMEOUT_S)
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def _find(self, trial: Trial, name: str) -> _TrialFile:
        """Create the trial's local file, with the earlier content of a remote file."""
        if trial.local_path is not None:
            path = os.path.join(_existing(trial.local_path), name)
            return _TrialFile(path=path, name=name, files=None)
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(
                prefix="syncline-tune-", ignore_cleanup_errors=True
            )
        # A trial that starts from scratch keeps nothing, so there is nothing to download.
        earlier = trial.storage.files.read(name) if trial.restored_iteration else None
        descriptor, path = tempfile.mkstemp(dir=self._directory.name)
        with open(descriptor, "wb") as file:
            file.write(earlier or b"")
        return _TrialFile(path=path, name=name, files=trial.storage.files)

    def _reopen(self, trial_id: str, file: _TrialFile) -> None:
        if len(self._open) >= OPEN_FILES:
            self._close(next(iter(self._open)))
        file.descriptor = os.open(
            file.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666
        )
        self._open[trial_id] = file

    def _close(self, trial_id: str) -> None:
        file = self._open.pop(trial_id, None)
        if file is not None and file.descriptor is not None:
            os.close(file.descriptor)
            file.descriptor = None

    def __getstate__(self) -> dict[str, object]:
        return {"_trial_files": {}, "_open": {}, "_uploading": self._uploading, "_directory": None}


def _existing(directory: str) -> str:
    """Create a directory if it is missing. To look is much cheaper than to try."""
    if not os.path.isdir(directory):
        os.makedirs(directory, exist_ok=True)
    return directory


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _upload(files: ArrowFiles, name: str, path: str) -> None:
    files.write(name, _read(path))
