"""The process that runs a job on this machine: it starts the command, waits for its end, and writes
the state. `main` returns in the process that calls it when the supervisor runs in the background,
independent of the client.

SIGTERM stops the job: its processes get SIGTERM, and SIGKILL after three seconds.
"""

from __future__ import annotations

import os
import signal
import string
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from syncline import settings
from syncline.core import packages
from syncline.core.package_environments import python_with
from syncline.exceptions import RuntimeEnvSetupError
from syncline.job_submission.job_directory import JobDirectory, JobRequest

STOP_S = 3
"""Seconds that the processes of a stopped job have to exit."""
SHOWN_BYTES = 20_000
"""Bytes of output in the message of a failed job."""


def main(path: str) -> None:
    """Supervise the job in a directory from a background process."""
    directory = JobDirectory(Path(path))
    lock = directory.lock()
    if lock is None:
        return
    if os.fork():
        os._exit(0)
    os.setsid()
    supervise(directory)
    lock.close()


def supervise(directory: JobDirectory) -> None:
    """Run the job and write its state, to the end."""
    request = directory.request()
    stop = _Stop()
    signal.signal(signal.SIGTERM, lambda *_: stop.request())
    signal.signal(signal.SIGALRM, lambda *_: stop.kill())
    directory.update(status="PENDING", supervisor=os.getpid(), start_time=_now())
    try:
        python = _python(directory, request, stop)
        directory.update(status="RUNNING")
        process = _start(directory, request, python)
    except _StoppedError:
        directory.update(**_outcome(directory, None, was_stopped=True))
        return
    except (OSError, RuntimeEnvSetupError) as error:
        directory.update(**_not_started(request, error))
        return
    stop.started(process)
    directory.update(pid=process.pid)
    code = process.wait()
    directory.update(**_outcome(directory, code, was_stopped=stop.is_requested))


def _python(directory: JobDirectory, request: JobRequest, stop: _Stop) -> Path:
    """Return the interpreter of the job; install its packages first, with lines in its output."""
    wanted = packages.of_environment(request.packages)
    if wanted is None or not wanted.missing():
        return Path(sys.executable)
    with directory.output.open("a") as output, stop.during_installation():
        return python_with(wanted, lambda line: print(line, file=output, flush=True))


def _start(directory: JobDirectory, request: JobRequest, python: Path) -> subprocess.Popen[bytes]:
    with directory.output.open("ab") as output:
        return subprocess.Popen(
            request.entrypoint,
            shell=True,
            cwd=request.directory,
            env=_environment(request, python),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _not_started(request: JobRequest, error: Exception) -> dict[str, object]:
    fields: dict[str, object] = {"status": "FAILED", "end_time": _now()}
    if isinstance(error, RuntimeEnvSetupError):
        return {**fields, "error_type": "RUNTIME_ENV_SETUP_FAILURE", "message": str(error)}
    return {
        **fields,
        "error_type": "JOB_ENTRYPOINT_COMMAND_START_ERROR",
        "message": f"the command did not start in {request.directory} ({error})",
    }


class _StoppedError(BaseException):
    """The job was stopped while its packages were installed."""


class _Stop:
    """Stops the job's processes, in signal handlers."""

    def __init__(self) -> None:
        self.is_requested = False
        self._is_installing = False
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def during_installation(self) -> Iterator[None]:
        """Let a request interrupt the block with `_StoppedError`."""
        self._is_installing = True
        try:
            yield
        finally:
            self._is_installing = False

    def started(self, process: subprocess.Popen[bytes]) -> None:
        """Record the process; stop it if that was requested meanwhile."""
        self._process = process
        if self.is_requested:
            self.request()

    def request(self) -> None:
        """Ask the processes to exit, and set the time of their end."""
        self.is_requested = True
        if self._is_installing:
            raise _StoppedError
        if self._process is not None:
            _signal_group(self._process, signal.SIGTERM)
            signal.alarm(STOP_S)

    def kill(self) -> None:
        """Kill the processes."""
        if self._process is not None:
            _signal_group(self._process, signal.SIGKILL)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass  # they have exited


def _outcome(directory: JobDirectory, code: int | None, *, was_stopped: bool) -> dict[str, object]:
    """Return the fields of an ended job."""
    fields: dict[str, object] = {"end_time": _now(), "driver_exit_code": code}
    if was_stopped:
        return {**fields, "status": "STOPPED", "message": "Job was intentionally stopped."}
    if code == 0:
        return {**fields, "status": "SUCCEEDED", "message": "Job finished successfully."}
    with directory.output.open("rb") as output:
        output.seek(max(0, output.seek(0, os.SEEK_END) - SHOWN_BYTES))
        shown = output.read().decode(errors="replace")
    return {
        **fields,
        "status": "FAILED",
        "error_type": "JOB_ENTRYPOINT_COMMAND_ERROR",
        "message": f"Job entrypoint command failed with exit code {code}, "
        f"last available logs (truncated to {SHOWN_BYTES} bytes):\n{shown}",
    }


def _environment(request: JobRequest, python: Path) -> dict[str, str]:
    """Return the variables of the job's program, whose command `python` is the interpreter."""
    variables = settings.inherited_environment()
    variables["PATH"] = os.pathsep.join([str(python.parent), variables.get("PATH", os.defpath)])
    if str(python) != sys.executable:
        variables["VIRTUAL_ENV"] = str(python.parent.parent)
    variables[settings.LOCAL_JOB] = request.submission_id
    for name, value in request.env_vars.items():
        variables[name] = string.Template(value).safe_substitute(variables)
    if request.import_path:
        inherited = variables.get("PYTHONPATH")
        entries = [*request.import_path, *([inherited] if inherited else [])]
        variables["PYTHONPATH"] = os.pathsep.join(entries)
    return variables


def _now() -> int:
    return int(time.time() * 1000)
