"""The engine of this process: `init`, `shutdown`, the start on first use, and what becomes of it in
forked children.

Parsing the arguments of `init` is in `init_arguments`.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import platform
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from syncline import settings
from syncline.core import engines, init_arguments, refs
from syncline.core.config import EngineConfig
from syncline.core.engine import Engine

logger = logging.getLogger("syncline")

after_fork_hooks: list[Callable[[Engine], None]] = []
"""Called in a child that this process forked, with the engine of the parent, when this process has
let go of it. A hook may give the child an engine of its own with `refs.set_engine`.
"""

shutdown_hooks: list[Callable[[], None]] = []
"""Called before this process's engine ends: what works on it is ended, and handles of its actors
are let go.
"""


class InitContext:
    """What `init` returns: facts about the engine, and a context manager that ends it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.dashboard_url = engine.dashboard_url
        self.python_version = platform.python_version()

    @property
    def address_info(self) -> dict[str, Any]:
        """Where things are, under Ray's keys; what does not exist here is empty."""
        facts = self._engine.facts()
        return {
            "address": self._engine.address,
            "gcs_address": "" if self._engine.address == "local" else self._engine.address,
            "node_id": facts.node_id,
            "node_ip_address": self._engine.node_address(),
            "session_dir": str(self._engine.session_directory),
            "webui_url": self.dashboard_url or "",
        }

    def __getitem__(self, key: str) -> Any:
        return self.address_info[key]

    def disconnect(self) -> None:
        """End the engine."""
        shutdown()

    def __enter__(self) -> InitContext:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        shutdown()

    def __repr__(self) -> str:
        return f"InitContext(session_dir={str(self._engine.session_directory)!r})"


class _Process:
    """What this process knows of its engine."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.started: Engine | None = (
            None  # the engine that `init` started here; in a worker there is one that it did not
        )
        self.cleans_up = False
        self.forked_from: int | None = None


_process = _Process()


def init(address: str | None = None, **arguments: Any) -> InitContext:
    """Start syncline on this machine, or connect to a cluster. Without it, the first use does, with
    the defaults.

    address: of a cluster: "auto" (the Ray that runs on this machine), "host:port",
    "ray://host:port", or "local" for a new Ray on this machine alone; by default the setting
    SYNCLINE_ADDRESS, and without it no cluster. num_cpus, num_gpus, resources, memory: what tasks
    may share (default: what this process may use; more is allowed, and pretended).
    object_store_memory: bytes of shared memory for objects. runtime_env: `env_vars`, `working_dir`,
    `py_modules` of every worker. namespace: of actors' names. local_mode: run everything in this
    process, in order, for debuggers. ignore_reinit_error: calling twice is no error. logging_level:
    of syncline's logger. log_to_driver: whether what workers print is shown.

    Other arguments of `ray.init` are accepted and mean nothing here. In a worker nothing happens.
    Raises RuntimeError where syncline runs already, ValueError and TypeError for impossible
    arguments.
    """
    arguments = init_arguments.known(arguments)
    with _process.lock:
        running = refs._engine
        if running is not None:
            if _process.started is None or arguments.get("ignore_reinit_error"):
                return InitContext(running)
            raise RuntimeError(
                "syncline runs already, so `init()` cannot start it again: call `shutdown()` before, or pass `ignore_reinit_error=True`. "
                "(The first use of a task, an actor or `put` starts it too: call `init` before that.)"
            )
        local_mode = bool(arguments.get("local_mode"))
        given = address if address is not None else arguments.pop("address", None)
        cluster = None if local_mode else (settings.address() if given is None else given) or None
        config = init_arguments.engine_config(arguments, cluster)
        return InitContext(
            _start("inline" if local_mode else "embedded" if cluster is None else "cluster", config)
        )


def _start(name: engines.EngineName, config: EngineConfig) -> Engine:
    logger.setLevel(config.logging_level)
    engine = engines.start(name, config)
    if not _process.cleans_up:
        atexit.register(shutdown)
        _process.cleans_up = True
    _process.started = engine
    _process.forked_from = None
    refs.set_engine(engine)
    return engine


def shutdown(_exiting_interpreter: bool = False) -> None:
    """End every task, actor and worker, and free every object. Calling it twice is allowed; in a
    worker nothing happens.
    """
    if _process.started is not None:
        for hook in shutdown_hooks:
            hook()
    with _process.lock:
        engine, _process.started = _process.started, None
        if engine is None:
            return
        try:
            engine.shutdown()
        finally:
            refs.set_engine(None)


def is_initialized() -> bool:
    """Whether syncline runs in this process."""
    return refs._engine is not None


def is_program() -> bool:
    """Whether this process started its engine, or connected it to a cluster: a program does, a
    worker does not.
    """
    return _process.started is not None


def ensure_engine() -> Engine:
    """The engine of this process, started now if need be. RuntimeError in a child that a program
    forked while its engine ran.
    """
    engine = refs._engine
    if engine is not None:
        return engine
    with _process.lock:
        if refs._engine is None:
            session = settings.session()
            if session is not None and multiprocessing.parent_process() is not None:
                refs.set_engine(engines.join(session))
                return refs.current_engine()
            if _process.forked_from is not None:
                raise RuntimeError(
                    f"this process (pid={os.getpid()}) was forked from a program that runs syncline (pid={_process.forked_from}), and "
                    f"connections do not survive a fork: start it with multiprocessing's 'spawn' method, do the work in a remote "
                    f"function, or call `syncline.init()` here for an engine of its own."
                )
            init()
        return refs.current_engine()


def _after_fork_in_child() -> None:
    engine = refs._engine
    _process.lock = threading.RLock()  # another thread of the parent may have held it
    if engine is None:
        return
    _process.started = None
    _process.forked_from = os.getppid()
    refs.set_engine(None)
    engine.abandon_after_fork()
    for hook in after_fork_hooks:
        hook(engine)


os.register_at_fork(after_in_child=_after_fork_in_child)
