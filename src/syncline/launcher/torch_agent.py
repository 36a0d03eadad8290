"""The agent: torch's elastic agent in a process forked from the template.

Options, rendezvous, ranks, restarts, log files and error files are torch's own code, as under
torchrun. Two parts are replaced: processes are started by the launcher's fork server instead of
`subprocess`, and each restart gets a new store. In torch's store, which serves all attempts, the
workers can find the addresses of killed ones, and do not connect (pytorch issue 135712). The agent
asks the launcher for each process, and learns of its end from it.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import socket
import sys
import time
import traceback
import uuid
from argparse import Namespace
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from torch.distributed import PrefixStore, TCPStore, run
from torch.distributed.elastic.agent.server import local_elastic_agent
from torch.distributed.elastic.multiprocessing.api import PContext, RunProcsResult, SignalException
from torch.distributed.elastic.multiprocessing.errors import (
    ChildFailedError,
    ProcessFailure,
    record,
)
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import (
    StaticTCPRendezvous,
    create_rdzv_handler,
)
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from syncline import settings
from syncline.core.embedded import fork_server_messages
from syncline.launcher.messages import (
    AgentFailed,
    Failure,
    GroupFailed,
    RankEnded,
    RankSeen,
    RankStarted,
    StartRank,
)
from syncline.launcher.node_exchange import NodeExchange, Store

ONE_NODE = "syncline-one-node"
"""Name of the rendezvous of a job on one node."""
MOST_FAILURES = 64
"""Failed ranks of this node that are reported."""
LONGEST_TRACEBACK = 2_000
"""Characters of a recorded traceback that are reported, from its end."""
STORE_S = timedelta(seconds=60)
"""Longest wait for the store that has the states of ranks, and for one of its keys."""
_LOCAL_ENDPOINTS = ("localhost:0", "127.0.0.1:0")


def run_agent(connection: socket.socket, values: dict[str, Any]) -> int:
    """Run a job and return torchrun's exit code.

    Args:
        connection: Connection to the launcher.
        values: Values of the command line by destination.
    """
    channel = Channel(connection, settings.inherited_environment())
    options = run.get_args_parser().parse_args(["script"])
    vars(options).update(values)
    try:
        record(_launch)(channel, options)
    except ChildFailedError as error:
        channel.send(GroupFailed(failures=_failures(error.failures)))
        return 1
    except SignalException as error:
        channel.send(AgentFailed(reason=f"stopped by {error.sigval.name}", traceback=""))
        return 1
    except Exception as error:
        is_clear = isinstance(error, (AssertionError, OSError, ValueError, RuntimeError))
        text = "" if is_clear and str(error) else traceback.format_exc()[-50_000:]
        channel.send(AgentFailed(reason=f"{type(error).__name__}: {error}", traceback=text))
        return 1
    return 0


def _launch(channel: Channel, options: Namespace) -> None:
    """Do as `torch.distributed.run.run` does, with this launcher's processes."""
    is_alone = run.parse_min_max_nnodes(options.nnodes)[1] == 1
    has_address = options.rdzv_endpoint or options.master_port is not None
    if options.standalone or (is_alone and options.rdzv_backend == "static" and not has_address):
        options.rdzv_backend, options.rdzv_endpoint = "c10d", "localhost:0"
        options.rdzv_id = str(uuid.uuid4())
    if options.master_port is None:
        options.master_port = 29500
    config, command, arguments = run.config_from_args(options)
    is_local = config.rdzv_backend == "c10d" and config.rdzv_endpoint in _LOCAL_ENDPOINTS
    if is_alone and is_local:
        rendezvous_handler_registry.register(ONE_NODE, OneNodeRendezvous.of)
        config.rdzv_backend = ONE_NODE
    elif creator := NEW_STORES.get(config.rdzv_backend):
        config.rdzv_backend = f"syncline-{config.rdzv_backend}"
        rendezvous_handler_registry.register(config.rdzv_backend, creator)

    def start_processes(**given: Any) -> PContext:
        context = ForkedContext(channel, config, **given)
        context.start()
        return context

    local_elastic_agent.start_processes = start_processes  # type: ignore[assignment]
    elastic_launch(config, command)(*arguments)


