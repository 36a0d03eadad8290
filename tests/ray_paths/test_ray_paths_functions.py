"""Functions of Ray's private modules, clients, and requests for nodes."""

import asyncio
import os
import socket

import pytest

import syncline
from syncline.core.config import engine_config
from syncline.ray_paths import autoscaler, client, constants, utilities, waiting
from syncline.ray_paths.job_config import JobConfig
from tests.core.fake_engine import running_fake_engine


@pytest.fixture
def engine(monkeypatch):
    with running_fake_engine(monkeypatch) as started:
        syncline.init()
        yield started[0]


# -- utilities


def test_the_address_of_this_node():
    assert utilities.get_node_ip_address() == "127.0.0.1"


def test_amounts_of_this_machine():
    assert utilities.get_num_cpus() >= 1
    assert utilities.get_used_memory() > 0
    assert utilities.estimate_available_memory() < utilities.get_system_memory()
    assert os.path.isabs(utilities.get_ray_temp_dir())


def test_a_free_port_can_be_bound():
    with socket.socket() as listener:
        listener.bind(("", utilities.find_free_port()))


def test_addresses():
    assert utilities.build_address("h", 1) == "h:1"
    assert utilities.build_address("::1", 1) == "[::1]:1"
    assert utilities.parse_address("[::1]:1") == ("::1", "1")
    assert utilities.parse_address("host") is None
    assert utilities.split_address("ray://h:1") == (["ray", "//h", "1"][0], "h:1")
    with pytest.raises(ValueError, match="scheme"):
        utilities.split_address("h:1")


def test_ids_and_imports():
    assert utilities.hex_to_binary(utilities.binary_to_hex(b"\x01\xff")) == b"\x01\xff"
    assert utilities.import_attr("os.path.join") is os.path.join
    assert utilities.load_class("os.path:join") is os.path.join
    with pytest.raises(ValueError, match="module"):
        utilities.import_attr("join")


def test_an_event_loop_exists_inside_and_outside_of_one():
    loop = utilities.get_or_create_event_loop()
    assert loop.run_until_complete(_running()) is loop


async def _running():
    return utilities.get_or_create_event_loop()


def test_sizes_of_directories(tmp_path):
    utilities.try_to_create_directory(str(tmp_path / "a" / "b"))
    (tmp_path / "a" / "b" / "file").write_bytes(bytes(5))
    assert utilities.get_directory_size_bytes(tmp_path) == 5


def test_nothing_is_reported_about_use():
    assert utilities.record_library_usage("mine") is None
    assert not utilities.usage_stats_enabled()


def test_one_reference_or_several_can_be_freed(engine):
    ref = syncline.put(1)
    utilities.free(ref)
    utilities.free([ref, ref])
    utilities.free([])
    assert [call for call in engine.calls if call[0] == "free"] == [
        ("free", [ref.id]),
        ("free", [ref.id, ref.id]),
    ]
    with pytest.raises(TypeError, match="pass references"):
        utilities.free(["x"])


# -- waiting


def test_waiting_for_a_condition():
    calls = []

    def third(wanted):
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("not yet")
        return len(calls) == wanted

    waiting.wait_for_condition(third, retry_interval_ms=1, wanted=3)
    assert len(calls) == 3


def test_a_condition_that_is_never_met_names_the_last_error():
    with pytest.raises(RuntimeError, match="within 0.01 s.*ZeroDivisionError"):
        waiting.wait_for_condition(lambda: 1 / 0, timeout=0.01, retry_interval_ms=1)
    with pytest.raises(ZeroDivisionError):
        waiting.wait_for_condition(lambda: 1 / 0, raise_exceptions=True)


def test_waiting_in_an_event_loop():
    async def main():
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, event.set)

        async def condition():
            return event.is_set()

        await waiting.async_wait_for_condition(condition, retry_interval_ms=1)
        with pytest.raises(RuntimeError, match="not met"):
            await waiting.async_wait_for_condition(lambda: False, timeout=0.01, retry_interval_ms=1)

    asyncio.run(main())


# -- clients


def test_older_ways_to_connect_call_init(monkeypatch):
    calls = []
    monkeypatch.setattr(client, "init", lambda address, **more: calls.append((address, more)))
    client.client("h:1").namespace("n").env({"env_vars": {"A": "1"}}).connect()
    client.client().connect()
    client.connect("h:1", namespace="n", ray_init_kwargs={"log_to_driver": False})
    client.ray.connect("ray://h:1")
    assert calls == [
        ("ray://h:1", {"namespace": "n", "runtime_env": {"env_vars": {"A": "1"}}}),
        (None, {}),
        ("ray://h:1", {"log_to_driver": False, "namespace": "n"}),
        ("ray://h:1", {}),
    ]
    with pytest.raises(ValueError, match="RAY_USE_TLS"):
        client.connect("h:1", secure=True)


def test_the_client_is_connected_only_by_ray_client(engine, monkeypatch):
    assert (client.ray.is_connected(), client.num_connected_contexts()) == (False, 0)
    monkeypatch.setattr(type(engine), "address", "ray://h:1")
    assert (client.ray.is_connected(), client.num_connected_contexts()) == (True, 1)
    assert client.ray.is_initialized()
    assert client.ray.get(client.ray.put(3)) == 3
    with pytest.raises(AttributeError, match="nothing"):
        _ = client.ray.nothing
    client.disconnect()
    assert not syncline.is_initialized()


# -- the autoscaler


def test_requests_for_nodes_reach_the_engine(engine):
    asked = []
    engine.request_resources = lambda **arguments: asked.append(arguments)
    autoscaler.request_resources(num_cpus=4, bundles=[{"GPU": 1}])
    autoscaler.request_resources()
    assert asked == [
        {"num_cpus": 4, "bundles": [{"GPU": 1}], "label_selectors": []},
        {"num_cpus": None, "bundles": [], "label_selectors": []},
    ]


def test_wrong_requests_for_nodes_are_refused(engine):
    with pytest.raises(TypeError, match="list of dicts"):
        autoscaler.request_resources(bundles={"CPU": 1})
    with pytest.raises(ValueError, match="Did you mean 'GPU'"):
        autoscaler.request_resources(bundles=[{"gpu": 1}])
    with pytest.raises(ValueError, match="num_cpus"):
        autoscaler.request_resources(num_cpus=-1)


# -- constants and settings of programs


def test_variables_of_the_environment(monkeypatch):
    monkeypatch.setenv("NUMBER", "5")
    monkeypatch.setenv("TRUTH", "True")
    assert (constants.env_integer("NUMBER", 1), constants.env_integer("TRUTH", 1)) == (5, 1)
    assert (constants.env_float("NUMBER", 1), constants.env_float("TRUTH", 1.5)) == (5.0, 1.5)
    assert (constants.env_bool("TRUTH", False), constants.env_bool("NONE", True)) == (True, True)
    assert (constants.env_set_by_user("TRUTH"), constants.env_set_by_user("NONE")) == (True, False)


def test_job_config_gives_init_namespace_and_environment(monkeypatch):
    settings = JobConfig(runtime_env={"env_vars": {"A": "1"}}, ray_namespace="n")
    settings.set_metadata("owner", "me")
    assert settings.metadata == {"owner": "me"}
    config = engine_config({"job_config": settings})
    assert (config.namespace, config.runtime_env["env_vars"]) == ("n", {"A": "1"})
    settings.set_ray_namespace("m")
    settings.set_runtime_env({})
    assert engine_config({"job_config": settings}).namespace == "m"
    with pytest.raises(ValueError, match="lifetime='detached'"):
        JobConfig(default_actor_lifetime="detached")
