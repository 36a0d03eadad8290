"""The directory of a job on this machine: its request, its state and its output.

`request.json` is written once by the client; `state.json` by the supervisor, atomically. The
supervisor holds a lock on `lock` as long as it lives, so that a killed supervisor is noticed.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """A submitted program."""

    submission_id: str
    entrypoint: str
    """Command line for the shell."""
    directory: str
    """Working directory."""
    env_vars: Mapping[str, str] = field(default_factory=dict)
    """Variables on top of those of the client."""
    import_path: tuple[str, ...] = ()
    """Directories and archives for PYTHONPATH."""
    packages: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the runtime environment that install packages, in normal form."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    """The runtime environment as given."""
    resources: Mapping[str, Any] = field(default_factory=dict)
    """The `entrypoint_…` arguments as given; nothing is reserved."""


class JobDirectory:
    """One job's directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.output = path / "output.log"

    def create(self, request: JobRequest) -> None:
        """Create it; FileExistsError if there is one."""
        self.path.mkdir(mode=0o700)
        self._write("request.json", asdict(request))

    def request(self) -> JobRequest:
        """Return the request; FileNotFoundError if there is no such job."""
        fields = json.loads((self.path / "request.json").read_text())
        return JobRequest(**{**fields, "import_path": tuple(fields["import_path"])})

    def state(self) -> dict[str, Any]:
        """Return the fields that the supervisor has written; empty before its start."""
        try:
            state: dict[str, Any] = json.loads((self.path / "state.json").read_text())
        except FileNotFoundError:
            return {}
        return state

    def update(self, **fields: object) -> None:
        """Change fields of the state."""
        self._write("state.json", {**self.state(), **fields})

    def lock(self) -> IO[bytes] | None:
        """Take the supervisor's lock for as long as the file is open; None if it is taken."""
        file = (self.path / "lock").open("wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    def is_supervised(self) -> bool:
        """Return True while the supervisor lives."""
        file = self.lock()
        if file is None:
            return True
        file.close()
        return False

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        new = self.path / f".{name}.{os.getpid()}"
        new.write_text(json.dumps(value))
        new.replace(self.path / name)
