"""Changes of resources under a running program."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import syncline
from syncline.testing import eventually
from syncline.testing.resources import set_total
from syncline.util import placement_group, remove_placement_group


@pytest.fixture
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


@pytest.mark.processes
@pytest.mark.usefixtures("engine")
def test_a_pending_actor_starts_after_an_increase_and_keeps_its_resources_after_a_decrease() -> (
    None
):
    @syncline.remote(num_cpus=2)
    class Worker:
        def answer(self) -> int:
            return 42

    first = Worker.remote()  # type: ignore[attr-defined]
    assert syncline.get(first.answer.remote(), timeout=60) == 42
    second = Worker.remote()  # type: ignore[attr-defined]
    answer = second.answer.remote()
    set_total(CPU=4)
    assert syncline.get(answer, timeout=60) == 42
    set_total(CPU=1)
    assert syncline.cluster_resources()["CPU"] == 1
    assert syncline.available_resources().get("CPU", 0) == 0
    assert syncline.get([first.answer.remote(), second.answer.remote()], timeout=60) == [42, 42]
    del first, second, answer
    eventually(
        lambda: syncline.available_resources().get("CPU") == 1,
        what="what the actors held beyond the machine is gone",
    )


@pytest.mark.processes
@pytest.mark.usefixtures("engine")
def test_groups_wait_for_an_increase_and_resources_may_have_any_name() -> None:
    set_total({"disk:fast": 1}, CPU=2)
    held = placement_group([{"CPU": 2, "disk:fast": 1}])
    assert held.wait(60)
    waiting = placement_group([{"CPU": 2}])
    set_total(CPU=1)
    assert not waiting.wait(0.1)
    infeasible = placement_group([{"CPU": 2}])
    assert not infeasible.wait(0.1)
    remove_placement_group(infeasible)
    threading.Timer(0.2, set_total, kwargs={"CPU": 4}).start()
    assert waiting.wait(60)


def test_other_engines_are_refused() -> None:
    syncline.init(local_mode=True)
    try:
        with pytest.raises(RuntimeError, match="embedded engine"):
            set_total(CPU=1)
    finally:
        syncline.shutdown()
