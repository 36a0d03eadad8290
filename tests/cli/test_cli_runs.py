"""`runs`, `logs` and `status` over run directories, finished, running, killed, damaged and
elsewhere; nothing else needs to run.
"""

import json
import os
import re
import threading
from dataclasses import replace

import pytest

from syncline.cli import logs, status
from syncline.cli.output import one_line_rows
from syncline.cli.runs import last_text
from syncline.runs import LocalFiles, RunDirectory, run_list, tailing
from syncline.runs.run_list import unreadable_summary
from syncline.runs.run_storage import LocalDirectory

NOBODY = 2**22 + 1
"""No process has this number: it is above the highest that Linux gives."""


@pytest.fixture
def storage(tmp_path):
    return str(tmp_path / "runs")


def listed(syncline_command, storage):
    done = syncline_command("runs", storage, "--json")
    assert done.exit_code == 0, done.output
    return {run["name"]: run for run in json.loads(done.output)["runs"]}


def test_states_are_told_apart(syncline_command, write_run, storage):
    now = 4_000_000_000.0  # after the start of this process, which stands for the run's
    write_run("ended", outcome="finished", reports=[{"loss": 2.0}, {"loss": 1.0}])
    write_run("failed", outcome="errored", error="Training failed:\nValueError: no")
    write_run("alive", started=now)
    write_run("lost", pid=NOBODY)
    write_run("number given again", process="another start of the machine/its numbers/1")
    write_run("elsewhere", pid=NOBODY, host="another-machine")
    runs = listed(syncline_command, storage)
    assert {name: run["state"] for name, run in runs.items()} == {
        "ended": "finished",
        "failed": "errored",
        "alive": "running",
        "lost": "killed",
        "number given again": "killed",
        "elsewhere": "running",
    }
    assert runs["ended"]["reports"] == 2
    assert runs["ended"]["metrics"] == {"loss": 1.0, "rank": 0}
    assert runs["ended"]["workers"] == 2


def test_latest_run_comes_first_and_other_directories_are_left_out(
    syncline_command, write_run, storage
):
    write_run("old", outcome="finished", started=10.0)
    write_run("new", outcome="finished", started=20.0)
    os.makedirs(os.path.join(storage, "no run"))
    assert list(listed(syncline_command, storage)) == ["new", "old"]


def test_damaged_record_is_listed_with_the_reason(syncline_command, write_run, storage):
    (write_run("damaged") / "events.jsonl").write_text("nonsense\n")
    run = listed(syncline_command, storage)["damaged"]
    assert run["state"] == "unreadable"
    assert "events.jsonl" in run["error"]


def test_json_keys_stay_the_same(syncline_command, write_run, storage):
    write_run("one", outcome="finished")
    run = listed(syncline_command, storage)["one"]
    assert list(run)[:8] == [
        "name",
        "path",
        "state",
        "started",
        "ended",
        "last_activity",
        "host",
        "workers",
    ]
    assert list(run)[8:] == [
        "attempts",
        "reports",
        "metrics",
        "checkpoints",
        "error",
        "stalled_since",
        "kind",
        "trials",
        "tags",
        "note",
        "archived",
        "experiment",
        "parameters",
        "cause",
    ]


def test_uri_shows_the_same_runs(syncline_command, write_run, storage):
    write_run("one", outcome="finished", reports=[{"loss": 1.0}], logs={0: "hello\n"})
    local, remote = (
        listed(syncline_command, storage)["one"],
        listed(syncline_command, f"file://{storage}")["one"],
    )
    assert remote == local
    assert (
        syncline_command("logs", "one", "--storage-path", f"file://{storage}").output == "hello\n"
    )


def test_unknown_uri_and_empty_storage(syncline_command, storage):
    assert syncline_command("runs", "nonsense://x").exit_code == 1
    done = syncline_command("runs", storage)
    assert done.exit_code == 0
    assert "No runs" in done.output


def test_table_fits_a_narrow_terminal(syncline_command, write_run, storage):
    write_run(
        "a-run-with-a-rather-long-name-2026-11-21",
        outcome="finished",
        reports=[{"loss": 1.0, "accuracy": 0.5, "epoch": 1}],
    )
    done = syncline_command("runs", storage, env={"COLUMNS": "60"})
    assert max(map(len, done.output.splitlines())) <= 60
    assert "finished" in done.output


NARROW = [
    # width, columns that remain
    (120, ["run", "state", "age", "took", "reports", "kept", "last report"]),
    (80, ["run", "state", "age", "took", "last report"]),
    (40, ["run", "state", "last report"]),
    (20, ["run", "state", "…"]),
]