def _failures(found: dict[int, ProcessFailure]) -> tuple[Failure, ...]:
    """Return the failures by rank, the first one first, in the size of one packet."""
    ordered = sorted(found.items(), key=lambda item: item[1].timestamp)
    return tuple(_failure(rank, each) for rank, each in ordered[:MOST_FAILURES])


def _failure(rank: int, failure: ProcessFailure) -> Failure:
    message: object = failure.message  # declared as a text
    trace = ""
    if isinstance(message, dict):
        trace = message.get("extraInfo", {}).get("py_callstack") or message.get("message", "")
    return Failure(
        rank=rank,
        local_rank=failure.local_rank,
        pid=failure.pid,
        exitcode=failure.exitcode,
        time=float(failure.timestamp),
        traceback=trace[-LONGEST_TRACEBACK:],
    )


def c10d_with_new_stores(parameters: RendezvousParameters) -> RendezvousHandler:
    """Return torch's c10d rendezvous, which creates a new store for each start of the workers."""
    parameters.backend = "c10d"
    handler = get_rendezvous_handler(parameters)
    next_rendezvous = handler.next_rendezvous

    def next_with_new_store() -> RendezvousInfo:
        vars(handler).update(_bootstrap_store_info=None, _shared_tcp_store_server=None)
        return next_rendezvous()

    handler.next_rendezvous = next_with_new_store  # type: ignore[method-assign]
    return handler


class StaticRendezvous(StaticTCPRendezvous):
    """torch's static rendezvous, but each restart has a new store of the first node on a free port.
    Its number is in the first store.
    """

    _restarts = 0
    _server: TCPStore | None = None

    @classmethod
    def of(cls, parameters: RendezvousParameters) -> RendezvousHandler:
        """Return the handler for a job."""
        parameters.backend = "static"
        handler = create_rdzv_handler(parameters)
        handler.__class__ = cls
        return handler

    def next_rendezvous(self) -> RendezvousInfo:
        """Return the store of this start of the workers."""
        first = super().next_rendezvous()
        key = f"port/{self._restarts}"
        self._restarts += 1
        if self._restarts == 1:
            return first
        if self.rank == 0:
            self._server = TCPStore(
                self.master_addr, 0, is_master=True, wait_for_workers=False, multi_tenant=True
            )
            first.store.set(key, str(self._server.port))
        port = int(first.store.get(key))
        store = self._server or TCPStore(self.master_addr, port, is_master=False)
        return RendezvousInfo(
            PrefixStore(self.run_id, store),
            self.rank,
            self.world_size,
            RendezvousStoreInfo(self.master_addr, port),
        )


NEW_STORES = {"c10d": c10d_with_new_stores, "static": StaticRendezvous.of}
"""Creators of the handlers for several nodes, by torch's name."""


class OneNodeRendezvous(RendezvousHandler):
    """Rendezvous of one node: a store on a free port for each start of the workers."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._store: TCPStore | None = None

    @classmethod
    def of(cls, parameters: RendezvousParameters) -> RendezvousHandler:
        """Return the handler for a job."""
        return cls(parameters.run_id)

    def get_backend(self) -> str:
        """Return the name of the backend."""
        return ONE_NODE

    @property
    def use_agent_store(self) -> bool:
        """True: workers use the agent's store, unless the user disables that."""
        return settings.environment("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0") != "1"

    def next_rendezvous(self) -> RendezvousInfo:
        """Return a new store."""
        self._store = TCPStore(
            "localhost", 0, is_master=True, wait_for_workers=False, multi_tenant=True
        )
        port = self._store.port
        if not self.use_agent_store:
            with socket.socket() as probe:
                probe.bind(("localhost", 0))
                port = probe.getsockname()[1]
        return RendezvousInfo(
            PrefixStore(self._run_id, self._store), 0, 1, RendezvousStoreInfo("localhost", port)
        )

    def is_closed(self) -> bool:
        """Return False, because no other process can close it."""
        return False

    def set_closed(self) -> None:
        """Do nothing, because no other process can join."""

    def num_nodes_waiting(self) -> int:
        """Return 0: no other node can join."""
        return 0

    def get_run_id(self) -> str:
        """Return the id of the job."""
        return self._run_id

    def shutdown(self) -> bool:
        """Return True: there is nothing to shut down."""
        return True


