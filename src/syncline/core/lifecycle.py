"""The engine's life in this process: `init`, `shutdown`, start on first use, and forked children.

`config` parses the arguments of `init`.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import multiprocessing
import os
import platform
import threading
from collections.abc import Callable
from typing import Any, Literal

from syncline import settings
from syncline.core import config as configuration
from syncline.core import engine as engines
from syncline.core.config import EngineConfig
from syncline.core.engine import Engine, current_engine, set_engine
from syncline.core.logging_config import LoggingConfig

logger = logging.getLogger("syncline")

EngineName = Literal["cluster", "embedded", "inline"]

_ENTRY_POINTS = {
    "cluster": ("syncline.core.cluster.start", "start_engine"),
    "embedded": ("syncline.core.embedded.launch", "start_engine"),
    "inline": ("syncline.core.inline.engine", "InlineEngine"),
    "child": ("syncline.core.embedded.child_processes", "join"),
}
"""Module and function by engine, so that a program imports only the engine that it uses.

"child" is the engine of a process that a worker starts with multiprocessing.
"""

after_fork_hooks: list[Callable[[Engine], None]] = []
"""Called in a forked child with the parent's engine, after the child has dropped it.

A hook may give the child its own engine with `engine.set_engine`.
"""

shutdown_hooks: list[Callable[[], None]] = []
"""Called before this process's engine ends, to stop work on it and drop handles of its actors."""


class InitContext:
    """Result of `init`: facts about the engine, and a context manager that shuts it down."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.dashboard_url = engine.dashboard_url
        self.python_version = platform.python_version()

    @property
    def address_info(self) -> dict[str, str]:
        """Addresses and paths under Ray's keys; empty where they do not exist here."""
        address = self._engine.address
        return {
            "address": address,
            "gcs_address": "" if address == "local" else address,
            "node_id": self._engine.runtime_info().node_id,
            "node_ip_address": self._engine.node_address(),
            "session_dir": str(self._engine.session_directory),
            "webui_url": self.dashboard_url or "",
        }

    def __getitem__(self, key: str) -> str:
        return self.address_info[key]

    def disconnect(self) -> None:
        """Shut down the engine."""
        shutdown()

    def __enter__(self) -> InitContext:
        return self

    def __exit__(self, *_: object) -> None:
        shutdown()

    def __repr__(self) -> str:
        return f"InitContext(session_dir={str(self._engine.session_directory)!r})"


