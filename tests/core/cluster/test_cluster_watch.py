"""When a cluster counts as lost, and what becomes of those who wait for it."""

from __future__ import annotations

import importlib.util
import threading
import time

import pytest

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)

from syncline.core.cluster import watch as watching
from syncline.core.cluster.watch import Guard, Health, Look, Watch
from syncline.exceptions import LocalRayletDiedError
from syncline.testing import eventually

PATIENCE_S = 45.0


def health():
    return Health("h:6379", PATIENCE_S)


def look(at, *, node_lives=True, head_answers=True):
    return Look(at=at, node_lives=node_lives, head_answers=head_answers)


def test_a_cluster_that_is_there_is_not_talked_about():
    state = health()
    assert [state.see(look(at)) for at in range(100)] == [None] * 100
    assert state.lost is None


def test_a_head_that_is_silent_for_a_moment_is_not_talked_about():
    state = health()
    assert [state.see(look(at, head_answers=at not in (3, 4))) for at in range(10)] == [None] * 10


def test_a_silent_head_is_told_once_and_so_is_its_return():
    state = health()
    told = [state.see(look(at, head_answers=not 10 <= at < 30)) for at in range(40)]
    assert [message for message in told if message] == [
        "the head of the cluster at 'h:6379' does not answer: waiting 40 s more for it",
        "the head of the cluster at 'h:6379' answers again",
    ]
    assert state.lost is None


def test_a_head_that_stays_silent_is_lost_for_good():
    state = health()
    told = [message for at in range(60) if (message := state.see(look(at, head_answers=False)))]
    assert len(told) == 2
    assert "lost: its head has not answered for 45 s" in told[1]
    assert state.see(look(61)) is None
    assert state.lost == told[1]


def test_a_dead_node_is_a_loss_at_once():
    state = health()
    assert "the node of this machine" in (state.see(look(0, node_lives=False)) or "")
    assert "`shutdown()`, then `init()`" in (state.lost or "")


@pytest.fixture
def watch(monkeypatch):
    """A watch whose cluster is lost when `watch.node_lives` says so."""
    monkeypatch.setattr(watching, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(watching, "WAIT_SLICE_S", 0.01)
    seen = {"node_lives": True}
    told = []
    made = Watch(
        health(), lambda: look(time.monotonic(), node_lives=seen["node_lives"]), told.append
    )
    made.lose = lambda: seen.update(node_lives=False)
    made.told = told
    yield made
    made.close()


def never(limit_s):
    time.sleep(min(limit_s, 0.01))


def test_a_wait_ends_when_the_cluster_is_lost(watch):
    threading.Timer(0.05, watch.lose).start()
    with pytest.raises(LocalRayletDiedError, match="lost"):
        watch.patiently(never, lambda: False, None)
    assert len(watch.told) == 1
    with pytest.raises(LocalRayletDiedError):
        watch.check()


def test_a_wait_ends_with_its_timeout(watch):
    assert watch.patiently(never, lambda: False, 0.05) is None
    watch.check()


def test_a_wait_gives_what_comes_in_a_later_slice(watch):
    answers = iter([None, None, ["value"]])
    assert watch.patiently(lambda limit_s: next(answers), lambda: False, None) == ["value"]


def test_fetching_is_not_cut_into_slices(watch):
    limits = []

    def fetch(limit_s):
        limits.append(limit_s)
        return None if len(limits) == 1 else "fetched"

    assert watch.patiently(fetch, lambda: True, None) == "fetched"
    assert limits[1] is None


def test_nothing_is_told_after_the_end(watch):
    watch.close()
    watch.lose()
    eventually(lambda: not any(thread.name == "syncline-watch" for thread in threading.enumerate()))
    assert watch.told == []


def test_a_guard_waits_as_long_as_it_is_told():
    assert Guard().patiently(lambda limit_s: limit_s, lambda: False, 7.0) == 7.0
