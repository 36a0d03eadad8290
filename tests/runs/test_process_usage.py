"""Resource usage of a process: this one, its children, and GPUs of a fake driver library."""

import os
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from syncline.runs import usage
from syncline.runs.usage import FIRST_LISTINGS, Sampler


def test_rates_come_with_the_second_look() -> None:
    times = iter([0.0, 2.0])
    sampler = Sampler(clock=lambda: next(times))
    first, second = sampler.sample(), sampler.sample()
    assert first["rss_bytes"] > 1_000_000
    assert first["threads"] >= 1
    assert "cpu_percent" not in first
    assert second["cpu_percent"] >= 0
    assert second["written_bytes_per_s"] >= 0
    assert 0 < second["host_memory_percent"] <= 100


@pytest.mark.processes
def test_processes_that_it_has_started_count(tmp_path) -> None:
    alone = Sampler().sample()
    code = "x = bytearray(150_000_000); print(len(x), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        together = Sampler().sample()
        child.kill()
    assert together["processes"] == alone["processes"] + 1
    assert together["rss_bytes"] > alone["rss_bytes"] + 100_000_000


@pytest.mark.processes
def test_a_process_that_has_ended_is_an_error() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        sampler = Sampler(child.pid)
        sampler.sample()
        child.kill()
        child.wait()
        with pytest.raises(psutil.Error):
            sampler.sample()


@pytest.mark.processes
def test_children_are_looked_for_at_every_third_look_only(tmp_path) -> None:
    sampler = Sampler()
    for _ in range(FIRST_LISTINGS + 1):
        before = sampler.sample()["processes"]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = [sampler.sample()["processes"] - before for _ in range(4)]
        child.kill()
        child.wait()
        assert found == [0, 0, 1, 1]
        assert sampler.sample()["processes"] == before


def test_what_the_system_says_is_what_psutil_says() -> None:
    own, process = usage.process_counters(os.getpid()), psutil.Process()
    assert own.threads == process.num_threads()
    assert own.rss_bytes == pytest.approx(process.memory_info().rss, rel=0.2)
    assert own.cpu_s == pytest.approx(sum(process.cpu_times()[:2]), abs=0.5)
    host, memory, network = usage.host_counters(), psutil.virtual_memory(), psutil.net_io_counters()
    assert host.memory_percent == pytest.approx(memory.percent, abs=10)
    assert host.cpu_s == pytest.approx(sum(psutil.cpu_times()[:8]), rel=0.05)
    assert host.received_bytes <= network.bytes_recv * 1.1 + 1_000_000
    assert (host.sent_bytes > 0) == (network.bytes_sent > 0)


def test_no_process_of_that_number_is_an_error() -> None:
    with pytest.raises(psutil.NoSuchProcess):
        Sampler(2**22 + 1)


class Driver(SimpleNamespace):
    """Fake of the driver library."""

    class NVMLError(Exception):
        pass

    def nvmlInit(self):
        pass

    def nvmlDeviceGetHandleByIndex(self, index):
        if index > 1:
            raise self.NVMLError
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(used=1000, total=4000)

    def nvmlDeviceGetUtilizationRates(self, handle):
        if handle == "MIG-1":
            raise self.NVMLError
        return SimpleNamespace(gpu=37)


def test_gpus_by_number_and_name_and_one_that_is_not_there(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Driver())
    assert Sampler(gpu_ids=("1", "MIG-1", "9")).sample()["gpus"] == [
        {"id": "1", "memory_bytes": 1000, "memory_total_bytes": 4000, "util_percent": 37},
        {"id": "MIG-1", "memory_bytes": 1000, "memory_total_bytes": 4000},
    ]
