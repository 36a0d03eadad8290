"""Errors of jobs. Each is a RuntimeError, as in Ray."""

from __future__ import annotations


class JobError(RuntimeError):
    """A request about a job failed; the message says what happened, why, and what to do."""


class JobServerUnreachableError(JobError, ConnectionError):
    """No job API answers at the address."""


class JobServerError(JobError):
    """The job API answers with an error."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class TokenError(JobError):
    """The cluster requires a token, and there is none here or a wrong one."""
