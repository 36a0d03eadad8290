"""Retries: transient errors, pauses, log messages."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyarrow.fs import FSSpecHandler, LocalFileSystem, PyFileSystem

from syncline.storage import filesystem as directories
from syncline.storage.retries import POLICY, Notices, RetryPolicy, call_with_retries, is_transient


class Response:
    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


class ClientError(Exception):
    """Error of a library below fsspec: not an OSError, with a response or a status."""

    def __init__(self, text: str = "", **attributes: object) -> None:
        super().__init__(text)
        vars(self).update(attributes)


class ServerDisconnectedError(Exception):
    """Error class named like one of aiohttp."""


PASSING = [
    ConnectionResetError("reset by peer"),
    TimeoutError("timed out"),
    *(
        OSError(code, "of a network filesystem")
        for code in (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTUNREACH)
    ),
    OSError(
        "When uploading part for key 'k' in bucket 'b': AWS Error SLOW_DOWN during UploadPart "
        "operation: Please reduce your request rate."
    ),
    OSError(
        "AWS Error INTERNAL_FAILURE during PutObject operation: We encountered an internal "
        "error. Please try again."
    ),
    OSError(
        "AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 28, Timeout was "
        "reached"
    ),
    OSError(
        "AWS Error UNKNOWN (HTTP status 503) during ListObjectsV2 operation: Service Unavailable"
    ),
    OSError("AWS Error UNKNOWN (HTTP status 429) during PutObject operation: No response body."),
    OSError("google::cloud::Status(UNAVAILABLE: Retry policy exhausted in WriteObject)"),
    ClientError(response=Response(502)),
    ClientError(status=504),
    ClientError(response={"ResponseMetadata": {"HTTPStatusCode": 500}}),
    ServerDisconnectedError(),
]
LASTING = [
    FileNotFoundError(errno.ENOENT, "gone"),
    PermissionError(errno.EACCES, "not yours"),
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EROFS, "Read-only file system"),
    OSError("AWS Error ACCESS_DENIED during PutObject operation: Access Denied"),
    OSError(
        "AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation: The specified "
        "bucket does not exist"
    ),
    OSError("AWS Error UNKNOWN (HTTP status 403) during HeadObject operation: No response body."),
    OSError(
        "AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 60, SSL peer "
        "certificate was not OK"
    ),
    ClientError(response=Response(404)),
    ClientError(response={"ResponseMetadata": {"HTTPStatusCode": 403}}),
    ValueError("a mistake"),
    RuntimeError("the fault"),
]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_passes_is_tried_again(error: Exception) -> None:
    assert is_transient(error)


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_what_lasts_is_not(error: Exception) -> None:
    assert not is_transient(error)


def test_pauses_double_up_to_a_limit_and_end() -> None:
    policy = RetryPolicy(attempts=5, first_pause_s=1.0, longest_pause_s=3.0)
    assert [policy.pause_s(failures) for failures in range(1, 6)] == [1.0, 2.0, 3.0, 3.0, None]
    assert policy.total_s == 9.0
    assert 30 < POLICY.total_s < 60


class Flaky:
    """Fails a number of times, then answers."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.failures = failures
        self.error = error
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return "done"


def upper(low: float, high: float) -> float:
    return high


def test_it_is_told_once_and_ends_well(caplog: pytest.LogCaptureFixture) -> None:
    pauses: list[float] = []
    operation = Flaky(3, ConnectionResetError("reset by peer"))
    with caplog.at_level(logging.INFO, logger="syncline"):
        assert (
            call_with_retries(
                operation, "copying a to b", sleep=pauses.append, spread=upper, notices=Notices()
            )
            == "done"
        )
    assert (operation.calls, pauses) == (4, [0.25, 0.5, 1.0])
    (record,) = caplog.records
    assert (
        record.getMessage() == "copying a to b failed and is retried for about 46 s: reset by peer"
    )


def test_many_failures_at_once_are_told_once_a_while() -> None:
    now = [0.0]
    notices = Notices(quiet_s=60.0, clock=lambda: now[0])
    told = []
    for now[0] in (0.0, 0.1, 59.0, 61.0, 62.0):
        told.append(notices.is_due())
    assert told == [True, False, False, True, False]


def test_after_the_last_attempt_its_error_is_raised() -> None:
    pauses: list[float] = []
    operation = Flaky(99, ConnectionResetError())
    with pytest.raises(ConnectionResetError):
        call_with_retries(
            operation, "it", policy=RetryPolicy(attempts=3), sleep=pauses.append, spread=upper
        )
    assert (operation.calls, pauses) == (3, [0.25, 0.5])


def test_what_lasts_is_raised_at_once(caplog: pytest.LogCaptureFixture) -> None:
    operation = Flaky(99, PermissionError("no"))
    with pytest.raises(PermissionError):
        call_with_retries(operation, "it", sleep=lambda seconds: pytest.fail("no pause was due"))
    assert operation.calls == 1
    assert not caplog.records


class Unsteady(FSSpecHandler):
    """Filesystem of which every third call fails."""

    calls = 0


def _unsteady(name: str) -> Callable[..., Any]:
    steady = getattr(FSSpecHandler, name)

    def call(self: Unsteady, *args: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls % 3 == 0:
            raise OSError("AWS Error SLOW_DOWN during an operation")
        return steady(self, *args, **options)

    return call


for method in (
    "get_file_info",
    "get_file_info_selector",
    "create_dir",
    "delete_dir",
    "delete_file",
    "open_input_file",
    "open_output_stream",
):
    setattr(Unsteady, method, _unsteady(method))


def test_everything_that_is_done_to_directories_gets_through(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    handler = Unsteady(
        fsspec.filesystem("dir", path=str(tmp_path / "bucket"), fs=fsspec.filesystem("file"))
    )
    unsteady = PyFileSystem(handler)
    source = tmp_path / "source"
    (source / "below").mkdir(parents=True)
    for name in ("a", "below/b"):
        (source / name).write_text(name)
    local = LocalFileSystem()
    directories.copy_directory(local, str(source), unsteady, "run/c")
    directories.write_bytes(unsteady, "run/list.json", b"[]")
    assert directories.is_directory(unsteady, "run/c")
    assert directories.read_bytes(unsteady, "run/list.json") == b"[]"
    assert sorted(directories.list_directory(unsteady, "run/c").files) == ["a", "below/b"]
    directories.copy_directory(unsteady, "run/c", local, str(tmp_path / "back"))
    assert (tmp_path / "back" / "below" / "b").read_text() == "below/b"
    directories.delete_file(unsteady, "run/list.json")
    directories.delete_directory(unsteady, "run/c")
    assert directories.read_bytes(unsteady, "run/list.json") is None
    assert not directories.is_directory(unsteady, "run/c")
    assert handler.calls > 20
