"""Log files of the session on this node: output of workers, and on a cluster Ray's own logs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from syncline.core import engine as engines
from syncline.core.engine import Engine
from syncline.core.lifecycle import ensure_engine, init
from syncline.core.state_rows import StateResource
from syncline.util.state.exception import RayStateApiException

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_GROUPS = (("worker", ".out", "worker_out"), ("worker", ".err", "worker_err"))
"""(beginning, end, group) of names of files."""


def list_logs(
    address: str | None = None,
    node_id: str | None = None,
    node_ip: str | None = None,
    glob_filter: str | None = None,
    timeout: int = 30,
) -> dict[str, list[str]]:
    """Return the names of the log files by group, such as `worker_out` and `worker_err`.

    Covers the files of this node; raises RayStateApiException for another one.
    """
    directory = _directory(_engine(address), node_id, node_ip)
    found: dict[str, list[str]] = {}
    for path in sorted(directory.glob(glob_filter or "*")):
        if path.is_file():
            found.setdefault(_group(path.name), []).append(path.name)
    return found


def get_log(
    address: str | None = None,
    node_id: str | None = None,
    node_ip: str | None = None,
    filename: str | None = None,
    actor_id: str | None = None,
    task_id: str | None = None,
    pid: int | None = None,
    follow: bool = False,
    tail: int = -1,
    timeout: int = 30,
    suffix: str = "out",
    encoding: str | None = "utf-8",
    errors: str = "strict",
    submission_id: str | None = None,
    attempt_number: int = 0,
    _interval: float | None = None,
    filter_ansi_code: bool = False,
) -> Iterator[Any]:
    """Yield the contents of a log file: of `filename`, or of the worker of an actor, task or pid.

    Args:
        tail: Number of lines from the end; -1 for all.
        follow: Continue with new lines without an end.
        suffix: "out" or "err", the stream of the worker.
        encoding: None for bytes.
        filter_ansi_code: Remove codes of colors.

    Raises RayStateApiException if this node has no such file.
    """
    engine = _engine(address)
    directory = _directory(engine, node_id, node_ip)
    if submission_id is not None:
        raise RayStateApiException(
            f"the log of the job {submission_id!r} is not among the log files of workers: use "
            "`JobSubmissionClient.get_job_logs`"
        )
    if filename is not None:
        path = directory / filename
        if not path.resolve().is_relative_to(directory.resolve()):
            raise RayStateApiException(f"`filename={filename!r}` is outside of {directory}")
    else:
        path = _file_of_worker(engine, directory, actor_id, task_id, pid, suffix)
    if not path.is_file():
        raise RayStateApiException(
            f"the log file {path.name!r} does not exist in {directory}: a worker's file exists "
            "once it has written something; `list_logs` names the files"
        )
    for chunk in _read(path, tail, follow, _interval or 0.5):
        if encoding is None:
            yield chunk
        else:
            text = chunk.decode(encoding, errors)
            yield _ANSI.sub("", text) if filter_ansi_code else text


def _engine(address: str | None) -> Engine:
    if address is not None and engines.current is None:
        init(address)
    return ensure_engine()


def _directory(engine: Engine, node_id: str | None, node_ip: str | None) -> Path:
    here = engine.runtime_info().node_id
    if node_id not in (None, here) or node_ip not in (None, "localhost", engine.node_address()):
        raise RayStateApiException(
            f"only log files of this node ({here}, {engine.node_address()}) can be read, not of "
            f"{node_id or node_ip}: read them in a task on that node"
        )
    return engine.session_directory / "logs"


def _file_of_worker(
    engine: Engine,
    directory: Path,
    actor_id: str | None,
    task_id: str | None,
    pid: int | None,
    suffix: str,
) -> Path:
    if actor_id is not None:
        pid = _column(engine, "actors", "actor_id", actor_id, "pid")
    elif task_id is not None:
        pid = _column(engine, "tasks", "task_id", task_id, "worker_pid")
    if not pid:
        raise RayStateApiException(
            "`get_log` needs `filename`, `pid`, or the id of an actor or task that has a process"
        )
    of_ray = sorted(directory.glob(f"worker-*-{pid}.{suffix}"))
    if of_ray:
        return of_ray[-1]
    worker_id: str = _column(engine, "workers", "pid", pid, "worker_id")
    return directory / f"worker-{int(worker_id, 16)}.{suffix}"


def _column(engine: Engine, resource: StateResource, key: str, value: object, column: str) -> Any:
    rows = engine.state(resource, [(key, "=", value)], 1).rows
    if not rows:
        raise RayStateApiException(
            f"none of the {resource} has {key}={value}: it has ended, or never existed"
        )
    return rows[0][column]


def _read(path: Path, tail: int, follow: bool, interval_s: float) -> Iterator[bytes]:
    with path.open("rb") as file:
        data = file.read()
        if tail >= 0:
            data = b"".join(data.splitlines(keepends=True)[-tail:] if tail else [])
        if data:
            yield data
        while follow:
            data = file.read()
            if data:
                yield data
            else:
                time.sleep(interval_s)


def _group(name: str) -> str:
    for begin, end, group in _GROUPS:
        if name.startswith(begin) and name.endswith(end):
            return group
    stem = name.partition(".")[0]
    return stem.rstrip("0123456789-_") or "misc"
