"""Errors that serve raises, under Ray's names.

Errors of user code reach the caller of a handle as an instance of their own class and of
RayTaskError (`syncline.exceptions`); HTTP clients get a status code.

RayServeException
├── BackPressureError               the queue has `max_queued_requests` requests; HTTP 503 or 429
├── RequestCancelledError           (also TaskCancelledError) the request was cancelled
├── DeploymentUnavailableError      the deployment failed to deploy; HTTP 503
├── ReplicaUnavailableError         the replica died while it handled the request; HTTP 502 or 500
└── gRPCStatusError                 user code raised after it set a gRPC status code
"""

from __future__ import annotations

from syncline.exceptions import TaskCancelledError
from syncline.serve.wire.routes import DeploymentId

__all__ = [
    "BackPressureError",
    "DeploymentUnavailableError",
    "RayServeException",
    "ReplicaUnavailableError",
    "RequestCancelledError",
    "gRPCStatusError",
]


class RayServeException(Exception):
    """Base class of the errors of serve."""


class BackPressureError(RayServeException):
    """The queue of the deployment is full, so the request was refused and not executed."""

    def __init__(
        self,
        num_queued_requests: int,
        max_queued_requests: int,
        status_code: int = 503,
        retry_after_s: float | None = None,
    ) -> None:
        # All arguments are in `args`, from which pickle rebuilds the error.
        super().__init__(num_queued_requests, max_queued_requests, status_code, retry_after_s)
        self.num_queued_requests = num_queued_requests
        self.max_queued_requests = max_queued_requests
        self.status_code = status_code
        """Status of the HTTP response: 503 or 429."""
        self.retry_after_s = retry_after_s
        """Seconds for the Retry-After header; None: no header."""

    @property
    def message(self) -> str:
        """The text of the error."""
        return (
            "Request dropped due to backpressure "
            f"(num_queued_requests={self.num_queued_requests}, "
            f"max_queued_requests={self.max_queued_requests}). Send it again later, raise "
            "`max_queued_requests`, or add replicas."
        )

    def __str__(self) -> str:
        return self.message


class RequestCancelledError(RayServeException, TaskCancelledError):
    """The request was cancelled, before its start or while it ran."""

    def __init__(self, request_id: str | None = None) -> None:
        Exception.__init__(self, request_id)
        self.request_id = request_id
        self.task_id = None

    def __str__(self) -> str:
        name = f"Request {self.request_id}" if self.request_id else "The request"
        return f"{name} was cancelled."


class DeploymentUnavailableError(RayServeException):
    """The deployment takes no requests: it failed to deploy, was deleted, or does not exist."""

    def __init__(self, deployment_id: DeploymentId | str, reason: str = "") -> None:
        super().__init__(deployment_id, reason)
        self.deployment_id = deployment_id
        self.reason = reason
        """The cause, such as the error of the constructor."""

    @property
    def message(self) -> str:
        """The text of the error."""
        text = f"Deployment {self.deployment_id} takes no requests"
        return f"{text}: {self.reason}" if self.reason else f"{text}, because it failed to deploy."

    def __str__(self) -> str:
        return self.message


class ReplicaUnavailableError(RayServeException):
    """The replica died while it handled the request, which cannot be repeated safely."""

    def __init__(
        self, message: str = "", *, replica_id: str | None = None, is_poison: bool = False
    ) -> None:
        super().__init__(message)
        self.replica_id = replica_id
        self.is_poison = is_poison
        """True if several replicas died while they handled this request."""

    @property
    def message(self) -> str:
        """The text of the error."""
        return str(self)


class gRPCStatusError(RayServeException):
    """User code raised an exception after it set a status code on the gRPC context."""

    def __init__(
        self, original_exception: BaseException, code: object = None, details: str | None = None
    ) -> None:
        """`code` is a `grpc.StatusCode`."""
        super().__init__(original_exception, code, details)
        self.original_exception = original_exception
        self.grpc_code = code
        self.grpc_details = details

    def __str__(self) -> str:
        return str(self.original_exception)
