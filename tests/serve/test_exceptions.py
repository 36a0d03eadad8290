"""Errors of serve: classes, texts, and the way through pickle and frames."""

import pickle

import pytest

from syncline.exceptions import TaskCancelledError
from syncline.serve import exceptions
from syncline.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    RayServeException,
    ReplicaUnavailableError,
    RequestCancelledError,
    gRPCStatusError,
)
from syncline.serve.wire.routes import DeploymentId
from syncline.serve.wire.values import pack_failure, unpack_failure

ERRORS = [
    RayServeException("plain"),
    BackPressureError(3, 2, 429, 1.5),
    RequestCancelledError("abc"),
    RequestCancelledError(),
    DeploymentUnavailableError(DeploymentId("app", "Model"), "ValueError: bad"),
    ReplicaUnavailableError("replica app#Model#x died (SIGKILL)", is_poison=True),
    gRPCStatusError(KeyError("x"), "NOT_FOUND", "no such row"),
]


@pytest.mark.parametrize("send", [lambda e: pickle.loads(pickle.dumps(e)), lambda e: e])
@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_error_keeps_class_text_and_attributes_through_pickle_and_frames(error, send):
    for copy in (send(error), unpack_failure(pack_failure(error))):
        assert type(copy) is type(error)
        assert str(copy) == str(error)
        assert {k: str(v) for k, v in vars(copy).items()} == {
            k: str(v) for k, v in vars(error).items()
        }


def test_all_errors_are_serve_exceptions():
    for name in exceptions.__all__:
        assert issubclass(getattr(exceptions, name), RayServeException)


def test_cancelled_request_is_a_cancelled_task():
    error = RequestCancelledError("r-1")
    assert isinstance(error, TaskCancelledError)
    assert str(error) == "Request r-1 was cancelled."


def test_back_pressure_error_has_the_numbers():
    error = BackPressureError(num_queued_requests=7, max_queued_requests=5)
    assert "num_queued_requests=7, max_queued_requests=5" in str(error)
    assert (error.status_code, error.retry_after_s) == (503, None)


def test_unavailable_deployment_is_named_with_the_reason():
    error = DeploymentUnavailableError(DeploymentId("app", "Model"), "no GPU")
    assert error.message == "Deployment app#Model takes no requests: no GPU"
