"""Jobs of `syncline run` with real processes: record, stacks, stalls, signals, warm template."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from syncline import runs
from syncline.dashboard.training_figures import goodput
from syncline.launcher.warm import pid_of
from syncline.runs.run_storage import LocalDirectory
from syncline.runs.tailing import LogReader
from syncline.runs.verdicts import Cause, verdicts
from syncline.testing.programs import free_port

pytestmark = pytest.mark.processes

LIMIT_S = 60.0


def wait_for(condition, what: str, process: subprocess.Popen[str] | None = None):
    """Return the first true value of a condition; fail if the process ends before."""
    deadline = time.monotonic() + LIMIT_S
    while not (found := condition()):
        if process is not None and process.poll() is not None:
            raise AssertionError(f"{what}: ended with {process.communicate()}")
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return found


def only_run(folder: Path):
    (path,) = (folder / "runs").iterdir()
    return runs.open(path)


def log(run, rank: int) -> list[str]:
    return LogReader(LocalDirectory(run.path), f"rank-{rank}").lines(ending=True)


def command(launcher, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run another command of syncline over the runs of a launcher."""
    return subprocess.run(
        [sys.executable, "-m", "syncline", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "SYNCLINE_STORAGE_PATH": str(launcher.folder / "runs")},
        check=False,
    )


@pytest.fixture
def one(launcher):
    return launcher("syncline")


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    process.terminate()
    return process.communicate(timeout=LIMIT_S)


def test_record_of_a_finished_job(one):
    ended = one.run("-n", "2", "--name", "first", "printing.py")
    assert ended.code == 0, ended.stderr
    run = only_run(one.folder)
    assert (run.name, run.kind, run.state) == ("first", "train", "finished")
    (attempt,) = run.attempts
    assert [worker["rank"] for worker in attempt.workers] == [0, 1]
    assert len({worker["pid"] for worker in attempt.workers}) == 2
    for rank in (0, 1):
        lines = log(run, rank)
        for source in ("python", "error", "write", "shell", "shell error", "bytes \ufffd"):
            assert f"[{rank}] {source}" in lines
    listed = command(one, "runs", "--json")
    assert [each["state"] for each in json.loads(listed.stdout)["runs"]] == ["finished"]
    assert "[1] shell" in command(one, "logs", "first", "--rank", "1").stdout


def test_record_of_a_failed_job_has_both_attempts(one):
    ended = one.run("-n", "2", "--max-restarts", "1", "failing.py")
    assert ended.code == 1
    run = only_run(one.folder)
    assert run.state == "errored"
    assert [len(attempt.workers) for attempt in run.attempts] == [2, 2]
    for attempt in run.attempts:
        assert any("failed on purpose" in text for text in attempt.failures.values())
    assert "failed on purpose" in run.outcome["error"]


def test_record_says_what_the_ranks_spent_their_time_on(one):
    ended = one.run("-n", "2", "splitting.py")
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.lines == ["[0] 1", "[1] 1"]  # no thread that the script would see
    run = only_run(one.folder)
    spent = {rank: run.samples[rank][-1]["spent"] for rank in ("0", "1")}
    assert spent["0"]["data_s"] > 1.0
    assert spent["1"]["data_s"] < 0.5
    assert spent["1"]["communication_s"] > 1.0
    for parts in spent.values():
        assert parts["report_s"] > 0.1
        assert sum(parts.values()) - parts["total_s"] <= parts["total_s"] + 1e-6
    assert 0 < goodput(run) < 1


def test_job_without_a_record(one):
    assert one.run("--no-record", "printing.py").code == 0
    assert not (one.folder / "runs").exists()


def test_record_that_cannot_be_written_costs_a_warning(one):
    (one.folder / "runs").write_text("a file")
    ended = one.run("printing.py")
    assert ended.code == 0
    assert "the run is not recorded" in ended.stderr
    assert "[0] python" in ended.stdout


def test_stalled_ranks_are_reported_and_can_be_inspected(one):
    process = one.start("-n", "2", "--hang-report-s", "6", "mismatch.py", str(one.folder))
    try:
        text = read_until(process, "Stacks of all ranks")
        assert (
            "Rank 0 is in all_reduce (mismatch.py:15), rank 1 in barrier (mismatch.py:17)" in text
        )
        stacks = command(one, "stack")
        assert "mismatch.py" in stacks.stdout, stacks.stderr
        assert "script_process" not in stacks.stdout
        assert "[rank 0]  waiting for others" in stacks.stdout
        profile = command(one, "profile", "--rank", "1", "--cpu", "--seconds", "1")
        if sys.version_info >= (3, 11):  # before, py-spy counts threads that wait
            assert "it waits" in profile.stderr
        stopped = command(one, "runs", "stop", only_run(one.folder).name)
        assert stopped.returncode == 0, stopped.stderr
        assert process.wait(LIMIT_S) == 1
    finally:
        end(process)
    run = only_run(one.folder)
    assert run.state == "aborted"
    assert any(event["event"] == "stalled" for event in run.events)


