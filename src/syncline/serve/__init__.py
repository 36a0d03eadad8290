"""Model serving: deployments behind HTTP and behind handles, with the API of Ray Serve.

Files in the order of the data flow: `deployment` and `ingress` (declarations), `config`,
`autoscaling_config`, `autoscaling_policy`, `gang_config`, `logging_config`, `log_output`,
`proxy_options` and
`option_values` (options and their checks), `api` (public functions), `client` (requests to the
controller), `program_control` and `program_client` (requests from other programs on this machine),
`application_graph` and `code_version` (targets of applications), `local` and
`local_application` (applications in this process), `config_file`, `application_loader`,
`application_files` and `schema` (configuration files, states), `controller/` (decides which
replicas run and where), `proxy/` (HTTP and gRPC), `routing/` and `request_router` (choice of a
replica for each call), `wire/` (frames and connections), `replica/` (runs user code), `monitoring/`
(measurements and records), `handle` and `response` (calls from programs and replicas), `tracing`
(OpenTelemetry), `context`, `batching`, `batch_queue`, `multiplex`, `metrics`, `grpc_util`,
`destructors` and `deployment_actors` (for user code), `experimental/` (further routers),
`generated/` (gRPC messages), `exceptions`, `event_loop`, `early_processes` (start of
processes while the program imports).
"""

import importlib
import sys
from typing import TYPE_CHECKING

# First, because it starts a process that imports in parallel.
from syncline.serve import early_processes as early_processes

# Before the modules of these names are loaded, which would hide the functions.
from syncline.serve.deployment import Application as Application
from syncline.serve.deployment import Deployment as Deployment
from syncline.serve.deployment import deployment as deployment
from syncline.serve.ingress import ingress as ingress
from syncline.suggestions import missing_attribute

if TYPE_CHECKING:
    from syncline.serve.api import RunTarget as RunTarget
    from syncline.serve.api import delete as delete
    from syncline.serve.api import get_app_handle as get_app_handle
    from syncline.serve.api import get_deployment_handle as get_deployment_handle
    from syncline.serve.api import get_trace_context as get_trace_context
    from syncline.serve.api import run as run
    from syncline.serve.api import run_many as run_many
    from syncline.serve.api import shutdown as shutdown
    from syncline.serve.api import shutdown_async as shutdown_async
    from syncline.serve.api import start as start
    from syncline.serve.api import status as status
    from syncline.serve.batching import batch as batch
    from syncline.serve.config import ControllerOptions as ControllerOptions
    from syncline.serve.config import HTTPOptions as HTTPOptions
    from syncline.serve.config import TracingConfig as TracingConfig
    from syncline.serve.context import get_replica_context as get_replica_context
    from syncline.serve.deployment_actors import get_deployment_actor as get_deployment_actor
    from syncline.serve.deployment_actors import (
        get_deployment_actor_context as get_deployment_actor_context,
    )
    from syncline.serve.multiplex import get_multiplexed_model_id as get_multiplexed_model_id
    from syncline.serve.multiplex import multiplexed as multiplexed

_NAMES = {
    "syncline.serve.api": (
        "RunTarget delete get_app_handle get_deployment_handle get_trace_context run run_many "
        "shutdown shutdown_async start status"
    ),
    "syncline.serve.batching": "batch",
    "syncline.serve.config": "ControllerOptions HTTPOptions TracingConfig",
    "syncline.serve.context": "get_replica_context",
    "syncline.serve.deployment_actors": "get_deployment_actor get_deployment_actor_context",
    "syncline.serve.multiplex": "get_multiplexed_model_id multiplexed",
}
"""Public names by module, which is loaded on first use."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = frozenset(
    {
        "autoscaling_policy", "config", "context", "exceptions", "grpc_util", "handle", "metrics",
        "request_router", "schema",
    }
)  # fmt: skip

__all__ = sorted([*_HOMES, "Application", "Deployment", "deployment", "ingress"])


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    raise missing_attribute(sys.modules[__name__], name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})
