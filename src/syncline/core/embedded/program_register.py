"""Register of this user's programs on this machine, with the CPUs and GPUs that they hold.

Each program has a file in its session's directory, which it rewrites when the amounts change. The
lock of the session ends with the process, so the file of a killed program does not count. A program
that waited for resources holds them until it ends, and so does one with `num_gpus` its GPUs. Apart
from that, a program holds what its tasks, actors and placement groups have reserved.

Not covered: programs of other users, programs with another SYNCLINE_TMPDIR, and clusters.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

from syncline.core.embedded.session_directories import SESSION_PREFIX, is_owned
from syncline.records import dataclass

logger = logging.getLogger("syncline")

FILE = "holding.json"
PAUSE_S = 0.5
"""Seconds between checks of the register while a program waits."""
_MAX_BYTES = 65_536


@dataclass(frozen=True, kw_only=True)
class Holding:
    """What one program holds."""

    pid: int
    program: str
    """Name of its script."""
    cpus: float = 0.0
    gpus: tuple[str, ...] = ()
    """GPUs as `CUDA_VISIBLE_DEVICES` names them, also those held in part."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Resources of this machine that a program may use when it starts."""

    machine_cpus: float
    machine_gpus: tuple[str, ...]
    """GPUs that this process sees."""
    cpus: float | None = None
    """`num_cpus` of `init`; None for all."""
    gpus: float | None = None
    """`num_gpus` of `init`; None for all."""

    def is_free(self, others: Sequence[Holding]) -> bool:
        """Return True if other programs leave these amounts."""
        return self._has_cpus(self._cpus, others) and self._has_gpus(others)

    def competes(self, others: Sequence[Holding]) -> bool:
        """Return True if users should know of the others: requested amounts are in use, a GPU is,
        or every CPU is.
        """
        least = min(1.0, self._cpus) if self.cpus is None else self._cpus
        return not (self._has_cpus(least, others) and self._has_gpus(others))

    def holding(self, others: Sequence[Holding]) -> Holding:
        """Return the demand as a holding of this process, with unused GPUs first."""
        ordered = unused_first(self.machine_gpus, others)
        gpus = ordered[: self._gpus]
        return Holding(pid=os.getpid(), program=_program(), cpus=self._cpus, gpus=tuple(gpus))

    @property
    def _cpus(self) -> float:
        return self.machine_cpus if self.cpus is None else min(self.cpus, self.machine_cpus)

    @property
    def _gpus(self) -> int:
        count = len(self.machine_gpus)
        return count if self.gpus is None else min(count, -int(-self.gpus // 1))

    def _has_cpus(self, cpus: float, others: Sequence[Holding]) -> bool:
        return cpus + sum(other.cpus for other in others) <= self.machine_cpus + 1e-6 or not cpus

    def _has_gpus(self, others: Sequence[Holding]) -> bool:
        used = {gpu for other in others for gpu in other.gpus}
        return self._gpus <= sum(gpu not in used for gpu in self.machine_gpus)


def unused_first(gpus: Sequence[str], others: Sequence[Holding]) -> list[str]:
    """Return the GPUs, the ones that no other program holds first."""
    used = {gpu for other in others for gpu in other.gpus}
    return sorted(gpus, key=lambda gpu: gpu in used)


def usage_text(others: Sequence[Holding]) -> str:
    """Describe what other programs hold: `2 CPUs and GPU 0 by train.py (pid 12)`."""
    parts = []
    for other in others:
        amounts = [f"{other.cpus:g} CPU{'s' if other.cpus != 1 else ''}"] if other.cpus else []
        if other.gpus:
            amounts.append(f"GPU{'s' if len(other.gpus) > 1 else ''} {', '.join(other.gpus)}")
        if amounts:
            parts.append(f"{' and '.join(amounts)} by {other.program} (pid {other.pid})")
    return "; ".join(parts)


class ProgramRegister:
    """This program's entry, and the view of the others. Not thread-safe.

    Args:
        session: Directory of this program's session, next to those of other programs.

    Raises:
        OSError: The directory cannot be written.
    """

    def __init__(self, session: Path) -> None:
        self._session = session
        self._fd = os.open(session / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._last: Holding | None = None
        self._least = Holding(pid=0, program="")

    def others(self) -> list[Holding]:
        """Return what other living programs hold."""
        files = self._session.parent.glob(f"{SESSION_PREFIX}*/{FILE}")
        return [
            holding
            for file in sorted(files)
            if file.parent != self._session
            and is_owned(file.parent)
            and (holding := _read(file)) is not None
        ]

    def enter(self, demand: Demand) -> list[Holding]:
        """Take the GPUs that the program requested; return the holdings of the others."""
        with self._alone():
            others = self.others()
            if demand.gpus is not None:
                self._take(replace(demand.holding(others), cpus=0.0))
        return others

    def wait(
        self,
        demand: Demand,
        timeout_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> list[Holding]:
        """Wait until other programs leave the demand, and take it; return their holdings.

        Raises:
            TimeoutError: They do not within `timeout_s`.
        """
        deadline, is_first = clock() + timeout_s, True
        while True:
            with self._alone():
                others = self.others()
                if demand.is_free(others):
                    self._take(demand.holding(others))
                    return others
            if clock() >= deadline:
                raise TimeoutError(
                    f"`wait_for_resources_s={timeout_s:g}` has passed, and other programs on this "
                    f"machine still hold {usage_text(others)}. Wait longer, lower `num_cpus` or "
                    "`num_gpus` of `init`, or end those programs."
                )
            if is_first:
                logger.warning(
                    "waiting up to %g s for resources of this machine, as other programs hold %s",
                    timeout_s,
                    usage_text(others),
                )
                is_first = False
            sleep(PAUSE_S)

    def update(self, cpus: float, gpus: Collection[str]) -> None:
        """Record what tasks, actors and placement groups hold now."""
        self._write(
            Holding(
                pid=os.getpid(),
                program=_program(),
                cpus=max(cpus, self._least.cpus),
                gpus=tuple(sorted({*gpus, *self._least.gpus})),
            )
        )

    def close(self) -> None:
        """Close the file, which is removed with the session; also in a forked child."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take(self, holding: Holding) -> None:
        """Hold at least this until the program ends."""
        self._least = holding
        self._write(holding)

    def _write(self, holding: Holding) -> None:
        if self._fd < 0 or holding == self._last:
            return
        data = f"{json.dumps(asdict(holding))}\n".encode()
        with suppress(OSError):  # a full disk must not end the program
            os.pwrite(self._fd, data, 0)
            os.ftruncate(self._fd, len(data))
            self._last = holding

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one program at a time look and take."""
        directory = os.open(self._session.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield
        finally:
            os.close(directory)


def _read(path: Path) -> Holding | None:
    """Return the content of a file; None if it is empty or of another version."""
    try:
        with path.open("rb") as file:
            fields = json.loads(file.read(_MAX_BYTES).partition(b"\n")[0])
        return Holding(**{**fields, "gpus": tuple(fields["gpus"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _program() -> str:
    return os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "python"
