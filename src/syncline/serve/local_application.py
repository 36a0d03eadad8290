"""`LocalApplication`: an application that runs in the calling process; see `local`.

Each deployment has one instance. Its async methods run on an event loop in a thread, its sync
methods in further threads, so that `breakpoint()` works in them. Calls of handles pass the same
router, limits and frames as those between processes, so arguments and results are copied by pickle.
`deployment_actors` are processes of the engine here too.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import TypeVar

from syncline.core import serialization
from syncline.core.api import get_actor
from syncline.core.api import kill as kill_actor
from syncline.core.tracebacks import user_traceback
from syncline.serve.config import DeploymentActorConfig
from syncline.serve.context import (
    GangContext,
    ReplicaContext,
    ReplicaID,
    get_replica_context,
    local_replica,
)
from syncline.serve.controller.deployment_actor_driver import create_actor
from syncline.serve.controller.messages import ApplicationTarget, DeploymentTarget
from syncline.serve.controller.process import NAMESPACE
from syncline.serve.exceptions import RayServeException
from syncline.serve.replica.dispatcher import Caller, Dispatcher
from syncline.serve.replica.handle_calls import HandleCall
from syncline.serve.replica.ledger import Ledger
from syncline.serve.replica.threads import HandlerThreads
from syncline.serve.replica.user_code import UserCode
from syncline.serve.routing.link import LoopLink
from syncline.serve.wire.connection import Hello
from syncline.serve.wire.deployment_actor_names import deployment_actor_name
from syncline.serve.wire.routes import (
    Address,
    DeploymentId,
    DeploymentRoute,
    ReplicaRoute,
    TableUpdate,
)

logger = logging.getLogger("syncline.serve")

T = TypeVar("T")
_NODE = "local"


class _Connection:
    """One direction of a connection inside this process."""

    unsent_bytes = 0

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deliver: Callable[[int, int, bytes], None],
        context: contextvars.Context | None = None,
    ) -> None:
        """`deliver(kind, call_id, payload)` is called on the loop, in `context`."""
        self._loop = loop
        self._deliver = deliver
        self._context = context
        self.is_closed = False

    def send(self, kind: int, call_id: int = 0, *parts: bytes | memoryview) -> None:
        """Send a frame; it is dropped if the connection is closed."""
        if not self.is_closed:
            payload = b"".join(parts)
            self._loop.call_soon(self._deliver, kind, call_id, payload, context=self._context)

    def close(self) -> None:
        """Drop all further frames."""
        self.is_closed = True


class LocalReplica:
    """The only replica of a deployment. Methods are called on the loop's thread."""

    def __init__(
        self, target: DeploymentTarget, app: str, loop: asyncio.AbstractEventLoop, directory: str
    ) -> None:
        self.id = DeploymentId(app, target.name)
        self.replica_id = f"{self.id}#local"
        self.target = target
        limit = target.config.max_ongoing_requests
        self._loop = loop
        self._threads = HandlerThreads(loop, limit)
        self._user = UserCode(
            serialization.unpack(target.func_or_class), target.name, self._threads
        )
        self._dispatcher = Dispatcher(
            loop,
            ledger=Ledger(os.path.join(directory, f"{target.name.replace('/', '_')}.ledger")),
            max_ongoing_requests=limit,
            threads=self._threads,
            app_name=app,
        )
        self._dispatcher.make_handle_call = self._make_call
        self.context = contextvars.copy_context()
        """Variables of the user's code."""
        replica_id = ReplicaID(unique_id=self.replica_id, deployment_id=self.id)
        # Not the names of the same application's actors behind the controller.
        self._code_version = f"local-{os.getpid()}-{id(self):x}"
        gang = None
        if target.config.gang_scheduling_config is not None:  # the only replica is the gang
            gang = GangContext(
                gang_id="local", rank=0, world_size=1, member_replica_ids=[self.replica_id]
            )
        context = ReplicaContext(
            replica_id=replica_id, code_version=self._code_version, gang_context=gang
        )
        self.context.run(local_replica.set, context)
        self._actors: list[str] = []

    async def start(self) -> None:
        """Start the deployment's actors and construct the user's object; raises their errors."""
        for actor in self.target.config.deployment_actors:
            await self._loop.run_in_executor(None, self._start_actor, actor)
        args, kwargs = serialization.unpack(self.target.init_args)
        user = self._user
        await self._in_context(user.construct(args, kwargs))
        started = replace(self.context.run(get_replica_context), servable_object=user.instance)
        self.context.run(local_replica.set, started)
        await self._in_context(user.reconfigure(self.target.config.user_config, 0, is_first=True))
        await self._in_context(user.check_health())

    async def stop(self) -> None:
        """End the calls and run the destructor."""
        self._dispatcher.cancel_all()
        try:
            await self._in_context(self._user.destroy())
        except Exception as error:
            logger.error("The end of %s failed:\n%s", self.replica_id, user_traceback(error))
        self._threads.close()
        for name in self._actors:
            await self._loop.run_in_executor(None, _kill, name)

    def _start_actor(self, actor: DeploymentActorConfig) -> None:
        """Create an actor in the engine, which starts if it does not run yet."""
        name = deployment_actor_name(self.id, self._code_version, actor.name)
        self._actors.append(name)
        reason, _ = create_actor(name, actor.actor_class, actor.actor_options)
        if reason:
            raise RuntimeError(f"deployment actor {actor.name!r} did not start: {reason}")

    def connect(self, link: LocalLink) -> _Connection:
        """Return the link's side of a new connection."""
        answers = _Connection(self._loop, partial(link._on_frame, self.replica_id))
        caller = self._dispatcher.on_ready(answers)  # type: ignore[arg-type]  # used in the same way
        return _Connection(self._loop, caller.on_frame, self.context)

    def route(self) -> DeploymentRoute:
        """Return the entry of the routing table."""
        config = self.target.config
        return DeploymentRoute(
            id=self.id,
            replicas=(
                ReplicaRoute(
                    replica_id=self.replica_id,
                    address=Address(node_id=_NODE, unix_path=""),
                    ledger_path="",
                ),
            ),
            max_ongoing_requests=config.max_ongoing_requests,
            max_queued_requests=config.max_queued_requests,
            backpressure_status=config.backpressure_config.status_code,
            retry_after_s=config.backpressure_config.retry_after_s,
            idempotent=config.idempotent,
        )

    def _make_call(self, caller: Caller, call_id: int, payload: bytes) -> HandleCall:
        return HandleCall(caller, call_id, payload, self._user)

    async def _in_context(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine with the variables of the user's code."""
        task: asyncio.Task[T] = self.context.copy().run(self._loop.create_task, work)
        return await task


def _kill(name: str) -> None:
    try:
        kill_actor(get_actor(name, NAMESPACE))
    except ValueError:  # it did not start
        pass


class LocalLink(LoopLink):
    """The link of an application in this process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        hello = Hello(role="caller", id=_NODE, pid=os.getpid())
        super().__init__(loop, node_id=_NODE, hello=hello, key=b"")
        self._replicas: dict[str, LocalReplica] = {}

    def add(self, replica: LocalReplica) -> None:
        """Route calls to a replica that has started."""
        self._replicas[replica.replica_id] = replica
        self.update(TableUpdate(version=len(self._replicas), deployments=(replica.route(),)))

    def _connect(self, replica: ReplicaRoute, delay_s: float) -> None:
        self._connected(replica, self._replicas[replica.replica_id].connect(self))


class LocalApplication:
    """An application in this process."""

    def __init__(self, target: ApplicationTarget, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._target = target
        self._directory = tempfile.TemporaryDirectory(prefix="syncline-serve-")
        self._replicas: list[LocalReplica] = []
        self.link = LocalLink(loop)
        self.deployments = tuple(deployment.name for deployment in target.deployments)
        self.ingress = next(d.name for d in target.deployments if d.is_ingress)

    async def start(self) -> None:
        """Start the deployments in the order of their calls; raise RuntimeError if one fails."""
        for target in self._target.deployments:
            replica = LocalReplica(target, self._target.name, self._loop, self._directory.name)
            self._replicas.append(replica)
            try:
                await replica.start()
            except Exception as error:
                raise RuntimeError(
                    f"Deploying application {self._target.name!r} failed: deployment "
                    f"{target.name!r} does not start:\n{user_traceback(error).rstrip()}"
                ) from error
            self.link.add(replica)

    async def stop(self) -> None:
        """End calls and instances."""
        self.link.close(RayServeException(f"application {self._target.name!r} was deleted"))
        for replica in reversed(self._replicas):
            await replica.stop()
        self._directory.cleanup()
