"""Functions of the public API: start serve, run applications, return handles and states.

Each checks its arguments and sends a request to the controller through `ServeClient`. Not covered:
functions for code inside of replicas (`context`, `multiplex`, `batching`, `deployment_actors`).
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from syncline import settings
from syncline.records import dataclass
from syncline.serve import option_values as check
from syncline.serve import tracing
from syncline.serve.application_graph import build_application
from syncline.serve.client import (
    ServeClient,
    check_feasible,
    ensure_client,
    find_client,
    running_client,
)
from syncline.serve.config import ControllerOptions, HTTPOptions, ProxyLocation, gRPCOptions
from syncline.serve.context import replica_context
from syncline.serve.controller.messages import ApplicationTarget, StartProxies
from syncline.serve.deployment import Application
from syncline.serve.exceptions import RayServeException
from syncline.serve.handle import DeploymentHandle
from syncline.serve.local import delete_locally, local_application, run_locally, shut_down_locally
from syncline.serve.logging_config import LoggingConfig, TracingConfig
from syncline.serve.schema import ServeStatus
from syncline.suggestions import did_you_mean, unknown_argument

logger = logging.getLogger("syncline.serve")

DEFAULT_APP_NAME = "default"
_SERVING = ("RUNNING", "UPDATING", "RECOVERING", "PENDING_MIGRATION")
"""States of replicas that take calls, as shown in the status."""

T = TypeVar("T")
Handle = DeploymentHandle[Any]
GivenLogging = Mapping[str, Any] | LoggingConfig | None
GivenController = Mapping[str, Any] | ControllerOptions | None


@dataclass(frozen=True)
class RunTarget:
    """An application for `run_many`."""

    target: Application
    """The bound application."""
    name: str = DEFAULT_APP_NAME
    """Name of the application."""
    route_prefix: str | None = "/"
    """Path of its HTTP requests; None: no HTTP."""
    logging_config: GivenLogging = None
    """Default logging options of the deployments."""
    external_scaler_enabled: bool = False
    """True if the number of replicas is set from outside."""


# -- start and end


def start(
    proxy_location: str | ProxyLocation | None = None,
    http_options: Mapping[str, object] | HTTPOptions | None = None,
    grpc_options: Mapping[str, object] | gRPCOptions | None = None,
    logging_config: GivenLogging = None,
    tracing_config: Mapping[str, object] | TracingConfig | None = None,
    controller_options: GivenController = None,
    **unknown: object,
) -> None:
    """Start serve, and syncline if necessary, and wait until the proxy accepts requests.

    `run` calls it with the defaults. If serve is already running, different options are ignored
    with a warning.

    Args:
        proxy_location: "EveryNode" (nodes with replicas), "HeadOnly", or "Disabled" for no HTTP.
        http_options: Fields of `HTTPOptions`: host, port, timeouts, TLS, limits.
        grpc_options: Fields of `gRPCOptions`.
        logging_config: Fields of `LoggingConfig`, for proxies and their access log.
        tracing_config: Fields of `TracingConfig`, for proxies, replicas and calls of this program.
        controller_options: Fields of `ControllerOptions`.

    Raises:
        TypeError: An option is unknown or has a wrong type.
        ValueError: An option has an invalid value.
        OSError: The proxy cannot listen, for example because the port is in use.
    """
    for name in unknown:
        raise unknown_argument("start()", name, _START_OPTIONS)
    http = _given(HTTPOptions, http_options, "http_options") or HTTPOptions()
    location = ProxyLocation.of(proxy_location or http.location or ProxyLocation.EveryNode)
    message = StartProxies(
        location=(location if http.host is not None else ProxyLocation.Disabled).value,
        http=http,
        grpc=_given(gRPCOptions, grpc_options, "grpc_options"),
        logging_config=_given(LoggingConfig, logging_config, "logging_config"),
        tracing_config=_given(TracingConfig, tracing_config, "tracing_config"),
    )
    _warn_of_ignored(controller_options)
    tracing.enable(message.tracing_config)  # first, so that errors of the exporter are raised here
    warning = ensure_client().start_proxies(message)
    if warning:
        logger.warning("%s", warning)


_START_OPTIONS = (
    "proxy_location",
    "http_options",
    "grpc_options",
    "logging_config",
    "tracing_config",
    "controller_options",
)


def _warn_of_ignored(controller_options: object) -> None:
    """Check options that have no effect yet, and warn about them."""
    controller = _given(ControllerOptions, controller_options, "controller_options")
    if controller is not None and controller.runtime_env:
        logger.warning("`controller_options` have no effect: set the variables in the program.")


def shutdown() -> None:
    """Delete all applications and stop serve; does nothing if serve is not running."""
    shut_down_locally()
    client = find_client()
    if client is not None:
        client.shutdown()
    tracing.disable()


async def shutdown_async() -> None:
    """Call `shutdown` without blocking the event loop."""
    await asyncio.get_running_loop().run_in_executor(None, shutdown)


# -- applications


def run(
    target: Application,
    blocking: bool = False,
    name: str = DEFAULT_APP_NAME,
    route_prefix: str | None = "/",
    logging_config: GivenLogging = None,
    _local_testing_mode: bool = False,
    external_scaler_enabled: bool = False,
    controller_options: GivenController = None,
) -> Handle:
    """Run an application, wait until all replicas run, and return a handle of its ingress.

    An application with the same name is updated: deployments with unchanged code and arguments
    keep their replicas; the others are replaced without interruption.

    Args:
        target: The application, from `deployment.bind(...)`.
        blocking: True to wait for Ctrl-C afterwards.
        name: Name of the application.
        route_prefix: Path of its HTTP requests; None: no HTTP.
        logging_config: Default logging options of the deployments, and of the proxies if this call
            starts them.
        external_scaler_enabled: True if an external scaler sets the number of replicas.
        controller_options: Options of the controller, if it is not running yet.
        _local_testing_mode: True to run one instance of each deployment in this process, without
            HTTP, for tests and debuggers.

    Raises:
        TypeError: `target` is not an application, or cannot be pickled.
        ValueError: `name` or `route_prefix` is invalid.
        RayServeException: Another application has the route prefix, or the application has two
            ingress classes.
        RuntimeError: A replica does not start (the message contains the traceback of its
            constructor), or the resources of the replicas do not exist.
    """
    one = RunTarget(target, name, route_prefix, logging_config, external_scaler_enabled)
    handles = run_many(
        [one],
        blocking=blocking,
        _local_testing_mode=_local_testing_mode,
        controller_options=controller_options,
    )
    return handles[0]


def run_many(
    targets: Sequence[RunTarget],
    blocking: bool = False,
    wait_for_ingress_deployment_creation: bool = True,
    wait_for_applications_running: bool = True,
    _local_testing_mode: bool = False,
    controller_options: GivenController = None,
) -> list[Handle]:
    """Run several applications at the same time; return a handle of the ingress of each.

    With `wait_for_applications_running=False`, return as soon as the controller has accepted the
    applications. Raises the errors of `run`; then no application is changed, unless the error is
    that an application did not start.
    """
    applications = [_built(target) for target in targets]
    _check_names(applications)
    _warn_of_ignored(controller_options)
    if _local_testing_mode or settings.serve_local_testing():
        for application in applications:
            run_locally(application)
    else:
        logs = next((each.logging_config for each in targets if each.logging_config), None)
        _deploy(
            applications,
            wait=wait_for_applications_running,
            logging_config=_given(LoggingConfig, logs, "logging_config"),
        )
    handles = [_ingress_handle(application) for application in applications]
    if blocking:
        _wait_for_interrupt()
    return handles


def _deploy(
    applications: Sequence[ApplicationTarget],
    *,
    wait: bool,
    logging_config: LoggingConfig | None = None,
) -> None:
    """Deploy applications with the controller; `logging_config` is for proxies that it starts."""
    client = ensure_client()
    for application in applications:
        check_feasible(application)
    if any(application.route_prefix is not None for application in applications):
        default = StartProxies(
            location=ProxyLocation.EveryNode.value,
            http=HTTPOptions(),
            logging_config=logging_config,
        )
        client.start_proxies(default)  # ignore the warning about different options
    began = time.monotonic()
    versions = client.deploy(applications)
    for application in applications:
        delete_locally(application.name)  # handles with this name now call the new replicas
    if wait:
        for application in applications:
            client.wait_for(application.name, versions[application.name])
        _log_ready(client, applications, time.monotonic() - began)


def _built(target: object) -> ApplicationTarget:
    if not isinstance(target, RunTarget):
        raise TypeError(
            f"`run_many` got {target!r}, but takes a list of `RunTarget(app, name=...)`"
        )
    return build_application(
        target.target,
        name=target.name,
        route_prefix=target.route_prefix,
        logging_config=_given(LoggingConfig, target.logging_config, "logging_config"),
        external_scaler_enabled=target.external_scaler_enabled,
    )


def _check_names(applications: Sequence[ApplicationTarget]) -> None:
    names = [application.name for application in applications]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"`run_many` got two applications named {name!r}: change one name")


def _ingress_handle(application: ApplicationTarget) -> Handle:
    ingress = next(target.name for target in application.deployments if target.is_ingress)
    return DeploymentHandle(ingress, application.name)


def _log_ready(
    client: ServeClient, applications: Sequence[ApplicationTarget], seconds: float
) -> None:
    """Write one line per deployment, and the address of each application."""
    if not logger.isEnabledFor(logging.INFO):
        return
    details = client.details()
    for application in applications:
        status = details.status.applications.get(application.name)
        for name, deployment in () if status is None else status.deployments.items():
            running = sum(deployment.replica_states.get(state, 0) for state in _SERVING)
            logger.info("Deployment %s#%s: %d replicas run.", application.name, name, running)
        where = ""
        if application.route_prefix is not None and details.http_addresses:
            host, port = next(iter(details.http_addresses.values()))
            where = f" at http://{host}:{port}{application.route_prefix}"
        logger.info("Application %r is ready%s (%.2f s).", application.name, where, seconds)


def _wait_for_interrupt() -> None:
    logger.info("Serving until Ctrl-C.")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        logger.warning("Got Ctrl-C: serve stops with the program.")
        raise


def delete(name: str, _blocking: bool = True) -> None:
    """Delete an application and wait until its replicas are gone. Unknown names are ignored.

    Raises RayServeException if serve is not running.
    """
    check.text("name", name)
    if delete_locally(name):
        return
    client = running_client()
    if _blocking:
        client.delete([name])
    else:
        threading.Thread(target=client.delete, args=([name],), daemon=True).start()


def status() -> ServeStatus:
    """Return the states of applications, deployments and proxies; empty if serve is not running."""
    client = find_client()
    return ServeStatus() if client is None else client.status()


# -- handles


def get_app_handle(name: str) -> Handle:
    """Return a handle of the ingress deployment of an application.

    Raises RayServeException if the application does not exist or serve is not running.
    """
    check.text("name", name)
    local = local_application(name)
    if local is not None:
        return DeploymentHandle(local[0], name)
    client = running_client()
    info = client.application(name)
    if info is None:
        known = list(client.status().applications)
        raise RayServeException(
            f"Application {name!r} does not exist.{did_you_mean(name, known)} "
            f"Applications: {', '.join(known) or 'none'}."
        )
    return DeploymentHandle(info.ingress.name, info.ingress.app)


def get_deployment_handle(
    deployment_name: str,
    app_name: str | None = None,
    _check_exists: bool = True,
    _record_telemetry: bool = True,
) -> Handle:
    """Return a handle of a deployment; in a replica, by default of the replica's application.

    Raises KeyError if the deployment does not exist, and RayServeException without an application
    name outside of replicas.
    """
    check.text("deployment_name", deployment_name)
    check.text("app_name", app_name, optional=True)
    if app_name is None:
        context = replica_context()
        if context is None:
            raise RayServeException(
                "`get_deployment_handle()` was called without `app_name` outside of a replica: "
                f"write `get_deployment_handle({deployment_name!r}, app_name=...)`"
            )
        app_name = context.app_name
    if _check_exists:
        _check_deployment(deployment_name, app_name)
    return DeploymentHandle(deployment_name, app_name)


def _check_deployment(deployment_name: str, app_name: str) -> None:
    local = local_application(app_name)
    info = running_client().application(app_name) if local is None else None
    names = [*local[1]] if local is not None else []
    if info is not None:
        names = [deployment.name for deployment in info.deployments]
    if deployment_name not in names:
        raise KeyError(
            f"Deployment {deployment_name!r} in application {app_name!r} does not exist."
            f"{did_you_mean(deployment_name, names)} Deployments: {', '.join(names) or 'none'}."
        )


# -- traces


def get_trace_context() -> Any:
    """Return the current OpenTelemetry context, for child spans; None without OpenTelemetry."""
    telemetry = sys.modules.get("opentelemetry.context")
    return (telemetry.get_current() or None) if telemetry is not None else None


def _given(cls: type[T], value: object, name: str) -> T | None:
    return None if value is None else check.options(cls, value, name)
