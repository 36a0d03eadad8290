"""Listings of actors and tasks."""

from __future__ import annotations

import os
import time
from pathlib import Path

import syncline
from syncline.core import api
from syncline.core.engine import ActorInfo, TaskInfo
from syncline.testing.conformance.suite import Suite
from syncline.testing.tasks import await_free, get, wait_for
from syncline.testing.waiting import eventually


@syncline.remote
class Listed:
    """An actor that works until a file exists."""

    def pid(self) -> int:
        return os.getpid()

    def work(self, stop: str) -> None:
        while not Path(stop).exists():
            time.sleep(0.005)


def _actors(name: str) -> list[ActorInfo]:
    return [actor for actor in api.actors().actors if actor.name == name]


def _running(name: str) -> list[TaskInfo]:
    return [task for task in api.tasks().running if task.name == name]


def _counts(name: str) -> dict[str, int]:
    return {row.state: row.count for row in api.tasks().counts if row.name == name}


class Listings(Suite):
    """Listed actors and tasks."""

    needs = ("processes", "parallel")
    init_options = {"num_cpus": 2, "resources": {"slot": 2}}

    def test_living_actor_is_listed_with_its_node_and_resources(self) -> None:
        actor = Listed.options(name="listed", num_cpus=0.5, resources={"slot": 1}).remote()
        pid = get(actor.pid.remote())
        (facts,) = eventually(lambda: _actors("listed"))
        found = facts.class_name, facts.state, facts.pid, facts.restarts
        assert found == ("Listed", "ALIVE", pid, 0)
        assert facts.node_id in [node["NodeID"] for node in syncline.nodes()]
        assert facts.resources == {"CPU": 0.5, "slot": 1}
        assert api.actors().total >= 1
        syncline.kill(actor)
        eventually(lambda: not _actors("listed"), what="the killed actor is left out")

    def test_actor_without_room_is_listed_as_waiting(self) -> None:
        holders = [Listed.options(resources={"slot": 2}).remote()]
        get(holders[0].pid.remote())
        holders.append(Listed.options(name="waits", resources={"slot": 1}).remote())
        (waiting,) = eventually(lambda: _actors("waits"))
        assert (waiting.state, waiting.pid) == ("PENDING", None)
        for holder in holders:
            syncline.kill(holder)
        await_free("slot", 2)

    def test_running_tasks_are_named_and_waiting_ones_counted(self, tmp_path: Path) -> None:
        stop = str(tmp_path / "stop")
        began = time.time()
        running = [wait_for.options(name="listed-run").remote(stop) for _ in range(2)]
        queued = [wait_for.options(name="listed-later").remote(stop) for _ in range(3)]
        waiting = wait_for.options(name="listed-waiting").remote(queued[0])
        eventually(lambda: len(_running("listed-run")) == 2)
        first, second = _running("listed-run")
        assert first.pid != second.pid
        assert first.node_id in [node["NodeID"] for node in syncline.nodes()]
        assert all(
            task.started is not None and began - 1 <= task.started <= time.time() + 1
            for task in (first, second)
        )
        eventually(lambda: _counts("listed-later") == {"QUEUED": 3})
        eventually(lambda: _counts("listed-waiting") == {"WAITING": 1})
        assert _counts("listed-run") == {"RUNNING": 2}
        assert api.tasks().total >= 6
        Path(stop).touch()
        get([*running, *queued, waiting])
        eventually(
            lambda: (
                not any(_counts(name) for name in ("listed-run", "listed-later", "listed-waiting"))
            ),
            what="none is left",
        )

    def test_calls_of_an_actor_run_one_after_the_other(self, tmp_path: Path) -> None:
        stop = str(tmp_path / "stop")
        actor = Listed.options(name="calls").remote()
        pid = get(actor.pid.remote())
        calls = [actor.work.remote(stop) for _ in range(3)]
        eventually(lambda: _counts("Listed.work") == {"RUNNING": 1, "QUEUED": 2})
        (running,) = _running("Listed.work")
        assert running.pid == pid
        Path(stop).touch()
        get(calls)
        eventually(lambda: not _counts("Listed.work"))
        syncline.kill(actor)

    def test_listings_are_limited_and_tell_how_many_there_are(self) -> None:
        actors = [Listed.options(name=f"many-{number}").remote() for number in range(3)]
        get([actor.pid.remote() for actor in actors])
        eventually(lambda: api.actors().total == 3)
        listing = api.actors(limit=2)
        assert (len(listing.actors), listing.total) == (2, 3)
        for actor in actors:
            syncline.kill(actor)