@pytest.mark.parametrize(("width", "columns"), NARROW)
def test_every_run_has_one_line_that_fits_the_terminal(width, columns):
    lines = one_line_rows(
        ("run", "state", "age", "took", "reports", "kept", "last report"),
        [
            ("a-run-with-a-rather-long-name", "errored", "10 min", "1.5 s", "3", "0", "x" * 100),
            ("b", "running", "1 min", "-", "0", "0", "two\nlines with [brackets]"),
        ],
        right=("age", "took", "reports", "kept"),
        flexible={"run": 16, "last report": 32},
        optional=("kept", "reports", "took", "age"),
        width=width,
    )
    assert re.split("  +", lines[0].plain) == columns
    assert [line.cell_len for line in lines[1:2]] == [width]
    assert all(line.cell_len <= width for line in lines)
    assert "\n" not in lines[2].plain
    if width == 120:
        assert lines[2].plain.endswith("  two lines with [brackets]")


def test_a_column_that_may_be_cut_or_left_out_is_left_out():
    lines = one_line_rows(
        ("run", "tags", "last"),
        [("name", "vit good", "x" * 20)],
        flexible={"run": 4, "tags": 8, "last": 10},
        optional=("tags",),
        width=18,
    )
    assert [line.plain for line in lines] == ["run   last", "name  xxxxxxxxxxx…"]


def test_output_that_is_no_terminal_has_complete_texts_in_one_line_per_run(
    syncline_command, write_run, storage, monkeypatch
):
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it
    name, error = "a-run-with-a-rather-long-name-" * 3, f"ValueError: {'long ' * 40}end"
    write_run(name, outcome="errored", error=error)
    write_run("b", outcome="finished", reports=[{"loss": 1.0}])
    lines = syncline_command("runs", storage).output.splitlines()
    assert len(lines) == 3
    assert any(line.startswith(f"{name}  errored") and line.endswith(error) for line in lines)


def test_tags_select_runs_and_archived_runs_are_left_out(syncline_command, write_run, storage):
    for name in ("a", "b", "c"):
        write_run(name, outcome="finished")
    for change in (("tag", "a", "vit", "good"), ("tag", "b", "vit"), ("archive", "b")):
        assert syncline_command("runs", *change, "--storage-path", storage).exit_code == 0

    def names(*options):
        done = syncline_command("runs", storage, "--json", *options)
        return sorted(run["name"] for run in json.loads(done.stdout)["runs"])

    assert names() == ["a", "c"]
    assert names("--all") == ["a", "b", "c"]
    assert names("--all", "--tag", "vit") == ["a", "b"]
    assert names("--all", "--tag", "vit", "--tag", "good") == ["a"]
    done = syncline_command("runs", storage)
    assert "vit good" in done.stdout
    assert "1 archived run not listed: --all" in done.stderr
    assert syncline_command("runs", "archive", "b", "--undo", "--storage-path", storage)
    assert names() == ["a", "b", "c"]


def test_last_report_is_found_when_it_is_longer_than_the_tail(write_run, monkeypatch):
    monkeypatch.setattr(run_list, "TAIL_BYTES", 20)
    run = write_run("long", reports=[{"loss": 3.0, "text": "x" * 100}])
    report = run_list.last_report(LocalDirectory(run))
    assert report is not None
    assert report["metrics"]["loss"] == 3.0


def test_errored_run_shows_the_cause():
    failed = replace(unreadable_summary(LocalDirectory("run"), "x"), error="A\nValueError: no\n")
    assert last_text(failed) == "ValueError: no"
    assert last_text(replace(failed, error="")) == "errored"


def test_logs_come_rank_after_rank_with_labels(syncline_command, write_run, storage):
    write_run("one", outcome="finished", logs={1: "b\n", 0: "a 1\na 2", 10: "c\n"})
    done = syncline_command("logs", "one", "--storage-path", storage)
    assert done.output == "[rank 0] a 1\n[rank 0] a 2\n[rank 1] b\n[rank 10] c\n"
    assert (
        syncline_command("logs", "one", "--rank", "0", "-n", "1", "--storage-path", storage).output
        == "a 2\n"
    )
    as_json = syncline_command("logs", "one", "--rank=1", "--json", "--storage-path", storage)
    assert json.loads(as_json.output) == {"rank": 1, "line": "b"}


def test_logs_of_the_latest_run_or_of_a_path(syncline_command, write_run, storage):
    write_run("old", outcome="finished", started=10.0, logs={0: "old\n"})
    path = write_run("new", outcome="finished", started=20.0, logs={0: "new\n"})
    assert syncline_command("logs", "--storage-path", storage).output == "new\n"
    assert syncline_command("logs", str(path)).output == "new\n"


def test_unknown_run_and_rank_name_those_that_there_are(syncline_command, write_run, storage):
    write_run("one", outcome="finished", logs={0: "x\n"})
    done = syncline_command("logs", "two", "--storage-path", storage)
    assert (done.exit_code, "one" in done.stderr) == (1, True)
    done = syncline_command("logs", "one", "--rank", "5", "--storage-path", storage)
    assert (done.exit_code, "only of rank 0" in done.stderr) == (1, True)


