"""Public functions against a fake controller: what they check, ask for, and return."""

import logging
import time

import pytest

from syncline import serve
from syncline.core.api import is_initialized
from syncline.serve import api
from syncline.serve.context import ReplicaContext, ReplicaID, set_replica_context
from syncline.serve.controller.messages import ApplicationInfo, ServeDetails
from syncline.serve.exceptions import RayServeException
from syncline.serve.proxy_options import HTTPOptions
from syncline.serve.schema import (
    ApplicationStatus,
    ApplicationStatusOverview,
    DeploymentStatus,
    DeploymentStatusOverview,
    DeploymentStatusTrigger,
    LoggingConfig,
    ServeStatus,
)
from syncline.serve.wire.routes import DeploymentId


@serve.deployment
class Model:
    pass


class FakeClient:
    """Stands for `ServeClient`; notes the requests."""

    def __init__(self):
        self.requests = []
        self.targets = {}
        self.warning = None
        self.failure = None

    def start_proxies(self, message):
        self.requests.append(message)
        return self.warning

    def deploy(self, applications):
        self.requests.append(tuple(application.name for application in applications))
        self.targets.update({application.name: application for application in applications})
        return {application.name: 7 for application in applications}

    def wait_for(self, name, version):
        self.requests.append((name, version))
        if self.failure is not None:
            raise self.failure

    def application(self, name):
        if name not in self.targets:
            return None
        ids = tuple(DeploymentId(name, target.name) for target in self.targets[name].deployments)
        return ApplicationInfo(
            name=name, route_prefix="/", ingress=ids[-1], deployments=ids, version=7
        )

    def status(self):
        running = DeploymentStatusOverview(
            DeploymentStatus.HEALTHY,
            DeploymentStatusTrigger.CONFIG_UPDATE_COMPLETED,
            {"RUNNING": 2},
            "",
        )
        return ServeStatus(
            applications={
                name: ApplicationStatusOverview(
                    ApplicationStatus.RUNNING, "", 0.0, {d.name: running for d in t.deployments}
                )
                for name, t in self.targets.items()
            }
        )

    def details(self):
        return ServeDetails(
            status=self.status(),
            deployments=(),
            subscribers=(),
            table_version=1,
            events=(),
            http_addresses={"node": ("127.0.0.1", 8000)},
        )

    def delete(self, names):
        time.sleep(0.01)
        self.requests.append(list(names))

    def shutdown(self):
        self.requests.append("shutdown")


@pytest.fixture
def client(monkeypatch):
    fake = FakeClient()
    for name in ("ensure_client", "running_client", "find_client"):
        monkeypatch.setattr(api, name, lambda: fake)
    monkeypatch.setattr(api, "check_feasible", lambda application: None)
    return fake


def test_run_starts_http_deploys_waits_and_returns_the_handle_of_the_ingress(client, caplog):
    caplog.set_level(logging.INFO, logger="syncline.serve")
    handle = serve.run(Model.bind(), name="app", route_prefix="/x")
    assert (handle.deployment_name, handle.app_name) == ("Model", "app")
    start, deployed, waited = client.requests
    assert (start.location, start.http) == ("EveryNode", HTTPOptions())
    assert (deployed, waited) == (("app",), ("app", 7))
    assert client.targets["app"].route_prefix == "/x"
    assert "Deployment app#Model: 2 replicas run." in caplog.text
    assert "Application 'app' is ready at http://127.0.0.1:8000/x" in caplog.text


def test_run_without_a_route_starts_no_http(client):
    serve.run(Model.bind(), route_prefix=None)
    assert client.requests == [("default",), ("default", 7)]


def test_run_passes_options_of_the_application(client):
    serve.run(Model.bind(), logging_config={"log_level": "DEBUG"}, external_scaler_enabled=True)
    target = client.targets["default"]
    assert target.external_scaler_enabled
    assert target.deployments[0].config.logging_config == LoggingConfig(log_level="DEBUG")
    assert client.requests[0].logging_config == LoggingConfig(log_level="DEBUG")  # of proxies


def test_warning_of_running_proxies_is_shown_by_start_and_not_by_run(client, caplog):
    client.warning = "HTTP runs with other options: port 8000"
    serve.run(Model.bind())
    assert "other options" not in caplog.text
    serve.start(http_options={"port": 9000})
    assert "other options" in caplog.text


def test_failure_of_the_application_is_raised(client):
    client.failure = RuntimeError("Deploying application 'default' failed: no weights")
    with pytest.raises(RuntimeError, match="no weights"):
        serve.run(Model.bind())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"target": Model}, TypeError, r"pass `Model.bind\(...\)`"),
        ({"target": 3}, TypeError, "takes an application"),
        ({"route_prefix": "x"}, ValueError, "does not start with '/'"),
        ({"name": ""}, ValueError, "is empty"),
        ({"logging_config": {"level": 1}}, ValueError, "unknown field 'level'"),
        ({"controller_options": {"runtime_env": {"pip": []}}}, ValueError, "'env_vars' only"),
    ],
)
def test_mistakes_are_refused_before_anything_starts(client, options, error, message):
    with pytest.raises(error, match=message):
        serve.run(**{"target": Model.bind(), **options})
    assert client.requests == []


