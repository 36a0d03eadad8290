"""`run` and `warm` as commands; `tests/launcher` has the jobs."""

import sys

import pytest

import syncline.cli
from syncline.launcher import launch, warm


def test_run_reaches_the_launcher_without_the_other_commands(monkeypatch):
    given = []
    monkeypatch.setattr(launch, "main", lambda arguments: given.append(list(arguments)) or 3)
    monkeypatch.setattr(sys, "argv", ["syncline", "run", "-n", "2", "train.py", "--help"])
    assert syncline.cli.main() == 3
    assert given == [["-n", "2", "train.py", "--help"]]


def test_run_is_listed_and_passes_all_arguments_on(syncline_command, monkeypatch):
    given = []
    monkeypatch.setattr(launch, "main", lambda arguments: given.append(list(arguments)) or 1)
    done = syncline_command("run", "--nproc-per-node=2", "-m", "package", "--", "-x")
    assert done.exit_code == 1
    assert given[0][:3] == ["--nproc-per-node=2", "-m", "package"]
    assert "run a script" in syncline_command("--help").output.lower()


@pytest.mark.parametrize(("seconds", "text"), [(0.0, "ready already"), (2.0, "ready after 2.0 s")])
def test_warm_says_when_the_template_is_ready(syncline_command, monkeypatch, seconds, text):
    given = []

    def start(variables, idle_s):
        given.append((variables["OMP_NUM_THREADS"], idle_s))
        return seconds

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(warm, "start", start)
    done = syncline_command("warm", "--idle-s", "7")
    assert done.exit_code == 0
    assert text in done.output
    assert given == [("1", 7.0)]


def test_warm_reports_a_template_that_cannot_start(syncline_command, monkeypatch):
    def start(variables, idle_s):
        raise PermissionError("/tmp/x belongs to another user")

    monkeypatch.setattr(warm, "start", start)
    done = syncline_command("warm")
    assert done.exit_code == 1
    assert "belongs to another user" in done.output


def test_warm_stop_counts(syncline_command, monkeypatch):
    monkeypatch.setattr(warm, "stop", lambda: 2)
    assert syncline_command("warm", "--stop").output == "2 templates stopped\n"
