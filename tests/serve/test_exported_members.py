"""Freezes the public names of serve, and keeps its import light."""

import subprocess
import sys

from syncline import serve
from syncline.serve import config, deployment, exceptions, ingress, schema

NAMES = """
Application ControllerOptions Deployment HTTPOptions RunTarget TracingConfig batch delete deployment
get_app_handle get_deployment_actor get_deployment_actor_context get_deployment_handle
get_multiplexed_model_id get_replica_context get_trace_context ingress multiplexed run run_many
shutdown shutdown_async start status
"""


def test_names_of_serve():
    assert serve.__all__ == sorted(NAMES.split())
    for name in serve.__all__:
        assert callable(getattr(serve, name))


def test_names_of_modules():
    assert set(config.__all__) >= {
        "AggregationFunction",
        "AutoscalingConfig",
        "AutoscalingContext",
        "AutoscalingPolicy",
        "BackpressureConfig",
        "DeploymentActorConfig",
        "GangSchedulingConfig",
        "HTTPOptions",
        "ProxyLocation",
        "RequestRouterConfig",
        "gRPCOptions",
    }
    assert set(schema.__all__) >= {
        "ApplicationStatus",
        "LoggingConfig",
        "ServeApplicationSchema",
        "ServeDeploySchema",
        "ServeStatus",
    }
    assert all(name in exceptions.__doc__ for name in exceptions.__all__)
    for module, names in ((config, config.__all__), (schema, schema.__all__)):
        assert all(getattr(module, name) is not None for name in names)


def test_functions_are_not_hidden_by_modules_of_their_name():
    assert deployment is serve.deployment
    assert ingress is serve.ingress
    assert callable(deployment)
    assert callable(ingress)


def test_import_of_serve_loads_no_web_library():
    heavy = ("asyncio", "starlette", "fastapi", "uvloop", "httptools", "websockets", "torch")
    program = f"import sys, syncline.serve; print(*[m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == []


def test_running_an_application_loads_no_web_library():
    heavy = ("starlette", "fastapi", "httptools", "websockets", "torch", "numpy")
    program = (
        f"import sys; from syncline import serve; serve.run; "
        f"print(*[m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == []
