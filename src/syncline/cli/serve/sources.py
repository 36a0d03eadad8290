"""`Source`: the applications that a command names, by a file or an import path; read many times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from syncline.cli.output import CommandError
from syncline.optional import load
from syncline.serve.application_files import ApplicationImportError, read_config, targets_of
from syncline.serve.config import HTTPOptions, ProxyLocation
from syncline.serve.config_file import ServeApplicationSchema, ServeDeploySchema
from syncline.serve.controller.messages import ApplicationTarget, StartProxies
from syncline.serve.exceptions import RayServeException

FILE_ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Applications, and options of the command line that replace those of a file."""

    target: str | None
    """"module:app", a configuration file, or None for no application."""
    args: dict[str, str] = field(default_factory=dict)
    """Arguments of a function at an import path."""
    directory: Path = field(default_factory=Path.cwd)
    """Directory of modules."""
    name: str | None = None
    """Name of the application at an import path."""
    route_prefix: str | None = None
    """Its route prefix; "none": no HTTP."""
    runtime_env: dict[str, Any] = field(default_factory=dict)
    """Environment of its replicas."""
    http: dict[str, Any] = field(default_factory=dict)
    """Fields of `HTTPOptions`."""
    proxy_location: str = "EveryNode"
    """Nodes that run a proxy, without a file."""

    @property
    def is_file(self) -> bool:
        """True for a configuration file."""
        return self.target is not None and self.target.endswith(FILE_ENDINGS)

    def config(self) -> ServeDeploySchema:
        """Return the configuration; read the file again. Raises ValueError or OSError."""
        http = HTTPOptions(**self.http)
        if self.target is None:
            location = ProxyLocation(self.proxy_location)
            return ServeDeploySchema(applications=(), http_options=http, proxy_location=location)
        if not self.is_file:
            return ServeDeploySchema(applications=(self._application(),), http_options=http)
        config = read_config(self.target)
        return replace(config, http_options=replace(config.http_options, **self.http))

    def _application(self) -> ServeApplicationSchema:
        options: dict[str, Any] = {} if self.name is None else {"name": self.name}
        if self.route_prefix is not None:
            options["route_prefix"] = None if self.route_prefix == "none" else self.route_prefix
        return ServeApplicationSchema(
            import_path=str(self.target), args=self.args, runtime_env=self.runtime_env, **options
        )

    def load(
        self, *, replicas_import_from_it: bool = False
    ) -> tuple[list[ApplicationTarget], StartProxies]:
        """Import the applications; return their targets and the options of proxies.

        Raises CommandError that says what is wrong.
        """
        try:
            config = self.config()
            targets = targets_of(
                config, self.directory, replicas_import_from_it=replicas_import_from_it
            )
        except (OSError, TypeError, ValueError, ApplicationImportError, RayServeException) as error:
            text = str(error)
            if not self.is_file:  # its only application needs no path of a key
                text = text.removeprefix("In `applications[0]`: ")
            raise CommandError(text) from error
        return targets, proxies_of(config)


def proxies_of(config: ServeDeploySchema) -> StartProxies:
    """Return the request that starts the proxies of a configuration."""
    return StartProxies(
        location=config.proxy_location.value,
        http=config.http_options,
        grpc=config.grpc_options if config.grpc_options.grpc_servicer_functions else None,
        logging_config=config.logging_config,
        tracing_config=config.tracing_config,
    )


def parsed_arguments(texts: Sequence[str]) -> dict[str, str]:
    """Return the mapping of "key=value" arguments. Raises click.UsageError for others."""
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise click.UsageError(
                f"{text!r} is no argument of the application: write key=value, such as size=3"
            )
        found[key] = value
    return found


def parsed_environment(
    text: str | None, path: str | None, working_dir: str | None
) -> dict[str, Any]:
    """Return the runtime environment of --runtime-env-json, --runtime-env and --working-dir."""
    if text is not None and path is not None:
        raise click.UsageError("pass --runtime-env or --runtime-env-json, not both")
    environment: object = {}
    try:
        if path is not None:
            yaml = load("yaml", purpose="--runtime-env", install="syncline[serve]")
            environment = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
        if text is not None:
            environment = json.loads(text)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"the runtime environment is not readable: {error}") from error
    if not isinstance(environment, dict):
        raise click.UsageError("the runtime environment is no mapping of fields")
    return {**environment, **({} if working_dir is None else {"working_dir": working_dir})}
