"""`init`, `shutdown`, and the engine in forked children."""

import logging
import os
import warnings
from pathlib import Path

import pytest

import syncline
from syncline.core import lifecycle
from syncline.core.engine import current_engine, set_engine
from tests.core.fake_engine import FakeEngine, running_fake_engine


@pytest.fixture
def started(monkeypatch):
    with running_fake_engine(monkeypatch) as engines:
        yield engines


def test_arguments_reach_the_engine(started, tmp_path):
    syncline.init(
        num_cpus=2, num_gpus=1, resources={"a": 1}, object_store_memory=1e6, namespace="n",
        runtime_env={"env_vars": {"A": "1"}},
        logging_level="warning", log_to_driver=False, _temp_dir=tmp_path,
    )  # fmt: skip
    config = started[0].config
    assert (config.num_cpus, config.num_gpus, config.resources, config.object_store_memory) == (
        2,
        1,
        {"a": 1},
        1_000_000,
    )
    assert (config.namespace, config.runtime_env, config.temp_dir) == (
        "n",
        {"env_vars": {"A": "1"}},
        Path(tmp_path),
    )
    assert (config.logging_level, config.log_to_driver, started[0].name) == (
        logging.WARNING,
        False,
        "embedded",
    )


def test_local_mode_chooses_the_inline_engine(started):
    syncline.init(local_mode=True)
    assert started[0].name == "inline"


def test_a_second_init_is_refused_by_default(started):
    syncline.init()
    with pytest.raises(RuntimeError, match="ignore_reinit_error=True"):
        syncline.init()
    syncline.init(ignore_reinit_error=True)
    assert len(started) == 1


def test_shutdown_ends_the_engine_and_may_be_repeated(started):
    syncline.init()
    assert syncline.is_initialized()
    syncline.shutdown()
    syncline.shutdown()
    assert started[0].calls == [("shutdown",)]
    assert not syncline.is_initialized()
    syncline.init()
    assert len(started) == 2


def test_the_init_context_has_addresses_and_shuts_down(started):
    with syncline.init() as context:
        assert context["node_id"] == context.address_info["node_id"] == "n1"
        assert context["node_ip_address"] == "127.0.0.1"
        assert (context["address"], context["gcs_address"], context.dashboard_url) == (
            "local",
            "",
            None,
        )
    assert not syncline.is_initialized()


@pytest.mark.parametrize("address", ["auto", "ray://host:10001", "host:6379"])
def test_an_address_chooses_the_cluster_engine(started, monkeypatch, address):
    syncline.init(address)
    syncline.shutdown()
    monkeypatch.setenv("SYNCLINE_ADDRESS", address)
    syncline.init(runtime_env={"pip": ["x"]})
    assert [(engine.name, engine.config.address) for engine in started] == [
        ("cluster", address)
    ] * 2
    assert started[1].config.runtime_env == {"pip": ["x"]}


@pytest.mark.parametrize("address", ["local", ""])
def test_local_is_an_engine_on_this_machine(started, monkeypatch, address):
    monkeypatch.setenv("SYNCLINE_ADDRESS", "host:6379")
    syncline.init(address)
    syncline.shutdown()
    monkeypatch.setenv("SYNCLINE_ADDRESS", address)
    syncline.init()
    assert [(engine.name, engine.config.address) for engine in started] == [("embedded", None)] * 2


def test_ray_address_counts_in_programs_that_import_syncline_as_ray(started, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "ray://host:10001")
    syncline.init()
    syncline.shutdown()
    monkeypatch.setenv("SYNCLINE_AS_RAY", "1")
    syncline.init()
    assert [engine.config.address for engine in started] == [None, "ray://host:10001"]


