"""Runs one program in fresh processes under a time limit, and takes its numbers.

Every process of a measurement carries a mark in its environment, so that daemons that left the
process group are found too: the next measurement begins when all of them are gone, and what does
not go is killed.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from bench.inputs import INPUT
from bench.memory import PeakMemory
from bench.rows import PEAK_MB, PEAK_PER_BUDGET, RAY, Contender, Row
from bench.schedule import Turn
from bench.summary import Measurement

MARK = "SYNCLINE_BENCH_MARK"
ROOT = Path(__file__).resolve().parent.parent
PYTHON_PATH = os.pathsep.join((str(ROOT), str(ROOT / "src")))
GRACE_S = 10.0
TAIL_LINES = 30
OWN_PREFIX = "user:"
AT = "_at"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a program ended: `code` is None if it ran past the limit; times are monotonic seconds;
    `peak_bytes` if its memory was watched.
    """

    code: int | None
    started: float
    ended: float
    output: str
    peak_bytes: int | None = None


def command(contender: Contender, python: str, out: Path) -> list[str]:
    """The command line of a contender's program."""
    launch = (
        ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
        if contender.launcher == "torchrun"
        else []
    )
    return [
        python,
        *launch,
        "-m",
        f"bench.programs.{contender.module}",
        contender.argument,
        "--out",
        str(out),
    ]


def environment(
    base: Mapping[str, str], row: Row, mark: str, cluster: Mapping[str, str]
) -> dict[str, str]:
    """The program's environment: this one without settings of either library, with the row's, the
    cluster's if it runs there, the mark.
    """
    kept = {
        name: value
        for name, value in base.items()
        if not name.startswith(("SYNCLINE_", "RAY_", "TORCHELASTIC_", "OMP_"))
    }
    where = cluster if row.group == "cluster" else {}
    return {
        **kept,
        "PYTHONPATH": PYTHON_PATH,
        "RAY_USAGE_STATS_ENABLED": "0",
        **row.environment,
        **where,
        MARK: mark,
    }


def count_lines(output: str) -> int:
    """Lines that the program's author did not write: neither blank nor his own, a worker's prefix
    notwithstanding.
    """
    return sum(1 for line in output.splitlines() if line.strip() and OWN_PREFIX not in line)


def derive(values: Mapping[str, float], ended: Ended) -> dict[str, float]:
    """The program's numbers with what only its launcher sees: seconds since its start (`x_at`
    becomes `x_s`), lines, memory.
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


def marked(mark: str) -> list[psutil.Process]:
    """The living processes of one measurement, wherever they stand in the process tree."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue  # gone meanwhile, or another user's
    return found


def clear(mark: str, grace_s: float) -> int:
    """Waits until no process of the measurement is left, kills what is left after `grace_s`, and
    says how many that were.
    """
    deadline = time.monotonic() + grace_s
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    killed = set()
    while survivors := marked(mark):
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
) -> Ended:
    """Runs a command in its own session with closed input; past the limit its process group is
    killed.
    """
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
    return Ended(code=code, started=started, ended=ended, output=log.read_text(errors="replace"))


def failure_of(ended: Ended, row: Row, has_values: bool) -> str | None:
    """Why this run gives no numbers, with the end of its output; None if it does."""
    if ended.code == 0 and has_values:
        return None
    cause = f"no end after {row.timeout_s:g} s" if ended.code is None else f"exit code {ended.code}"
    tail = "\n".join(ended.output.splitlines()[-TAIL_LINES:])
    return f"{cause}, {'with' if has_values else 'without'} numbers\n{tail}"


def interpreter(turn: Turn, ray_python: str | None) -> str:
    """What runs this turn's program: Ray's own, and on a cluster for syncline too, as all that
    meets there must have the same versions.
    """
    return (
        ray_python
        if ray_python and (turn.contender.name == RAY or turn.row.group == "cluster")
        else sys.executable
    )


def watched(
    arguments: Sequence[str],
    folder: Path,
    variables: Mapping[str, str],
    timeout_s: float,
    mark: str,
) -> Ended:
    """Runs a command as `run` does, with an eye on the memory of all processes of this
    measurement.
    """
    with PeakMemory(lambda: marked(mark)) as memory:
        ended = run(arguments, folder, variables, timeout_s)
    return replace(ended, peak_bytes=memory.peak_bytes)


def measure(
    turn: Turn, ray_python: str | None, cluster: Mapping[str, str], given: Path | None = None
) -> Measurement:
    """Makes one measurement; `cluster` has the variables of the one that is there, `given` is the
    row's input.

    Failures are part of the answer, never raised.
    """
    python = interpreter(turn, ray_python)
    mark, load = uuid.uuid4().hex, os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        out = folder / "values.json"
        arguments = command(turn.contender, python, out)
        variables = environment(os.environ, turn.row, mark, cluster) | (
            {INPUT: str(given)} if given else {}
        )
        try:
            if turn.row.shows_memory:
                ended = watched(arguments, folder, variables, turn.row.timeout_s, mark)
            else:
                ended = run(arguments, folder, variables, turn.row.timeout_s)
        except BaseException:
            clear(mark, 0.0)
            raise
        killed = clear(mark, 0.0 if ended.code is None else GRACE_S)
        values: dict[str, float] = json.loads(out.read_text()) if out.exists() else {}
        failure = failure_of(ended, turn.row, out.exists())
    return Measurement(
        row=turn.row.name,
        contender=turn.contender.name,
        round=turn.round,
        values=derive(values, ended) if failure is None else values,
        duration_s=ended.ended - ended.started,
        load_before=load,
        killed_after=killed,
        failure=failure,
    )
