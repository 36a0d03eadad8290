"""`TrialFiles`: one file for each running trial, to which rows are added.

On this machine they lie in the trials' directories, and every row is in its file when `append`
returns: a kill of the program loses none. Elsewhere, where files can only be replaced whole, they
are collected in a temporary directory and uploaded in the background, at a trial's checkpoints and
at its end.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syncline.tune.logger.background import Background

if TYPE_CHECKING:
    from syncline.train.storage.context import ArrowFiles
    from syncline.tune.experiment.trial import Trial

OPEN_FILES = 128
"""So many files of one kind are open at a time; a process may often have no more than 1024, and a
search may have more trials.
"""
UPLOADS = 4
"""So many uploads run at a time."""
UPLOAD_TIMEOUT_S = 1800.0
"""So long the end of a search waits for them."""


@dataclass(kw_only=True)
class _Place:
    path: str
    """Where rows are added, on this machine."""
    name: str
    """The file's name in the trial's directory."""
    files: ArrowFiles | None
    """The trial's directory, where it is elsewhere."""
    descriptor: int | None = None


class TrialFiles:
    """Files of one kind. Not thread-safe. Can be pickled, and is empty then.

    Args:
        purpose: What their uploading is, for warnings: "Uploading result.json".
    """

    def __init__(self, purpose: str) -> None:
        self._places: dict[str, _Place] = {}
        self._open: dict[str, _Place] = {}
        self._uploading = Background(purpose, threads=UPLOADS)
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def begin(self, trial: Trial, name: str, keep: Callable[[bytes], int]) -> None:
        """Rows of `trial` go into the file `name` from now on.

        Args:
            trial: Whose rows.
            name: The file's name in the trial's directory.
            keep: Given the file's content (empty if there is none), says how many bytes at its
                beginning stay; the rest is cut off.
        """
        self._close(trial.trial_id)
        place = self._places.get(trial.trial_id)
        if place is None or place.name != name:
            place = self._places[trial.trial_id] = self._find(trial, name)
        content = _read(place.path)
        size = keep(content)
        if size < len(content):
            os.truncate(place.path, size)

    def knows(self, trial: Trial) -> bool:
        """Whether `begin` has been called, and `end` has not."""
        return trial.trial_id in self._places

    def append(self, trial: Trial, row: bytes) -> None:
        """Add a row to the trial's file. OSError, and the file is as it was, where there is no room
        for it.
        """
        place = self._places[trial.trial_id]
        if place.descriptor is None:
            self._reopen(trial.trial_id, place)
        assert place.descriptor is not None
        _write(place.descriptor, row)

    def rewrite(self, trial: Trial, change: Callable[[bytes], bytes]) -> None:
        """Change the whole content; a reader sees the old one or the new."""
        self._close(trial.trial_id)
        path = self._places[trial.trial_id].path
        temporary = f"{path}.tmp"
        with open(temporary, "wb") as file:
            file.write(change(_read(path)))
        os.replace(temporary, path)

    def put(self, trial: Trial, name: str, data: bytes) -> None:
        """Write another file of the trial, whole."""
        if trial.local_path is None:
            self._uploading.call(trial.storage.files.write, name, data, key=trial.trial_id)
            return
        os.makedirs(trial.local_path, exist_ok=True)
        with open(os.path.join(trial.local_path, name), "wb") as file:
            file.write(data)

    def upload(self, trial: Trial) -> None:
        """Have the file brought to where the trial's directory is, if that is elsewhere."""
        place = self._places.get(trial.trial_id)
        if place is not None and place.files is not None:
            self._uploading.call(_upload, place.files, place.name, place.path, key=trial.trial_id)

    def end(self, trial: Trial) -> None:
        """The trial has ended: close its file and have it uploaded."""
        self._close(trial.trial_id)
        self.upload(trial)
        place = self._places.pop(trial.trial_id, None)
        if place is not None and place.files is not None:
            self._uploading.call(os.unlink, place.path, key=trial.trial_id)

    def close(self) -> None:
        """The search is over: close all files, and wait for the uploads."""
        for trial_id, place in list(self._places.items()):
            self._close(trial_id)
            if place.files is not None:
                self._uploading.call(_upload, place.files, place.name, place.path, key=trial_id)
        self._places.clear()
        self._uploading.close(UPLOAD_TIMEOUT_S)
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def _find(self, trial: Trial, name: str) -> _Place:
        """Where the trial's rows go, with what is there already."""
        if trial.local_path is not None:
            os.makedirs(trial.local_path, exist_ok=True)
            return _Place(path=os.path.join(trial.local_path, name), name=name, files=None)
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(
                prefix="syncline-tune-", ignore_cleanup_errors=True
            )
        # A trial that begins from scratch keeps nothing, so it is not worth asking for.
        earlier = trial.storage.files.read(name) if trial.restored_iteration else None
        descriptor, path = tempfile.mkstemp(dir=self._directory.name)
        with open(descriptor, "wb") as file:
            file.write(earlier or b"")
        return _Place(path=path, name=name, files=trial.storage.files)

    def _reopen(self, trial_id: str, place: _Place) -> None:
        if len(self._open) >= OPEN_FILES:
            self._close(next(iter(self._open)))
        place.descriptor = os.open(
            place.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666
        )
        self._open[trial_id] = place

    def _close(self, trial_id: str) -> None:
        place = self._open.pop(trial_id, None)
        if place is not None and place.descriptor is not None:
            os.close(place.descriptor)
            place.descriptor = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_places": {}, "_open": {}, "_uploading": self._uploading, "_directory": None}


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _write(descriptor: int, row: bytes) -> None:
    written = 0
    try:
        while written < len(row):
            written += os.write(descriptor, row[written:])
    except OSError:
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise


def _upload(files: ArrowFiles, name: str, path: str) -> None:
    files.write(name, _read(path))
