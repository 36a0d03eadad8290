"""Facts about jobs: `JobStatus`, `JobDetails` and the classes inside; `Job`, the summary that
commands print.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any


class JobStatus(str, Enum):
    """State of a job."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    def __str__(self) -> str:
        return self.value

    def is_terminal(self) -> bool:
        """Return True if the job has ended."""
        return self in (JobStatus.STOPPED, JobStatus.SUCCEEDED, JobStatus.FAILED)


class JobType(str, Enum):
    """Where a job comes from: the job API, or a program that somebody started."""

    SUBMISSION = "SUBMISSION"
    DRIVER = "DRIVER"


class JobErrorType(str, Enum):
    """Reason of a failure."""

    RUNTIME_ENV_SETUP_FAILURE = "RUNTIME_ENV_SETUP_FAILURE"
    JOB_SUPERVISOR_ACTOR_START_TIMEOUT = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"
    JOB_SUPERVISOR_ACTOR_START_FAILURE = "JOB_SUPERVISOR_ACTOR_START_FAILURE"
    JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE = "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE"
    JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE = "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE"
    JOB_SUPERVISOR_ACTOR_DIED = "JOB_SUPERVISOR_ACTOR_DIED"
    JOB_ENTRYPOINT_COMMAND_START_ERROR = "JOB_ENTRYPOINT_COMMAND_START_ERROR"
    JOB_ENTRYPOINT_COMMAND_ERROR = "JOB_ENTRYPOINT_COMMAND_ERROR"


@dataclass(frozen=True, kw_only=True)
class DriverInfo:
    """Process of a job's program."""

    id: str
    node_ip_address: str
    pid: str


@dataclass(kw_only=True)
class JobInfo:
    """State and request of a job."""

    status: JobStatus
    entrypoint: str
    """Command line."""
    message: str | None = None
    """Explanation of the status."""
    error_type: str | None = None
    """Value of `JobErrorType`."""
    start_time: int | None = None
    """Milliseconds since the epoch."""
    end_time: int | None = None
    """Milliseconds since the epoch."""
    metadata: dict[str, str] | None = None
    """The user's own texts."""
    runtime_env: dict[str, Any] | None = None
    entrypoint_num_cpus: float | None = None
    entrypoint_num_gpus: float | None = None
    entrypoint_memory: int | None = None
    """Bytes."""
    entrypoint_resources: dict[str, float] | None = None
    driver_agent_http_address: str | None = None
    driver_node_id: str | None = None
    driver_exit_code: int | None = None

    def __post_init__(self) -> None:
        self.status = JobStatus(self.status)

    def dict(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


@dataclass(kw_only=True)
class JobDetails(JobInfo):
    """State and request of a job, with its ids and its process."""

    type: JobType = JobType.SUBMISSION
    job_id: str | None = None
    """Id in the engine; None before the program connects."""
    submission_id: str | None = None
    """Id of the job API; None for programs that somebody started."""
    driver_info: DriverInfo | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.type = JobType(self.type)

    @classmethod
    def from_fields(cls, given: Mapping[str, Any]) -> JobDetails:
        """Build it from the fields of an answer; unknown ones are left out."""
        known = {field.name: given[field.name] for field in fields(cls) if field.name in given}
        driver = known.get("driver_info")
        if isinstance(driver, Mapping):
            names = [field.name for field in fields(DriverInfo)]
            known["driver_info"] = DriverInfo(**{name: str(driver.get(name)) for name in names})
        known.setdefault("entrypoint", "")
        return cls(**known)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One submitted program; the field names are the keys of `--json`."""

    id: str
    """Id to follow and stop the job."""
    status: str
    """PENDING, RUNNING, SUCCEEDED, FAILED, STOPPED."""
    command: str
    """Command line."""
    started: float | None
    """Seconds since the epoch."""
    ended: float | None
    """Seconds since the epoch."""
    message: str | None
    """The cluster's message about the job."""

    @classmethod
    def of(cls, details: JobDetails) -> Job:
        """Return the summary of a submitted program."""
        return cls(
            id=str(details.submission_id),
            status=details.status.value,
            command=details.entrypoint,
            started=details.start_time / 1000 if details.start_time else None,
            ended=details.end_time / 1000 if details.end_time else None,
            message=details.message,
        )
