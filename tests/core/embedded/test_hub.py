"""The hub: dispatch of the scheduler's instructions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from syncline.core.embedded.hub import Hub
from syncline.core.embedded.object_store import Store
from syncline.core.embedded.reactor import Reactor
from syncline.core.embedded.scheduler import Scheduler
from syncline.core.embedded.worker_output import WorkerOutput


class Unhandled(NamedTuple):
    worker: int


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    reactor = Reactor()
    yield Hub(
        scheduler=Scheduler({"CPU": 1}),
        store=Store(directory=tmp_path / "objects", disk_directory=None, limit_bytes=1 << 20),
        output=WorkerOutput(tmp_path, to_driver=False, call_later=reactor.call_later),
        reactor=reactor,
        node={"NodeID": "0"},
    )
    reactor.close()


def test_unknown_instruction_is_an_error(hub: Hub) -> None:
    with pytest.raises(TypeError, match=r"unknown instruction Unhandled\(worker=7\)"):
        hub.apply([Unhandled(7)])  # type: ignore[list-item]


def test_unknown_message_is_an_error(hub: Hub) -> None:
    with pytest.raises(KeyError):
        hub.handle(hub.driver, (999,))


def test_statistics_of_an_empty_hub_count_the_driver_only(hub: Hub) -> None:
    statistics = hub.statistics
    assert (statistics.processes, statistics.tasks, statistics.actors) == (1, 0, 0)
