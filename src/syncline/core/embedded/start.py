"""Start and end of the embedded engine in the driver's process.

In order: session directories; store, scheduler, output; hub; reactor; fork server, which imports
the program's modules in parallel; connection and engine.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from syncline import settings
from syncline.core import cgroups, control, gpus, packages, refs
from syncline.core.config import EngineConfig
from syncline.core.control_server import EngineHandler
from syncline.core.debug_terminal import DebugTerminal
from syncline.core.embedded import child_processes, interrupts
from syncline.core.embedded.channel import Channel
from syncline.core.embedded.engine import EmbeddedEngine, SessionInfo
from syncline.core.embedded.fork_server_messages import ForkServerConfig
from syncline.core.embedded.fork_server_process import ForkServerProcess
from syncline.core.embedded.hub import Hub
from syncline.core.embedded.hub_connection import HubConnection
from syncline.core.embedded.hub_records import ItemCallback
from syncline.core.embedded.messages import Message, ValueCallback
from syncline.core.embedded.object_store import Store
from syncline.core.embedded.program_register import (
    Demand,
    Holding,
    ProgramRegister,
    unused_first,
    usage_text,
)
from syncline.core.embedded.reactor import Reactor
from syncline.core.embedded.resource_pools import machine_resources
from syncline.core.embedded.scheduler import Scheduler
from syncline.core.embedded.session_directories import create_session
from syncline.core.embedded.shared_reactor import SharedReactor, Waiter
from syncline.core.embedded.worker_output import WorkerOutput
from syncline.core.embedded.worker_processes import WorkerProcesses
from syncline.core.node_rows import node_row
from syncline.core.program_state import ProgramWatch
from syncline.core.resources import OBJECT_STORE_MEMORY

logger = logging.getLogger("syncline")

REGISTER_S = 0.5
"""Seconds between two updates of the register of programs."""
OUTPUT_S = 1.0
"""Seconds to wait until the pending output of the workers is read."""
SHM_SHARE = 0.8
"""Largest share of the free space in /dev/shm for objects."""


class LocalHubConnection(HubConnection):
    """The driver's connection: the hub is in this process."""

    def __init__(self, hub: Hub, shared_reactor: SharedReactor) -> None:
        super().__init__(hub.guard, shared_reactor)
        self._hub = hub

    def send(self, message: Message) -> None:
        with self.guard:
            self._hub.handle(self._hub.driver, message)
        if self.callbacks:
            self.run_callbacks()

    def request(self, operation: str, *arguments: object) -> Any:
        with self.guard:
            answer = self._hub.perform(self._hub.driver, operation, arguments)
        if self.callbacks:
            self.run_callbacks()
        return answer

    def _subscribe(self, ids: Iterable[int], callback: ValueCallback, *, value: bool) -> None:
        self._hub.apply_refcounts()
        for id in ids:
            self._hub.subscribe(id, callback)

    def _unsubscribe(self, ids: Iterable[int], callback: ValueCallback) -> None:
        for id in ids:
            self._hub.objects.unsubscribe(id, callback)

    def _request_item(self, stream_id: int, index: int, callback: ItemCallback) -> None:
        self._hub.apply_refcounts()
        self._hub.request_item(self._hub.driver, stream_id, index, callback)
        self._hub.flush()  # perhaps an answer to the producer


def start_engine(config: EngineConfig, fork_server: ForkServerProcess) -> EmbeddedEngine:
    """Start an engine on this machine, with a fork server that has been started."""
    child_processes.check_main_is_imported()
    return _Driver(config, fork_server).engine


class _Driver:
    """The parts of a running engine in the driver's process."""

    def __init__(self, config: EngineConfig, launched: ForkServerProcess) -> None:
        self._session = create_session(
            str(config.temp_dir) if config.temp_dir else str(settings.temporary_directory())
        )
        found = gpus.discover(settings.visible_gpus())
        try:
            self._register = ProgramRegister(self._session.directory)
            others = _others(self._register, config, found)
        except BaseException:
            self._session.remove()
            raise
        preferred = unused_first([gpu.id for gpu in found], others)
        found.sort(key=lambda gpu: preferred.index(gpu.id))
        self._lock = threading.Lock()
        self._ended = False
        paths = self._session.paths
        node_id = f"{abs(hash(paths.id)):032x}"
        self._reactor = Reactor()
        total, gpu_ids = machine_resources(config, found)
        shm_bytes = shutil.disk_usage(paths.shm_directory).free if paths.shm_directory else 0
        output = WorkerOutput(
            self._session.directory / "logs",
            to_driver=config.log_to_driver,
            call_later=self._reactor.call_later,
        )
        self._output = output
        self._store = Store(
            directory=Path(paths.shm_directory or paths.directory) / "objects",
            disk_directory=self._session.directory / "spilled",
            limit_bytes=min(int(total[OBJECT_STORE_MEMORY]), int(shm_bytes * SHM_SHARE)),
        )
        self._hub = Hub(
            scheduler=Scheduler(total, gpu_ids),
            store=self._store,
            output=output,
            reactor=self._reactor,
            node=_describe_node(node_id, config),
        )
        session = SessionInfo(
            session_id=paths.id,
            directory=paths.directory,
            namespace=config.namespace,
            node_id=node_id,
        )
        fork_server = ForkServerConfig(
            paths=paths,
            session=session,
            sys_path=tuple(sys.path),
            spawn=settings.start_method() == "spawn",
        )
        self._workers = WorkerProcesses(
            fork_server,
            self._reactor,
            output,
            on_started=self._hub.on_started,
            on_ended=self._hub.on_ended,
        )
        self._hub.workers = self._workers
        self._shared_reactor = SharedReactor(
            self._reactor, name="syncline-reactor", on_idle=self._hub.apply_refcounts_in_background
        )
        connection = LocalHubConnection(self._hub, self._shared_reactor)
        self._hub.connection = connection
        self._listener = child_processes.listen(self._session.directory)
        self._reactor.register(self._listener.fileno(), self._on_connection)
        refs.journal.clear()
        self._workers.use_fork_server(launched)
        child_processes.announce(session)
        environment = packages.without_satisfied(config.runtime_env)
        self.engine = EmbeddedEngine(
            connection,
            session,
            self._hub.driver.number,
            environment=environment,
            end=self._end,
            abandon=self._abandon,
        )
        self._hub.on_debugger = DebugTerminal().on_waiting
        self._program = ProgramWatch()
        self.engine.before_definition = self._send_program
        self.engine.read_output = self._read_output
        text = json.dumps(dict(environment), sort_keys=True) if environment else ""
        if not self._workers.starts_without_torch:  # else it depends on the first work
            with self._hub.guard:
                self._hub.apply(self._hub.scheduler.prestart(text, 1))
                self._hub.flush()
        interrupts.install()
        self._update_register()
        self._shared_reactor.start()
        control.serve(control.ENGINE, EngineHandler(self.engine), directory=self._session.directory)

    def _update_register(self) -> None:
        with self._hub.guard:
            held = self._hub.scheduler.held()
        self._register.update(*held)
        self._reactor.call_later(REGISTER_S, self._update_register)

    def _send_program(self) -> None:
        changed = self._program.changed()
        if changed is not None:
            with self._hub.guard:
                self._hub.program = changed

    def _read_output(self) -> None:
        read = Waiter()

        def on_reactor() -> None:
            self._workers.read_output()
            read.settle()

        self._reactor.call_later(0.0, on_reactor)
        self._shared_reactor.wait(read, OUTPUT_S)
        self._output.flush()

    def _on_connection(self, _: int) -> None:
        try:
            connection, _address = self._listener.accept()
        except OSError:
            return
        with self._hub.guard:
            self._hub.add_child(Channel(connection))
            self._hub.flush()

    def _end(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = True
        with interrupts.shielded():
            control.close()
            with self._hub.guard:
                self._hub.closed = True
            self._shared_reactor.close()
            self._workers.close()
            self._output.flush()
            self._output.close()
            self._close_connections()
            self._reactor.close()
            self._store.close()
            self._register.close()
            self._session.remove()
            child_processes.withdraw()
            interrupts.uninstall()
            refs.journal.clear()

    def _abandon(self) -> None:
        """Close everything in a forked child without ending it."""
        interrupts.reset_after_fork()
        self._workers.abandon()
        self._close_connections()
        self._reactor.close()
        self._register.close()
        self._session.abandon()

    def _close_connections(self) -> None:
        self._listener.close()
        for process in self._hub.processes.values():
            if process.channel is not None:
                process.channel.close()


def _others(
    register: ProgramRegister, config: EngineConfig, found: Sequence[gpus.Gpu]
) -> list[Holding]:
    """Wait for resources if the program wants that, else warn of programs with which it competes;
    return the holdings of the other programs.

    Raises:
        TimeoutError: The wait was too short.
    """
    demand = Demand(
        machine_cpus=cgroups.cpu_count(),
        machine_gpus=tuple(gpu.id for gpu in found),
        cpus=config.num_cpus,
        gpus=config.num_gpus,
    )
    if config.wait_for_resources_s:
        return register.wait(demand, config.wait_for_resources_s)
    others = register.enter(demand)
    if demand.competes(others):
        logger.warning(
            "other programs on this machine hold %s. This program competes with them: lower "
            "`num_cpus` or `num_gpus` of `init`, or let it wait with "
            "`init(wait_for_resources_s=…)` or SYNCLINE_WAIT_FOR_RESOURCES_S",
            usage_text(others),
        )
    return others


def _describe_node(node_id: str, config: EngineConfig) -> dict[str, object]:
    return node_row(
        node_id=node_id, hostname=os.uname().nodename, labels=config.labels, resources={}
    )
