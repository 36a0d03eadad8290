"""Detection of a lost cluster, and waits that it ends."""

from __future__ import annotations

import importlib.util
import threading
import time

import pytest

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)

from syncline.core.cluster import health as health_module
from syncline.core.cluster.health import ClusterHealth, Connection, ConnectionMonitor, HealthCheck
from syncline.exceptions import LocalRayletDiedError
from syncline.testing import eventually

TIMEOUT_S = 45.0


def health():
    return ClusterHealth("h:6379", TIMEOUT_S)


def check(at, *, node_lives=True, head_answers=True):
    return HealthCheck(at=at, node_lives=node_lives, head_answers=head_answers)


def test_a_healthy_cluster_causes_no_messages():
    state = health()
    assert [state.update(check(at)) for at in range(100)] == [None] * 100
    assert state.lost is None


def test_a_short_silence_of_the_head_causes_no_messages():
    state = health()
    assert [state.update(check(at, head_answers=at not in (3, 4))) for at in range(10)] == [
        None
    ] * 10


def test_a_silent_head_and_its_return_are_reported_once():
    state = health()
    messages = [state.update(check(at, head_answers=not 10 <= at < 30)) for at in range(40)]
    assert [message for message in messages if message] == [
        "the head of the cluster at 'h:6379' does not answer: waiting 40 s more for it",
        "the head of the cluster at 'h:6379' answers again",
    ]
    assert state.lost is None


def test_a_cluster_whose_head_stays_silent_is_lost():
    state = health()
    messages = [
        message for at in range(60) if (message := state.update(check(at, head_answers=False)))
    ]
    assert len(messages) == 2
    assert "lost: its head has not answered for 45 s" in messages[1]
    assert state.update(check(61)) is None
    assert state.lost == messages[1]


def test_a_dead_node_is_an_immediate_loss():
    state = health()
    assert "the node of this machine" in (state.update(check(0, node_lives=False)) or "")
    assert "`shutdown()`, then `init()`" in (state.lost or "")


@pytest.fixture
def monitor(monkeypatch):
    """A monitor whose cluster is lost after `monitor.lose()`."""
    monkeypatch.setattr(health_module, "CHECK_INTERVAL_S", 0.01)
    monkeypatch.setattr(health_module, "WAIT_SLICE_S", 0.01)
    seen = {"node_lives": True}
    messages = []
    made = ConnectionMonitor(
        health(), lambda: check(time.monotonic(), node_lives=seen["node_lives"]), messages.append
    )
    made.lose = lambda: seen.update(node_lives=False)
    made.messages = messages
    yield made
    made.close()


def never(limit_s):
    time.sleep(min(limit_s, 0.01))


def test_a_wait_ends_when_the_cluster_is_lost(monitor):
    threading.Timer(0.05, monitor.lose).start()
    with pytest.raises(LocalRayletDiedError, match="lost"):
        monitor.wait(never, lambda: False, None)
    assert len(monitor.messages) == 1
    with pytest.raises(LocalRayletDiedError):
        monitor.check()


def test_a_wait_ends_with_its_timeout(monitor):
    assert monitor.wait(never, lambda: False, 0.05) is None
    monitor.check()


def test_a_wait_returns_the_result_of_a_later_slice(monitor):
    answers = iter([None, None, ["value"]])
    assert monitor.wait(lambda limit_s: next(answers), lambda: False, None) == ["value"]


def test_a_fetch_is_not_sliced(monitor):
    limits = []

    def fetch(limit_s):
        limits.append(limit_s)
        return None if len(limits) == 1 else "fetched"

    assert monitor.wait(fetch, lambda: True, None) == "fetched"
    assert limits[1] is None


def test_nothing_is_reported_after_close(monitor):
    monitor.close()
    monitor.lose()
    eventually(
        lambda: not any(thread.name == "syncline-monitor" for thread in threading.enumerate())
    )
    assert monitor.messages == []


def test_a_connection_without_a_monitor_waits_once():
    assert Connection().wait(lambda limit_s: limit_s, lambda: False, 7.0) == 7.0
