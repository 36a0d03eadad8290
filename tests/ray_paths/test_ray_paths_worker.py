"""The worker object and the older tables, on an engine that answers with given facts."""

import pytest

import syncline
from syncline.core.engine import RuntimeInfo
from syncline.core.state_rows import StateListing
from syncline.ray_paths import state
from syncline.ray_paths.worker import SCRIPT_MODE, global_worker
from tests.core.fake_engine import running_fake_engine


@pytest.fixture
def engine(monkeypatch):
    with running_fake_engine(monkeypatch) as started:
        syncline.init()
        yield started[0]


def test_nothing_runs_before_init():
    assert (global_worker.connected, global_worker.mode, bool(global_worker.node)) == (
        False, None, False,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="not running"):
        global_worker.check_connected()


def test_facts_of_the_program(engine):
    global_worker.check_connected()
    assert (global_worker.connected, global_worker.mode) == (True, SCRIPT_MODE)
    assert global_worker.current_job_id.hex() == "01"
    assert global_worker.core_worker.get_actor_id().is_nil()
    assert global_worker.core_worker.get_placement_group_id().is_nil()
    assert global_worker.node_ip_address == "127.0.0.1"
    assert global_worker.node.address_info["session_dir"] == "session"
    assert global_worker.node.get_logs_dir_path() == "session/logs"
    assert global_worker.namespace == "default"


def test_facts_of_an_actor(engine):
    engine.info = RuntimeInfo(
        job_id="01", node_id="aa", worker_id="bb", namespace="d", task_id="cc", actor_id="dd",
        placement_group_id=7, captures_child_tasks=False,
    )  # fmt: skip
    assert global_worker.actor_id.hex() == "dd"
    assert global_worker.core_worker.get_current_task_id().hex() == "cc"
    assert global_worker.core_worker.get_worker_id().binary() == global_worker.worker_id
    assert int(global_worker.placement_group_id.hex(), 16) == 7
    assert not global_worker.should_capture_child_tasks_in_placement_group


def test_internals_are_refused(engine):
    with pytest.raises(AttributeError, match="get_runtime_context"):
        _ = global_worker.function_actor_manager


def test_tables(engine):
    rows = {
        "actors": [
            {
                "actor_id": name, "class_name": "A", "is_detached": False, "name": None,
                "ray_namespace": "n", "job_id": "01", "node_id": None, "state": status,
                "num_restarts": 0, "death_cause": None, "pid": 0,
            }
            for name, status in (("a", "ALIVE"), ("b", "DEAD"))
        ],
        "jobs": [
            {
                "job_id": "01", "driver_info": {"pid": "9"}, "entrypoint": "x.py",
                "status": "RUNNING", "start_time": 1, "end_time": None,
            }
        ],
        "workers": [
            {"worker_id": "w", "ip": "i", "pid": 3, "is_alive": alive, "worker_type": kind}
            for alive, kind in ((True, "DRIVER"), (False, "WORKER"))
        ],
    }  # fmt: skip
    engine.state = lambda resource, filters, limit: StateListing(rows=tuple(rows[resource]))
    assert set(state.actors()) == {"a", "b"}
    assert set(state.actors(actor_state_name="DEAD")) == {"b"}
    assert state.actors("a")["State"] == "ALIVE"
    assert state.actors("c") == {}
    assert (state.jobs()[0]["DriverPid"], state.jobs()[0]["IsDead"]) == (9, False)
    assert state.workers() == {}
    assert state.node_ids() == [state.current_node_id()] == ["node:127.0.0.1"]
    assert state.available_resources_per_node() == {"n1": {"CPU": 3.0}}
