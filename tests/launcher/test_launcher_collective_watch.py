"""Stalls seen from outside, with a fake clock and fake processes."""

import pytest

from syncline.launcher.collective_watch import CollectiveWatch, waits
from syncline.launcher.worker_stacks import script_stack

LIBRARY = "/env/lib/python3.11/site-packages/torch/distributed"
REDUCE = f"""  File "/a/train.py", line 7 in <module>
  File "{LIBRARY}/distributed_c10d.py", line 3000 in all_reduce"""
BARRIER = f"""  File "/a/train.py", line 9 in <module>
  File "{LIBRARY}/distributed_c10d.py", line 5000 in barrier"""
READING = """  File "/a/train.py", line 3 in <module>"""


class Job:
    """Two ranks with CPU times and stacks that a test sets."""

    def __init__(self, report_s: float = 60.0) -> None:
        self.cpu_s = {10: 1.0, 11: 1.0}
        self.stack = {0: REDUCE, 1: BARRIER}
        self.asked: list[int] = []
        self.watch = CollectiveWatch(report_s, self.cpu_s.get, self.stacks)

    def stacks(self, pids):
        self.asked += list(pids)
        return {rank: self.stack[rank] for rank in pids}

    def run(self, seconds: range):
        found = [self.watch.update({0: 10, 1: 11}, float(now)) for now in seconds]
        return [stall for stall in found if stall is not None]


def test_ranks_in_different_collectives_are_reported_once():
    job = Job()
    (stall,) = job.run(range(200))
    assert stall.event == "stalled"
    assert stall.text.startswith("Ranks 0-1 waited 60 s in a collective operation so far.")
    assert "Rank 0 is in all_reduce (train.py:7), rank 1 in barrier (train.py:9)." in stall.text


def test_rank_that_is_elsewhere_is_marked():
    job = Job()
    job.stack[1] = READING
    (stall,) = job.run(range(100))
    assert stall.text.startswith("Rank 0 waited 60 s")
    assert "[rank 1]  <-- outlier" in stall.text
    assert "[rank 0]  waiting for others" in stall.text


def test_progress_ends_a_stall():
    job = Job(report_s=10.0)
    assert len(job.run(range(20))) == 1
    job.cpu_s.update({10: 2.0, 11: 2.0})
    (resumed,) = job.run(range(20, 22))
    assert (resumed.event, resumed.text) == ("resumed", "")
    assert [stall.event for stall in job.run(range(22, 40))] == ["stalled"]


def test_busy_ranks_are_never_asked():
    job = Job()
    for now in range(100):
        job.cpu_s = {pid: used + 0.5 for pid, used in job.cpu_s.items()}
        job.watch._busy_s = job.cpu_s.get
        assert job.watch.update({0: 10, 1: 11}, float(now)) is None
    assert job.asked == []


def test_idle_ranks_outside_of_collectives_are_no_stall_and_asked_rarely():
    job = Job()
    job.stack = {0: READING, 1: READING}
    assert job.run(range(100)) == []
    assert len(job.asked) <= 2 * 100 / 5


def test_the_rounding_of_sums_is_no_progress():
    job = Job(report_s=30.0)
    found = []
    for now in range(60):
        job.cpu_s[10] += 1e-9
        found.append(job.watch.update({0: 10, 1: 11}, float(now)))
    (stall,) = filter(None, found)
    assert stall.text.startswith("Ranks 0-1 waited 30 s")


def test_zero_means_never():
    assert Job(report_s=0.0).run(range(300)) == []


@pytest.mark.parametrize(("stack", "expected"), [(REDUCE, True), (READING, False), ("", False)])
def test_waiting_is_seen_in_the_stack(stack, expected):
    assert waits(stack) is expected


def test_stack_of_the_script_is_without_other_threads_and_the_launcher():
    dump = """Thread 0x00007f (most recent call first):
  File "/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007e (most recent call first):
  File "/a/train.py", line 5 in step
  File "/a/train.py", line 9 in <module>
  File "/s/syncline/launcher/script_process.py", line 190 in run_as_main
  File "/s/syncline/launcher/script_process.py", line 80 in __call__
  File "<string>", line 1 in <module>
"""
    assert script_stack(dump).splitlines() == [
        '  File "/a/train.py", line 9 in <module>',
        '  File "/a/train.py", line 5 in step',
    ]
