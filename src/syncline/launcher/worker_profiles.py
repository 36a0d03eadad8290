"""Requests for profiles that a worker takes of itself.

The worker has a handler of a rarely used signal. It reads the request from memory that the launcher
finds through `/proc`, and serves it on a thread. `profile_tools` has the launcher's side.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

SIGNAL = signal.SIGRTMAX - 4
"""A rarely used signal; without `offer` it would end the process."""
_NAME = "syncline-profile"
_REQUEST_BYTES = 65_536


def memory_of(pid: int) -> Path | None:
    """Return the memory for requests to a process; None if it serves none."""
    try:
        return next(
            (fd for fd in Path(f"/proc/{pid}/fd").iterdir() if _NAME in os.readlink(fd)), None
        )
    except OSError:
        return None


def offer() -> None:
    """Serve requests of the launcher in this process, whose main thread calls this."""
    fd = os.memfd_create(_NAME)

    def serve(number: int, frame: object) -> None:
        data = os.pread(fd, _REQUEST_BYTES, 0)
        threading.Thread(target=_serve, args=(data,), name=_NAME, daemon=True).start()

    signal.signal(SIGNAL, serve)


def _serve(data: bytes) -> None:
    with suppress(Exception):  # never affect the script
        arguments = json.loads(data)
        try:
            from syncline.launcher import profile_tools  # loads much of the library

            problem = profile_tools.record_here(arguments, Path(arguments["target"]))
        except Exception as error:
            problem = str(error)
        reply = Path(arguments["reply"])
        scratch = reply.with_suffix(".tmp")
        scratch.write_text(json.dumps({"problem": problem}))
        scratch.rename(reply)
