"""`runs rm`, `stop`, `note` and `tag` over run directories, and completion of run names."""

import json
import os
import socket

import pytest
from click.shell_completion import ShellComplete

from syncline.cli import app, find_runs, run_changes
from syncline.runs import RunDirectory
from syncline.runs.record_files import LocalFiles


@pytest.fixture
def change(syncline_command, tmp_path):
    """Runs a subcommand of `runs` below the storage path."""

    def run(*arguments, **options):
        return syncline_command(
            "runs", *arguments, "--storage-path", str(tmp_path / "runs"), **options
        )

    return run


def test_runs_are_deleted_after_a_question(change, write_run, monkeypatch):
    one, two = write_run("one", outcome="finished"), write_run("two", outcome="finished")
    assert "pass --yes" in change("rm", "one", "two").stderr
    monkeypatch.setattr(run_changes, "may_ask", lambda: True)
    done = change("rm", "one", "two", input="n\n")
    assert (done.exit_code, str(two) in done.stderr) == (1, True)
    assert one.exists()
    assert change("rm", "one", input="y\n").stdout == f"Deleted {one}\n"
    done = change("rm", "two", "--yes", "--json")
    assert json.loads(done.stdout) == {"deleted": [str(two)]}
    assert not one.exists()
    assert not two.exists()


def test_nothing_is_deleted_if_one_run_is_unknown_or_running(change, write_run):
    ended = write_run("ended", outcome="finished")
    write_run("alive", started=4_000_000_000.0)
    done = change("rm", "ended", "endet", "-y")
    assert done.exit_code == 1
    assert "Did you mean 'ended'?" in done.stderr
    assert "syncline runs stop alive" in change("rm", "ended", "alive", "-y").stderr
    assert ended.exists()


def test_a_run_of_another_machine_is_deleted_by_force(change, write_run):
    run = write_run("elsewhere", host="another-machine")
    done = change("rm", "elsewhere", "-y")
    assert "was started on another-machine" in done.stderr
    assert run.exists()
    assert change("rm", "elsewhere", "-y", "--force").exit_code == 0
    assert not run.exists()


def test_notes_are_replaced_and_removed(change, write_run):
    write_run("one", outcome="finished")
    assert "has no note" in change("note", "one").stderr
    assert change("note", "one", "lr too high").output == ""
    assert change("note", "one").output == "lr too high\n"
    assert json.loads(change("note", "one", "", "--json").output)["note"] == ""


def test_tags_are_added_and_removed(change, write_run):
    write_run("one", outcome="finished")
    assert change("tag", "one", "vit", "good").output == "vit good\n"
    assert change("tag", "one", "-d", "good", "slow").output == "vit slow\n"
    assert json.loads(change("tag", "one", "--json").output)["tags"] == ["vit", "slow"]
    done = change("tag", "one", "a,b")
    assert done.exit_code == 1
    assert "is not a tag" in done.stderr


class Live:
    """A run that ends when it is stopped."""

    def __init__(self, directory):
        self.directory = directory

    def __enter__(self):
        return self

    def __exit__(self, *details):
        pass

    def stop(self):
        with RunDirectory(LocalFiles(self.directory), clock=lambda: 4_000_000_001.0) as record:
            record.write_outcome("aborted")


def test_running_runs_are_stopped_and_ended_ones_are_left_alone(change, write_run, monkeypatch):
    write_run("ended", outcome="finished")
    alive = write_run("alive", started=4_000_000_000.0)
    reached = []

    def reach(run, address):
        reached.append(run.name)
        return Live(alive)

    monkeypatch.setattr(find_runs, "reached", reach)
    done = change("stop", "ended", "alive", "--json")
    assert reached == ["alive"]
    states = json.loads(done.stdout)["stopped"]
    assert {os.path.basename(path): state for path, state in states.items()} == {
        "ended": "finished",
        "alive": "aborted",
    }


def test_a_run_that_does_not_end_in_time_is_an_error(change, write_run, monkeypatch):
    alive = write_run("alive", started=4_000_000_000.0)
    live = Live(alive)
    live.stop = lambda: None
    monkeypatch.setattr(find_runs, "reached", lambda run, address: live)
    done = change("stop", "alive", "--limit", "0")
    assert done.exit_code == 1
    assert "still runs after 0 s" in done.stderr


@pytest.mark.parametrize(
    "words", [("logs",), ("stack",), ("profile",), ("runs", "rm", "other"), ("runs", "tag")]
)
def test_the_shell_completes_names_of_runs(write_run, monkeypatch, tmp_path, words):
    for name in ("vit-a", "vit-b", "other"):
        write_run(name, outcome="finished")
    monkeypatch.setenv("SYNCLINE_STORAGE_PATH", str(tmp_path / "runs"))
    complete = ShellComplete(app.cli, {}, "syncline", "_SYNCLINE_COMPLETE")
    found = [item.value for item in complete.get_completions(list(words), "vit")]
    assert sorted(found) == ["vit-a", "vit-b"]


def test_the_shell_completes_subcommands_of_runs():
    complete = ShellComplete(app.cli, {}, "syncline", "_SYNCLINE_COMPLETE")
    found = [item.value for item in complete.get_completions(["runs"], "")]
    assert found == ["archive", "list", "note", "rm", "stop", "tag"]


def test_a_misspelled_command_is_answered_with_the_nearest(syncline_command):
    done = syncline_command("rnus")
    assert done.exit_code == 2
    assert "No such command 'rnus'. Did you mean 'runs'?" in done.stderr


def test_this_machine_is_the_one_of_its_own_runs(write_run, change):
    """The host in the record decides whether `--force` is needed."""
    write_run("alive", started=4_000_000_000.0, host=socket.gethostname())
    assert "is running, so nothing" in change("rm", "alive", "-y", "--force").stderr
