"""Who writes a run's record: the controller that came last.

A controller whose node was cut off is given up by the cluster, and another one continues the run;
but the first may live on, and reach the storage. So each writes its token into the run directory
when it begins, and looks whether it is still there before it writes anything that counts. Looking
and writing are two steps: a controller that is superseded between them, within microseconds on a
local filesystem and the time of a request elsewhere, is not stopped.
"""

from __future__ import annotations

import json
import os
import secrets
import socket

from syncline.train.storage import ArrowFiles

CONTROLLER_FILE = "controller.json"


class Tenure:
    """One controller's time in a run directory, which begins now and ends when another's begins
    there.
    """

    def __init__(self, files: ArrowFiles) -> None:
        self._files = files
        self._path = (
            None if files.local_path is None else os.path.join(files.local_path, CONTROLLER_FILE)
        )
        self._data = json.dumps(
            {"token": secrets.token_hex(16), "host": socket.gethostname(), "pid": os.getpid()}
        ).encode()
        files.write(CONTROLLER_FILE, self._data)
        self._file = self._identity()

    @property
    def is_over(self) -> bool:
        """Whether another controller has begun, or the directory is gone. Takes microseconds on a
        local filesystem, a request elsewhere.
        """
        if self._path is not None:
            return self._identity() != self._file
        return self._files.read(CONTROLLER_FILE) != self._data

    def _identity(self) -> tuple[int, int] | None:
        """What tells the file from one that has replaced it, where that can be told without reading
        it.
        """
        if self._path is None:
            return None
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns
