"""Starting the embedded engine in the program's process: what is made, in which order, and how it
ends.

Session directories -> store, scheduler, output -> hub -> reactor and pump -> template process (which imports what the program has
imported, while the program goes on) -> the driver's link and engine.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import psutil

from syncline import settings
from syncline.core import control, gpus, limits, refs
from syncline.core.config import EngineConfig
from syncline.core.control_engine import EngineAnswers
from syncline.core.embedded import child_processes, interrupts
from syncline.core.embedded.channel import Channel
from syncline.core.embedded.engine import EmbeddedEngine, SessionFacts
from syncline.core.embedded.hub import Hub
from syncline.core.embedded.link import LocalLink
from syncline.core.embedded.output import Output
from syncline.core.embedded.processes import Listener, Processes
from syncline.core.embedded.pump import Pump
from syncline.core.embedded.reactor import Reactor
from syncline.core.embedded.scheduler import Scheduler
from syncline.core.embedded.session import Session, create_session
from syncline.core.embedded.store import Store
from syncline.core.embedded.template_messages import TemplateFacts

OBJECT_SHARE = 0.3
"""The share of memory that objects may take before they go to disk."""
SHM_SHARE = 0.8
"""The share of what is free in /dev/shm that objects may take."""
MEMORY_SHARE = 0.7
"""The share of memory that tasks may reserve."""


def start_engine(config: EngineConfig) -> EmbeddedEngine:
    """An engine on this machine, ready for tasks."""
    return _Driver(config).engine


class _Driver:
    """The parts of a running engine in the driver's process."""

    def __init__(self, config: EngineConfig) -> None:
        self._session = create_session(
            str(config.temp_dir) if config.temp_dir else str(settings.temporary_directory())
        )
        self._lock = threading.Lock()
        self._ended = False
        paths = self._session.paths
        node_id = f"{abs(hash(paths.id)):032x}"
        self._reactor = Reactor()
        total, gpu_ids, object_bytes = _resources(config, self._session)
        output = Output(
            self._session.directory / "logs",
            to_driver=config.log_to_driver,
            call_later=self._reactor.call_later,
        )
        self._output = output
        self._store = Store(
            directory=Path(paths.shm_directory or paths.directory) / "objects",
            disk_directory=self._session.directory / "spilled",
            limit_bytes=object_bytes,
        )
        self._hub = Hub(
            scheduler=Scheduler(total, gpu_ids),
            store=self._store,
            output=output,
            reactor=self._reactor,
            node=_node(node_id, config),
        )
        facts = TemplateFacts(
            paths=paths,
            namespace=config.namespace,
            node_id=node_id,
            spawn=settings.start_method() == "spawn",
        )
        listener = Listener(on_started=self._hub.on_started, on_ended=self._hub.on_ended)
        self._workers = Processes(facts, self._reactor, output, listener, list(sys.path))
        self._hub.workers = self._workers
        self._pump = Pump(self._reactor, name="syncline-pump", tend=self._hub.tend_in_background)
        link = LocalLink(self._hub, self._pump)
        self._hub.link = link
        self._listener = child_processes.listen(self._session.directory)
        self._reactor.register(self._listener.fileno(), self._on_connection)
        refs.journal.clear()
        self._workers.start_template()
        session = SessionFacts(
            session_id=paths.id,
            directory=paths.directory,
            namespace=config.namespace,
            node_id=node_id,
        )
        child_processes.announce(session)
        number = self._hub.driver.number
        self.engine = EmbeddedEngine(
            link,
            session,
            number,
            environment=config.runtime_env,
            end=self._end,
            abandon=self._abandon,
        )
        environment = (
            json.dumps(dict(config.runtime_env), sort_keys=True) if config.runtime_env else ""
        )
        with self._hub.guard:
            self._hub.carry_out(self._hub.scheduler.warm(environment, 1))
            self._hub.flush()
        interrupts.install()
        self._pump.start()
        control.offer(control.ENGINE, EngineAnswers(self.engine), directory=self._session.directory)

    def _on_connection(self, _: int) -> None:
        try:
            connection, _address = self._listener.accept()
        except OSError:
            return
        with self._hub.guard:
            self._hub.adopt(Channel(connection))
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
            self._pump.close()
            self._workers.close()
            self._output.flush()
            self._output.close()
            self._close_connections()
            self._reactor.close()
            self._store.close()
            self._session.remove()
            child_processes.withdraw()
            interrupts.uninstall()
            refs.journal.clear()

    def _abandon(self) -> None:
        """In a forked child: let go of everything without ending it."""
        interrupts.reset_after_fork()
        self._workers.abandon()
        self._close_connections()
        self._reactor.close()
        self._session.abandon()

    def _close_connections(self) -> None:
        self._listener.close()
        for process in self._hub.processes.values():
            if process.channel is not None:
                process.channel.close()


def _resources(config: EngineConfig, session: Session) -> tuple[dict[str, float], list[str], int]:
    """(what tasks may share, ids of the GPUs, bytes of shared memory for objects)."""
    machine = limits.machine_limits()
    found = gpus.discover(settings.environment("CUDA_VISIBLE_DEVICES"))
    gpu_count = len(found) if config.num_gpus is None else config.num_gpus
    gpu_ids = [gpu.id for gpu in found]
    whole = -(-int(gpu_count * 10_000) // 10_000)
    gpu_ids = gpu_ids[:whole] + [str(number) for number in range(len(gpu_ids), whole)]
    shm_bytes = (
        psutil.disk_usage(session.paths.shm_directory).free if session.paths.shm_directory else 0
    )
    object_bytes = config.object_store_memory or int(machine.memory_bytes * OBJECT_SHARE)
    total: dict[str, float] = {
        "CPU": machine.cpus if config.num_cpus is None else config.num_cpus,
        "memory": config.memory or int(machine.memory_bytes * MEMORY_SHARE),
        "object_store_memory": object_bytes,
        "node:127.0.0.1": 1.0,
        "node:__internal_head__": 1.0,
        **config.resources,
    }
    if gpu_count:
        total["GPU"] = gpu_count
    for gpu in found:
        if gpu.model:
            total[f"accelerator_type:{gpu.model}"] = 1.0
    return total, gpu_ids, min(object_bytes, int(shm_bytes * SHM_SHARE))


def _node(node_id: str, config: EngineConfig) -> dict[str, object]:
    return {
        "NodeID": node_id,
        "Alive": True,
        "NodeManagerAddress": "127.0.0.1",
        "NodeManagerHostname": os.uname().nodename,
        "NodeName": "127.0.0.1",
        "Labels": dict(config.labels),
    }
