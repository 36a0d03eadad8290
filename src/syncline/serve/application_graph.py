"""`build_application`: builds the targets that the controller deploys from a bound application.

Applications among the arguments become deployments and are replaced with `DeploymentHandle`s. They
are found while the arguments are pickled, so they may be nested anywhere.
"""

from __future__ import annotations

import inspect
import logging
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from syncline.core import pickling, serialization
from syncline.serve.autoscaling_config import AutoscalingConfig, AutoscalingPolicy
from syncline.serve.code_version import code_version
from syncline.serve.config import DeploymentConfig, RequestRouterConfig
from syncline.serve.controller.messages import ApplicationTarget, DeploymentTarget
from syncline.serve.deployment import Application, Deployment, replace_applications
from syncline.serve.exceptions import RayServeException
from syncline.serve.handle import DeploymentHandle
from syncline.serve.ingress import BUILD_ASGI_APP
from syncline.serve.logging_config import LoggingConfig
from syncline.serve.proxy_options import check_route_prefix
from syncline.suggestions import did_you_mean

logger = logging.getLogger("syncline.serve")


def build_application(
    app: object,
    *,
    name: str,
    route_prefix: str | None = "/",
    logging_config: LoggingConfig | None = None,
    external_scaler_enabled: bool = False,
    autoscaling_policy: AutoscalingPolicy | None = None,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    runtime_env: Mapping[str, object] | None = None,
    import_path: str | None = None,
    args: Mapping[str, object] | None = None,
) -> ApplicationTarget:
    """Return the target of an application.

    The last four arguments come from configuration files: `overrides` are options by deployment
    that replace those in the code, and `runtime_env` is the default of deployments.

    Raises TypeError if `app` is not an application or if code or arguments cannot be pickled,
    ValueError for an invalid name or prefix, RayServeException for two ingress classes, and
    RuntimeError for options that the class does not support.
    """
    if not isinstance(app, Application):
        raise TypeError(_not_an_application(app))
    if not isinstance(name, str):
        raise TypeError(f"`name={name!r}` of an application is not a string")
    if not name or "#" in name:
        raise ValueError(f"`name={name!r}` of an application is empty or has '#': change it")
    check_route_prefix(route_prefix)
    graph = _Graph(name, logging_config, overrides or {}, runtime_env or {})
    graph.add(app)
    graph.check_overrides()
    _check_ingresses(name, [node.deployment for node in graph.nodes])
    return ApplicationTarget(
        name=name,
        deployments=tuple(graph.target(node, node.app is app) for node in graph.nodes),
        route_prefix=route_prefix,
        external_scaler_enabled=external_scaler_enabled,
        autoscaling_policy=None if autoscaling_policy is None else _policy(autoscaling_policy),
        import_path=import_path,
        args=dict(args or {}),
    )


class _Node:
    """A deployment of the graph."""

    def __init__(self, app: Application, name: str) -> None:
        self.app = app
        self.name = name

    @property
    def deployment(self) -> Deployment:
        return self.app.deployment


class _Graph:
    """The deployments of an application, each after the deployments that it calls."""

    def __init__(
        self,
        app_name: str,
        logging_config: LoggingConfig | None,
        overrides: Mapping[str, Mapping[str, Any]],
        runtime_env: Mapping[str, object],
    ) -> None:
        self._app_name = app_name
        self._logging_config = logging_config
        self._overrides = overrides
        self._runtime_env = runtime_env
        self._handles: dict[int, DeploymentHandle[Any]] = {}
        self.nodes: list[_Node] = []

    def add(self, app: Application) -> None:
        """Add an application and those among its arguments, unless it was added before."""
        if id(app) in self._handles:
            return
        for child in _applications_in(app.deployment):
            self.add(child)
        name = self._unique_name(app.deployment.name)
        self._handles[id(app)] = DeploymentHandle(name, self._app_name)
        self.nodes.append(_Node(app, name))

    def _unique_name(self, name: str) -> str:
        taken = {node.name for node in self.nodes}
        if name not in taken:
            return name
        number = 1
        while f"{name}_{number}" in taken:
            number += 1
        logger.warning(
            "Application %r has several deployments named %r: one of them is now %r. Give it "
            "another name with `.options(name=...)`.",
            self._app_name,
            name,
            f"{name}_{number}",
        )
        return f"{name}_{number}"

    def check_overrides(self) -> None:
        """Raise ValueError for options of a deployment that the application does not have."""
        names = [node.name for node in self.nodes]
        for name in self._overrides:
            if name not in names:
                raise ValueError(
                    f"application {self._app_name!r} has no deployment {name!r}, whose options are "
                    f"set.{did_you_mean(name, names)} Deployments: {', '.join(names)}."
                )

    def _with_overrides(self, node: _Node) -> Deployment:
        options = dict(self._overrides.get(node.name, {}))
        deployment = node.deployment.options(**options) if options else node.deployment
        actor_options = deployment.ray_actor_options
        if self._runtime_env and not actor_options.get("runtime_env"):
            actor_options["runtime_env"] = dict(self._runtime_env)
            deployment = deployment.options(ray_actor_options=actor_options)
        return deployment

    def target(self, node: _Node, is_ingress: bool) -> DeploymentTarget:
        """Return the target of a node."""
        deployment = self._with_overrides(node)
        _check_reconfigure(self._app_name, node.name, deployment)
        code = serialization.pack_callable(deployment.func_or_class)
        with _replaced(lambda app: self._handles[id(app)].__reduce__()):
            init_args, _ = pickling.dumps((deployment.init_args, deployment.init_kwargs), None)
        config = deployment.config
        if config.logging_config is None:
            config = replace(config, logging_config=self._logging_config)
        elif not config.logging_config.enable_access_log:
            logger.warning(
                "`enable_access_log=False` of deployment %r has no effect: proxies write the "
                "access log. Disable it with "
                "`serve.start(logging_config={'enable_access_log': False})`.",
                node.name,
            )
        config = _without_user_code(config)
        router = deployment.config.request_router_config
        scaling = deployment.config.autoscaling_config
        return DeploymentTarget(
            name=node.name,
            func_or_class=code,
            init_args=init_args,
            code_version=code_version(
                deployment.func_or_class, code, init_args, *_actor_pickles(config)
            ),
            config=config,
            is_ingress=is_ingress,
            request_router=None if router.is_default else _router(router),
            autoscaling_policy=(
                None if scaling is None or scaling.policy.is_default else _policy(scaling.policy)
            ),
        )


