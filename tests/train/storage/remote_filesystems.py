"""Filesystems that are not this machine's, for tests: an S3-compatible server in this process,
steady or not, and two of fsspec's.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyarrow.fs import (
    AwsStandardS3RetryStrategy,
    FileSystem,
    FSSpecHandler,
    PyFileSystem,
    S3FileSystem,
)

BUCKET = "bucket"


class EveryThirdFails:
    """A WSGI application of which every third request, once `armed`, is answered with 503; the same
    one never twice in a row, so that what takes several requests gets further each time.
    """

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._lock = threading.Lock()
        self._requests = 0
        self._just_failed: set[tuple[str, str, str]] = set()
        self.armed = False
        self.failed = 0

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        request = (
            environ["REQUEST_METHOD"],
            environ["PATH_INFO"],
            environ["QUERY_STRING"].partition("=")[0],
        )
        with self._lock:
            self._requests += self.armed
            fails = self.armed and self._requests % 3 == 0 and request not in self._just_failed
            self._just_failed.discard(request)
            if fails:
                self._just_failed.add(request)
                self.failed += 1
        if not fails:
            return self._application(environ, start_response)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response("503 Service Unavailable", [("Content-Length", "0")])
        return []


@contextmanager
def s3_server() -> Iterator[tuple[str, EveryThirdFails]]:
    """A server that listens on this machine only, with one bucket; its endpoint, and what makes it
    fail.
    """
    moto = pytest.importorskip("moto.server")
    serving = importlib.import_module("werkzeug.serving")
    application = EveryThirdFails(moto.DomainDispatcherApplication(moto.create_backend_app))
    server = serving.make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        endpoint = f"127.0.0.1:{server.port}"
        # moto imports its services with the first request, which takes seconds on a busy machine.
        connect(endpoint, allow_bucket_creation=True, request_timeout=60).create_dir(BUCKET)
        yield endpoint, application
    finally:
        server.shutdown()
        thread.join()


def connect(endpoint: str, **options: Any) -> FileSystem:
    """A client that tries every request once, so that trying again is syncline's."""
    retry = AwsStandardS3RetryStrategy(max_attempts=1)
    return S3FileSystem(
        access_key="none",
        secret_key="none",
        region="us-east-1",
        scheme="http",
        endpoint_override=endpoint,
        retry_strategy=retry,
        **options,
    )


def in_memory() -> FileSystem:
    """fsspec's filesystem in the memory of this process, empty."""
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    return PyFileSystem(FSSpecHandler(memory))


def in_directory(directory: Path) -> FileSystem:
    """fsspec's view of a local directory, which syncline cannot know to be local."""
    directory.mkdir(exist_ok=True)
    return PyFileSystem(
        FSSpecHandler(fsspec.filesystem("dir", path=str(directory), fs=fsspec.filesystem("file")))
    )