def read_until(process: subprocess.Popen[str], wanted: str) -> str:
    """Return what a job has printed to stderr once it has printed this."""
    text = ""
    while wanted not in text:
        line = process.stderr.readline()
        assert line, text
        text += line
    return text


def test_a_stopped_rank_is_named_and_the_job_continues_with_it(one):
    process = one.start("-n", "2", "faulty.py", "stopped", str(one.folder))
    try:
        text = read_until(process, "was stopped by a signal")
        assert "Rank 0 waits for rank 1 in all_reduce" in text
        shown = command(one, "stack", "--calls")
        assert "Rank 1 was stopped by a signal (SIGSTOP)" in shown.stdout, shown.stderr
        assert "(pending)" in shown.stdout
        (one.folder / "stop").touch()
        (attempt,) = only_run(one.folder).attempts
        os.kill(attempt.workers[1]["pid"], signal.SIGCONT)
        assert process.wait(LIMIT_S) == 0
    finally:
        end(process)
    (verdict,) = verdicts(only_run(one.folder).events)
    assert (verdict.cause, verdict.ranks) == (Cause.STOPPED, (1,))
    assert verdict.seconds >= 1.0


def test_ranks_with_different_calls_are_named_in_the_error(one):
    process = one.start("-n", "3", "faulty.py", "mismatched shapes", str(one.folder))
    try:
        read_until(process, "Rank 1 called all_reduce [3] Float")
    finally:
        _, errors = end(process)
    assert "where ranks 0, 2 called all_reduce [1] Float" in errors
    found = verdicts(only_run(one.folder).events)
    assert [(each.cause, each.ranks) for each in found] == [(Cause.MISMATCHED_SHAPES, (1,))]


def test_a_rank_with_a_missing_collective_is_named(one):
    process = one.start("-n", "3", "faulty.py", "missing collective", str(one.folder))
    try:
        text = read_until(process, "Rank 1 left out all_reduce [1] Float")
    finally:
        end(process)
    assert "2 made it" in text  # rank 0 too, if it was not killed before its last observation
    found = verdicts(only_run(one.folder).events)
    assert [(each.cause, each.ranks) for each in found] == [(Cause.MISSING_COLLECTIVE, (1,))]


def test_ranks_can_be_profiled(one):
    process = one.start("-n", "2", "stepping.py", str(one.folder))
    try:
        for rank in (0, 1):
            wait_for((one.folder / f"ready-{rank}").exists, "start", process)
        for kind, ending in (("cpu", "svg"), ("memory", "html"), ("torch", "json.gz")):
            limit = ("--steps", "2") if kind == "torch" else ("--seconds", "1")
            done = command(one, "profile", "--rank", "1", f"--{kind}", *limit)
            assert done.returncode == 0, done.stderr
            file = Path(done.stdout.strip())
            assert "-rank-1-" in file.name
            assert file.name.endswith(f"-{kind}.{ending}")
            assert file.stat().st_size > 500
        assert process.poll() is None
    finally:
        end(process)


@pytest.mark.parametrize(
    ("number", "options"),
    [
        (signal.SIGTERM, ()),
        (signal.SIGINT, ()),
        (signal.SIGUSR1, ("--signals-to-handle", "SIGTERM,SIGUSR1")),
    ],
)
def test_signals_reach_the_workers_as_under_torchrun(launcher, number, options):
    codes = []
    for name in ("syncline", "torchrun"):
        one = launcher(name)
        process = one.start("--nproc-per-node", "2", *options, "stopping.py", str(one.folder))
        for rank in (0, 1):
            wait_for((one.folder / f"ready-{rank}").exists, "start", process)
        process.send_signal(number)
        process.communicate(timeout=LIMIT_S)
        codes.append(process.returncode)
        if number is not signal.SIGINT:  # Python's own handler ends the script
            for rank in (0, 1):
                assert (one.folder / f"stopped-{rank}").read_text() == number.name
    assert codes == [1, 1]


def test_workers_end_with_a_killed_launcher(one):
    process = one.start("-n", "2", "mismatch.py", str(one.folder))
    pids = [
        int(wait_for(lambda rank=rank: ready_pid(one.folder, rank), "start", process))
        for rank in (0, 1)
    ]
    process.kill()
    process.communicate(timeout=LIMIT_S)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "end of the workers")
    assert only_run(one.folder).state == "killed"


def test_lost_template_is_named_and_leaves_no_worker(one):
    process = one.start("-n", "2", "mismatch.py", str(one.folder))
    pids = [
        int(wait_for(lambda rank=rank: ready_pid(one.folder, rank), "start", process))
        for rank in (0, 1)
    ]
    stat = Path(f"/proc/{pids[0]}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
    _, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert "the process that starts the workers has ended" in stderr
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "end of the workers")


def ready_pid(folder: Path, rank: int) -> str:
    file = folder / f"ready-{rank}"
    return file.read_text() if file.exists() else ""


