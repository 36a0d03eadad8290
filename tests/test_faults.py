"""Fault injection: parsing, counting, and the actions that a test survives."""

import signal
import subprocess
import sys

import pytest

from syncline import faults


@pytest.fixture(autouse=True)
def _no_faults_afterwards():
    yield
    faults.configure("")


def test_without_faults_points_do_nothing():
    faults.configure("")
    faults.reach("anywhere")


def test_a_fault_triggers_at_its_visit_and_point_only():
    faults.configure("here=raise:2")
    faults.reach("there")
    faults.reach("here")
    with pytest.raises(faults.FaultInjected, match="'here'"):
        faults.reach("here")
    faults.reach("here")


def test_a_marker_limits_a_fault_to_one_process(tmp_path):
    marker = tmp_path / "marker"
    faults.configure(f"here=raise@{marker}")
    with pytest.raises(faults.FaultInjected):
        faults.reach("here")
    faults.configure(f"here=raise@{marker}")
    faults.reach("here")


@pytest.mark.parametrize("text", ["here", "here=explode", "here=kill:x", "=kill", "here=kill:-1"])
def test_malformed_faults_are_refused(text):
    with pytest.raises(ValueError, match="SYNCLINE_FAULTS"):
        faults.parse(text)


def test_the_environment_arms_a_fresh_process(monkeypatch):
    monkeypatch.setenv("SYNCLINE_FAULTS", "a=sleep:0, b=kill:2")
    code = (
        "from syncline import faults; faults.reach('a'); faults.reach('b'); "
        "print('alive', flush=True); faults.reach('b'); print('not me')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("alive\n", -signal.SIGKILL)
