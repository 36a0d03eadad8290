"""What the launcher of a measurement sees and keeps: command lines, output, failures, and processes
left behind.
"""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.measure import (
    MARK,
    Ended,
    clear,
    command,
    count_lines,
    derive,
    environment,
    failure_of,
    interpreter,
    marked,
    run,
)
from bench.rows import OURS, PEAK_MB, PEAK_PER_BUDGET, RAY, Contender, Group, Metric, Row
from bench.schedule import Turn

ROW = Row(
    name="row", contenders=(), metrics=(), timeout_s=7.0, environment={"OMP_NUM_THREADS": "1"}
)


def ended(code: int | None = 0, output: str = "") -> Ended:
    return Ended(code=code, started=100.0, ended=103.0, output=output)


def test_programs_run_as_modules_and_torchrun_starts_two() -> None:
    plain = Contender(name="a", module="tasks", argument="ray")
    assert command(plain, "py", Path("o")) == [
        "py",
        "-m",
        "bench.programs.tasks",
        "ray",
        "--out",
        "o",
    ]
    launched = Contender(name="a", module="toy", argument="torchrun", launcher="torchrun")
    assert command(launched, "py", Path("o"))[:6] == [
        "py",
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "-m",
    ]


def test_settings_of_the_person_who_measures_do_not_reach_the_programs() -> None:
    base = {"PATH": "/bin", "SYNCLINE_ADDRESS": "x", "RAY_ADDRESS": "x", "OMP_NUM_THREADS": "64"}
    variables = environment(base, ROW, "mark", {})
    assert variables["PATH"] == "/bin"
    assert variables["OMP_NUM_THREADS"] == "1"
    assert variables[MARK] == "mark"
    assert "SYNCLINE_ADDRESS" not in variables
    assert "RAY_ADDRESS" not in variables


def test_only_a_program_of_the_group_cluster_is_told_where_the_cluster_is() -> None:
    cluster = {"RAY_ADDRESS": "here", "SYNCLINE_ADDRESS": "here"}
    guest = Row(name="guest", contenders=(), metrics=(), group="cluster")
    told = environment({"RAY_ADDRESS": "elsewhere"}, guest, "mark", cluster)
    assert (told["RAY_ADDRESS"], told["SYNCLINE_ADDRESS"]) == ("here", "here")
    assert "RAY_ADDRESS" not in environment({}, ROW, "mark", cluster)


@pytest.mark.parametrize(
    ("group", "contender", "ray_python", "expected"),
    [
        ("machine", OURS, "ray's", sys.executable),
        ("machine", RAY, "ray's", "ray's"),
        ("cluster", OURS, "ray's", "ray's"),
        ("cluster", RAY, "ray's", "ray's"),
        ("machine", OURS, None, sys.executable),
    ],
)
def test_all_that_meets_on_a_cluster_has_one_interpreter(
    group: Group, contender: str, ray_python: str | None, expected: str
) -> None:
    turn = Turn(
        row=Row(name="row", contenders=(), metrics=(), group=group),
        contender=Contender(name=contender, module="m", argument="a"),
        round=0,
    )
    assert interpreter(turn, ray_python) == expected


def test_own_lines_are_not_counted_whatever_prefix_a_worker_gave_them() -> None:
    assert count_lines("user: a\n(worker 3) user: b\n\n  \nstarted\n50%\r100%\n") == 3


def test_the_launcher_adds_what_only_it_sees() -> None:
    values = derive({"all_reduce_at": 102.5}, ended(output="a\nb\n"))
    assert values == {"all_reduce_s": 2.5, "process_s": 3.0, "lines": 2.0}


def test_memory_is_told_where_it_was_watched_and_set_against_the_programs_budget() -> None:
    watched = dataclasses.replace(ended(), peak_bytes=30_000_000)
    assert derive({}, watched)[PEAK_MB] == 30.0
    assert PEAK_PER_BUDGET not in derive({}, watched)
    assert derive({"budget_mb": 20.0}, watched)[PEAK_PER_BUDGET] == 1.5
    assert PEAK_MB not in derive({"budget_mb": 20.0}, ended())


@pytest.mark.parametrize(
    ("key", "expected"), [(PEAK_MB, True), (PEAK_PER_BUDGET, True), ("other", False)]
)
def test_only_rows_that_show_memory_have_theirs_watched(key: str, expected: bool) -> None:
    row = Row(
        name="row", contenders=(), metrics=(Metric(key=key, label="", unit="MB", better="less"),)
    )
    assert row.shows_memory is expected


@pytest.mark.parametrize(
    ("code", "has_values", "expected"),
    [
        (0, True, None),
        (None, True, "no end after 7 s, with numbers"),
        (1, False, "exit code 1, without numbers"),
        (0, False, "exit code 0, without"),
    ],
)
def test_a_failure_says_how_it_ended_and_shows_the_end_of_the_output(
    code: int | None, has_values: bool, expected: str | None
) -> None:
    failure = failure_of(ended(code, output="the last words"), ROW, has_values)
    if expected is None:
        assert failure is None
    else:
        assert failure is not None
        assert failure.startswith(expected)
        assert failure.endswith("the last words")


@pytest.mark.processes
def test_a_program_past_its_limit_is_killed_and_keeps_its_output(tmp_path: Path) -> None:
    program = "import time; print('waiting', flush=True); time.sleep(600)"
    for limit_s in (
        1.0,
        3.0,
        10.0,
        30.0,
    ):  # a busy machine may not have started it when a short one is over
        result = run([sys.executable, "-c", program], tmp_path, os.environ, timeout_s=limit_s)
        assert result.code is None
        if result.output:
            break
    assert result.output == "waiting\n"


@pytest.mark.processes
def test_a_daemon_in_a_session_of_its_own_is_found_by_its_mark_and_killed() -> None:
    mark = f"test-{os.getpid()}"
    daemon = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env={**os.environ, MARK: mark},
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )
    try:
        assert [process.pid for process in marked(mark)] == [daemon.pid]
        assert clear(mark, grace_s=0.0) == 1
        assert marked(mark) == []
    finally:
        daemon.kill()
        daemon.wait()
