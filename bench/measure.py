"""Run one program in fresh processes with a time limit, and read its values.

All processes of a measurement have the same id in their environment, so that daemons outside of the
process group are found as well. The next measurement starts after all of them have exited;
processes that do not exit are killed.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from bench.inputs import INPUT
from bench.memory import PeakMemory
from bench.rows import PEAK_MB, PEAK_PER_BUDGET, Contender, Launcher, Row
from bench.schedule import PlannedRun
from bench.summary import Measurement

MEASUREMENT_ID = "SYNCLINE_BENCH_MEASUREMENT"
ROOT = Path(__file__).resolve().parent.parent
PYTHON_PATH = os.pathsep.join((str(ROOT), str(ROOT / "src")))
GRACE_S = 10.0
TAIL_LINES = 30
OWN_PREFIX = "user:"
_TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
_RUN = ("-m", "syncline", "run", "--nproc-per-node", "2", "--storage-path", "storage")
LAUNCH: dict[Launcher, tuple[str, ...]] = {
    "python": (),
    "torchrun": _TORCHRUN,
    "restarting torchrun": (*_TORCHRUN, "--max-restarts", "1000", "--monitor-interval", "0.05"),
    "syncline run": (*_RUN, "--no-warm"),
    "warm syncline run": _RUN,
}
"""Arguments of Python before the program, by launcher."""
AT = "_at"


@dataclass(frozen=True, kw_only=True)
class ProgramExit:
    """Outcome of a program: times are monotonic seconds."""

    code: int | None
    """Exit code; None if the program exceeded the time limit."""
    started: float
    ended: float
    output: str
    peak_bytes: int | None = None
    """Peak memory, if it was sampled."""


def command(contender: Contender, python: str, out: Path) -> list[str]:
    """Return the command line of a contender's program."""
    return [
        python,
        *LAUNCH[contender.launcher],
        "-m",
        f"bench.programs.{contender.module}",
        contender.argument,
        "--out",
        str(out),
    ]


def environment(
    base: Mapping[str, str], row: Row, measurement_id: str, cluster: Mapping[str, str]
) -> dict[str, str]:
    """Return the program's environment: `base` without settings of either library, the row's
    variables, the cluster's if the row runs there, and the id of the measurement.
    """
    kept = {
        name: value
        for name, value in base.items()
        if not name.startswith(("SYNCLINE_", "RAY_", "TORCHELASTIC_", "OMP_"))
    }
    of_cluster = cluster if row.group == "cluster" else {}
    return {
        **kept,
        "PYTHONPATH": PYTHON_PATH,
        "RAY_USAGE_STATS_ENABLED": "0",
        # Otherwise, workers that torchrun restarts find the Gloo addresses of killed ones.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        **row.environment,
        **of_cluster,
        MEASUREMENT_ID: measurement_id,
    }


def count_lines(output: str) -> int:
    """Return the number of lines that the library printed: not blank, and without `user:`."""
    return sum(1 for line in output.splitlines() if line.strip() and OWN_PREFIX not in line)


def derive(values: Mapping[str, float], ended: ProgramExit) -> dict[str, float]:
    """Return the program's values, completed by the launcher: seconds since the start (`x_at`
    becomes `x_s`), printed lines, memory.
    """
    derived = {name: value for name, value in values.items() if not name.endswith(AT)}
    derived |= {
        f"{name.removesuffix(AT)}_s": value - ended.started
        for name, value in values.items()
        if name.endswith(AT)
    }
    derived |= {"process_s": ended.ended - ended.started, "lines": float(count_lines(ended.output))}
    if ended.peak_bytes is not None:
        derived[PEAK_MB] = ended.peak_bytes / 1e6
        if "budget_mb" in values:
            derived[PEAK_PER_BUDGET] = derived[PEAK_MB] / values["budget_mb"]
    return derived


def processes_of(measurement_id: str) -> list[psutil.Process]:
    """Return the live processes of one measurement, anywhere in the process tree."""
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.environ().get(MEASUREMENT_ID) == measurement_id
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
        except psutil.Error:
            continue  # the process has ended, or belongs to another user
    return found


