"""Requests for profiles that a worker takes of itself.

The handler of a signal reads the request, and a thread serves it. `profile_tools` has the
launcher's side.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

from syncline.core.embedded import process_memory
from syncline.launcher import profile_signal

_REQUEST_BYTES = 65_536


def offer() -> None:
    """Serve requests of the launcher in this process, whose main thread calls this."""
    fd = process_memory.create(profile_signal.NAME)

    def serve(number: int, frame: object) -> None:
        data = os.pread(fd, _REQUEST_BYTES, 0)
        threading.Thread(target=_serve, args=(data,), name=profile_signal.NAME, daemon=True).start()

    signal.signal(profile_signal.SIGNAL, serve)


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
