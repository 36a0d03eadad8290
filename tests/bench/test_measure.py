"""One measurement: command lines, environment, output, failures, and remaining processes."""

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.measure import (
    MEASUREMENT_ID,
    ProgramExit,
    command,
    count_lines,
    derive,
    environment,
    failure_of,
    interpreter,
    processes_of,
    run,
    stop_processes,
)
from bench.rows import OURS, PEAK_MB, PEAK_PER_BUDGET, RAY, Contender, Group, Metric, Row
from bench.schedule import PlannedRun

ROW = Row(
    name="row", contenders=(), metrics=(), timeout_s=7.0, environment={"OMP_NUM_THREADS": "1"}
)


def ended(code: int | None = 0, output: str = "") -> ProgramExit:
    return ProgramExit(code=code, started=100.0, ended=103.0, output=output)


def test_programs_run_as_modules_and_torchrun_starts_two_workers() -> None:
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


def test_jobs_of_syncline_run_keep_their_record_in_the_folder() -> None:
    contender = Contender(name="a", module="toy", argument="torchrun", launcher="syncline run")
    arguments = command(contender, "py", Path("o"))
    assert arguments[:4] == ["py", "-m", "syncline", "run"]
    assert arguments[arguments.index("--storage-path") + 1] == "storage"
    assert arguments.index("-m", 2) > arguments.index("--no-warm")


def test_settings_of_the_caller_do_not_reach_the_programs() -> None:
    base = {"PATH": "/bin", "SYNCLINE_ADDRESS": "x", "RAY_ADDRESS": "x", "OMP_NUM_THREADS": "64"}
    variables = environment(base, ROW, "measurement_id", {})
    assert variables["PATH"] == "/bin"
    assert variables["OMP_NUM_THREADS"] == "1"
    assert variables[MEASUREMENT_ID] == "measurement_id"
    assert "SYNCLINE_ADDRESS" not in variables
    assert "RAY_ADDRESS" not in variables


def test_only_programs_of_the_group_cluster_get_its_address() -> None:
    cluster = {"RAY_ADDRESS": "here", "SYNCLINE_ADDRESS": "here"}
    guest = Row(name="guest", contenders=(), metrics=(), group="cluster")
    told = environment({"RAY_ADDRESS": "elsewhere"}, guest, "measurement_id", cluster)
    assert (told["RAY_ADDRESS"], told["SYNCLINE_ADDRESS"]) == ("here", "here")
    assert "RAY_ADDRESS" not in environment({}, ROW, "measurement_id", cluster)


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
def test_all_programs_on_a_cluster_use_the_same_interpreter(
    group: Group, contender: str, ray_python: str | None, expected: str
) -> None:
    planned = PlannedRun(
        row=Row(name="row", contenders=(), metrics=(), group=group),
        contender=Contender(name=contender, module="m", argument="a"),
        round=0,
    )
    assert interpreter(planned, ray_python) == expected


def test_lines_of_the_user_are_not_counted_even_with_a_prefix() -> None:
    assert count_lines("user: a\n(worker 3) user: b\n\n  \nstarted\n50%\r100%\n") == 3


def test_launcher_adds_seconds_since_start_and_lines() -> None:
    values = derive({"all_reduce_at": 102.5}, ended(output="a\nb\n"))
    assert values == {"all_reduce_s": 2.5, "process_s": 3.0, "lines": 2.0}


def test_sampled_memory_is_reported_and_divided_by_the_budget() -> None:
    run_with_peak_memory = dataclasses.replace(ended(), peak_bytes=30_000_000)
    assert derive({}, run_with_peak_memory)[PEAK_MB] == 30.0
    assert PEAK_PER_BUDGET not in derive({}, run_with_peak_memory)
    assert derive({"budget_mb": 20.0}, run_with_peak_memory)[PEAK_PER_BUDGET] == 1.5
    assert PEAK_MB not in derive({"budget_mb": 20.0}, ended())


@pytest.mark.parametrize(
    ("key", "expected"), [(PEAK_MB, True), (PEAK_PER_BUDGET, True), ("other", False)]
)
def test_memory_is_sampled_only_for_rows_that_show_it(key: str, expected: bool) -> None:
    row = Row(
        name="row", contenders=(), metrics=(Metric(key=key, label="", unit="MB", better="less"),)
    )
    assert row.shows_memory is expected


@pytest.mark.parametrize(
    ("code", "has_values", "expected"),
    [
        (0, True, None),
        (None, True, "timeout after 7 s, values written"),
        (1, False, "exit code 1, no values written"),
        (0, False, "exit code 0, no values"),
    ],
)
def test_failure_gives_the_cause_and_the_end_of_the_output(
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
def test_program_over_its_limit_is_killed_and_its_output_kept(tmp_path: Path) -> None:
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
    measurement_id = f"test-{os.getpid()}"
    daemon = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env={**os.environ, MEASUREMENT_ID: measurement_id},
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )
    try:
        while not (found := processes_of(measurement_id)):  # its environment is not set at once
            time.sleep(0.01)
        assert [process.pid for process in found] == [daemon.pid]
        assert stop_processes(measurement_id, grace_s=0.0) == 1
        assert processes_of(measurement_id) == []
    finally:
        daemon.kill()
        daemon.wait()
