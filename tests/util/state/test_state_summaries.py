"""Summaries of rows."""

from syncline.util.state import summaries


def task(name, state, kind="NORMAL_TASK"):
    return {"func_or_class_name": name, "state": state, "type": kind}


def test_tasks_are_counted_by_function_and_type():
    found = summaries.of_tasks(
        [
            task("f", "RUNNING"),
            task("f", "FINISHED"),
            task("f", "FINISHED"),
            task("A.m", "FAILED", "ACTOR_TASK"),
            task("A.__init__", "FINISHED", "ACTOR_CREATION_TASK"),
        ]
    )
    assert found["summary"]["f"] == {
        "func_or_class_name": "f",
        "type": "NORMAL_TASK",
        "state_counts": {"RUNNING": 1, "FINISHED": 2},
    }
    totals = found["total_tasks"], found["total_actor_tasks"], found["total_actor_scheduled"]
    assert totals == (3, 1, 1)


def test_actors_are_counted_by_class():
    rows = [{"class_name": "A", "state": state} for state in ("ALIVE", "DEAD", "ALIVE")]
    found = summaries.of_actors(rows)
    assert found["summary"]["A"]["state_counts"] == {"ALIVE": 2, "DEAD": 1}
    assert found["total_actors"] == 3


def test_an_object_with_two_holders_counts_once():
    row = {
        "object_id": "o", "object_size": 1024**2, "task_status": "FINISHED", "attempt_number": 1,
        "reference_type": "LOCAL_REFERENCE", "call_site": "disabled", "ip": "1.1.1.1",
    }  # fmt: skip
    found = summaries.of_objects([{**row, "pid": 1}, {**row, "pid": 2}])
    assert (found["total_objects"], found["total_size_mb"]) == (1, 1.0)
    assert found["callsite_enabled"] is False
    site = found["summary"]["disabled"]
    assert (site["total_num_workers"], site["total_num_nodes"]) == (2, 1)
    assert site["ref_type_counts"] == {"LOCAL_REFERENCE": 2}