class _Process:
    """State of this process's engine."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.started: Engine | None = None
        """The engine that `init` started; None in a worker."""
        self.cleans_up = False
        self.forked_from: int | None = None


_process = _Process()


def init(address: str | None = None, **arguments: Any) -> InitContext:
    """Start syncline on this machine, or connect to a cluster.

    The first use of syncline calls it with the defaults.

    Args:
        address: Address of a cluster: "auto" (the Ray cluster on this machine), "host:port" or
            "ray://host:port"; "local" for syncline's own engine on this machine. The default is the
            setting SYNCLINE_ADDRESS, and without it "local".
        num_cpus, num_gpus, resources, memory: Resources for tasks. The default is what this process
            may use; larger amounts are accepted and only counted.
        object_store_memory: Bytes of shared memory for objects.
        runtime_env: `env_vars`, `working_dir` and `py_modules` of every worker.
        namespace: Namespace of actor names.
        wait_for_resources_s: Seconds to wait until other programs of this user on this machine
            leave `num_cpus` and `num_gpus` (by default everything), which this program then holds
            until it ends. By default `init` only warns of such programs.
        local_mode: Run everything in this process, in order, for debugging.
        ignore_reinit_error: Return instead of raising if syncline already runs.
        logging_config: Format and level of log records, a `LoggingConfig`.
        logging_level: Level of syncline's logger.
        log_to_driver: Print the output of workers.

    Other arguments of `ray.init` are checked and ignored. In a worker, nothing happens. Raises
    RuntimeError if syncline already runs, ValueError and TypeError for invalid arguments,
    ConnectionError if there is no cluster at `address`, TimeoutError after `wait_for_resources_s`.
    """
    arguments = configuration.known_arguments(arguments)
    with _process.lock:
        running = engines.current
        if running is not None:
            if _process.started is None or arguments.get("ignore_reinit_error"):
                return InitContext(running)
            raise RuntimeError(
                "syncline is already running, so `init()` cannot start it again: call `shutdown()` "
                "first, or pass `ignore_reinit_error=True`. (The first use of a task, an actor or "
                "`put` starts it too: call `init` before that.)"
            )
        local_mode = bool(arguments.get("local_mode"))
        given = address if address is not None else arguments.pop("address", None)
        cluster = None if local_mode else _cluster(given)
        config = configuration.engine_config(arguments, cluster)
        name: EngineName = "inline" if local_mode else "embedded" if cluster is None else "cluster"
        _configure_logging(arguments.get("logging_config"))
        return InitContext(_start(name, config))


def _configure_logging(given: object) -> None:
    if given is None:
        return
    if not isinstance(given, LoggingConfig):
        raise TypeError(
            f"`logging_config={given!r}` is a {type(given).__name__}: "
            f"pass a `syncline.LoggingConfig`"
        )
    given.apply()


def _cluster(given: str | None) -> str | None:
    """Return the address of a cluster; None for this machine."""
    if given is not None and not isinstance(given, str):
        raise TypeError(
            f"`address={given!r}` is a {type(given).__name__}: give 'auto', 'local', 'host:port' "
            f"or 'ray://host:port'"
        )
    chosen = settings.address() if given is None else given
    if chosen == "auto" and settings.is_local_job():
        return None  # the job's cluster is this machine
    return None if chosen in (None, "", "local") else chosen


def init_quietly(address: str) -> None:
    """Call `init` without output of workers, for tools that only inspect; "" for this machine.

    Raises:
        ConnectionError: The engine did not start, or no cluster answered; the message says why.
    """
    try:
        init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (ModuleNotFoundError, OSError, RuntimeError, ValueError) as error:
        raise ConnectionError(str(error)) from error


def load_engine(name: EngineName, config: EngineConfig) -> Engine:
    """Import and start an engine."""
    if name == "cluster" and settings.is_as_ray():
        raise ConnectionError(
            f"`address={config.address!r}` is a cluster's, which needs Ray, but `ray` is syncline "
            f"in this program (syncline.as_ray): convert the program with `syncline migrate` to "
            f"run it on a cluster, or leave out `address` (and unset RAY_ADDRESS and "
            f"SYNCLINE_ADDRESS) to run on this machine."
        )
    try:
        start: Callable[[EngineConfig], Engine] = _entry_point(name)
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        if config.address == "auto":
            raise ConnectionError(
                "`address='auto'` is the Ray cluster on this machine, and there is none: Ray is "
                "not installed. Leave out `address` (and unset SYNCLINE_ADDRESS) or give 'local' "
                'to run on this machine; for clusters, run `pip install "syncline[cluster]"`.'
            ) from None
        raise ModuleNotFoundError(
            f"`address={config.address!r}` is a cluster's, which needs Ray, but Ray is not "
            f'installed: run `pip install "syncline[cluster]"` here and on every node, or leave '
            f"out `address` (and unset SYNCLINE_ADDRESS) to run on this machine.",
            name="ray",
        ) from None
    return start(config)


def _entry_point(name: str) -> Callable[..., Engine]:
    module, function = _ENTRY_POINTS[name]
    entry: Callable[..., Engine] = getattr(importlib.import_module(module), function)
    return entry


def _start(name: EngineName, config: EngineConfig) -> Engine:
    logger.setLevel(config.logging_level)
    engine = load_engine(name, config)
    if not _process.cleans_up:
        atexit.register(shutdown)
        _process.cleans_up = True
    _process.started = engine
    _process.forked_from = None
    set_engine(engine)
    return engine


def shutdown(_exiting_interpreter: bool = False) -> None:
    """Stop every task, actor and worker, and free all objects.

    May be called twice. In a worker, nothing happens.
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
            set_engine(None)


def is_initialized() -> bool:
    """Return True if syncline runs in this process."""
    return engines.current is not None


def is_program() -> bool:
    """Return True in a driver: a process that started its engine or connected to a cluster."""
    return _process.started is not None


def ensure_engine() -> Engine:
    """Return the engine of this process; start it if necessary.

    Raises RuntimeError in a child that a program forked while its engine ran.
    """
    engine = engines.current
    if engine is not None:
        return engine
    with _process.lock:
        if engines.current is None:
            session = settings.session()
            if session is not None and multiprocessing.parent_process() is not None:
                set_engine(_entry_point("child")(session))
                return current_engine()
            if _process.forked_from is not None:
                raise RuntimeError(
                    f"this process (pid={os.getpid()}) was forked from a program that runs "
                    f"syncline (pid={_process.forked_from}), and connections do not survive a "
                    f"fork: start it with multiprocessing's 'spawn' method, do the work in a "
                    f"remote function, or call `syncline.init()` here for a new engine."
                )
            init()
        return current_engine()


def _after_fork_in_child() -> None:
    engine = engines.current
    _process.lock = threading.RLock()  # another thread of the parent may have held it
    if engine is None:
        return
    _process.started = None
    _process.forked_from = os.getppid()
    set_engine(None)
    engine.abandon_after_fork()
    for hook in after_fork_hooks:
        hook(engine)


os.register_at_fork(after_in_child=_after_fork_in_child)
