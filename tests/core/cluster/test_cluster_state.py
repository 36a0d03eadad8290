"""Listings of tasks from Ray's task events, without a cluster."""

import pytest

pytest.importorskip("ray")

from ray.core.generated import common_pb2, gcs_pb2

from syncline.core.cluster.cluster_state import task_listing

Status = common_pb2.TaskStatus


def event(id, *states, name="work", attempt=0, kind=common_pb2.TaskType.NORMAL_TASK, pid=7):
    """A task event with its past states, one second apart."""
    made = gcs_pb2.TaskEvents(task_id=id, attempt_number=attempt)
    made.task_info.name = name
    made.task_info.type = kind
    made.state_updates.worker_pid = pid
    for second, state in enumerate(states, start=1):
        made.state_updates.state_ts_ns[state] = second * 10**9
    return made


def counted(*events):
    return {(row.name, row.state): row.count for row in task_listing(events, 10).counts}


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ((), "WAITING"),
        ((Status.PENDING_ARGS_AVAIL,), "WAITING"),
        ((Status.PENDING_ARGS_AVAIL, Status.PENDING_NODE_ASSIGNMENT), "QUEUED"),
        ((Status.PENDING_ARGS_AVAIL, Status.SUBMITTED_TO_WORKER), "QUEUED"),
        ((Status.SUBMITTED_TO_WORKER, Status.RUNNING), "RUNNING"),
        ((Status.RUNNING, Status.RUNNING_IN_RAY_GET), "RUNNING"),
    ],
)
def test_states_are_translated(states, state):
    assert counted(event(b"a", *states)) == {("work", state): 1}


def test_finished_tasks_and_the_driver_are_left_out():
    ended = event(b"a", Status.RUNNING, Status.FINISHED)
    failed = event(b"b", Status.RUNNING, Status.FAILED)
    program = event(b"c", Status.RUNNING, kind=common_pb2.TaskType.DRIVER_TASK)
    assert counted(ended, failed, program, gcs_pb2.TaskEvents(task_id=b"d")) == {}


def test_the_last_attempt_at_a_task_counts():
    first, second = (
        event(b"a", Status.RUNNING, Status.FAILED),
        event(b"a", Status.PENDING_NODE_ASSIGNMENT, attempt=1),
    )
    assert counted(first, second) == counted(second, first) == {("work", "QUEUED"): 1}


def test_running_tasks_have_process_and_start_time():
    (running,) = task_listing(
        [event(b"ab", Status.SUBMITTED_TO_WORKER, Status.RUNNING)], 10
    ).running
    assert (running.task_id, running.name, running.pid, running.node_id, running.started) == (
        b"ab".hex(),
        "work",
        7,
        None,
        2.0,
    )


def test_a_listing_is_limited_but_counts_all():
    listing = task_listing([event(bytes([number]), Status.RUNNING) for number in range(5)], 2)
    assert (len(listing.running), listing.total, listing.counts[0].count) == (2, 5, 5)
