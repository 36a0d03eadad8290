"""Exit status of workers: certain and likely causes, and a worker that runs out of memory in its
control group.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncline.core import cgroups
from syncline.core.embedded.exit_status import RECENT_SAMPLES, ExitStatus, MemoryMonitor
from syncline.testing import eventually, run_program

GB = 1_000_000_000
KILLED = -signal.SIGKILL
PID = 4711


class Machine:
    """A tree of files that describes a machine with 10 GB of memory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for directory in ("proc/self", "sys/fs/cgroup/job"):
            (root / directory).mkdir(parents=True)
        (root / "proc/self/cgroup").write_text("0::/job\n")
        self.tell(kills=4, available=8 * GB)

    def tell(self, *, kills: int, available: int = 8 * GB) -> None:
        (self.root / "sys/fs/cgroup/job/memory.events").write_text(f"oom_kill {kills}\n")
        (self.root / "proc/meminfo").write_text(
            f"MemTotal: {10 * GB // 1024} kB\nMemAvailable: {available // 1024} kB\n"
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def watch(machine: Machine) -> MemoryMonitor:
    return MemoryMonitor(machine.root)


def test_other_exit_codes_are_not_attributed_to_memory(
    machine: Machine, watch: MemoryMonitor
) -> None:
    machine.tell(kills=5, available=0)
    watch.sample()
    assert watch.exit_status(1, 9 * GB, PID) == ExitStatus(cause="exited with code 1")
    assert watch.exit_status(-signal.SIGTERM, 9 * GB, PID) == ExitStatus(
        cause="was killed by SIGTERM"
    )


def test_each_counted_kill_explains_one_worker(machine: Machine, watch: MemoryMonitor) -> None:
    assert not watch.exit_status(KILLED, GB, PID).is_out_of_memory
    machine.tell(kills=6)
    for _ in range(2):
        status = watch.exit_status(KILLED, 2 * GB, PID)
        assert status.is_out_of_memory
        assert (
            status.cause
            == "was killed by the system because memory ran out (it had grown to 2.0 GB of 10.0 GB)"
        )
    assert not watch.exit_status(KILLED, 2 * GB, PID).is_out_of_memory


def test_counted_kill_explains_a_worker_reported_after_the_next_sample(
    machine: Machine, watch: MemoryMonitor
) -> None:
    watch.sample()
    machine.tell(kills=5)
    watch.sample()
    assert watch.exit_status(KILLED, 2 * GB, PID).is_out_of_memory


def test_old_kill_is_attributed_to_another_process(machine: Machine, watch: MemoryMonitor) -> None:
    machine.tell(kills=5)
    for _ in range(RECENT_SAMPLES):
        watch.sample()
    assert not watch.exit_status(KILLED, 2 * GB, PID).is_out_of_memory


@pytest.mark.parametrize(
    ("peak", "available", "likely"),
    [(2 * GB, 8 * GB, False), (6 * GB, 8 * GB, True), (2 * GB, GB // 10, True)],
)
def test_uncounted_kill_is_likely_out_of_memory_if_memory_was_short(
    machine: Machine, watch: MemoryMonitor, peak: int, available: int, likely: bool
) -> None:
    machine.tell(kills=4, available=available)
    watch.sample()
    status = watch.exit_status(KILLED, peak, PID)
    assert not status.is_out_of_memory
    assert ("perhaps because memory ran out: it had grown to" in status.cause) is likely
    assert ("the kernel reports no lack of memory: it had grown to" in status.cause) is not likely
    assert status.cause.startswith("was killed by SIGKILL (")


def test_a_kill_without_any_report_of_the_kernel_may_have_every_cause(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: {10 * GB // 1024} kB\n")
    status = MemoryMonitor(tmp_path).exit_status(KILLED, GB, PID)
    assert "by a person, a job scheduler, or the system when memory ran out" in status.cause


class KernelMessages:
    """The kernel log of a `Machine`."""

    def __init__(self, machine: Machine) -> None:
        self._path = machine.root / "dev/kmsg"
        self._path.parent.mkdir()
        self._path.touch()

    def kill(self, pid: int) -> None:
        with self._path.open("a") as log:
            log.write(
                "3,1,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,task=python\n"
                f"3,1,2,-;Memory cgroup out of memory: Killed process {pid} (python) total-vm:8kB\n"
            )


def test_the_kernel_log_names_the_workers_that_ran_out_of_memory(machine: Machine) -> None:
    log = KernelMessages(machine)
    log.kill(PID)  # before this program
    watch = MemoryMonitor(machine.root)
    assert not watch.exit_status(KILLED, GB, PID).is_out_of_memory
    log.kill(PID + 1)
    log.kill(PID)
    assert watch.exit_status(KILLED, GB, PID).is_out_of_memory
    assert not watch.exit_status(KILLED, GB, PID).is_out_of_memory
    assert watch.exit_status(KILLED, GB, PID + 1).is_out_of_memory
    watch.close()
    log.kill(PID)
    assert not watch.exit_status(KILLED, GB, PID).is_out_of_memory


LIMIT_BYTES = 400_000_000


def _remove(group: Path) -> None:
    eventually(
        lambda: not (group / "cgroup.procs").read_text(),
        what="all processes of the group have ended",
    )
    group.rmdir()


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group below this process's that may use little memory."""
    groups = cgroups.MemoryFiles.of().groups
    for parent in groups:
        group = parent / f"syncline-test-{uuid.uuid4().hex}"
        try:
            group.mkdir()
            limit = next(
                path
                for path in (group / "memory.max", group / "memory.limit_in_bytes")
                if path.exists()
            )
            limit.write_text(str(LIMIT_BYTES))
        except (OSError, StopIteration):
            if group.exists():
                group.rmdir()
            continue
        yield group
        _remove(group)
        return
    pytest.skip("no control group for memory can be made here")


PROGRAM = """
import syncline

@syncline.remote(max_retries=0)
def devour():
    print("last words", flush=True)
    held = []
    while True:
        held.append(b"x" * 10_000_000)

@syncline.remote
class Glutton:
    def eat(self):
        held = []
        while True:
            held.append(b"x" * 10_000_000)

syncline.init(num_cpus=2)
for begin in (lambda: devour.remote(), lambda: Glutton.remote().eat.remote()):
    try:
        syncline.get(begin(), timeout=60)
    except syncline.exceptions.OutOfMemoryError as error:
        print(type(error).__name__, "|", str(error).replace(chr(10), " "))
"""


@pytest.mark.processes
def test_error_of_a_worker_that_ran_out_of_memory_says_so(small_group: Path) -> None:
    enter = ["sh", "-c", f'echo $$ > {small_group}/cgroup.procs && exec "$@"', "sh"]
    with run_program(PROGRAM, enter=enter) as program:
        task, actor = program.wait().check().stdout.splitlines()[-2:]
    assert task.startswith("OutOfMemoryError | The worker process of devour() (pid=")
    assert "of 400 MB) while the task ran" in task
    assert "smaller batches" in task
    assert "last words" in task
    assert actor.startswith("ActorOutOfMemoryError | The actor Glutton (pid=")