class Channel:
    """The agent's connection to the launcher."""

    def __init__(self, connection: socket.socket, variables: dict[str, str]) -> None:
        self._connection = connection
        self._selector = selectors.DefaultSelector()
        self._selector.register(connection, selectors.EVENT_READ)
        self._variables = variables
        self._started: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        self._exchange: NodeExchange | None = None

    def exchange_states(self, variables: Mapping[str, str]) -> None:
        """Exchange what is known of the ranks with other nodes until `end_exchange`.

        Args:
            variables: Environment variables of a worker of this node.
        """
        node, nodes = int(variables["GROUP_RANK"]), int(variables["GROUP_WORLD_SIZE"])
        if nodes > 1:
            self._exchange = NodeExchange(node, nodes, partial(_store_for_states, variables))

    def end_exchange(self) -> None:
        """Pass on what is left."""
        if self._exchange is not None:
            self._exchange.close()
            self._send_found()
            self._exchange = None

    def send(self, message: object) -> None:
        """Send a message; do nothing if the launcher is gone."""
        try:
            fork_server_messages.send(self._connection, message)
        except OSError:
            pass

    def start(self, message: StartRank) -> None:
        """Ask for a process."""
        self._started.pop(message.local_rank, None)
        fork_server_messages.send(self._connection, message)

    def pid(self, local_rank: int) -> int:
        """Wait for the start of a process and return its id."""
        while local_rank not in self._started:
            self.receive(None)
        return self._started[local_rank]

    def exitcode(self, pid: int) -> int | None:
        """Return how a process ended; None if it runs as far as is known."""
        return self._ended.get(pid)

    def receive(self, timeout_s: float | None) -> None:
        """Wait for a notice and take in all that are there; exit if the launcher is gone."""
        ready = self._selector.select(timeout_s)
        while ready:
            received = fork_server_messages.receive(self._connection)
            if received is None:
                os._exit(1)
            message = received[0]
            if isinstance(message, RankStarted):
                self._started[message.local_rank] = message.pid
            elif isinstance(message, RankEnded):
                self._ended[message.pid] = message.exitcode
            elif isinstance(message, RankSeen) and self._exchange is not None:
                self._exchange.put(message)
            ready = self._selector.select(0)
        self._send_found()

    def _send_found(self) -> None:
        for each in self._exchange.take() if self._exchange is not None else ():
            self.send(each)

    def changes(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return the variables that differ from the launcher's, and the removed ones."""
        now = settings.inherited_environment()
        changed = {name: value for name, value in now.items() if self._variables.get(name) != value}
        return changed, tuple(name for name in self._variables if name not in now)


def _store_for_states(variables: Mapping[str, str]) -> Store:
    """Return a part of the workers' store."""
    host, port = variables["MASTER_ADDR"], int(variables["MASTER_PORT"])
    store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=STORE_S)
    return PrefixStore(f"syncline/ranks/{variables['TORCHELASTIC_RESTART_COUNT']}", store)


