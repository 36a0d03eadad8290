"""`RegularUploads`: sends a record that lies elsewhere there every few seconds, from a thread. So
it can be looked at while it grows, and a kill costs no more than these seconds of it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

UPLOAD_EVERY_S = 10.0
FIRST_UPLOAD_S = 2.0
"""When it does so first: that a run has begun, and where, is to be seen soon."""

logger = logging.getLogger("syncline")


class RegularUploads:
    """The thread. What `upload` raises is passed over: it is called again, and whoever ends the
    record uploads, too.

    Args:
        upload: Sends what is new. Called from the thread.
        every_s: Seconds between two calls.
    """

    def __init__(self, upload: Callable[[], None], every_s: float = UPLOAD_EVERY_S) -> None:
        self._upload = upload
        self._every_s = every_s
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless that is done."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="syncline-record", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End. Waits for an upload that is under way."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        pause_s = min(FIRST_UPLOAD_S, self._every_s)
        while not self._end.wait(pause_s):
            pause_s = self._every_s
            try:
                self._upload()
            except Exception as error:  # filesystems raise errors of all kinds
                logger.debug(
                    "the record of the run could not be uploaded, which is tried again: %r", error
                )
