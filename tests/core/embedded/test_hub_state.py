"""Rows of the state API from the hub's tables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from syncline.core import serialization
from syncline.core.embedded import messages as m
from syncline.core.embedded.hub import Hub
from syncline.core.embedded.hub_requests import HubRequests
from syncline.core.embedded.object_store import Store
from syncline.core.embedded.reactor import Reactor
from syncline.core.embedded.scheduler import Scheduler
from syncline.core.embedded.task_table import Failure
from syncline.core.embedded.worker_output import WorkerOutput
from syncline.core.node_rows import node_row
from syncline.exceptions import OutOfMemoryError, TaskCancelledError


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    reactor = Reactor()
    yield Hub(
        scheduler=Scheduler({"CPU": 1}),
        store=Store(directory=tmp_path / "objects", disk_directory=None, limit_bytes=1 << 20),
        output=WorkerOutput(tmp_path, to_driver=False, call_later=reactor.call_later),
        reactor=reactor,
        node=node_row(node_id="0a", hostname="h", labels={}, resources={}),
    )
    reactor.close()


def rows(hub: Hub, resource: str, *filters: tuple[str, str, object]) -> list[dict[str, Any]]:
    requests = HubRequests(hub, hub.tasks, hub.actors, hub.groups)
    listing = requests.perform(hub.driver, "state", (resource, filters, 100, "01"))
    return list(listing.rows)  # type: ignore[attr-defined]


def error(exception: BaseException) -> bytes:
    return serialization.pack_error(exception)


def test_last_attempt_decides_about_the_state_of_a_task(hub: Hub) -> None:
    hub.tasks.timeline.extend([("f", 5, 1.0, 2.0, 7, 0, True), ("f", 6, 3.0, 4.0, 7, 0, False)])
    (row,) = rows(hub, "tasks")
    assert (row["state"], row["attempt_number"], row["worker_pid"]) == ("FINISHED", 1, 6)
    assert (row["start_time_ms"], row["end_time_ms"]) == (3000, 4000)


def test_failure_names_its_kind_and_a_forgotten_one_is_still_a_failure(hub: Hub) -> None:
    hub.tasks.timeline.extend([("f", 5, 1.0, 2.0, 7, 0, True), ("f", 5, 1.0, 2.0, 8, 0, True)])
    hub.tasks.failures.append(Failure(8, "f", 0, error(ValueError("no"))))
    hub.tasks.failures.append(Failure(9, "f", 0, b""))  # its error is too large to keep
    kinds = {row["task_id"][-1]: (row["state"], row["error_message"]) for row in rows(hub, "tasks")}
    assert kinds == {"7": ("FAILED", None), "8": ("FAILED", "no"), "9": ("FAILED", None)}


@pytest.mark.parametrize(
    ("exception", "kind"),
    [(TaskCancelledError(), "TASK_CANCELLED"), (OutOfMemoryError("x"), "OUT_OF_MEMORY")],
)
def test_task_that_never_ran_has_failed_without_a_process(
    hub: Hub, exception: BaseException, kind: str
) -> None:
    hub.tasks.failures.append(Failure(9, "g", 0, error(exception)))
    (row,) = rows(hub, "tasks", ("name", "=", "g"))
    assert (row["state"], row["error_type"], row["worker_pid"]) == ("FAILED", kind, None)


def test_object_is_listed_once_for_each_holder(hub: Hub) -> None:
    hub.objects.add(3).value = m.inline(b"12345")
    hub.driver.refcounts[3] = 1
    hub.objects.add(4)
    found = {row["object_id"][-1]: row for row in rows(hub, "objects")}
    assert (found["3"]["object_size"], found["3"]["reference_type"]) == (5, "LOCAL_REFERENCE")
    assert found["4"]["reference_type"] == "CAPTURED_IN_OBJECT"
    assert {row["type"] for row in found.values()} == {"DRIVER"}


def test_node_and_driver_are_listed(hub: Hub) -> None:
    (node,) = rows(hub, "nodes")
    assert (node["node_id"], node["resources_total"]) == ("0a", {"CPU": 1})
    (driver,) = rows(hub, "workers")
    assert (driver["worker_type"], driver["is_alive"]) == ("DRIVER", True)
    assert driver["pid"] == os.getpid()
    assert 0 < node["start_time_ms"] <= driver["start_time_ms"]
    (job,) = rows(hub, "jobs")
    assert (job["job_id"], job["status"]) == ("01", "RUNNING")