class ForkedContext(PContext):
    """The processes of one start of the group; takes the place of torch's contexts."""

    def __init__(
        self,
        channel: Channel,
        config: LaunchConfig,
        *,
        name: str,
        entrypoint: Callable[..., Any] | str,
        args: dict[int, tuple[Any, ...]],
        envs: dict[int, dict[str, str]],
        logs_specs: Any,
        start_method: str = "spawn",
        numa_options: Any = None,
        **others: Any,
    ) -> None:
        super().__init__(name, entrypoint, args, envs, logs_specs, **others)
        self._channel = channel
        self._config = config
        self._numa_options = numa_options
        self._pids: dict[int, int] = {}
        self._running: set[int] = set()
        self._failures: dict[int, ProcessFailure] = {}

    def _start(self) -> None:
        changed, removed = self._channel.changes()
        ranks = range(self.nprocs)
        self._channel.exchange_states(self.envs[0])
        for local_rank in ranks:
            self._channel.start(self._request(local_rank, changed, removed))
        self._pids = {local_rank: self._channel.pid(local_rank) for local_rank in ranks}
        self._running = set(ranks)

    def _request(
        self, local_rank: int, changed: dict[str, str], removed: tuple[str, ...]
    ) -> StartRank:
        own = self.envs[local_rank]
        arguments = [str(each) for each in self.args[local_rank]]
        work = None
        if callable(self.entrypoint):
            work = pickle.dumps(FunctionCall(self.entrypoint, tuple(self.args[local_rank])))
            command: tuple[str, ...] = (sys.executable, *arguments)
        else:
            command = (self.entrypoint, *arguments)
            if self._numa_options is not None:
                command = _bound(command, local_rank, self._numa_options)
        return StartRank(
            local_rank=local_rank,
            rank=int(own["RANK"]),
            restarts=int(own["TORCHELASTIC_RESTART_COUNT"]),
            world_size=int(own["WORLD_SIZE"]),
            local_world_size=self.nprocs,
            group_rank=int(own["GROUP_RANK"]),
            command=tuple(command),
            work=work,
            variables={**changed, **own},
            removed=removed,
            stdout=self.stdouts[local_rank],
            stderr=self.stderrs[local_rank],
        )

    def pids(self) -> dict[int, int]:
        """Return process ids by local rank."""
        return dict(self._pids)

    def _poll(self) -> RunProcsResult | None:
        self._channel.receive(0)
        self._collect()
        if self._running and not self._failures:
            return None
        self.close()
        self._collect()
        result = RunProcsResult(failures=self._failures, stdouts=self.stdouts, stderrs=self.stderrs)
        if not result.is_failed():
            result.return_values = dict.fromkeys(range(self.nprocs))
        return result

    def _collect(self) -> None:
        """Record the processes that have ended since the last time."""
        for local_rank in sorted(self._running):
            pid = self._pids[local_rank]
            exitcode = self._channel.exitcode(pid)
            if exitcode is None:
                continue
            self._running.discard(local_rank)
            if exitcode:
                self._failures[local_rank] = ProcessFailure(
                    local_rank=local_rank,
                    pid=pid,
                    exitcode=exitcode,
                    error_file=self.error_files[local_rank],
                )

    def _close(self, death_sig: signal.Signals, timeout: int = 30) -> None:
        self._signal(death_sig)
        configured = getattr(self._config, "shutdown_timeout", None)  # not in old versions
        self._await_end(timeout if configured is None else configured)
        self._signal(signal.SIGKILL)
        self._await_end(timeout)
        self._channel.end_exchange()

    def _signal(self, number: signal.Signals) -> None:
        for local_rank in self._running:
            pid = self._pids[local_rank]
            if self._channel.exitcode(pid) is None:
                _signal_session(pid, number)

    def _await_end(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0 and any(
            self._channel.exitcode(self._pids[local_rank]) is None for local_rank in self._running
        ):
            self._channel.receive(left_s)


def _bound(command: tuple[str, ...], gpu: int, numa_options: Any) -> tuple[str, ...]:
    """Return the command, bound by torch to CPUs near a GPU."""
    from torch.numa import binding  # old versions do not have it

    bound: tuple[str, ...] = binding._maybe_wrap_command_args_with_numa_binding(
        command, gpu_index=gpu, numa_options=numa_options
    )
    return bound


def _signal_session(pid: int, number: signal.Signals) -> None:
    """Signal a worker and its child processes."""
    for send in (os.killpg, os.kill):
        try:
            send(pid, number)
            break
        except ProcessLookupError:  # it has ended, or does not lead its group yet
            continue


class FunctionCall:
    """A call of an entry point that is a function, with error files as torch writes them."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._function = function
        self._arguments = arguments

    def __call__(self) -> None:
        """Call it."""
        record(self._function)(*self._arguments)
