"""Samples of running trials."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import psutil

from syncline.runs import LocalFiles, RunDirectory
from syncline.tune.controller.live_search import RecordThread, TrialSampler
from syncline.tune.controller.search_record import RunningTrials, SearchRecord


class FakeSampler:
    """Sampler that counts its samples; process 13 does not exist."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.looks = 0

    def sample(self) -> dict[str, Any]:
        if self.pid == 13:
            raise psutil.NoSuchProcess(self.pid)
        self.looks += 1
        return {"looks": self.looks, "host_cpu_percent": float(self.pid)}


def put(running: RunningTrials, trial_id: str, pid: int, *, is_local: bool = True) -> None:
    running.put(trial_id, trial_id, host="a", pid=pid, is_local=is_local)


def test_each_trial_of_this_machine_is_sampled_and_what_is_gone_is_passed_over(
    tmp_path: Path,
) -> None:
    running = RunningTrials()
    samples = TrialSampler(RunDirectory(LocalFiles(tmp_path)), running, FakeSampler)
    put(running, "t_0", 10)
    put(running, "t_1", 11)
    put(running, "gone", 13)
    put(running, "elsewhere", 14, is_local=False)
    samples.sample()
    running.discard("t_0")
    put(running, "t_1", 12)  # started again, in another process
    samples.sample()
    samples.sample()
    lines = [json.loads(line) for line in (tmp_path / "workers.jsonl").read_text().splitlines()]
    assert [
        (line["trial"], line["attempt"], line["pid"], line["usage"]["looks"]) for line in lines
    ] == [("t_0", 1, 10, 1), ("t_1", 1, 11, 1), ("t_1", 2, 12, 1), ("t_1", 2, 12, 2)]
    assert lines[1]["usage"]["host_cpu_percent"] == 10.0, (
        "the first one's look at the machine counts for all"
    )


class CountedRecord(SearchRecord):
    """Record that notes its calls."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.started = threading.Event()

    def flush(self) -> None:
        self.done.append("lines")

    def write_state(self) -> None:
        self.done.append("state")
        self.started.set()


def test_thread_writes_what_is_left_when_it_ends(tmp_path: Path) -> None:
    record = CountedRecord()
    thread = RecordThread(record, RunDirectory(LocalFiles(tmp_path)), RunningTrials())
    thread.start()
    assert record.started.wait(10)
    thread.close()
    assert record.done[0] == "state"
    assert record.done[-2:] == ["lines", "state"]
