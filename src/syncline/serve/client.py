"""`ServeClient`: sends a program's requests to the controller, which it finds or starts."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping

from syncline import settings
from syncline.core import engine as engines
from syncline.core.api import (
    ActorHandle,
    cluster_resources,
    ensure_engine,
    get,
    is_initialized,
    nodes,
)
from syncline.core.lifecycle import is_program
from syncline.core.resources import Resources, infeasible_message
from syncline.serve import program_control
from syncline.serve.config import DeploymentConfig
from syncline.serve.controller.messages import (
    ApplicationInfo,
    ApplicationTarget,
    DeleteApplications,
    Deploy,
    DeploymentTarget,
    GetApplication,
    GetDetails,
    GetStatus,
    ServeDetails,
    Shutdown,
    StartProxies,
    WaitForApplication,
)
from syncline.serve.controller.messages import Request as ControllerRequest
from syncline.serve.controller.process import find_controller, start_controller, stop_controller
from syncline.serve.exceptions import RayServeException
from syncline.serve.routing.process_link import close_process_link, wait_for_table
from syncline.serve.schema import ServeStatus
from syncline.serve.wire import thread_connection
from syncline.serve.wire.routes import Address

RECONNECT_S = 30.0
"""Seconds for which requests are retried while the controller restarts."""


class ServeClient:
    """Sends requests to one controller. Thread-safe."""

    def __init__(self, controller: ActorHandle) -> None:
        self._controller = controller
        self._node_id = ensure_engine().runtime_info().node_id
        self._address, self._key = self._locate()

    def _locate(self) -> tuple[Address, bytes]:
        """Wait until the controller listens."""
        address, key = get(self._controller.address.remote())
        return address, key

    def request(self, message: ControllerRequest, timeout_s: float | None = None) -> object:
        """Send a request and return the reply; retry if the controller restarts.

        Requests set or read targets and are therefore idempotent. Raises the error of the
        controller, TimeoutError after `timeout_s`, and ActorDiedError if the controller is gone.
        """
        give_up_at = time.monotonic() + RECONNECT_S
        while True:
            try:
                return thread_connection.request(
                    self._address,
                    message,
                    node_id=self._node_id,
                    key=self._key,
                    timeout_s=timeout_s,
                )
            except (ConnectionError, FileNotFoundError):
                if time.monotonic() > give_up_at:
                    raise
                self._address, self._key = self._locate()  # waits for the restart

    def start_proxies(self, message: StartProxies) -> str | None:
        """Start HTTP unless it is running; return a warning if it runs with different options."""
        warning = self.request(message)
        return warning if isinstance(warning, str) else None

    def deploy(
        self, applications: Iterable[ApplicationTarget], *, replace_all: bool = False
    ) -> Mapping[str, int]:
        """Set the targets of applications and return their versions by name."""
        targets = tuple(applications)
        versions = self.request(Deploy(applications=targets, replace_all=replace_all))
        assert isinstance(versions, Mapping)
        return versions

    def wait_for(self, name: str, version: int) -> ApplicationInfo:
        """Wait until a version of an application is RUNNING; raise RuntimeError if it fails."""
        info = self.request(WaitForApplication(name=name, version=version))
        assert isinstance(info, ApplicationInfo)
        wait_for_table(info.table_version)
        return info

    def application(self, name: str) -> ApplicationInfo | None:
        """Return the names in an application, or None."""
        info = self.request(GetApplication(name=name))
        assert info is None or isinstance(info, ApplicationInfo)
        return info

    def delete(self, names: Iterable[str]) -> None:
        """Delete applications and wait until their replicas are gone."""
        self.request(DeleteApplications(names=tuple(names)))

    def status(self) -> ServeStatus:
        """Return the status of all applications and proxies."""
        status = self.request(GetStatus())
        assert isinstance(status, ServeStatus)
        return status

    def details(self) -> ServeDetails:
        """Return the complete state of the controller."""
        details = self.request(GetDetails())
        assert isinstance(details, ServeDetails)
        return details

    def shutdown(self) -> None:
        """Stop all replicas, proxies and the controller."""
        try:
            self.request(Shutdown())
        finally:
            close_process_link()
            stop_controller(self._controller)
            program_control.withdraw()


class _Current:
    """The client of this process and its owner."""

    client: ServeClient | None = None
    owner: tuple[int, object] | None = None


def find_client() -> ServeClient | None:
    """Return the client of the running controller, or None if serve is not running.

    It connects to a cluster, but does not start syncline on this machine.
    """
    if not (is_initialized() or settings.address() or settings.session()):
        return None
    controller = find_controller()
    if controller is None:
        _Current.client = None
        return None
    owner = (os.getpid(), engines.current)
    known = _Current.client
    if known is not None and _Current.owner == owner and known._controller == controller:
        return known
    _Current.client, _Current.owner = ServeClient(controller), owner
    return _Current.client


def running_client() -> ServeClient:
    """Return the client of the controller; raise RayServeException if serve is not running."""
    client = find_client()
    if client is None:
        raise RayServeException(
            "serve is not running: start it with `serve.run(app)` or `serve.start()`"
        )
    return client


def ensure_client() -> ServeClient:
    """Return the client of the controller; start syncline and the controller if necessary."""
    ensure_engine()
    client = find_client()
    if client is None:
        start_controller()
        client = running_client()
        if is_program():
            _offer_control(client)
    return client


def _offer_control(client: ServeClient) -> None:
    """Make the controller reachable for `syncline serve` commands on this machine."""
    program_control.offer(
        program_control.ProgramActions(
            locate=client._locate, check_feasible=check_feasible, shut_down=client.shutdown
        ),
        ensure_engine().session_directory,
    )


def check_feasible(target: ApplicationTarget) -> None:
    """Raise RuntimeError if the machine or cluster can never run the first replicas.

    Clusters that grow are not checked.
    """
    if ensure_engine().may_grow:
        return
    node_resources = [Resources.of(row["Resources"]) for row in nodes() if row["Alive"]]
    total = Resources.of(cluster_resources())
    together = Resources()
    for deployment in target.deployments:
        _check_per_node(target.name, deployment, len(node_resources))
        replica = Resources()
        for bundle in _bundles(deployment.config):
            needed = Resources.of(bundle)
            if not any(needed.fits_in(node) for node in node_resources):
                largest = max(node_resources, key=lambda node: node.units("CPU"))
                raise _infeasible(target.name, f"a replica of {deployment.name!r}", needed, largest)
            replica = replica + needed
        for _ in range(deployment.config.first_replicas):
            together = together + replica
    if not together.fits_in(total):
        raise _infeasible(target.name, _counts(target), together, total)


def _check_per_node(app: str, deployment: DeploymentTarget, nodes: int) -> None:
    config = deployment.config
    limit = config.max_replicas_per_node
    if limit is not None and config.first_replicas > limit * nodes:
        raise RuntimeError(
            f"Deploying application {app!r} failed: {config.first_replicas} replicas of "
            f"{deployment.name!r} with `max_replicas_per_node={limit}` need "
            f"{math.ceil(config.first_replicas / limit)} nodes, but there "
            f"{'is' if nodes == 1 else 'are'} {nodes}. Raise `max_replicas_per_node` or lower "
            f"`num_replicas`."
        )


def _bundles(config: DeploymentConfig) -> Iterable[Mapping[str, float]]:
    return config.placement_group_bundles or (config.resources,)


def _counts(target: ApplicationTarget) -> str:
    counts = [f"{d.config.first_replicas} of {d.name!r}" for d in target.deployments]
    return f"its replicas together ({', '.join(counts)})"


def _infeasible(name: str, what: str, asked: Resources, existing: Resources) -> RuntimeError:
    return RuntimeError(
        f"Deploying application {name!r} failed: {what} {infeasible_message(asked, existing)}. "
        "A replica needs one CPU by default; change it with `ray_actor_options={'num_cpus': ...}`."
    )
