"""Fencing: only the latest controller of a run writes its record.

The cluster gives up a controller whose node was disconnected, and another one continues the run.
The first may still be alive and reach the storage. Therefore each controller writes a fencing token
into the run directory when it starts, and checks the token before each write that matters. Check
and write are two steps: a controller that is superseded in between (microseconds on a local
filesystem, one request elsewhere; the milliseconds of a batch for metrics) is not stopped.
"""

from __future__ import annotations

import json
import os
import secrets
import socket

from syncline.train.storage.context import ArrowFiles

CONTROLLER_FILE = "controller.json"


class FencingToken:
    """Token of one controller in a run directory; supersedes the token that was there."""

    def __init__(self, files: ArrowFiles) -> None:
        self._files = files
        local = files.local_path
        self._path = None if local is None else os.path.join(local, CONTROLLER_FILE)
        self._data = json.dumps(
            {"token": secrets.token_hex(16), "host": socket.gethostname(), "pid": os.getpid()}
        ).encode()
        files.write(CONTROLLER_FILE, self._data)
        self._file = self._identity()

    @property
    def is_superseded(self) -> bool:
        """True if another controller has started or the directory is gone.

        Takes microseconds on a local filesystem, one request elsewhere.
        """
        if self._path is not None:
            return self._identity() != self._file
        return self._files.read(CONTROLLER_FILE) != self._data

    def _identity(self) -> tuple[int, int] | None:
        """Return inode and time of a local file, which change when the file is replaced."""
        if self._path is None:
            return None
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns
