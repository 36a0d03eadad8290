"""`stack` and `profile` against a program that this process plays, and what they say where there is
none.
"""

import json
import os

import pytest

from syncline.core import control

LATER = 4_000_000_000.0
"""After the start of this process, which stands for the run's."""
NOBODY = 2**22 + 1
WAITING = (
    '  File "/home/me/train.py", line 9, in train\n  File'
    ' "/e/site-packages/torch/distributed/c10d.py", line 5, in all_reduce\n'
)
SLEEPING = '  File "/home/me/train.py", line 7, in train\n    time.sleep(600)\n'


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(tmp_path / "sessions"))
    monkeypatch.setenv("SYNCLINE_STORAGE_PATH", str(tmp_path / "runs"))
    control.close()
    yield
    control.close()


@pytest.fixture
def live_run(write_run):
    """A run that goes on with three ranks; the list that it gives back has what was asked."""
    path, asked = write_run("alive", started=LATER), []

    def answer(action, arguments):
        asked.append((action, arguments))
        if action == "stacks":
            stacks = {"0": WAITING, "1": SLEEPING, "2": WAITING}
            wanted = arguments["ranks"] or list(stacks)
            if wanted == ["7"]:
                raise RuntimeError("the run has no rank '7': it has ranks 0-2")
            return {rank: stacks[rank] for rank in wanted}
        if action == "diagnosis":
            return {
                "verdict": {"text": "Rank 1 is slow."},
                "calls": {"0": ["all_reduce [2] Float"]},
            }
        (path / "profiles").mkdir(exist_ok=True)
        (path / "profiles" / "p.svg").write_text("<svg/>")
        return {"file": "profiles/p.svg"}

    control.serve(f"run:{path}", answer)
    return asked


def test_ranks_are_shown_by_place_with_the_odd_one_first(syncline_command, live_run):
    done = syncline_command("stack")
    assert done.exit_code == 0, done.output
    verdict, empty, *lines = done.output.splitlines()
    assert (verdict, empty) == ("Rank 1 is slow.", "")
    assert lines[0] == "[rank 1]  <-- outlier"
    assert lines[2].strip() == "time.sleep(600)"
    assert lines[4] == "[ranks 0, 2]  waiting for others"


def test_one_rank_alone(syncline_command, live_run):
    done = syncline_command("stack", "alive", "--rank", "1")
    assert "time.sleep(600)" in done.output
    assert "all_reduce" not in done.output
    assert live_run == [("stacks", {"ranks": ["1"]}), ("diagnosis", {})]


def test_the_last_collective_calls_are_shown_on_request(syncline_command, live_run):
    assert "all_reduce [2]" not in syncline_command("stack").output
    lines = syncline_command("stack", "--calls").output.splitlines()
    assert lines[-2:] == ["[rank 0]", "  all_reduce [2] Float"]


def test_stacks_as_json_keep_their_keys(syncline_command, live_run):
    reported = json.loads(syncline_command("stack", "alive", "--json").output)
    assert list(reported) == ["run", "path", "places", "stacks", "diagnosis"]
    assert [(place["members"], place["odd"], place["waits"]) for place in reported["places"]] == [
        (["1"], True, False),
        (["0", "2"], False, True),
    ]
    assert reported["stacks"]["1"] == SLEEPING


def test_what_the_run_refuses_is_an_error_of_the_command(syncline_command, live_run):
    done = syncline_command("stack", "alive", "--rank", "7")
    assert done.exit_code == 1
    assert "syncline: the run has no rank '7': it has ranks 0-2" in done.stderr


def test_a_profile_prints_where_its_file_is(syncline_command, live_run, tmp_path):
    done = syncline_command("profile", "alive", "--rank", "2", "--cpu", "--seconds", "3")
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{tmp_path}/runs/alive/profiles/p.svg\n"
    assert "open it in a browser" in done.stderr
    assert live_run == [("profile", {"rank": "2", "kind": "cpu", "seconds": 3.0, "steps": None})]


def test_a_profile_is_copied_to_a_file_or_into_a_directory(syncline_command, live_run, tmp_path):
    assert (
        syncline_command("profile", "--memory", "--output", str(tmp_path)).stdout
        == f"{tmp_path}/p.svg\n"
    )
    assert (
        syncline_command("profile", "--memory", "-o", str(tmp_path / "mine.svg")).stdout
        == f"{tmp_path}/mine.svg\n"
    )
    assert (tmp_path / "mine.svg").read_text() == (tmp_path / "p.svg").read_text() == "<svg/>"
    refused = syncline_command("profile", "--memory", "-o", str(tmp_path / "nowhere" / "p.svg"))
    assert refused.exit_code == 1
    assert "runs/alive/profiles/p.svg" in refused.stderr


def test_a_profile_as_json_names_the_file_in_the_run_and_where_that_is(
    syncline_command, live_run, tmp_path
):
    reported = json.loads(syncline_command("profile", "--cpu", "--json").stdout)
    assert reported == {
        "run": "alive",
        "kind": "cpu",
        "file": "profiles/p.svg",
        "path": f"{tmp_path}/runs/alive/profiles/p.svg",
    }


def test_a_profile_needs_to_know_of_what(syncline_command, live_run):
    assert syncline_command("profile", "alive").exit_code == 2
    done = syncline_command("profile", "alive", "--cpu", "--steps", "3")
    assert (done.exit_code, "--steps=3 is for --torch" in done.stderr) == (2, True)
    assert live_run == []


@pytest.mark.parametrize("command", [("stack",), ("profile", "--cpu")])
def test_a_run_that_is_over_or_killed_is_refused_at_once(syncline_command, write_run, command):
    write_run("ended", outcome="finished")
    write_run("lost", pid=NOBODY)
    for name, state in (("ended", "finished"), ("lost", "killed")):
        done = syncline_command(command[0], name, *command[1:])
        assert done.exit_code == 1
        assert f"{name} is {state}: only an active run can be inspected" in done.stderr


def test_a_run_of_another_machine_names_it(syncline_command, write_run):
    write_run("elsewhere", host="another-machine")
    done = syncline_command("stack", "elsewhere")
    assert done.exit_code == 1
    assert "it was started on another-machine" in done.stderr
    assert "--address" in done.stderr


def test_a_run_of_this_machine_that_does_not_answer_names_its_process(syncline_command, write_run):
    write_run("silent", started=LATER)
    done = syncline_command("stack", "silent")
    assert done.exit_code == 1
    assert f"process {os.getpid()} of this machine" in done.stderr


def test_no_run_names_those_that_there_are(syncline_command, write_run):
    write_run("one", outcome="finished")
    done = syncline_command("stack", "two")
    assert (done.exit_code, "its runs are one" in done.stderr) == (1, True)
