"""Jobs on this machine, without a cluster: each is a process in the background with a supervisor.

Jobs are the user's, not the program's: every program of the user sees them, and they continue when
the client ends. Their directories stay until they are deleted. Each job that uses syncline starts
a separate engine; the resources that it asks for are noted, not reserved.
"""

from __future__ import annotations

import codecs
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from syncline import settings
from syncline.core import runtime_env as environments
from syncline.core.packages import INSTALLERS
from syncline.job_submission.details import DriverInfo, Job, JobDetails, JobStatus
from syncline.job_submission.errors import JobError
from syncline.job_submission.job_directory import JobDirectory, JobRequest

PAUSE_S = 0.1
"""Seconds between checks of a followed job."""
START_S = 60.0
_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,199}")


class LocalJobs:
    """The jobs of this user on this machine, with the methods of `JobApi`.

    Methods raise JobError for jobs that do not exist.
    """

    url = "local"

    def __init__(
        self, root: Path | None = None, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._root = root or settings.temporary_directory() / f"syncline-jobs-{os.getuid()}"
        self._sleep = sleep

    def version(self) -> str:
        """Return the version of the server; there is none."""
        return "local"

    def submit(
        self,
        command: str,
        runtime_env: Mapping[str, Any],
        submission_id: str | None,
        requests: Mapping[str, Any],
    ) -> str:
        """Start a program in the background; return its id."""
        # The form of Ray's own ids, which programs look for in texts.
        job_id = submission_id or f"raysubmit_{secrets.token_hex(8)}"
        if not _ID.fullmatch(job_id):
            raise ValueError(
                f"`submission_id={job_id!r}` cannot name a directory: use letters, digits, '_', "
                f"'-' and '.', at most 200"
            )
        environment = environments.normalize(runtime_env)
        modules = environment.get("py_modules", ())
        working_dir = environment.get("working_dir")
        given = dict(requests)
        request = JobRequest(
            submission_id=job_id,
            entrypoint=command,
            directory=working_dir or os.getcwd(),
            env_vars=environment.get("env_vars", {}),
            import_path=(*([working_dir] if working_dir else []), *map(_import_path, modules)),
            packages={name: environment[name] for name in INSTALLERS if name in environment},
            metadata=given.pop("metadata", None) or {},
            runtime_env=dict(runtime_env),
            resources=given,
        )
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._check_root()
        directory = JobDirectory(self._root / job_id)
        try:
            directory.create(request)
        except FileExistsError:
            raise JobError(
                f"there is already a job {job_id!r}: choose another `submission_id`, or delete "
                f"the first one"
            ) from None
        self._start(directory)
        return job_id

    def _start(self, directory: JobDirectory) -> None:
        """Start the supervisor; it runs in the background when this returns."""
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            "from syncline.job_submission.supervisor import main; "
            f"main({str(directory.path)!r})"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(directory.path / "supervisor.log").open("wb"),
            timeout=START_S,
            check=False,
        )
        if done.returncode:
            text = (directory.path / "supervisor.log").read_text(errors="replace").strip()
            shutil.rmtree(directory.path)
            raise JobError(f"the job did not start: {text.splitlines()[-1] if text else done}")

    def details(self, job_id: str) -> JobDetails:
        """Return one job."""
        return _details(self._directory(job_id))

    def all_details(self) -> list[JobDetails]:
        """Return all jobs, latest first."""
        self._check_root()
        found = []
        for path in self._root.glob("*/request.json"):
            try:
                found.append(_details(JobDirectory(path.parent)))
            except FileNotFoundError:  # deleted meanwhile
                continue
        return sorted(found, key=lambda job: job.start_time or 0, reverse=True)

    def jobs(self) -> list[Job]:
        """Return all jobs, latest first."""
        return [Job.of(details) for details in self.all_details()]

    def job(self, job_id: str) -> Job:
        """Return one job."""
        return Job.of(self.details(job_id))

    def output(self, job_id: str) -> str:
        """Return the complete output of a job."""
        return _read(self._directory(job_id).output, 0).decode(errors="replace")

    def follow(self, job_id: str) -> Iterator[str]:
        """Yield the output in pieces as it comes, until the job has ended."""
        directory = self._directory(job_id)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        position = 0
        while True:
            has_ended = _details(directory).status.is_terminal()
            data = _read(directory.output, position)
            position += len(data)
            text = decoder.decode(data, final=has_ended)
            if text:
                yield text
            if has_ended:
                return
            if not data:
                self._sleep(PAUSE_S)

    def stop(self, job_id: str) -> bool:
        """Tell a job to stop; return True if it was running."""
        directory = self._directory(job_id)
        if _details(directory).status.is_terminal():
            return False
        try:
            os.kill(int(directory.state()["supervisor"]), signal.SIGTERM)
        except (KeyError, ProcessLookupError):  # it has not begun, or has just ended
            return False
        return True

    def delete(self, job_id: str) -> bool:
        """Discard a job and its output; JobError if it has not ended."""
        directory = self._directory(job_id)
        status = _details(directory).status
        if not status.is_terminal():
            raise JobError(
                f"the job {job_id!r} is {status}, and only ended jobs are deleted: stop it first"
            )
        shutil.rmtree(directory.path)
        return True

    def _directory(self, job_id: str) -> JobDirectory:
        self._check_root()
        directory = JobDirectory(self._root / job_id)
        if not _ID.fullmatch(job_id) or not (directory.path / "request.json").exists():
            raise JobError(f"there is no job {job_id!r} on this machine: see `list_jobs()`")
        return directory

    def _check_root(self) -> None:
        """Raise JobError if the directory of all jobs belongs to another user, or is open to one:
        its files name processes to stop.
        """
        try:
            found = self._root.lstat()
        except FileNotFoundError:
            return
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise JobError(
                f"{self._root} belongs to another user, or others may write to it: remove it, or "
                f"set SYNCLINE_TMPDIR"
            )


def _import_path(module: str) -> str:
    return module if module.endswith((".whl", ".zip", ".egg")) else os.path.dirname(module)


def _read(path: Path, position: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read()
    except FileNotFoundError:  # the command has not begun
        return b""


def _details(directory: JobDirectory) -> JobDetails:
    request, state = directory.request(), directory.state()
    status = JobStatus(state.get("status", "PENDING"))
    if not status.is_terminal() and not directory.is_supervised():
        state = directory.state()  # it may have ended meanwhile
        if not JobStatus(state.get("status", "PENDING")).is_terminal():
            state |= {
                "status": "FAILED",
                "error_type": "JOB_SUPERVISOR_ACTOR_DIED",
                "message": "the process that ran the job was killed, or the machine restarted",
            }
    pid = state.get("pid")
    return JobDetails.from_fields(
        {
            **request.resources,
            **state,
            "status": state.get("status", "PENDING"),
            "submission_id": request.submission_id,
            "entrypoint": request.entrypoint,
            "metadata": dict(request.metadata),
            "runtime_env": dict(request.runtime_env),
            "driver_info": pid
            and DriverInfo(id=request.submission_id, node_ip_address="127.0.0.1", pid=str(pid)),
        }
    )