def test_auto_without_ray_is_a_connection_error_that_says_how_to_run_here(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError("No module named 'ray'", name="ray")

    monkeypatch.setattr(lifecycle, "_entry_point", missing)
    with pytest.raises(ConnectionError, match=r"Ray is not installed.* or give 'local'"):
        syncline.init(address="auto")
    with pytest.raises(ModuleNotFoundError, match="syncline\\[cluster\\]"):
        syncline.init(address="host:6379")


def test_an_address_is_a_string(started):
    with pytest.raises(TypeError, match="address=6379"):
        syncline.init(6379)


def test_the_older_spelling_of_the_address_chooses_the_cluster_too(started):
    with pytest.warns(DeprecationWarning, match="redis_address"):
        syncline.init(redis_address="host:6379", _redis_password="x")
    assert started[0].config.address == "host:6379"


def test_unknown_arguments_are_refused_with_near_names(started):
    with pytest.raises(TypeError, match="no argument 'num_cpuz'. Did you mean 'num_cpus'"):
        syncline.init(num_cpuz=2)


def test_older_spellings_are_accepted_with_a_warning(started):
    with pytest.warns(DeprecationWarning, match="num_cpu"):
        syncline.init(num_cpu=3)
    assert started[0].config.num_cpus == 3


def test_arguments_without_effect_are_ignored_silently(started, caplog):
    with caplog.at_level(logging.DEBUG, "syncline"), warnings.catch_warnings():
        warnings.simplefilter("error")
        syncline.init(
            include_dashboard=False, dashboard_port=8265, _node_name="x", _system_config={}
        )
    assert {record.levelname for record in caplog.records} == {"DEBUG"}


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"include_dashboard": True}, "syncline dashboard"),
        ({"enable_resource_isolation": True}, "container"),
        ({"object_spilling_directory": "/tmp/x"}, "_temp_dir"),
    ],
)
def test_arguments_whose_effect_is_missed_say_what_to_do(started, caplog, arguments, advice):
    syncline.init(**arguments)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert advice in record.getMessage()


@pytest.mark.parametrize(
    "arguments",
    [
        {"_system_config": "x"},
        {"include_dashboard": "yes"},
        {"dashboard_port": "8265"},
        {"logging_format": 1},
        {"_node_ip_address": 1},
    ],
)
def test_ignored_arguments_have_the_types_of_rays(started, arguments):
    with pytest.raises(TypeError, match=next(iter(arguments))):
        syncline.init(**arguments)


def test_unknown_hidden_arguments_are_refused(started):
    with pytest.raises(RuntimeError, match="no argument '_sytem_config'.*'_system_config'"):
        syncline.init(_sytem_config={})


def test_every_argument_of_rays_init_is_known(started):
    syncline.init(
        num_cpus=1, num_gpus=0, resources=None, labels={}, object_store_memory=None,
        local_mode=False, ignore_reinit_error=False, include_dashboard=None,
        dashboard_host="127.0.0.1", dashboard_port=None, job_config=None, configure_logging=True,
        logging_level=logging.INFO, logging_format=None, logging_config=None, log_to_driver=None,
        namespace=None, runtime_env=None, enable_resource_isolation=False, cgroup_path=None,
        system_reserved_cpu=None, system_reserved_memory=None, proxy_server_url=None,
        _enable_object_reconstruction=False, _plasma_directory=None, _node_ip_address=None,
        _driver_object_store_memory=None, _memory=None, _redis_username="default",
        _temp_dir=None, _metrics_export_port=None, _system_config=None, _tracing_startup_hook=None,
        _node_name=None, _skip_env_hook=False, object_spilling_directory=None,
    )  # fmt: skip
    assert started[0].config.num_cpus == 1
    assert started[0].config.log_to_driver


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"num_cpus": -1}, ValueError),
        ({"num_gpus": "two"}, TypeError),
        ({"resources": {"CPU": 2}}, ValueError),
        ({"logging_level": "loud"}, ValueError),
        ({"namespace": ""}, ValueError),
        ({"runtime_env": {"conda": ["x"]}}, ValueError),
    ],
)
def test_impossible_arguments_are_refused(started, arguments, error):
    with pytest.raises(error):
        syncline.init(**arguments)
    assert not syncline.is_initialized()


def test_in_a_worker_init_and_shutdown_do_nothing(started):
    engine = FakeEngine()
    set_engine(engine)
    assert syncline.init(num_cpus=3)["node_id"] == "n1"
    syncline.shutdown()
    assert current_engine() is engine
    assert started == []


def in_forked_child(check):
    """Run `check` in a forked child; its result is the child's exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads
        pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_drops_the_engine_and_explains_why(started):
    syncline.init()

    def check():
        try:
            syncline.put(1)
        except RuntimeError as error:
            return "forked" in str(error) and started[0].abandoned and not syncline.is_initialized()

    assert in_forked_child(check) == 0
    assert not started[0].abandoned


def test_a_hook_may_give_a_forked_child_another_engine(started, monkeypatch):
    syncline.init()
    other = FakeEngine()
    monkeypatch.setattr(
        lifecycle,
        "after_fork_hooks",
        [lambda engine: set_engine(other if engine is started[0] else None)],
    )
    assert in_forked_child(lambda: current_engine() is other) == 0
    assert in_forked_child(lambda: syncline.shutdown() is None and other.calls == []) == 0
