"""Polling of a cluster: by a separate process, without waiting, only while there are visitors."""

import io
import json
import sys

import pytest

from syncline.dashboard import cluster_probe
from syncline.dashboard.cluster_poller import ClusterPoller, Probe, ProbeError, shared_poller
from syncline.testing.waiting import eventually

FACTS = {
    "nodes": [{"NodeID": "ab", "Alive": True, "Resources": {"CPU": 4.0}}],
    "resources": {"total": {"CPU": 4.0}, "available": {"CPU": 1.0}},
    "actors": {"actors": [], "total": 0, "unknown": None},
    "tasks": {"counts": [], "running": [], "total": 0, "unknown": None},
}
LONG_S = 60.0


def command(program):
    """Program that replaces the probe process."""
    return (sys.executable, "-c", f"import json, sys, time\nfacts = {FACTS!r}\n{program}")


ANSWERS = command("for _ in sys.stdin: print(json.dumps(facts), flush=True)")


@pytest.fixture
def watching():
    """Return a factory of pollers that end with the test."""
    made = []

    def make(program=ANSWERS, **options):
        watch = ClusterPoller(
            "10.0.0.1:6379",
            command=program,
            **{"pause_s": 0.01, "again_s": 0.01, "answer_s": LONG_S, **options},
        )
        made.append(watch)
        return watch

    yield make
    for watch in made:
        watch._idle_s = 0.0
        eventually(lambda watch=watch: watch._thread is None, what="the watch ends")


def seen(watch, condition):
    def see():
        look = watch.snapshot()
        return look if condition(look) else None

    return eventually(see)


def test_the_first_look_knows_nothing_and_does_not_wait(watching):
    look = watching().snapshot()
    assert (look.address, look.engine, look.problem) == ("10.0.0.1:6379", None, None)


def test_what_the_process_says_is_known_after_a_while(watching):
    look = seen(watching(), lambda look: look.engine is not None)
    assert look.engine.resources == {"CPU": {"used": 3.0, "total": 4.0}}
    assert look.problem is None


def test_a_cluster_that_cannot_be_joined_is_told_with_the_reason(watching):
    watch = watching(
        command("print(json.dumps({'failed': 'no cluster answers there'}), flush=True)")
    )
    assert "no cluster answers there" in seen(watch, lambda look: look.problem).problem


def test_when_the_process_dies_the_last_facts_stay_with_the_reason_and_another_is_started(
    watching, tmp_path
):
    dies_once = command(
        f"first = not "
        f"__import__('os').path.exists({str(tmp_path / 'mark')!r})\n"
        f"open({str(tmp_path / 'mark')!r}, 'a').close()\n"
        "for _ in sys.stdin:\n    print(json.dumps(facts), flush=True)\n    if first: break\n"
    )
    watch = watching(dies_once, again_s=0.5)
    look = seen(watch, lambda look: look.problem)
    assert "has ended" in look.problem
    assert look.engine is not None
    seen(watch, lambda look: look.engine is not None and look.problem is None)


def test_answers_of_another_version_are_told(watching):
    watch = watching(command("for _ in sys.stdin: print('{}', flush=True)"))
    assert "cannot be parsed" in seen(watch, lambda look: look.problem).problem


def test_a_process_that_cannot_be_started_is_told(watching):
    assert (
        "cannot be started"
        in seen(watching(("/nowhere/python",)), lambda look: look.problem).problem
    )


def test_without_a_cluster_there_is_nothing_to_see(watching):
    watch = watching(is_there=lambda: False)
    eventually(lambda: watch.snapshot() is None)


def test_when_nobody_looks_the_process_ends_and_the_next_look_starts_another(watching):
    watch = watching(idle_s=0.2)
    seen(watch, lambda look: look.engine is not None)
    eventually(lambda: watch._thread is None)
    seen(watch, lambda look: look.engine is not None)


def test_a_process_that_says_nothing_is_given_up():
    probe = Probe(command("time.sleep(100)"))
    try:
        with pytest.raises(ProbeError, match="in time"):
            probe.ask(0.05)
    finally:
        probe.kill()
        probe.close()


def test_visitors_share_a_watch():
    assert shared_poller("10.0.0.1:6379") is shared_poller("10.0.0.1:6379")
    assert shared_poller("10.0.0.1:6379") is not shared_poller(None)


def test_the_probe_answers_each_line_and_survives_what_fails():
    facts = iter([{"nodes": []}, None])

    def next_facts():
        found = next(facts)
        if found is None:
            raise RuntimeError("the head is busy")
        return found

    answers = io.StringIO()
    cluster_probe.serve(["\n", "\n"], answers, next_facts)
    assert [json.loads(line) for line in answers.getvalue().splitlines()] == [
        {"nodes": []},
        {"failed": "RuntimeError: the head is busy"},
    ]
