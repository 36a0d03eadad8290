"""Programs on one machine see what the others hold, wait for it, and leave nothing behind."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from syncline.core import cgroups
from syncline.core import config as configuration
from syncline.core.embedded.program_register import (
    FILE,
    Demand,
    Holding,
    ProgramRegister,
    unused_first,
    usage_text,
)
from syncline.core.embedded.scheduler import Scheduler
from syncline.core.embedded.session_directories import SessionDirectories, create_session
from syncline.testing import eventually


def holding(cpus: float = 0.0, *gpus: str) -> Holding:
    return Holding(pid=7, program="a.py", cpus=cpus, gpus=gpus)


def demand(cpus: float | None = None, gpus: float | None = None) -> Demand:
    return Demand(machine_cpus=8.0, machine_gpus=("0", "1"), cpus=cpus, gpus=gpus)


@pytest.mark.parametrize(
    ("wanted", "held", "is_free", "competes"),
    [
        (demand(), [], True, False),
        (demand(), [holding(0.0)], True, False),
        (demand(), [holding(2.0)], False, False),  # two programs may share CPUs
        (demand(), [holding(4.0), holding(4.0)], False, True),  # no CPU is left
        (demand(), [holding(0.0, "1")], False, True),
        (demand(4, 1), [holding(4.0, "1")], True, False),
        (demand(5, 0), [holding(4.0, "1")], False, True),
        (demand(4, 2), [holding(4.0, "1")], False, True),
        (demand(0, 0), [holding(8.0, "0", "1")], True, False),
        (demand(64), [], True, False),  # more than the machine has is only counted
        (demand(64), [holding(1.0)], False, True),
        (demand(1, 0.5), [holding(0.0, "0", "1")], False, True),
    ],
)
def test_what_is_free_and_what_competes(
    wanted: Demand, held: list[Holding], is_free: bool, competes: bool
) -> None:
    assert (wanted.is_free(held), wanted.competes(held)) == (is_free, competes)


def test_unused_gpus_are_taken_first() -> None:
    others = [holding(0.0, "0"), holding(0.0, "2")]
    assert unused_first(["0", "1", "2", "3"], others) == ["1", "3", "0", "2"]
    assert demand(1, 1).holding([holding(0.0, "0")]).gpus == ("1",)


def test_usage_names_amounts_and_programs() -> None:
    assert usage_text([holding(2.0, "0", "1"), holding(1.0), holding()]) == (
        "2 CPUs and GPUs 0, 1 by a.py (pid 7); 1 CPU by a.py (pid 7)"
    )


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A session of this process, which stands for that of another program, and its register."""

    session: SessionDirectories
    register: ProgramRegister


Start = Callable[[], Entry]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    entries: list[Entry] = []

    def begin() -> Entry:
        session = create_session(str(tmp_path), shm_root=None)
        entries.append(Entry(session=session, register=ProgramRegister(session.directory)))
        return entries[-1]

    yield begin
    for entry in entries:
        entry.register.close()
        entry.session.abandon()


def test_programs_see_what_the_others_hold_now(start: Start) -> None:
    first, second = start(), start().register
    assert second.others() == []  # nothing is written yet
    first.register.update(12.5, ["0", "1"])
    first.register.update(2.0, ["1"])  # a shorter line
    assert [(each.cpus, each.gpus, each.pid) for each in second.others()] == [
        (2.0, ("1",), os.getpid())
    ]
    first.session.abandon()  # as if it was killed
    assert second.others() == []
    first.register.close()
    first.register.close()
    first.register.update(1.0, [])
    assert (first.session.directory / FILE).exists()


def test_a_program_that_waited_holds_its_demand_until_it_ends(start: Start) -> None:
    busy, waiting, third = (start().register for _ in range(3))
    busy.update(8.0, ["0"])
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            busy.update(0.0, [])

    waiting.wait(demand(), 60.0, clock=lambda: 0.0, sleep=sleep)
    assert len(pauses) == 3
    waiting.update(0.0, [])  # nothing runs yet
    held = max(third.others(), key=lambda each: each.cpus)
    assert (held.cpus, held.gpus) == (8.0, ("0", "1"))


