"""`microbenchmark` on this machine."""

import json

import pytest

from syncline.cli.microbenchmark import measure

pytestmark = pytest.mark.processes


def test_every_rate_is_measured_on_this_machine(syncline_command):
    done = syncline_command("microbenchmark", "--seconds", "0.02", "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["engine"] == "this machine"
    assert len(answer["measurements"]) == 8
    assert all(
        measurement["value"] > 0 and measurement["rounds"] > 0
        for measurement in answer["measurements"]
    )


def test_first_call_does_not_count():
    times, called = iter([0.0, 1.0, 2.0]), []
    assert measure(lambda: called.append(1), 2.0, clock=lambda: next(times)) == (2, 2.0)
    assert len(called) == 3