def test_logs_of_a_search_are_those_of_its_trials(syncline_command, write_run, storage):
    logs = write_run("search", outcome="finished") / "logs"
    logs.mkdir(exist_ok=True)
    for number in (0, 1):
        (logs / f"c511c_0000{number}.log").write_text(f"of {number}\n")
    done = syncline_command("logs", "search", "--storage-path", storage)
    assert done.output == "[trial c511c_00000] of 0\n[trial c511c_00001] of 1\n"
    for name in ("c511c_00001", "objective_c511c_00001"):
        done = syncline_command("logs", "search", name, "--storage-path", storage)
        assert done.output == "of 1\n"
    done = syncline_command("logs", "search", "c511c_00001", "--json", "--storage-path", storage)
    assert json.loads(done.output) == {"trial": "c511c_00001", "line": "of 1"}
    done = syncline_command("logs", "search", "x", "--storage-path", storage)
    assert "no logs of trial x, only of trial c511c_00000, trial c511c_00001" in done.stderr


def test_workers_that_printed_nothing_are_told_of(syncline_command, write_run, storage):
    write_run("silent", outcome="finished", logs={0: "", 1: ""})
    done = syncline_command("logs", "silent", "--storage-path", storage)
    assert (done.exit_code, done.stdout, "printed nothing" in done.stderr) == (0, "", True)


def test_progress_bar_is_shown_as_it_ended():
    assert tailing.terminal_text("10%\r50%\r100%\r") == "100%"


def test_following_shows_lines_as_they_come_and_ends_with_the_run(write_run):
    path = write_run("one", started=4_000_000_000.0, logs={0: "first\nsec"})
    place = LocalDirectory(path)
    seen, first = [], threading.Event()

    def follow():
        for line in logs.follow(place, None, pause_s=0.001):
            seen.append(line)
            first.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert first.wait(60)
    with open(path / "logs" / "rank-0.log", "a") as file:
        file.write("ond\nthird")
    (path / "logs" / "rank-1.log").write_text("other\n")
    RunDirectory(LocalFiles(path), clock=lambda: 4_000_000_001.0).write_outcome("finished")
    thread.join(60)
    assert not thread.is_alive()
    assert [text for rank, text in seen if rank == "rank-0"] == ["first", "second", "third"]
    assert ("rank-1", "other") in seen


def test_status_without_a_cluster_shows_the_runs(syncline_command, write_run, storage):
    write_run("one", outcome="finished")
    done = syncline_command("status", "--storage-path", storage, "--json")
    assert done.exit_code == 0
    answer = json.loads(done.output)
    assert answer["cluster"] is None
    assert [run["name"] for run in answer["runs"]] == ["one"]
    assert "No cluster" in syncline_command("status", "--storage-path", storage).output


def test_resources_in_use_are_told_without_bookkeeping():
    total = {
        "CPU": 4.0,
        "node:10.0.0.1": 1.0,
        "ssd": 2.0,
        "GPU": 2.0,
        "CPU_group_0_abc": 1.0,
        "accelerator_type:H200": 1.0,
    }
    used = status.resources_in_use(total, {"CPU": 1.5, "GPU": 2.0})
    assert used == {
        "CPU": {"used": 2.5, "total": 4.0},
        "GPU": {"used": 0.0, "total": 2.0},
        "ssd": {"used": 2.0, "total": 2.0},
    }
    assert list(used) == ["CPU", "GPU", "ssd"]


def test_node_says_whether_it_is_the_head_and_which_gpus_it_has():
    node = status.parse_node(
        {
            "NodeID": "abc",
            "Alive": True,
            "NodeManagerAddress": "10.0.0.1",
            "NodeManagerHostname": "host",
            "Resources": {
                "CPU": 2.0,
                "GPU": 1.0,
                "node:__internal_head__": 1.0,
                "accelerator_type:H200": 1.0,
            },
        }
    )
    assert (node.head, list(node.accelerators), node.resources) == (
        True,
        ["H200"],
        {"CPU": 2.0, "GPU": 1.0},
    )


def test_a_run_of_reinforcement_learning_shows_return_and_speed(write_run):
    metrics = {
        "env_runners/episode_return_mean": 475.0,
        "env_runners/episode_len_mean": float("nan"),
        "num_env_steps_sampled_lifetime": 120_000,
        "num_env_steps_sampled_throughput_per_sec": 20_345.67,
        "learners/default_policy/entropy": 0.5,
    }
    run = run_list.summarize_run(LocalDirectory(str(write_run("cart", reports=[metrics]))))
    assert last_text(replace(run, kind="rl")) == "return=475 steps=120000 steps/s=20346"