def test_programs_that_request_gpus_take_different_ones(start: Start) -> None:
    first, second, third = (start().register for _ in range(3))
    assert first.enter(demand(4, 1)) == []
    (seen,) = second.enter(demand(4, 1))
    assert (seen.cpus, seen.gpus) == (0.0, ("0",))
    first.update(2.0, [])
    held = {(each.cpus, each.gpus) for each in third.enter(demand())}
    assert held == {(2.0, ("0",)), (0.0, ("1",))}
    third.update(1.0, ["0"])
    assert (1.0, ("0",)) in {(each.cpus, each.gpus) for each in first.others()}


def test_waiting_has_a_limit_and_names_the_programs(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    busy, waiting = start().register, start().register
    busy.update(3.0, [])
    now = iter(range(100))
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(TimeoutError, match=r"`wait_for_resources_s=5`.*hold 3 CPUs by .*pid"),
    ):
        waiting.wait(demand(), 5.0, clock=lambda: next(now), sleep=lambda seconds: None)
    assert caplog.text.count("waiting up to 5 s") == 1


@pytest.mark.parametrize("text", ["", "[]", '{"pid": 1}', "nonsense"])
def test_damaged_files_are_left_out(start: Start, text: str) -> None:
    (start().session.directory / FILE).write_text(text)
    assert start().register.others() == []


def test_the_scheduler_tells_what_is_held() -> None:
    scheduler = Scheduler({"CPU": 4, "GPU": 2}, ["GPU-a", "GPU-b"])
    assert scheduler.held() == (0, [])
    scheduler.create_group(1, [{"CPU": 1.5, "GPU": 1}], "PACK")
    assert scheduler.held() == (1.5, ["GPU-a"])
    assert Scheduler({}).held() == (0, [])


def test_the_wait_is_an_argument_or_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert configuration.engine_config({}).wait_for_resources_s == 0.0
    monkeypatch.setenv("SYNCLINE_WAIT_FOR_RESOURCES_S", "60")
    assert configuration.engine_config({}).wait_for_resources_s == 60.0
    assert configuration.engine_config({"wait_for_resources_s": 5}).wait_for_resources_s == 5.0
    with pytest.raises(ValueError, match="wait_for_resources_s"):
        configuration.engine_config({"wait_for_resources_s": -1})


PROGRAM = """
import sys, syncline
from syncline.core import cgroups
syncline.init(**eval(sys.argv[1]))
print("started", flush=True)

@syncline.remote(num_cpus=cgroups.cpu_count())
class Worker:
    def answer(self): return 1

worker = Worker.remote()
syncline.get(worker.answer.remote())
sys.stdin.read()
"""


@pytest.mark.processes
def test_init_warns_of_a_program_waits_for_it_and_starts_after_its_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(tmp_path))
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)

    def start(arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, script, arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def entries() -> list[dict[str, Any]]:
        texts = [path.read_text() for path in tmp_path.glob(f"syncline-*/session-*/{FILE}")]
        return [json.loads(text) for text in texts if text]

    def holds(program: subprocess.Popen[str]) -> Callable[[], bool]:
        pid, cpus = program.pid, cgroups.cpu_count()
        return lambda: any(each["pid"] == pid and each["cpus"] == cpus for each in entries())

    first = start("{}")
    eventually(holds(first), what="the first program holds its CPUs")
    said = f"hold {cgroups.cpu_count()} CPU"
    warned = start("{}").communicate("")[1]
    assert f"other programs on this machine {said}" in warned
    assert f"by program.py (pid {first.pid})" in warned
    impatient = start("{'wait_for_resources_s': 0.01}").communicate("")[1]
    assert "TimeoutError: `wait_for_resources_s=0.01` has passed" in impatient
    waiting = start("{'wait_for_resources_s': 60}")
    assert waiting.stdout is not None
    first.send_signal(signal.SIGKILL)
    first.wait(60)
    assert waiting.stdout.readline() == "started\n"
    assert not holds(first)()
    waiting.communicate("")
    eventually(lambda: not entries(), what="no program is left in the register")