def test_run_many_deploys_all_at_once(client):
    targets = [serve.RunTarget(Model.bind(), name=name, route_prefix=f"/{name}") for name in "ab"]
    handles = serve.run_many(targets)
    assert [handle.app_name for handle in handles] == ["a", "b"]
    assert client.requests[1:] == [("a", "b"), ("a", 7), ("b", 7)]
    serve.run_many(targets, wait_for_applications_running=False)
    assert client.requests[5:] == [("a", "b")]


def test_run_many_refuses_equal_names_and_other_values(client):
    with pytest.raises(ValueError, match="two applications named 'default'"):
        serve.run_many([serve.RunTarget(Model.bind())] * 2)
    with pytest.raises(TypeError, match="takes a list of `RunTarget"):
        serve.run_many([Model.bind()])


def test_blocking_waits_for_ctrl_c(client, monkeypatch, caplog):
    class Interrupted:
        def wait(self):
            raise KeyboardInterrupt

    monkeypatch.setattr(api.threading, "Event", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        serve.run(Model.bind(), blocking=True)
    assert "Got Ctrl-C" in caplog.text


@pytest.mark.parametrize(
    ("options", "location", "http"),
    [
        ({}, "EveryNode", HTTPOptions()),
        ({"proxy_location": "HeadOnly"}, "HeadOnly", HTTPOptions()),
        ({"http_options": {"host": None}}, "Disabled", HTTPOptions(host=None)),
        ({"http_options": {"location": "NoServer"}}, "Disabled", HTTPOptions(location="Disabled")),
        ({"http_options": HTTPOptions(port=1)}, "EveryNode", HTTPOptions(port=1)),
    ],
)
def test_start_passes_options(client, options, location, http):
    serve.start(**options)
    (message,) = client.requests
    assert (message.location, message.http) == (location, http)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"http_option": {}}, TypeError, "Did you mean 'http_options'"),
        ({"http_options": {"prot": 1}}, ValueError, "Did you mean 'port'"),
        ({"http_options": {"middlewares": [1]}}, ValueError, "not supported"),
        ({"http_options": 8000}, TypeError, "a dict or a HTTPOptions"),
        ({"proxy_location": "Nowhere"}, ValueError, "'HeadOnly'"),
        ({"tracing_config": {"sampling_ratio": 2}}, ValueError, "at most 1"),
    ],
)
def test_wrong_options_of_start_are_refused(client, options, error, message):
    with pytest.raises(error, match=message):
        serve.start(**options)
    assert client.requests == []


def test_handles_of_running_applications(client):
    serve.run(Model.bind(), name="app")
    assert serve.get_app_handle("app").deployment_name == "Model"
    assert serve.get_deployment_handle("Model", app_name="app").app_name == "app"
    assert (
        serve.get_deployment_handle("Later", "app", _check_exists=False).deployment_name == "Later"
    )


def test_unknown_names_are_refused_with_the_nearest_one(client):
    serve.run(Model.bind(), name="app")
    with pytest.raises(RayServeException, match="'apq' does not exist. Did you mean 'app'"):
        serve.get_app_handle("apq")
    with pytest.raises(KeyError, match="Did you mean 'Model'"):
        serve.get_deployment_handle("Modle", "app")
    with pytest.raises(KeyError, match="'Model' in application 'other' does not exist"):
        serve.get_deployment_handle("Model", "other")
    with pytest.raises(RayServeException, match="without `app_name`"):
        serve.get_deployment_handle("Model")


def test_a_replica_gets_handles_of_its_own_application(client):
    serve.run(Model.bind(), name="app")
    id = ReplicaID(unique_id="app#Model#x", deployment_id=DeploymentId("app", "Model"))
    set_replica_context(ReplicaContext(replica_id=id))
    try:
        assert serve.get_deployment_handle("Model").app_name == "app"
    finally:
        set_replica_context(None)


def test_delete_waits_or_not(client):
    serve.delete("app")
    assert client.requests == [["app"]]
    serve.delete("later", _blocking=False)
    assert client.requests == [["app"]]
    deadline = time.monotonic() + 10
    while len(client.requests) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.005)


async def call_shutdown():
    await serve.shutdown_async()


def test_shutdown_may_be_called_on_an_event_loop(client):
    import asyncio

    asyncio.run(call_shutdown())
    assert client.requests == ["shutdown"]


def test_nothing_starts_when_serve_does_not_run():
    serve.shutdown()
    assert serve.status() == ServeStatus()
    for ask in (
        lambda: serve.get_app_handle("app"),
        lambda: serve.get_deployment_handle("Model", "app"),
        lambda: serve.delete("app"),
    ):
        with pytest.raises(RayServeException, match="serve is not running"):
            ask()
    assert not is_initialized()


def test_functions_of_replicas_are_refused_elsewhere():
    with pytest.raises(RayServeException, match="outside of a replica"):
        serve.get_replica_context()
    with pytest.raises(RayServeException, match="outside of a replica"):
        serve.get_deployment_actor("a")
    with pytest.raises(RayServeException, match="outside of a deployment actor"):
        serve.get_deployment_actor_context()
