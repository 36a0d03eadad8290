"""Faults of one rank of a training, for tests of tools that find them: `TrainingFault`.

A training function makes a `FaultInjector` and calls it at five points of each step. The fault
begins at a given step and lasts; faults that end a process or a collective happen once. Not
covered: faults of the storage and of syncline's own processes (`syncline.faults`).
"""

from __future__ import annotations

import gc
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from enum import Enum

from syncline.records import dataclass
from syncline.testing.emulated_network import EmulatedHost

_BURN = "import os\nwhile os.getppid() == {parent}: sum(range(1000))"
"""Program that uses a core until its parent has ended."""
BURNERS = 2
NICENESS = 10
"""In CPU contention, so many processes use the core of the rank, with a higher priority by this."""
GARBAGE = 400_000
"""Objects that each forced collection looks at."""
FILE_BYTES = 16 << 20
HOPS = 5
"""A delayed network delays each packet by this fraction of the seconds that a step should lose, as
an operation sends several packets one after the other.
"""


class TrainingFault(str, Enum):
    """A fault of one rank. The value is the cause that a diagnosis should name."""

    def __str__(self) -> str:
        return str(self.value)

    MISSING_COLLECTIVE = "missing collective"
    """The rank leaves out the reduction of the metric."""
    MISMATCHED_COLLECTIVES = "mismatched collectives"
    """The rank calls `broadcast` where the others call `all_reduce`."""
    MISMATCHED_SHAPES = "mismatched shapes"
    """The rank reduces a tensor of another shape."""
    SLOW_COMPUTE = "compute"
    SLOW_DATA = "data"
    SLOW_DISK = "disk"
    """The rank reads a file that is not in the page cache."""
    CPU_CONTENTION = "cpu contention"
    """The rank shares one core with other processes."""
    GARBAGE_COLLECTION = "garbage collection"
    STOPPED = "stopped"
    """The rank stops itself with SIGSTOP."""
    DEAD = "dead"
    """The rank kills itself with SIGKILL."""
    NETWORK_DELAY = "network delay"
    """Packets from and to the host of the rank are late; needs hosts of `emulated_network`."""
    NOT_A_NUMBER = "nan"
    """The batch of the rank has a NaN."""


@dataclass(frozen=True, kw_only=True)
class FaultPlan:
    """Which fault, where and when. All ranks get the same plan."""

    fault: TrainingFault | None
    """None for a run without a fault."""
    rank: int = 1
    first_step: int = 5
    seconds: float = 0.1
    """Seconds that a slow rank loses in each step."""

    def __post_init__(self) -> None:
        if self.fault is not None and not isinstance(self.fault, TrainingFault):
            raise TypeError(
                f"`FaultPlan(fault={self.fault!r})` would inject nothing: pass None or a "
                f"`TrainingFault`, one of {', '.join(fault.name for fault in TrainingFault)}."
            )
        for name in ("rank", "first_step", "seconds"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"`FaultPlan({name}={getattr(self, name)!r})` is never reached: pass 0 or more."
                )

    def to_json(self) -> dict[str, object]:
        """Return plain values for `from_json`."""
        return {**vars(self), "fault": None if self.fault is None else str(self.fault)}

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> FaultPlan:
        """Return the plan of `to_json`."""
        fault = values["fault"]
        chosen = None if fault is None else TrainingFault(str(fault))
        return cls(**{**values, "fault": chosen})  # type: ignore[arg-type]  # plain values


class FaultInjector:
    """Injects the fault of a plan into one rank.

    Args:
        plan: The plan.
        rank: Rank of this process.
        burn: Computes for about a millisecond; by default a Python loop.
        network: The host of this rank, for `TrainingFault.NETWORK_DELAY`.
    """

    def __init__(
        self,
        plan: FaultPlan,
        rank: int,
        burn: Callable[[], object] = lambda: sum(range(30_000)),
        network: EmulatedHost | None = None,
    ) -> None:
        self._fault = plan.fault if plan.rank == rank else None
        self._plan = plan
        self._burn = burn
        self._network = network
        if self._fault is TrainingFault.NETWORK_DELAY and network is None:
            raise ValueError(
                "`TrainingFault.NETWORK_DELAY` needs a host of an emulated network for each rank: "
                "pass `network=emulated_network.join(...)`, or run the fault with `run_trial`."
            )
        self._step = -1
        self._burners: list[subprocess.Popen[bytes]] = []
        self._garbage: list[list[object]] = []
        self._file: int | None = None

    def begin_step(self, step: int) -> None:
        """Begin a step, before its batch is loaded."""
        self._step = step
        if step == self._plan.first_step:
            self._happen_once()

    @property
    def _is_active(self) -> bool:
        return self._fault is not None and self._step >= self._plan.first_step

    def _acts(self, fault: TrainingFault) -> bool:
        return self._is_active and self._fault is fault

    def load(self) -> None:
        """Delay the loading of a batch; call it in the dataset."""
        if self._acts(TrainingFault.SLOW_DATA):
            time.sleep(self._plan.seconds)

    def compute(self) -> None:
        """Delay the computation; call it before the forward pass."""
        if self._acts(TrainingFault.SLOW_COMPUTE):
            _repeat(self._burn, self._plan.seconds)
        elif self._acts(TrainingFault.SLOW_DISK):
            _repeat(self._use_disk, self._plan.seconds)
        elif self._acts(TrainingFault.GARBAGE_COLLECTION):
            self._collect()

    @property
    def poison(self) -> float:
        """Value to add to the batch: NaN in one step, otherwise 0."""
        is_due = self._step == self._plan.first_step
        return math.nan if is_due and self._fault is TrainingFault.NOT_A_NUMBER else 0.0

    @property
    def collective(self) -> TrainingFault | None:
        """Fault of this step's explicit collective operation, once: left out, another, or of
        another shape.
        """
        kinds = (
            TrainingFault.MISSING_COLLECTIVE,
            TrainingFault.MISMATCHED_COLLECTIVES,
            TrainingFault.MISMATCHED_SHAPES,
        )
        is_due = self._step == self._plan.first_step
        return self._fault if is_due and self._fault in kinds else None

    def close(self) -> None:
        """End the processes that the injector has started."""
        for burner in self._burners:
            burner.kill()
            burner.wait()
        if self._file is not None:
            os.close(self._file)

    def _happen_once(self) -> None:
        if self._fault is TrainingFault.STOPPED:
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self._fault is TrainingFault.DEAD:
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._fault is TrainingFault.CPU_CONTENTION:
            self._share_core()
        elif self._network is not None and self._fault is TrainingFault.NETWORK_DELAY:
            self._network.delay(self._plan.seconds / HOPS)
        elif self._fault is TrainingFault.GARBAGE_COLLECTION:
            for number in range(GARBAGE):
                self._garbage.append([number])

    def _share_core(self) -> None:
        core = {max(os.sched_getaffinity(0))}
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), core)
            os.setpriority(os.PRIO_PROCESS, int(thread), NICENESS)
        burn = _BURN.format(parent=os.getpid())
        for _ in range(BURNERS):
            self._burners.append(
                subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", burn],
                    preexec_fn=lambda: os.setpriority(os.PRIO_PROCESS, 0, 0),
                )
            )

    def _use_disk(self) -> None:
        """Drop a file from the page cache and read it again."""
        if self._file is None:
            self._file, path = tempfile.mkstemp(dir="/var/tmp")
            os.unlink(path)
            os.write(self._file, os.urandom(FILE_BYTES))
            os.fsync(self._file)
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(self._file, 0, os.SEEK_SET)
        while os.read(self._file, 1 << 20):
            pass

    def _collect(self) -> None:
        _repeat(gc.collect, self._plan.seconds)


def _repeat(call: Callable[[], object], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        call()
