"""Builds the targets of applications in configuration files: import, build, override options."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from syncline.serve.application_graph import build_application
from syncline.serve.config import DeploymentConfig
from syncline.serve.config_file import ServeApplicationSchema, check_import_path
from syncline.serve.controller.messages import ApplicationTarget
from syncline.serve.deployment import Application, Deployment
from syncline.suggestions import did_you_mean


def build_from_schema(
    schema: ServeApplicationSchema, *, target_capacity: float | None = None
) -> ApplicationTarget:
    """Return the target of an application of a configuration file.

    Options of the file replace those in the code. Raises ImportError and AttributeError for an
    invalid import path, TypeError if it is not the path of an application, ValueError for options
    of unknown deployments, and the errors of `build_application`.
    """
    target = build_application(
        load_application(schema.import_path, schema.args),
        name=schema.name,
        route_prefix=schema.route_prefix,
        logging_config=schema.logging_config,
        external_scaler_enabled=schema.external_scaler_enabled,
        autoscaling_policy=schema.autoscaling_policy,
        overrides={deployment.name: deployment.options for deployment in schema.deployments},
        runtime_env=schema.runtime_env,
        import_path=schema.import_path,
        args=schema.args,
    )
    if target_capacity is None:
        return target
    scaled = (
        replace(deployment, config=_at_capacity(deployment.config, target_capacity))
        for deployment in target.deployments
    )
    return replace(target, deployments=tuple(scaled))


def load_application(import_path: str, args: Mapping[str, object] | None = None) -> Application:
    """Return the application at "module:name", or call a function there with `args` to build it.

    A function takes one parameter: a dict, or the pydantic model of its annotation. Raises
    ImportError and AttributeError for an invalid path, TypeError for other objects and ValueError
    for `args` of an application that is not built by a function.
    """
    check_import_path(import_path)
    module_name, name = _split(import_path)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module exists; something that it imports does not
        raise ImportError(
            f"`import_path={import_path!r}`: module {error.name!r} not found. Run the command in "
            "the directory of the module, or set its directory as `working_dir`."
        ) from None
    value: object = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise AttributeError(
                f"`import_path={import_path!r}`: {module_name!r} has no {part!r}."
                f"{did_you_mean(part, [n for n in dir(value) if not n.startswith('_')])}"
            )
        value = getattr(value, part)
    return _built(import_path, value, args or {})


def _split(import_path: str) -> tuple[str, str]:
    if ":" in import_path:
        module, _, name = import_path.partition(":")
    else:
        module, _, name = import_path.rpartition(".")
    return module, name


def _built(import_path: str, value: object, args: Mapping[str, object]) -> Application:
    if isinstance(value, Application):
        if args:
            raise ValueError(
                f"`args={dict(args)!r}` are for a function that builds the application, but "
                f"{import_path!r} is an application: remove `args`"
            )
        return value
    if isinstance(value, Deployment):
        raise TypeError(
            f"{import_path!r} is the deployment {value.name!r}, not an application: bind it, such "
            f"as `app = {value.name}.bind(...)`, and give the path of `app`"
        )
    if not callable(value):
        raise TypeError(
            f"{import_path!r} is {value!r}, which is neither an application nor a function that "
            "builds one"
        )
    app = value(_argument(import_path, value, args))
    if not isinstance(app, Application):
        raise TypeError(
            f"the function {import_path!r} returned {app!r}, but an application is needed: return "
            "`NAME.bind(...)`"
        )
    return app


def _argument(import_path: str, builder: Callable[..., object], args: Mapping[str, object]) -> Any:
    """Return the argument of a builder function."""
    parameters = list(inspect.signature(builder, eval_str=True).parameters.values())
    if len(parameters) != 1:
        raise TypeError(
            f"the function {import_path!r} has {len(parameters)} parameters, but needs one: the "
            "dict of `args`, or a pydantic model of it"
        )
    annotation = parameters[0].annotation
    validate = getattr(annotation, "model_validate", None)
    return dict(args) if validate is None else validate(dict(args))


def _at_capacity(config: DeploymentConfig, percent: float) -> DeploymentConfig:
    """Return the configuration with a percentage of its replicas, but at least one."""

    def scaled(count: int) -> int:
        return max(min(count, 1), math.ceil(count * percent / 100))

    scaling = config.autoscaling_config
    if scaling is None:
        return replace(config, num_replicas=scaled(config.num_replicas))
    initial = scaling.initial_replicas
    return replace(
        config,
        autoscaling_config=replace(
            scaling,
            min_replicas=scaled(scaling.min_replicas),
            initial_replicas=None if initial is None else scaled(initial),
            max_replicas=scaled(scaling.max_replicas),
        ),
    )
