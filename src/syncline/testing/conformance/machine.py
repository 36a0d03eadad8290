"""The machine and the program: nodes, runtime context, timeline, init and shutdown."""

from __future__ import annotations

from typing import Any

import pytest

import syncline
from syncline.core.engine import current_engine
from syncline.testing.conformance.suite import Suite
from syncline.testing.tasks import get, one
from syncline.testing.waiting import eventually


class Machine(Suite):
    """Nodes, runtime context and timeline."""

    init_options = {"num_cpus": 3, "namespace": "conforming"}

    def test_there_is_a_living_node_with_all_resources(self) -> None:
        nodes = [node for node in syncline.nodes() if node["Alive"]]
        assert sum(node["Resources"]["CPU"] for node in nodes) == 3
        assert syncline.cluster_resources()["CPU"] == 3
        assert {"NodeID", "NodeManagerAddress", "NodeManagerHostname", "Labels"} <= set(nodes[0])
        assert syncline.get_runtime_context().get_node_id() in [node["NodeID"] for node in nodes]
        assert {"NodeManagerPort", "NodeName", "RayletSocketName"} <= set(nodes[0])
        for node in nodes:
            assert (node["alive"], node["resources"]) == (True, node["Resources"])

    def test_program_has_a_job_and_no_task(self) -> None:
        context = syncline.get_runtime_context()
        assert context.get_job_id()
        assert context.namespace == "conforming"
        assert context.get_task_id() is None
        assert context.get_actor_id() is None
        with pytest.raises(RuntimeError):
            _ = context.current_actor

    def test_ids_are_text_and_objects(self) -> None:
        context = syncline.get_runtime_context()
        assert context.job_id.hex() == context.get_job_id()
        assert context.node_id.hex() == context.get_node_id()
        assert (context.task_id, context.actor_id) == (None, None)
        assert context.current_placement_group_id.is_nil()
        assert context.should_capture_child_tasks_in_placement_group
        assert context.get_session_name()
        assert context.get_node_labels() == syncline.nodes()[0]["Labels"]

        @syncline.remote
        def look() -> object:
            inside = syncline.get_runtime_context()
            task_id = inside.task_id
            assert task_id is not None
            return task_id.hex() == inside.get_task_id(), inside.job_id

        assert get(look.remote()) == (True, context.job_id)

    def test_task_knows_its_id_and_job(self) -> None:
        @syncline.remote
        def look() -> object:
            context = syncline.get_runtime_context()
            return (
                context.get_task_id(),
                context.get_job_id(),
                context.get_actor_id(),
                context.namespace,
            )

        first, second = get([look.remote(), look.remote()])
        assert first[0] != second[0]
        job_id = syncline.get_runtime_context().get_job_id()
        assert first[1:] == second[1:] == (job_id, None, "conforming")

    def test_actor_knows_its_name_and_resources(self) -> None:
        @syncline.remote(num_cpus=1)
        class Looking:
            def look(self) -> object:
                context = syncline.get_runtime_context()
                return (
                    context.get_actor_name(),
                    context.get_assigned_resources()["CPU"],
                    context.was_current_actor_reconstructed,
                )

        actor = Looking.options(name="machine-looking").remote()
        assert get(actor.look.remote()) == ("machine-looking", 1, False)
        syncline.kill(actor)

    def test_timeline_has_finished_tasks(self) -> None:
        get(one.options(name="seen in the timeline").remote())

        def seen_event() -> dict[str, Any]:
            events = syncline.timeline() or []
            return next(
                (event for event in events if event.get("name") == "seen in the timeline"), {}
            )

        event = eventually(seen_event)
        assert event["ph"] == "X"
        assert event["dur"] >= 0

    def test_starting_twice_is_refused_unless_ignored(self) -> None:
        assert syncline.is_initialized()
        with pytest.raises(RuntimeError, match="already"):
            syncline.init()
        syncline.init(ignore_reinit_error=True)
        assert syncline.cluster_resources()["CPU"] == 3

    def test_starting_inside_a_task_changes_nothing(self) -> None:
        @syncline.remote
        def start() -> object:
            syncline.init(ignore_reinit_error=True)
            return syncline.is_initialized(), syncline.cluster_resources()["CPU"]

        assert get(start.remote()) == (True, 3)

    def test_counters_of_every_part_can_be_read(self) -> None:
        syncline.get(syncline.put(1))
        statistics = current_engine().statistics()
        assert statistics
        for part in statistics.values():
            assert type(part).__dataclass_params__.frozen
