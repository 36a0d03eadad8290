"""Requests to the controller: restarts, and resources that can never be met."""

from types import SimpleNamespace

import pytest

from syncline.serve import client as module
from syncline.serve.application_graph import build_application
from syncline.serve.client import ServeClient, check_feasible
from syncline.serve.controller.messages import GetStatus
from syncline.serve.deployment import deployment
from syncline.serve.schema import ServeStatus
from syncline.serve.wire.routes import Address

FIRST, SECOND = (Address(node_id="n", unix_path=path) for path in ("/first", "/second"))


@deployment
class Model:
    pass


@deployment
class Pair:
    def __init__(self, other):
        pass


class FakeController:
    """The handle of a controller that listens at one address after the other."""

    def __init__(self, *addresses):
        self.addresses = list(addresses)
        self.address = SimpleNamespace(remote=lambda: (self.addresses.pop(0), b"key"))


@pytest.fixture
def asked(monkeypatch):
    """Let requests to the first address fail; return the requests."""
    requests = []

    def request(address, message, **options):
        requests.append((address, message, options["timeout_s"]))
        if address is FIRST:
            raise ConnectionResetError("the controller died")
        return ServeStatus()

    engine = SimpleNamespace(runtime_info=lambda: SimpleNamespace(node_id="n"))
    monkeypatch.setattr(module.thread_connection, "request", request)
    monkeypatch.setattr(module, "ensure_engine", lambda: engine)
    monkeypatch.setattr(module, "get", lambda value: value)
    return requests


def test_request_is_repeated_at_the_address_of_the_restarted_controller(asked):
    client = ServeClient(FakeController(FIRST, SECOND))
    assert client.status() == ServeStatus()
    assert asked == [(FIRST, GetStatus(), None), (SECOND, GetStatus(), None)]


def test_request_is_given_up_after_a_time(asked, monkeypatch):
    monkeypatch.setattr(module, "RECONNECT_S", 0.0)
    client = ServeClient(FakeController(FIRST, SECOND))
    with pytest.raises(ConnectionResetError):
        client.status()


def test_errors_of_the_controller_are_not_repeated(asked, monkeypatch):
    def refuse(*_, **__):
        asked.append("asked")
        raise OSError(98, "address already in use")

    monkeypatch.setattr(module.thread_connection, "request", refuse)
    with pytest.raises(OSError, match="in use"):
        ServeClient(FakeController(FIRST)).status()
    assert asked == ["asked"]


@pytest.fixture
def machine(monkeypatch):
    """A machine with 2 CPUs."""
    resources = {"CPU": 2, "memory": 1000}
    monkeypatch.setattr(module, "ensure_engine", lambda: SimpleNamespace(may_grow=False))
    monkeypatch.setattr(module, "nodes", lambda: [{"Alive": True, "Resources": resources}])
    monkeypatch.setattr(module, "cluster_resources", lambda: resources)


def check(app):
    check_feasible(build_application(app, name="app"))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_replicas": 2},
        {"num_replicas": 8, "ray_actor_options": {"num_cpus": 0.25}},
        {"autoscaling_config": {"min_replicas": 0, "max_replicas": 99}},
        {"placement_group_bundles": [{"CPU": 1}, {"CPU": 1}]},
        {"num_replicas": 2, "max_replicas_per_node": 2},
    ],
    ids=str,
)
def test_possible_resources_are_accepted(machine, options):
    check(Model.options(**options).bind())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ray_actor_options": {"num_cpus": 3}}, "a replica of 'Model' asked {'CPU': 3} but"),
        (
            {"ray_actor_options": {"num_gpus": 1}},
            "asked {'GPU': 1} but this machine has {'GPU': 0}",
        ),
        ({"ray_actor_options": {"resources": {"tpu": 1}}}, "asked {'tpu': 1}"),
        (
            {"num_replicas": 3},
            r"replicas together \(3 of 'Model'\) asked {'CPU': 3} but.*{'CPU': 2}",
        ),
        ({"placement_group_bundles": [{"CPU": 2}, {"CPU": 1}]}, "asked {'CPU': 3}"),
        ({"placement_group_bundles": [{"CPU": 3}]}, "asked {'CPU': 3}"),
        (
            {"num_replicas": 2, "max_replicas_per_node": 1},
            "2 replicas of 'Model' with `max_replicas_per_node=1` need 2 nodes, but there is 1",
        ),
    ],
    ids=str,
)
def test_impossible_resources_are_refused_with_asked_for_and_available(machine, options, message):
    with pytest.raises(RuntimeError, match=f"Deploying application 'app' failed.*{message}"):
        check(Model.options(**options).bind())


def test_replicas_of_all_deployments_count_together(machine):
    with pytest.raises(RuntimeError, match=r"1 of 'Model', 2 of 'Pair'"):
        check(Pair.options(num_replicas=2).bind(Model.bind()))


def test_clusters_that_grow_are_not_checked(machine, monkeypatch):
    monkeypatch.setattr(module, "ensure_engine", lambda: SimpleNamespace(may_grow=True))
    check(Model.options(num_replicas=99).bind())
