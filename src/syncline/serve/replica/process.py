"""`Replica`: the life of a replica on its event loop.

A replica connects to the controller, constructs the user's object in the main thread, applies
`user_config`, checks its health, starts the ASGI application, listens, and reports `ReplicaReady`.
It serves until the controller drains it; then it finishes its calls, runs `__del__`, and returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from dataclasses import replace
from typing import Any

from syncline import faults
from syncline.core import serialization
from syncline.core.api import ensure_engine
from syncline.core.event_loops import cancel_all
from syncline.core.tracebacks import user_traceback
from syncline.serve import metrics, tracing
from syncline.serve.batching import warn_of_batches
from syncline.serve.context import (
    ReplicaContext,
    ReplicaID,
    ReplicaRank,
    get_replica_context,
    set_replica_context,
)
from syncline.serve.controller.messages import (
    CheckHealth,
    Drain,
    Drained,
    Exit,
    HealthReport,
    Reconfigure,
    Reconfigured,
    ReplicaFailed,
    ReplicaReady,
)
from syncline.serve.event_loop import new_event_loop
from syncline.serve.log_output import LogOutput, LogSource
from syncline.serve.monitoring.call_times import ReplicaReporter
from syncline.serve.replica.asgi import AsgiApplication, build_application
from syncline.serve.replica.dispatcher import Caller, Dispatcher
from syncline.serve.replica.grpc_calls import GrpcCall
from syncline.serve.replica.handle_calls import HandleCall
from syncline.serve.replica.health import LoopWatchdog
from syncline.serve.replica.http_calls import AsgiCall, HttpCall, PlainCall
from syncline.serve.replica.ledger import Ledger
from syncline.serve.replica.replica_config import ReplicaConfig
from syncline.serve.replica.route_patterns import route_patterns
from syncline.serve.replica.threads import HandlerThreads
from syncline.serve.replica.user_code import UserCode
from syncline.serve.replica.user_statistics import UserStatistics
from syncline.serve.replica.websocket import WebSocketCall
from syncline.serve.routing.controller_connection import ControllerConnection
from syncline.serve.routing.process_link import set_process_link
from syncline.serve.wire.connection import Hello, Listener
from syncline.serve.wire.frames import decode_request

logger = logging.getLogger("syncline.serve")

CANCEL_S = 2.0
"""Seconds that cancelled calls have to end when a replica stops before they ended."""
FLUSH_S = 5.0
"""Seconds that callers have to read the last answers of a replica that exits."""


def run(config: ReplicaConfig) -> None:
    """Serve until the controller has drained the replica; see `ServeReplica.run`."""
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        engine = ensure_engine()
        replica = Replica(
            config,
            loop,
            node_id=engine.runtime_info().node_id,
            host=engine.node_address() if engine.outlives_driver else None,
        )
        loop.run_until_complete(replica.run())
    finally:
        with contextlib.suppress(Exception):
            loop.run_until_complete(cancel_all())
        asyncio.set_event_loop(None)
        loop.close()


class Replica:
    """One replica on its event loop.

    `host` is the address of its node for callers on other nodes; None on an engine of one machine.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        loop: asyncio.AbstractEventLoop,
        *,
        node_id: str,
        host: str | None = None,
    ) -> None:
        self._config = config
        self._loop = loop
        self._node_id = node_id
        self._host = host
        self._threads = HandlerThreads(loop, config.max_ongoing_requests)
        self._user: UserCode | None = None
        self._statistics: UserStatistics | None = None
        self._application: AsgiApplication | None = None
        self._ready: ReplicaReady | None = None
        self._drain: asyncio.Future[float] = loop.create_future()
        self._has_drained = False
        self._may_exit = asyncio.Event()
        if config.gang is None:
            self._may_exit.set()
        self._tasks: set[asyncio.Task[None]] = set()
        hello = Hello(role="replica", id=config.replica_id, pid=os.getpid())
        # On another node than the controller's, the directory of the sockets may not exist yet.
        os.makedirs(os.path.dirname(config.socket_path), mode=0o700, exist_ok=True)
        self._ledger = Ledger(config.ledger_path, 2 * config.max_ongoing_requests)
        self.dispatcher = Dispatcher(
            loop,
            ledger=self._ledger,
            max_ongoing_requests=config.max_ongoing_requests,
            threads=self._threads,
            app_name=config.deployment.app,
        )
        self._listener = Listener(hello, config.key, self.dispatcher.on_ready)
        self._controller = ControllerConnection(
            loop,
            config.controller,
            node_id=node_id,
            hello=hello,
            key=config.key,
            handlers={
                Drain: self._on_drain,
                Exit: self._on_exit,
                Reconfigure: self._on_reconfigure,
                CheckHealth: self._on_check_health,
            },
            on_connected=self._on_connected,
        )
        self._watchdog = LoopWatchdog(loop, config.replica_id)
        self._logs = LogOutput(LogSource.of_replica(config.deployment, config.replica_id))
        self._reporter = ReplicaReporter(
            loop,
            self.dispatcher.times,
            replica_id=config.replica_id,
            deployment=config.deployment,
            node_id=node_id,
            admission=self.dispatcher.admission,
            link=self._controller.link,
            send=self._controller.notify,
            user_metrics=metrics.collect,
        )

    async def run(self) -> None:
        """Start, serve, drain."""
        try:
            await self._live()
        finally:
            self._logs.apply(None)

    async def _live(self) -> None:
        set_process_link(self._controller.link)
        self._controller.open()
        self._watchdog.start()
        try:
            ready = await self._start()
        except BaseException as error:
            await self._report_failure(error)
            return
        self._ready = ready
        self._controller.notify(ready)
        self._reporter.start()
        self._start_statistics()
        await self._finish(await self._drain)

    # -- start

    async def _start(self) -> ReplicaReady:
        config = self._config
        began = time.monotonic()
        id = ReplicaID(unique_id=config.replica_id, deployment_id=config.deployment)
        set_replica_context(
            ReplicaContext(
                replica_id=id,
                rank=ReplicaRank(config.rank),
                world_size=config.world_size,
                code_version=config.code_version,
                gang_context=config.gang,
            )
        )
        self._logs.apply(config.logging_config)
        self.dispatcher.tracing = tracing.enable(config.tracing_config)
        faults.reach("serve.replica.before_constructor")
        definition = serialization.unpack(config.func_or_class)
        args, kwargs = serialization.unpack(config.init_args)
        user = self._user = UserCode(definition, config.deployment.name, self._threads)
        await user.construct(args, kwargs)
        self._watchdog.constructed()
        warn_of_batches(user.instance, config.max_ongoing_requests)
        set_replica_context(replace(get_replica_context(), servable_object=user.instance))
        await user.reconfigure(config.user_config, config.rank, is_first=True)
        await user.check_health()
        self._application = await build_application(user.instance)
        self._set_handlers(user, self._application)
        address = await self._listener.start(
            config.socket_path, node_id=self._node_id, host=self._host
        )
        return ReplicaReady(
            replica_id=config.replica_id,
            address=address,
            ledger_path=config.ledger_path,
            is_asgi=self._application is not None,
            docs_path=self._docs_path(),
            patterns=() if self._application is None else route_patterns(self._application.app),
            pid=os.getpid(),
            node_id=self._node_id,
            constructor_s=time.monotonic() - began,
        )

    def _docs_path(self) -> str | None:
        path = self._application.docs_path if self._application is not None else None
        return None if path is None else (self._config.route_prefix or "").rstrip("/") + path

    def _start_statistics(self) -> None:
        assert self._user is not None
        self._statistics = UserStatistics(
            self._loop,
            self._user,
            self._config.replica_id,
            routing_period_s=self._config.routing_stats_period_s,
            routing_timeout_s=self._config.routing_stats_timeout_s,
            send=self._controller.notify,
        )
        self._statistics.start()

    def _set_handlers(self, user: UserCode, application: AsgiApplication | None) -> None:
        def make_handle_call(caller: Caller, call_id: int, payload: bytes) -> HandleCall:
            return HandleCall(caller, call_id, payload, user)

        def make_grpc_call(caller: Caller, call_id: int, payload: bytes) -> GrpcCall:
            return GrpcCall(caller, call_id, payload, user)

        def make_plain_call(caller: Caller, call_id: int, payload: bytes) -> HttpCall:
            return PlainCall(caller, call_id, *decode_request(payload), user)

        self.dispatcher.make_handle_call = make_handle_call
        self.dispatcher.make_grpc_call = make_grpc_call
        self.dispatcher.make_http_call = make_plain_call
        if application is not None:
            app, state = application.app, application.state

            def make_asgi_call(caller: Caller, call_id: int, payload: bytes) -> HttpCall:
                head, body = decode_request(payload)
                kind = WebSocketCall if head.scheme in ("ws", "wss") else AsgiCall
                return kind(caller, call_id, head, body, app, state)

            self.dispatcher.make_http_call = make_asgi_call

    async def _report_failure(self, error: BaseException) -> None:
        text = user_traceback(error)
        logger.error("Replica %s did not start:\n%s", self._config.replica_id, text.rstrip())
        self._controller.notify(
            ReplicaFailed(
                replica_id=self._config.replica_id,
                error=serialization.pack_error(error),
                traceback=text,
            )
        )
        await self._flush()

    # -- messages of the controller

    def _on_connected(self) -> None:
        if self._ready is not None:  # a new controller
            self._controller.notify(self._ready)
        if self._statistics is not None:
            self._statistics.send_again()

    def _on_drain(self, message: Drain) -> None:
        self.dispatcher.drain()
        if not self._drain.done():
            self._drain.set_result(message.timeout_s)
        elif self._has_drained:  # a new controller
            self._controller.notify(Drained(replica_id=self._config.replica_id))

    def _on_exit(self, message: Exit) -> None:
        self._may_exit.set()

    def _on_reconfigure(self, message: Reconfigure) -> None:
        self._spawn(self._reconfigure(message))

    def _on_check_health(self, message: CheckHealth) -> None:
        self._spawn(self._check_health())

    async def _reconfigure(self, message: Reconfigure) -> None:
        user = self._user
        assert user is not None
        context = get_replica_context()
        ranks_changed = (context.rank, context.world_size) != (message.rank, message.world_size)
        rank = ReplicaRank(message.rank)
        set_replica_context(replace(context, rank=rank, world_size=message.world_size))
        self.dispatcher.resize(message.max_ongoing_requests)
        failure = None
        try:
            self._logs.apply(message.logging_config)
            if message.user_config_changed or (ranks_changed and user.takes_rank):
                await user.reconfigure(message.user_config, message.rank)
        except Exception as error:
            failure = user_traceback(error)
        self._controller.notify(
            Reconfigured(
                replica_id=self._config.replica_id, version=message.version, traceback=failure
            )
        )

    async def _check_health(self) -> None:
        assert self._user is not None
        message = ""
        try:
            await self._user.check_health()
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            logger.warning("check_health failed:\n%s", user_traceback(error).rstrip())
        self._controller.notify(
            HealthReport(replica_id=self._config.replica_id, healthy=not message, message=message)
        )

    # -- end

    async def _finish(self, timeout_s: float) -> None:
        """Finish the calls, run the hooks of the end, and tell the controller."""
        faults.reach("serve.replica.draining")
        if self._statistics is not None:
            self._statistics.stop()
        end = self._loop.time() + timeout_s
        try:
            await asyncio.wait_for(self.dispatcher.idle(), timeout_s)
        except (TimeoutError, asyncio.TimeoutError):
            calls = self.dispatcher.calls()
            logger.warning(
                "Replica %s stops after %g s although %d requests have not ended.",
                self._config.replica_id,
                timeout_s,
                len(calls),
            )
            self.dispatcher.cancel_all()
            await asyncio.wait([asyncio.ensure_future(self.dispatcher.idle())], timeout=CANCEL_S)
        self._reporter.stop()
        if self.dispatcher.tracing is not None:
            await self._loop.run_in_executor(None, self.dispatcher.tracing.flush)
        self._has_drained = True
        self._controller.notify(Drained(replica_id=self._config.replica_id))
        with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self._may_exit.wait(), max(0.0, end - self._loop.time()))
        self._listener.close()
        try:
            if self._application is not None:
                await self._application.shutdown()
            if self._user is not None:
                await self._user.destroy()
        except Exception as error:
            logger.error("The end of the replica failed:\n%s", user_traceback(error).rstrip())
        await self._flush()

    async def _flush(self) -> None:
        """Close the connections after the sent frames."""
        self._watchdog.stop()
        self._threads.close()
        self.dispatcher.close()
        self._controller.close()
        end = self._loop.time() + FLUSH_S
        while self._loop.time() < end and (self.dispatcher.callers or self._controller.is_open):
            await asyncio.sleep(0.001)
        self._ledger.close()

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