def _applications_in(deployment: Deployment) -> list[Application]:
    """Return the applications among the arguments in order, without duplicates.

    Raises TypeError that names an argument that cannot be pickled.
    """
    found: dict[int, Application] = {}

    def collect(app: Application) -> tuple[Any, ...]:
        found[id(app)] = app
        return (str, ())

    with _replaced(collect):
        serialization.pack_call(
            deployment.init_args,
            deployment.init_kwargs,
            function_name=f"{deployment.name}.bind",
            parameter_names=_parameter_names(deployment.func_or_class),
        )
    return list(found.values())


@contextmanager
def _replaced(replacement: Callable[[Application], Any]) -> Iterator[None]:
    token = replace_applications.set(replacement)
    try:
        yield
    finally:
        replace_applications.reset(token)


def _parameter_names(cls: Callable[..., object]) -> list[str]:
    try:
        return list(inspect.signature(cls).parameters)
    except (TypeError, ValueError):  # a class of a C extension
        return []


def is_ingress_class(func_or_class: object) -> bool:
    """Return True for a class that is an ASGI application."""
    return inspect.isclass(func_or_class) and hasattr(func_or_class, BUILD_ASGI_APP)


def _check_ingresses(app_name: str, deployments: list[Deployment]) -> None:
    names = [d.name for d in deployments if is_ingress_class(d.func_or_class)]
    if len(names) > 1:
        raise RayServeException(
            f"application {app_name!r} has {len(names)} classes with `@serve.ingress`: "
            f"{', '.join(names)}. Only one of them can take HTTP requests: remove the decorator "
            "from the others and call them through handles, or run them as separate applications."
        )


def _check_reconfigure(app_name: str, name: str, deployment: Deployment) -> None:
    definition = deployment.func_or_class
    if deployment.user_config is None or hasattr(definition, "reconfigure"):
        return
    kind = "class" if inspect.isclass(definition) else "function"
    raise RuntimeError(
        f"Deploying application {app_name!r} failed: deployment {name!r} has a `user_config`, but "
        f"the {kind} `{definition.__qualname__}` has no method `reconfigure(self, user_config)` "
        "that receives it. Add the method, or leave `user_config` out."
    )


def _not_an_application(value: object) -> str:
    if isinstance(value, Deployment):
        return (
            f"`run` got the deployment {value.name!r}, but takes an application: pass "
            f"`{value.name}.bind(...)`"
        )
    return (
        f"`run` got {value!r}, a {type(value).__name__}, but takes an application: decorate a "
        "class or function with `@serve.deployment` and pass `NAME.bind(...)`"
    )


# -- user code in options


def _router(config: RequestRouterConfig) -> bytes:
    loaded = replace(config, request_router_class=config.load())
    return pickling.dumps(loaded, None)[0]


def _policy(policy: AutoscalingPolicy) -> bytes:
    function = policy.load()
    if policy.policy_kwargs:
        function = partial(function, **policy.policy_kwargs)
    return pickling.dumps(function, None)[0]


def _without_user_code(config: DeploymentConfig) -> DeploymentConfig:
    """Replace classes and functions with names or pickles, so that the controller imports none."""
    router = config.request_router_config
    scaling = config.autoscaling_config
    return replace(
        config,
        request_router_config=replace(
            router, request_router_class=_import_path(router.request_router_class)
        ),
        autoscaling_config=None if scaling is None else _named_policy(scaling),
        deployment_actors=tuple(
            replace(
                actor,
                actor_class=pickling.dumps(
                    (actor.load(), actor.init_args, dict(actor.init_kwargs)), None
                )[0],
                init_args=(),
                init_kwargs={},
            )
            for actor in config.deployment_actors
        ),
    )


def _actor_pickles(config: DeploymentConfig) -> Iterator[bytes]:
    """Yield pickles that change with the actors of a deployment."""
    for actor in config.deployment_actors:
        env = config.ray_actor_options.get("runtime_env")
        options = repr((actor.name, sorted(actor.actor_options.items()), env))
        yield pickle.dumps(options)
        yield actor.actor_class


def _named_policy(scaling: AutoscalingConfig) -> AutoscalingConfig:
    path = _import_path(scaling.policy.policy_function)
    return replace(scaling, policy=replace(scaling.policy, policy_function=path))


def _import_path(value: object) -> str:
    if isinstance(value, str):
        return value
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"