def test_script_sees_a_terminal_where_the_console_is_one(launcher):
    found = []
    for name in ("syncline", "torchrun"):
        master, slave = pty.openpty()
        process = launcher(name).start(
            "terminal.py", stdin=subprocess.DEVNULL, stdout=slave, stderr=slave
        )
        os.close(slave)
        text = b""
        with contextlib.suppress(OSError):  # the last process has closed the terminal
            while data := os.read(master, 4096):
                text += data
        os.close(master)
        assert process.wait(LIMIT_S) == 0
        found.append(text)
    assert found[0] == found[1] == b"[0] True True False\r\n[0] no end"


def c10d(port: int, node: int) -> tuple[str, ...]:
    return ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "two")


def static(port: int, node: int) -> tuple[str, ...]:
    return ("--node-rank", str(node), "--master-addr", "localhost", "--master-port", str(port))


def run_two_nodes(one, address, *arguments: str) -> list[tuple[str, str]]:
    """Run a program with one rank on each of two nodes; return their outputs and errors."""
    port = free_port()
    processes = [
        one.start("--nnodes", "2", "-n", "1", *address(port, node), *arguments) for node in (0, 1)
    ]
    texts = [process.communicate(timeout=2 * LIMIT_S) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], texts
    return texts


@pytest.mark.parametrize("address", [c10d, static])
def test_workers_on_two_nodes_find_each_other_after_a_kill(launcher, address):
    one = launcher("syncline")
    texts = run_two_nodes(one, address, "--max-restarts", "3", "elastic.py", str(one.folder))
    steps = [line.split(" step ")[1] for stdout, _ in texts for line in stdout.splitlines()]
    assert sorted(steps) == ["3 total 5.0"] * 2 + ["4 total 7.0"] * 2


def test_the_first_node_names_a_rank_of_another_that_was_killed(launcher):
    one = launcher("syncline")
    port = free_port()
    job = ("faulty.py", "dead", str(one.folder), "1")
    first, second = (
        one.start("--nnodes", "2", "-n", "1", *static(port, node), *job) for node in (0, 1)
    )
    _, errors = first.communicate(timeout=LIMIT_S)
    second.communicate(timeout=LIMIT_S)
    assert "Rank 1 (pid=" in errors, errors
    assert "was killed by SIGKILL" in errors


def test_two_nodes_on_this_machine(launcher):
    one = launcher("syncline")
    texts = run_two_nodes(one, c10d, "ddp.py")
    lines = sorted(line for stdout, _ in texts for line in stdout.splitlines())
    assert [line for line in lines if "local" in line] == ["[0] local 0 of 1", "[1] local 0 of 1"]
    assert len(lines) == 8
    names = sorted(path.name for path in (one.folder / "runs").iterdir())
    assert [name.endswith("-node-1") for name in names].count(True) == 1


def test_static_rendezvous_by_variables_of_slurm(launcher):
    one = launcher("syncline")
    shared = {
        "SLURM_STEP_ID": "0",
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NODELIST": "localhost,localhost",
    }
    processes = [
        one.start("-n", "1", "ddp.py", variables={**shared, "SLURM_NODEID": str(node)})
        for node in (0, 1)
    ]
    texts = [process.communicate(timeout=2 * LIMIT_S) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], texts
    assert all(f"[{rank}] epoch 2" in texts[rank][0] for rank in (0, 1))


@pytest.fixture
def warm(one, monkeypatch, tmp_path):
    """Start a warm template, for jobs with the same variables; return its command."""
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()

    def run(*arguments: str) -> str:
        done = command(one, "warm", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("--idle-s", "120").startswith("ready after")
    yield run
    run("--stop")


def test_warm_template_serves_jobs(one, warm, tmp_path):
    assert warm() == "ready already\n"
    (socket,) = tmp_path.glob("t/*/warm/*.sock")
    assert socket.stat().st_mode & 0o777 == 0o700
    assert socket.parent.stat().st_mode & 0o777 == 0o700
    for job in ("one", "two"):
        ended = one.run("-n", "2", "parent.py", variables={"JOB": job})
        assert ended.code == 0, ended.stderr
        assert [line.split()[1] for line in ended.lines] == [job, job]
        assert all("warm_server" in line for line in ended.lines)
    failed = one.run("-n", "2", "exits.py", "1", "3")
    assert failed.code == 1
    assert "exited with code 3" in failed.stderr
    pid = pid_of(socket)
    assert pid is not None
    assert warm("--stop") == "1 template stopped\n"
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "end of the template")
    assert not socket.exists()


def test_job_of_another_identity_starts_cold(one, warm):
    for variables, options in (
        ({"TORCH_SHOW_CPP_STACKTRACES": "0"}, ()),
        ({"OMP_NUM_THREADS": "2"}, ()),
        ({}, ("--no-warm",)),
    ):
        ended = one.run(*options, "-n", "2", "parent.py", variables=variables)
        assert ended.code == 0, ended.stderr
        assert len(ended.lines) == 2
        assert not any("warm_server" in line for line in ended.lines)


def test_idle_template_ends(one, monkeypatch, tmp_path):
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(tmp_path))
    assert command(one, "warm", "--idle-s", "1").returncode == 0
    wait_for(lambda: not list(tmp_path.glob("*/warm/*.sock")), "end of the template")