def stop_processes(measurement_id: str, grace_s: float) -> int:
    """Wait until the processes of the measurement have exited; kill the rest after `grace_s`.

    Returns:
        The number of killed processes.
    """
    deadline = time.monotonic() + grace_s
    while processes_of(measurement_id) and time.monotonic() < deadline:
        time.sleep(0.1)
    killed = set()
    while survivors := processes_of(measurement_id):
        for process in survivors:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
            killed.add(process.pid)
        psutil.wait_procs(survivors, timeout=1.0)
    return len(killed)


def run(
    arguments: Sequence[str], folder: Path, variables: Mapping[str, str], timeout_s: float
) -> ProgramExit:
    """Run a command in its own session without input; kill its process group at the time limit."""
    log = folder / "output.txt"
    with log.open("wb") as sink:
        started = time.monotonic()
        process = subprocess.Popen(
            arguments,
            cwd=folder,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code: int | None
        try:
            code = process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            ended = time.monotonic()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return ProgramExit(
        code=code, started=started, ended=ended, output=log.read_text(errors="replace")
    )


def failure_of(ended: ProgramExit, row: Row, has_values: bool) -> str | None:
    """Return why a run has no valid values, with the end of its output; None if it succeeded."""
    if ended.code == 0 and has_values:
        return None
    cause = (
        f"timeout after {row.timeout_s:g} s" if ended.code is None else f"exit code {ended.code}"
    )
    tail = "\n".join(ended.output.splitlines()[-TAIL_LINES:])
    return f"{cause}, {'values' if has_values else 'no values'} written\n{tail}"


def interpreter(planned: PlannedRun, ray_python: str | None) -> str:
    """Return the Python for a run: the one with Ray for Ray's programs, and for all programs on a
    cluster, because both sides need the same versions.
    """
    return (
        ray_python
        if ray_python and (planned.contender.needs_ray or planned.row.group == "cluster")
        else sys.executable
    )


def run_with_peak_memory(
    arguments: Sequence[str],
    folder: Path,
    variables: Mapping[str, str],
    timeout_s: float,
    measurement_id: str,
) -> ProgramExit:
    """Run a command like `run`, and sample the memory of all processes of this measurement."""
    with PeakMemory(lambda: processes_of(measurement_id)) as memory:
        ended = run(arguments, folder, variables, timeout_s)
    return replace(ended, peak_bytes=memory.peak_bytes)


@contextmanager
def warm_template(
    contender: Contender, python: str, folder: Path, variables: dict[str, str]
) -> Iterator[None]:
    """Keep a template of `syncline warm` during the block, for a contender that uses one."""
    if contender.launcher != "warm syncline run":
        yield
        return
    variables["SYNCLINE_TMPDIR"] = str(folder)
    command = [python, "-m", "syncline", "warm"]
    subprocess.run(command, check=True, env=variables, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        stop = [*command, "--stop"]
        subprocess.run(stop, check=True, env=variables, stdout=subprocess.DEVNULL)


def measure(
    planned: PlannedRun,
    ray_python: str | None,
    cluster: Mapping[str, str],
    given: Path | None = None,
) -> Measurement:
    """Make one measurement. Failures are part of the result; none is raised.

    Args:
        planned: Row, contender and round.
        ray_python: Python with Ray; None without one.
        cluster: Environment variables to connect to the cluster.
        given: Folder with the row's input.
    """
    python = interpreter(planned, ray_python)
    measurement_id, load = uuid.uuid4().hex, os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        out = folder / "values.json"
        arguments = command(planned.contender, python, out)
        variables = environment(os.environ, planned.row, measurement_id, cluster) | (
            {INPUT: str(given)} if given else {}
        )
        try:
            with warm_template(planned.contender, python, folder, variables):
                if planned.row.shows_memory:
                    ended = run_with_peak_memory(
                        arguments, folder, variables, planned.row.timeout_s, measurement_id
                    )
                else:
                    ended = run(arguments, folder, variables, planned.row.timeout_s)
        except BaseException:
            stop_processes(measurement_id, 0.0)
            raise
        killed = stop_processes(measurement_id, 0.0 if ended.code is None else GRACE_S)
        values: dict[str, float] = json.loads(out.read_text()) if out.exists() else {}
        failure = failure_of(ended, planned.row, out.exists())
    return Measurement(
        row=planned.row.name,
        contender=planned.contender.name,
        round=planned.round,
        values=derive(values, ended) if failure is None else values,
        duration_s=ended.ended - ended.started,
        load_before=load,
        killed_after=killed,
        failure=failure,
    )
