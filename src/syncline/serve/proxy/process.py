"""`Proxy`: the life of a proxy on its event loop.

A proxy connects to the controller, waits for the routing table, takes the listening socket, reports
`ProxyReady`, and serves until the controller drains it. If the controller dies, the proxy continues
with the last table and reconnects.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import socket
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from syncline import faults
from syncline.core import serialization
from syncline.core.api import get_runtime_context
from syncline.core.event_loops import cancel_all
from syncline.serve import tracing
from syncline.serve.controller.messages import (
    Acknowledge,
    DrainProxy,
    LoadReport,
    PoisonRequest,
    ProxyFailed,
    ProxyReady,
    Subscribe,
)
from syncline.serve.event_loop import new_event_loop
from syncline.serve.log_output import LogOutput, LogSource
from syncline.serve.monitoring.request_times import ProxyMonitor
from syncline.serve.proxy.grpc_server import GrpcServer
from syncline.serve.proxy.http_protocol import HttpConnection
from syncline.serve.proxy.limits import HttpLimits
from syncline.serve.proxy.listening import (
    LOCALHOST,
    Acceptor,
    open_listening_socket,
    receive_listening_socket,
    tls_context,
    warn_if_exposed,
)
from syncline.serve.proxy.proxy_config import ProxyConfig
from syncline.serve.proxy.routes import RouteTable
from syncline.serve.proxy.server import HttpServer
from syncline.serve.proxy.statistics import HttpStatistics
from syncline.serve.routing.controller_connection import ControllerConnection
from syncline.serve.routing.link import LoopLink
from syncline.serve.routing.load_changes import REPORT_INTERVAL_S, LoadChanges
from syncline.serve.wire.connection import Hello
from syncline.serve.wire.routes import DeploymentId, TableUpdate

logger = logging.getLogger("syncline.serve")

TABLE_S = 5.0
"""Seconds to wait for the routing table before requests are accepted without it."""
SWEEP_S = 1.0
"""Seconds between timeout checks of connections; the precision of timeouts."""
FLUSH_S = 5.0
"""Seconds for the last notice to the controller."""
SPARE_FILES = 256
"""Open files of a proxy besides the connections of clients."""


def run(config: ProxyConfig) -> None:
    """Serve until the controller has drained the proxy; see `ServeProxy.run`."""
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        node_id = get_runtime_context().get_node_id()
        loop.run_until_complete(Proxy(config, loop, node_id=node_id).run())
    finally:
        with contextlib.suppress(Exception):
            loop.run_until_complete(cancel_all())
        asyncio.set_event_loop(None)
        loop.close()


class Proxy:
    """One proxy on its event loop."""

    def __init__(
        self, config: ProxyConfig, loop: asyncio.AbstractEventLoop, *, node_id: str
    ) -> None:
        self._config = config
        self._loop = loop
        self._node_id = node_id
        hello = Hello(role="proxy", id=config.proxy_id, pid=os.getpid())
        self._controller = ControllerConnection(
            loop,
            config.controller,
            node_id=node_id,
            hello=hello,
            key=config.key,
            handlers={TableUpdate: self._on_table, DrainProxy: self._on_drain},
            on_connected=self._on_connected,
        )
        self._link = LoopLink(loop, node_id=node_id, hello=hello, key=config.key)
        self._link.on_load = self._plan_report
        self._changes = LoadChanges(self._link)
        self._report_at: asyncio.TimerHandle | None = None
        self._routes = RouteTable(config.http.root_path)
        self._table_arrived = asyncio.Event()
        self._ready: ProxyReady | None = None
        self._acceptor: Acceptor | None = None
        self._drain: asyncio.Future[float] = loop.create_future()
        self.server = HttpServer(
            self._link,
            self._routes,
            fit_to_open_files(HttpLimits.of(config.http)),
            clock=loop.time,
            request_timeout_s=config.http.request_timeout_s or None,
            root_path=config.http.root_path,
        )
        self.server.tracing = tracing.enable(config.tracing_config)
        self.server.on_poison = self._report_poison
        self._monitor = ProxyMonitor(
            loop,
            self.server,
            self._controller,
            self._link,
            proxy_id=config.proxy_id,
            node_id=node_id,
            is_near=config.controller.node_id == node_id,
        )
        self._logs = LogOutput(LogSource.of_proxy(config.proxy_id, node_id))
        self.grpc: GrpcServer | None = None
        """Server of gRPC clients; None without services."""

    async def run(self) -> None:
        """Start, serve, drain."""
        self._controller.open()
        sweep = self._loop.create_task(self._sweep())
        try:
            self._logs.apply(self._config.logging_config)
            acceptor = await self._start()
            await self._finish(acceptor, await self._drain)
        except Exception as error:
            await self._report_failure(error)
        finally:
            sweep.cancel()
            self._logs.apply(None)

    def statistics(self) -> HttpStatistics:
        """Return the current counts."""
        return self.server.statistics()

    # -- start

    async def _start(self) -> Acceptor:
        config = self._config
        tls = tls_context(config.http)
        listening = await self._loop.run_in_executor(None, self._listening_socket)
        acceptor = Acceptor(
            self._loop, self.server, partial(HttpConnection, self.server), listening, tls
        )
        warn_if_exposed(acceptor.address, has_tls=tls is not None)
        try:
            await asyncio.wait_for(self._table_arrived.wait(), TABLE_S)
        except (TimeoutError, asyncio.TimeoutError):
            logger.warning("The controller sent no routing table within %g s.", TABLE_S)
        faults.reach("serve.proxy.before_accept")
        grpc_address = await self._start_grpc()
        await acceptor.start()
        self._ready = ProxyReady(
            proxy_id=config.proxy_id,
            node_id=self._node_id,
            pid=os.getpid(),
            http_address=acceptor.address,
            grpc_address=grpc_address,
        )
        self._controller.notify(self._ready)
        self._monitor.start()
        gc.freeze()
        self._acceptor = acceptor
        return acceptor

    async def _start_grpc(self) -> tuple[str, int] | None:
        """Listen for gRPC clients, on the host of HTTP, if there are services."""
        options, http = self._config.grpc, self._config.http
        if options is None or not options.grpc_servicer_functions:
            return None
        self.grpc = GrpcServer(
            self._link,
            self._routes,
            options,
            host=http.host or LOCALHOST,
            clock=self._loop.time,
            largest_message=http.max_body_bytes,
        )
        address = await self.grpc.start()
        warn_if_exposed(address, has_tls=False, protocol="gRPC")
        return address

    def _listening_socket(self) -> socket.socket:
        config = self._config
        if config.fd_path is not None:
            return receive_listening_socket(config.fd_path)
        assert config.http.host is not None, "a proxy without HTTP"
        return open_listening_socket(config.http.host, config.http.port)

    async def _report_failure(self, error: Exception) -> None:
        logger.error("Proxy %s cannot start: %s", self._config.proxy_id, error)
        self._controller.notify(
            ProxyFailed(
                proxy_id=self._config.proxy_id,
                error=serialization.pack_error(error),
                traceback="".join(traceback.format_exception(error)),
            )
        )
        await self._flush()

    # -- the controller

    def _on_connected(self) -> None:
        self._controller.notify(Subscribe())
        if self._ready is not None:  # a new controller
            self._controller.notify(self._ready)
            self._return_listening_socket()
        self._changes.forget()
        self._plan_report()

    def _return_listening_socket(self) -> None:
        path = self._config.fd_path
        if path is not None and self._acceptor is not None and not self._drain.done():
            try:
                self._acceptor.return_to(path)
            except OSError as error:
                logger.warning("The controller did not take the listening socket: %s", error)

    def _on_table(self, update: TableUpdate) -> None:
        self._link.update(update)
        self._routes.update(update)
        self._controller.notify(Acknowledge(version=update.version))
        self._table_arrived.set()

    def _on_drain(self, message: DrainProxy) -> None:
        if not self._drain.done():
            self._drain.set_result(message.timeout_s)

    def _plan_report(self) -> None:
        if self._report_at is None:
            self._report_at = self._loop.call_later(REPORT_INTERVAL_S, self._report)

    def _report(self) -> None:
        self._report_at = None
        if self._controller.is_open:  # a new connection begins with a complete report
            loads = self._changes.collect()
            if loads:
                self._controller.notify(LoadReport(loads=loads))

    def _report_poison(
        self, deployment: DeploymentId, request_id: str, replica_id: str | None
    ) -> None:
        self._controller.notify(
            PoisonRequest(
                deployment=deployment,
                request_id=request_id,
                replica_ids=(replica_id,) if replica_id else (),
            )
        )

    # -- time and end

    async def _sweep(self) -> None:
        limits = self.server.limits
        shortest_s = min(limits.head_s, limits.body_s, limits.keep_alive_s)
        while True:
            await asyncio.sleep(min(SWEEP_S, shortest_s / 4))
            self.server.sweep()

    async def _finish(self, acceptor: Acceptor, timeout_s: float) -> None:
        """Finish the requests, for `timeout_s` at most, and close all connections."""
        faults.reach("serve.proxy.draining")
        acceptor.close()
        self.server.drain()
        end = self._loop.time() + timeout_s
        grpc = self._loop.create_task(self.grpc.stop(timeout_s)) if self.grpc is not None else None
        if not await self._wait(lambda: not self.server.connection_count, end):
            logger.warning(
                "Proxy %s stops after %g s although %d connections are open.",
                self._config.proxy_id,
                timeout_s,
                self.server.connection_count,
            )
            self.server.abort()
        if grpc is not None:
            await grpc
        await self._flush()

    async def _flush(self) -> None:
        if self.server.tracing is not None:
            await self._loop.run_in_executor(None, self.server.tracing.flush)
        self._monitor.stop()
        await self._wait(lambda: self._controller.is_open, self._loop.time() + FLUSH_S)
        self._controller.close()
        await self._wait(lambda: not self._controller.is_open, self._loop.time() + FLUSH_S)

    async def _wait(self, condition: Callable[[], bool], end: float) -> bool:
        """Wait for a condition of the end; return False after the time."""
        while not condition():
            if self._loop.time() >= end:
                return False
            await asyncio.sleep(0.001)
        return True


def fit_to_open_files(limits: HttpLimits) -> HttpLimits:
    """Allow as many open files as the limits need; lower the limits if the system does not."""
    wanted = limits.connections + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed == wanted:
        return limits
    connections = max(1, allowed - SPARE_FILES)
    logger.warning(
        "This process may open %d files, so that the proxy takes %d connections instead of %d: "
        "raise the limit with `ulimit -n`.",
        allowed,
        connections,
        limits.connections,
    )
    return replace(limits, connections=connections)
