"""Copies of a rank's snapshots: when, which, and the snapshots that stay for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from syncline.testing.waiting import GENEROUS_S
from syncline.train.snapshots.copier import SnapshotCopier
from syncline.train.snapshots.slot import SnapshotSlot

SLOT = SnapshotSlot(Path("/nowhere"))


class Node:
    """Another node, to which a copy takes as long as the test wants."""

    def __init__(self) -> None:
        self.begun: queue.SimpleQueue[tuple[str, int | None]] = queue.SimpleQueue()
        self.may_end = threading.Semaphore(0)
        self.messages: queue.SimpleQueue[tuple[int | None, int]] = queue.SimpleQueue()
        self.error: Exception | None = None

    def send(self, slot: SnapshotSlot, kept: int | None, is_stopped: Callable[[], bool]) -> None:
        self.begun.put((str(slot.path), kept))
        assert self.may_end.acquire(timeout=GENEROUS_S)
        if self.error is not None:
            raise self.error

    def message(self) -> tuple[int | None, int]:
        return self.messages.get(timeout=GENEROUS_S)


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def copier(node: Node) -> Iterator[SnapshotCopier]:
    made = SnapshotCopier(
        node.send, lambda copied, newest: node.messages.put((copied, newest)), every_s=0.0
    )
    yield made
    node.may_end.release(100)
    made.stop()


def test_the_first_snapshot_at_or_after_the_step_is_copied(
    node: Node, copier: SnapshotCopier
) -> None:
    copier.taken(SLOT, 1)
    assert node.message() == (None, 1)
    copier.request(3, None)
    copier.taken(SLOT, 2)
    assert copier.pinned == frozenset()
    copier.taken(SLOT, 4)
    assert node.begun.get(timeout=GENEROUS_S) == (str(SLOT.path), None)
    assert copier.pinned == {4}
    copier.taken(SLOT, 5)  # training continues
    assert node.messages.empty()
    node.may_end.release()
    assert node.message() == (4, 5)
    assert copier.pinned == {4}, "the controller does not know yet whether all ranks have a copy"


def test_the_snapshot_of_the_last_copy_stays_until_the_next_is_complete_on_all_ranks(
    node: Node, copier: SnapshotCopier
) -> None:
    copier.taken(SLOT, 1)
    copier.request(2, None)
    copier.taken(SLOT, 2)
    node.may_end.release()
    assert [node.message(), node.message()] == [(None, 1), (2, 2)]
    copier.request(3, 2)
    copier.taken(SLOT, 3)
    assert copier.pinned == {2, 3}
    assert node.begun.get(timeout=GENEROUS_S)[1] is None
    assert node.begun.get(timeout=GENEROUS_S)[1] == 2
    node.may_end.release()
    assert node.message() == (3, 3)
    copier.request(5, 2)
    assert copier.pinned == {2}, "another rank had passed step 3"
    copier.request(5, 3)
    assert copier.pinned == {3}


def test_a_step_that_the_rank_has_passed_is_told_at_once(
    node: Node, copier: SnapshotCopier
) -> None:
    copier.taken(SLOT, 7)
    assert node.message() == (None, 7)
    copier.request(7, None)
    assert node.message() == (None, 7)
    copier.taken(SLOT, 8)
    assert node.begun.empty()


def test_a_failed_copy_is_a_warning_and_the_last_one(
    node: Node, copier: SnapshotCopier, caplog: pytest.LogCaptureFixture
) -> None:
    copier.taken(SLOT, 1)
    assert node.message() == (None, 1)
    copier.request(2, 1)
    node.error = OSError("No space left on device")
    node.may_end.release()
    copier.taken(SLOT, 2)
    assert copier._thread is not None
    copier._thread.join(GENEROUS_S)
    assert "step 2 was not copied to another node: No space left" in caplog.text
    copier.taken(SLOT, 3)
    assert node.messages.empty()
    assert 1 in copier.pinned, "the last copy of all ranks can still be used"


def test_copies_wait_for_their_interval(node: Node) -> None:
    times = iter([100.0, 101.0])
    waiting = threading.Event()

    def clock() -> float:
        value = next(times)
        if value == 101.0:
            waiting.set()
        return value

    copier = SnapshotCopier(
        node.send,
        lambda copied, newest: node.messages.put((copied, newest)),
        every_s=1000.0,
        clock=clock,
    )
    copier.taken(SLOT, 1)
    assert node.message() == (None, 1)
    copier.request(2, None)
    copier.taken(SLOT, 2)
    node.may_end.release()
    assert waiting.wait(GENEROUS_S)
    assert node.messages.empty()
    copier.stop(GENEROUS_S)
    assert copier._thread is not None
    assert not copier._thread.is_alive(), "the end of training does not wait for the interval"
