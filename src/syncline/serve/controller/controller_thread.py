"""`ControllerThread`: the event loop of the controller, in a thread of its actor."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import threading
from concurrent.futures import Future
from pathlib import Path

from syncline.core.api import ensure_engine
from syncline.core.event_loops import cancel_all
from syncline.serve.controller.driver import Controller
from syncline.serve.controller.snapshot import ActorStore, FileStore, SnapshotStore, SnapshotWriter
from syncline.serve.event_loop import new_event_loop
from syncline.serve.monitoring.recorder import ServeRecorder, record_path
from syncline.serve.wire.routes import Address

logger = logging.getLogger("syncline.serve")

START_S = 60.0


class ControllerThread:
    """Runs a `Controller`. Any thread may call the methods."""

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._started: Future[tuple[Address, bytes]] = Future()
        self._controller: Controller | None = None
        self._thread = threading.Thread(target=self._run, name="serve-controller", daemon=True)

    def start(self) -> None:
        """Start, and wait until the controller listens; raise its error if it cannot."""
        self._thread.start()
        self._started.result(START_S)

    def address(self) -> tuple[Address, bytes]:
        """Return the address of the controller and the key of the session."""
        if not self._thread.is_alive():
            raise RuntimeError("the event loop of the controller has ended")
        return self._started.result(START_S)

    def close(self) -> None:
        """Stop listening, and remove the files of the session."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(START_S)

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            cluster = ensure_engine().outlives_driver
            directory = socket_directory()
            store: SnapshotStore = ActorStore() if cluster else FileStore(directory)
            recorder = start_recorder(directory)
            controller = Controller(loop, SnapshotWriter(store), directory, recorder=recorder)
            address = loop.run_until_complete(controller.start())
        except BaseException as error:
            self._started.set_exception(error)
            return
        self._started.set_result((address, controller.key))
        try:
            loop.run_forever()
        except BaseException:
            logger.exception("The event loop of the controller failed; the process restarts")
            os._exit(1)
        controller.close()
        if recorder is not None:
            recorder.close()
        loop.run_until_complete(cancel_all())
        shutil.rmtree(directory, ignore_errors=True)


def start_recorder(directory: Path) -> ServeRecorder | None:
    """Return the running recorder of the session; None if its directory cannot be written."""
    try:
        recorder = ServeRecorder(record_path(str(directory)))
        recorder.start()
    except OSError as error:
        logger.warning("Serve runs without a record because it cannot be written: %s", error)
        return None
    return recorder


def socket_directory() -> Path:
    """Return the directory of serve's sockets and files in this session, with mode 0700."""
    directory = ensure_engine().session_directory / "serve"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory
