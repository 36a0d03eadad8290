"""Classes of configuration files: `ServeDeploySchema` and its parts.

Each class checks its fields on creation from keyword arguments or by `from_dict`. Errors contain
the path of the key, such as `applications[0].deployments[1]`. Not covered: reading files and
importing applications (`application_loader.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, field, fields
from enum import Enum
from typing import Any, TypeVar

from syncline.records import dataclass
from syncline.serve import option_values as check
from syncline.serve.autoscaling_config import AutoscalingPolicy
from syncline.serve.config import OPTION_NAMES, DeploymentConfig
from syncline.serve.logging_config import LoggingConfig, TracingConfig
from syncline.serve.proxy_options import (
    ControllerOptions,
    HTTPOptions,
    ProxyLocation,
    check_route_prefix,
    gRPCOptions,
)
from syncline.suggestions import suggest_arguments

S = TypeVar("S", bound="Schema")

HTTPOptionsSchema = HTTPOptions
gRPCOptionsSchema = gRPCOptions

DEFAULT_APP_NAME = "default"
_NEEDS_BUNDLES = ("placement_group_strategy", "placement_group_bundle_label_selector")


class Schema:
    """Conversion from and to dicts, also under the names of pydantic's methods."""

    @classmethod
    def from_dict(cls: type[S], data: object, path: str = "") -> S:
        """Return the instance for a dict; `path` is its location in error messages.

        Raises TypeError for unknown or missing keys and wrong types, and ValueError for invalid
        values; both errors are ValueErrors.
        """
        return check.options(cls, data, path)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as plain values."""
        return {
            f.name: plain(getattr(self, f.name))
            for f in fields(self)  # type: ignore[arg-type]  # subclasses are dataclasses
            if not _is_default(f, getattr(self, f.name))
        }

    @classmethod
    def parse_obj(cls: type[S], data: object) -> S:
        """Return `from_dict(data)`."""
        return cls.from_dict(data)

    @classmethod
    def model_validate(cls: type[S], data: object) -> S:
        """Return `from_dict(data)`."""
        return cls.from_dict(data)

    def model_dump(self, **_options: object) -> dict[str, Any]:
        """Return `to_dict()`."""
        return self.to_dict()

    def dict(self, **_options: object) -> dict[str, Any]:
        """Return `to_dict()`."""
        return self.to_dict()


def _is_default(f: Any, value: object) -> bool:
    if f.default_factory is not MISSING:
        return bool(value == f.default_factory())
    return f.default is not MISSING and bool(value == f.default)


def plain(value: Any) -> Any:
    """Convert enums, schemas and dataclasses to plain values, without default values."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Schema):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {
            f.name: plain(getattr(value, f.name))
            for f in fields(value)
            if not _is_default(f, getattr(value, f.name))
        }
    return value


class DeploymentSchema(Schema):
    """Options of one deployment, which replace those in the code."""

    def __init__(self, *, name: str, **options: Any) -> None:
        """`options` are those of `@deployment`.

        Raises the errors of `DeploymentConfig.with_options`.
        """
        check.text("name", name, empty=False)
        check.check_keys("", options, OPTION_NAMES)
        self.name = name
        self.options = options
        """Options by name, as given."""
        checked = dict(options)
        if "placement_group_bundles" not in options:  # the code may have them
            for dependent in _NEEDS_BUNDLES:
                checked.pop(dependent, None)
        self._config = DeploymentConfig().with_options("DeploymentSchema", checked)

    @classmethod
    def from_dict(cls, data: object, path: str = "") -> DeploymentSchema:
        """Return the instance for a dict; see `Schema.from_dict`."""
        if isinstance(data, DeploymentSchema):
            return data
        given = check.mapping(path or "value", data)
        check.check_keys(path, given, ("name", *OPTION_NAMES))
        if "name" not in given:
            raise check.OptionTypeError(check.within(path, "the field 'name' is missing: add it"))
        try:
            return cls(**given)
        except check.OptionTypeError as error:
            raise check.OptionTypeError(check.within(path, error)) from None
        except ValueError as error:
            raise ValueError(check.within(path, error)) from None

    def to_dict(self) -> dict[str, Any]:
        """Return the name and the options that are set, as plain values."""
        return {"name": self.name, **{name: plain(v) for name, v in self.options.items()}}

    @property
    def is_autoscaled(self) -> bool:
        """True if the options set autoscaling."""
        return self._config.autoscaling_config is not None

    def __getattr__(self, name: str) -> Any:
        if name in OPTION_NAMES and "options" in self.__dict__:
            return self.options.get(name, getattr(DeploymentConfig(), name))
        raise AttributeError(f"'DeploymentSchema' has no attribute {name!r}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeploymentSchema) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # options are not hashable

    def __repr__(self) -> str:
        return f"DeploymentSchema({', '.join(f'{k}={v!r}' for k, v in self.to_dict().items())})"


@suggest_arguments
@dataclass(frozen=True, kw_only=True)
class ServeApplicationSchema(Schema):
    """An application of a configuration file."""

    import_path: str
    """"module:name" of an Application, or of a function that builds one from `args`."""
    name: str = DEFAULT_APP_NAME
    """Name of the application."""
    route_prefix: str | None = "/"
    """Path of its HTTP requests; None: no HTTP."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the building function."""
    runtime_env: Mapping[str, object] = field(default_factory=dict)
    """Default environment of all replicas."""
    deployments: tuple[DeploymentSchema, ...] = ()
    """Options that replace those in the code."""
    logging_config: LoggingConfig | None = None
    """Default logging options of all replicas."""
    autoscaling_policy: AutoscalingPolicy | None = None
    """An autoscaling policy for all deployments together."""
    external_scaler_enabled: bool = False
    """True if an external scaler sets the number of replicas."""

    def __post_init__(self) -> None:
        check.text("name", self.name)
        if not self.name or "#" in self.name:
            raise ValueError(f"`name={self.name!r}` of an application is empty or has '#'")
        check_import_path(self.import_path)
        check_route_prefix(self.route_prefix)
        check.boolean("external_scaler_enabled", self.external_scaler_enabled)
        converted = {
            "args": check.mapping("args", self.args),
            "runtime_env": check.mapping("runtime_env", self.runtime_env or {}),
            "deployments": _parts(DeploymentSchema, self.deployments, "deployments"),
            "logging_config": _optional(LoggingConfig, self.logging_config, "logging_config"),
            "autoscaling_policy": _optional(
                AutoscalingPolicy, self.autoscaling_policy, "autoscaling_policy"
            ),
        }
        for name, value in converted.items():
            object.__setattr__(self, name, value)
        _check_unique("deployments", "name", self.deployment_names)
        scaled = [deployment.name for deployment in self.deployments if deployment.is_autoscaled]
        if self.external_scaler_enabled and scaled:
            raise ValueError(
                f"`external_scaler_enabled=True`, but the deployments {', '.join(scaled)} have "
                "autoscaling: remove one of the two"
            )

    @property
    def deployment_names(self) -> list[str]:
        """Names of the deployments whose options are set here."""
        return [deployment.name for deployment in self.deployments]


@suggest_arguments
@dataclass(frozen=True, kw_only=True)
class ServeDeploySchema(Schema):
    """A configuration file: all applications, and the options of the proxies."""

    applications: tuple[ServeApplicationSchema, ...]
    """All applications; other running applications are deleted."""
    proxy_location: ProxyLocation = ProxyLocation.EveryNode
    """Nodes that run a proxy."""
    http_options: HTTPOptions = field(default_factory=HTTPOptions)
    """Options of the HTTP proxies."""
    grpc_options: gRPCOptions = field(default_factory=gRPCOptions)
    """Options of the gRPC proxies."""
    controller_options: ControllerOptions | None = None
    """Options of the controller."""
    logging_config: LoggingConfig | None = None
    """Default logging options of all applications."""
    tracing_config: TracingConfig | None = None
    """Tracing options."""
    target_capacity: float | None = None
    """Percentage of the configured replicas to run; None: all."""

    def __post_init__(self) -> None:
        converted = {
            "applications": _parts(ServeApplicationSchema, self.applications, "applications"),
            "proxy_location": ProxyLocation.of(self.proxy_location),
            "http_options": check.options(HTTPOptions, self.http_options, "http_options"),
            "grpc_options": check.options(gRPCOptions, self.grpc_options, "grpc_options"),
            "controller_options": _optional(
                ControllerOptions, self.controller_options, "controller_options"
            ),
            "logging_config": _optional(LoggingConfig, self.logging_config, "logging_config"),
            "tracing_config": _optional(TracingConfig, self.tracing_config, "tracing_config"),
        }
        for name, value in converted.items():
            object.__setattr__(self, name, value)
        check.number("target_capacity", self.target_capacity, least=0, most=100, optional=True)
        _check_unique("applications", "name", [app.name for app in self.applications])
        prefixes = [app.route_prefix for app in self.applications]
        _check_unique("applications", "route_prefix", [p for p in prefixes if p is not None])


def check_import_path(path: object) -> None:
    """Raise TypeError or ValueError unless `text` is "module:name" or "module.name"."""
    check.text("import_path", path, empty=False)
    text = str(path)
    module, _, name = text.partition(":") if ":" in text else text.rpartition(".")
    parts = [*module.split("."), *name.split(".")]
    if not all(part.isidentifier() for part in parts):
        raise ValueError(
            f"`import_path={text!r}` is not an import path: give 'module:name', where `name` is an "
            "Application or a function that returns one"
        )


def _parts(cls: type[S], value: object, name: str) -> tuple[S, ...]:
    if not isinstance(value, (list, tuple)):
        raise check.wrong_type(name, value, "a list")
    return tuple(cls.from_dict(item, f"{name}[{i}]") for i, item in enumerate(value))


def _optional(cls: type[object], value: object, name: str) -> Any:
    return None if value is None else check.options(cls, value, name)


def _check_unique(where: str, key: str, values: Iterable[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"`{where}` has the {key} {value!r} twice: change one of them")
        seen.add(value)
