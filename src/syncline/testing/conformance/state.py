"""The state API, freed values, and the names with which programs inspect remote code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline.exceptions import ObjectFreedError
from syncline.ray_paths.worker import SCRIPT_MODE, WORKER_MODE, global_worker
from syncline.testing.conformance.suite import Suite
from syncline.testing.tasks import get, one, wait_for
from syncline.testing.waiting import eventually
from syncline.util import placement_group, remove_placement_group
from syncline.util import state as state_api
from syncline.util.state.common import TaskState
from syncline.util.state.exception import RayStateApiException


@syncline.remote
class Stated:
    """An actor that is listed."""

    def pid(self) -> int:
        return os.getpid()


@syncline.remote(max_retries=0)
def fail() -> None:
    raise ValueError("as planned")


def _named(name: str) -> list[TaskState]:
    return state_api.list_tasks(filters=[("name", "=", name)], detail=True)


def _in_state(name: str, state: str) -> Any:
    return eventually(
        lambda: [row for row in _named(name) if row.state == state],
        what=f"a task {name} in the state {state}",
    )


class StateApi(Suite):
    """What exists and existed."""

    needs = ("processes", "parallel")
    init_options = {"num_cpus": 2, "namespace": "stated", "resources": {"slot": 2}}

    def test_living_actor_is_listed_and_found_by_its_id(self) -> None:
        actor = Stated.options(name="state-living", resources={"slot": 1}).remote()
        pid = get(actor.pid.remote())
        rows = eventually(
            lambda: state_api.list_actors(
                filters=[("name", "=", "state-living"), ("state", "=", "ALIVE")]
            )
        )
        (row,) = rows
        assert (row.class_name, row["pid"], row.get("ray_namespace")) == ("Stated", pid, "stated")
        assert row.node_id == syncline.get_runtime_context().get_node_id()
        assert row.job_id == syncline.get_runtime_context().get_job_id()
        assert row.required_resources is None
        found = state_api.get_actor(row.actor_id)
        assert found is not None
        assert found.required_resources == {"slot": 1}
        assert found.num_restarts == 0
        syncline.kill(actor)

    def test_ended_actor_stays_listed_with_the_reason(self) -> None:
        actor = Stated.options(name="state-ended").remote()
        get(actor.pid.remote())
        syncline.kill(actor)
        filters = [("name", "=", "state-ended"), ("state", "=", "DEAD")]
        (row,) = eventually(lambda: state_api.list_actors(filters=filters, detail=True))
        assert row.death_cause
        assert not state_api.list_actors(filters=[filters[0], ("state", "!=", "dead")])

    def test_ended_tasks_are_finished_or_failed(self) -> None:
        get(one.options(name="state-finished").remote())
        with pytest.raises(ValueError, match="as planned"):
            get(fail.options(name="state-failed").remote())
        (finished,) = _in_state("state-finished", "FINISHED")
        assert (finished.type, finished.attempt_number) == ("NORMAL_TASK", 0)
        assert finished.start_time_ms <= finished.end_time_ms
        (failed,) = _in_state("state-failed", "FAILED")
        assert failed.error_type == "TASK_EXECUTION_EXCEPTION"
        assert "as planned" in failed.error_message

    def test_function_within_a_function_has_its_own_name(self) -> None:
        @syncline.remote
        def within() -> None:
            return None

        get(within.remote())
        (row,) = _in_state("within", "FINISHED")
        assert row.func_or_class_name == "within"

    def test_running_and_waiting_tasks(self, tmp_path: Path) -> None:
        stop = str(tmp_path / "stop")
        running = [wait_for.options(name="state-running").remote(stop) for _ in range(2)]
        (first, _) = eventually(
            lambda: (
                rows
                if len(rows := [r for r in _named("state-running") if r.state == "RUNNING"]) == 2
                else None
            )
        )
        assert first.worker_pid
        queued = wait_for.options(name="state-queued").remote(stop)
        waiting = wait_for.options(name="state-waiting").remote(queued)
        (row,) = eventually(lambda: _named("state-queued"))
        assert row.state in ("PENDING_NODE_ASSIGNMENT", "SUBMITTED_TO_WORKER")
        (row,) = eventually(lambda: _named("state-waiting"))
        assert row.state == "PENDING_ARGS_AVAIL"
        Path(stop).touch()
        get([*running, queued])
        del waiting

    def test_calls_of_actors_name_class_and_method(self) -> None:
        actor = Stated.remote()
        get(actor.pid.remote())
        (row,) = _in_state("Stated.pid", "FINISHED")[-1:]
        assert (row.type, row.func_or_class_name) == ("ACTOR_TASK", "Stated.pid")
        counts = state_api.summarize_tasks()["cluster"]
        assert counts["summary"]["Stated.pid"]["state_counts"]["FINISHED"] >= 1
        assert counts["total_actor_tasks"] >= 1
        counts = state_api.summarize_actors()["cluster"]
        assert counts["summary"]["Stated"]["state_counts"]["ALIVE"] >= 1
        syncline.kill(actor)

    def test_nodes_jobs_and_workers(self) -> None:
        get(one.remote())
        context = syncline.get_runtime_context()
        (node,) = state_api.list_nodes(filters=[("state", "=", "ALIVE")])
        assert (node.node_id, node.is_head_node) == (context.get_node_id(), True)
        assert node.resources_total["CPU"] == 2
        assert state_api.get_node(node.node_id) == state_api.list_nodes(detail=True)[0]
        jobs = state_api.list_jobs(filters=[("job_id", "=", context.get_job_id())])
        assert [job.status for job in jobs] == ["RUNNING"]
        workers = state_api.list_workers(filters=[("is_alive", "=", True)])
        assert {"DRIVER", "WORKER"} <= {worker.worker_type for worker in workers}
        assert all(worker.pid for worker in workers)
        found = state_api.get_worker(workers[0].worker_id)
        assert found is not None
        assert found.pid == workers[0].pid

    def test_placement_groups_with_the_nodes_of_their_bundles(self) -> None:
        group = placement_group([{"slot": 1}], name="state-group")
        assert group.wait(60)
        row = state_api.get_placement_group(group.id.hex())
        assert row is not None
        assert (row.name, row.state) == ("state-group", "CREATED")
        assert row.bundles
        assert row.bundles[0]["node_id"] == syncline.get_runtime_context().get_node_id()
        remove_placement_group(group)
        eventually(
            lambda: state_api.list_placement_groups(
                filters=[("name", "=", "state-group"), ("state", "=", "REMOVED")]
            )
        )

    def test_objects_with_their_size_and_holder(self) -> None:
        ref = syncline.put(bytes(300_000))
        rows = eventually(lambda: state_api.get_objects(ref.hex()))
        assert rows[0].object_size >= 300_000
        assert rows[0].type == "DRIVER"
        assert state_api.summarize_objects()["cluster"]["total_objects"] >= 1

    def test_values_are_located(self, tmp_path: Path) -> None:
        here = syncline.get_runtime_context().get_node_id()
        value, pending = syncline.put(bytes(300_000)), wait_for.remote(str(tmp_path / "stop"))
        found = syncline.experimental.get_object_locations([value, pending])
        assert found[value]["node_ids"] == [here]
        assert found[value]["object_size"] >= 300_000
        assert found[pending]["node_ids"] == []
        (tmp_path / "stop").touch()
        get(pending)

    def test_lists_are_limited_and_filters_checked(self) -> None:
        get([one.options(name="state-many").remote() for _ in range(3)])
        eventually(lambda: len(_named("state-many")) == 3)
        assert len(state_api.list_tasks(filters=[("name", "=", "state-many")], limit=2)) == 2
        with pytest.raises(ValueError, match="Did you mean 'state'"):
            state_api.list_tasks(filters=[("stat", "=", "FINISHED")])
        with pytest.raises(ValueError, match="'=' or '!='"):
            state_api.list_tasks(filters=[("state", "<", "FINISHED")])
        with pytest.raises(ValueError, match="limit"):
            state_api.list_tasks(limit=100_000)
        assert state_api.get_actor("00") is None

    def test_output_of_an_actor_is_in_a_log(self) -> None:
        @syncline.remote
        class Speaking:
            def speak(self) -> None:
                print("state-spoken", flush=True)

        actor = Speaking.options(name="state-speaking").remote()
        get(actor.speak.remote())
        actor_id = actor._actor_id.hex()
        eventually(lambda: state_api.get_actor(actor_id))

        def log() -> bool:
            try:
                return "state-spoken" in "".join(state_api.get_log(actor_id=actor_id, tail=5))
            except RayStateApiException:
                return False

        eventually(log, what="the line in the log")
        here = syncline.get_runtime_context().get_node_id()
        assert state_api.list_logs(node_id=here, glob_filter="*worker*")["worker_out"]
        syncline.kill(actor)

    def test_worker_object_knows_where_it_is(self) -> None:
        @syncline.remote
        def look() -> object:
            return (
                global_worker.mode,
                global_worker.current_job_id.hex(),
                global_worker.current_task_id.is_nil(),
                global_worker.node.unique_id,
            )

        here = syncline.get_runtime_context()
        assert (global_worker.mode, global_worker.connected) == (SCRIPT_MODE, True)
        assert global_worker.node.is_head()
        found = get(look.remote())
        assert found == (WORKER_MODE, here.get_job_id(), False, here.get_node_id())

    def test_tables_with_older_keys(self) -> None:
        actor = Stated.options(name="names-table").remote()
        get(actor.pid.remote())
        row = eventually(lambda: syncline.state.actors(actor._actor_id.hex()))
        assert (row["ActorClassName"], row["Name"]) == ("Stated", "names-table")
        here = syncline.get_runtime_context().get_node_id()
        assert syncline.state.total_resources_per_node()[here]["CPU"] == 2
        assert set(syncline.state.available_resources_per_node()) == {here}
        syncline.kill(actor)


class FreedValues(Suite):
    """`internal.free`."""

    def test_freed_value_is_an_error(self) -> None:
        small, large, kept = syncline.put(1), syncline.put(bytes(500_000)), syncline.put(2)
        syncline.internal.free([small, large])
        for ref in (small, large):
            with pytest.raises(ObjectFreedError):
                get(ref)
        assert get(kept) == 2
        with pytest.raises(TypeError, match="references"):
            syncline.internal.free([3])


class RemoteNames(Suite):
    """Names of Ray with which programs call and inspect remote functions and classes."""

    def test_calls_with_options_in_one_step(self) -> None:
        assert get(one._remote(args=(), kwargs={}, num_cpus=0)) == get(one.remote())
        actor = Stated._remote(num_cpus=0, name="names-actor")
        assert get(actor.pid._remote()) == get(syncline.get_actor("names-actor").pid.remote())
        syncline.kill(actor)

    def test_function_and_class_can_be_reached(self) -> None:
        assert one._function is one.__wrapped__
        assert Stated.__ray_actor_class__ is Stated.__wrapped__
        modified = Stated.__ray_metadata__.modified_class
        assert modified.__ray_actor_class__ is Stated.__ray_actor_class__
        assert issubclass(modified, Stated.__wrapped__)
        assert modified.__name__ == Stated.__ray_metadata__.class_name == "Stated"

    def test_actor_class_derived_from_the_class_of_another(self) -> None:
        class Derived(Stated.__ray_metadata__.modified_class):  # type: ignore[name-defined]
            def twice(self) -> int:
                return 2 * self.pid()

        actor = syncline.remote(Derived).remote()
        assert get(actor.twice.remote()) == 2 * get(actor.pid.remote())
        syncline.kill(actor)
