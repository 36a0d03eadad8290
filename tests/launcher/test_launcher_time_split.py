"""What a rank spends its time on, seen from the stack of its main thread."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from syncline.launcher import time_split

TORCH = "/env/lib/python3.11/site-packages/torch"
LOADER = (f"{TORCH}/utils/data/dataloader.py", "__next__")
BARRIER = (f"{TORCH}/distributed/distributed_c10d.py", "barrier")
BACKWARD = (f"{TORCH}/autograd/graph.py", "_engine_run_backward")
SAVE = (f"{TORCH}/serialization.py", "_save")
LOAD = (f"{TORCH}/serialization.py", "_load")
DDP = (f"{TORCH}/nn/parallel/distributed.py", "forward")
LINEAR = (f"{TORCH}/nn/modules/linear.py", "forward")
SCRIPT = ("/home/me/train.py", "main")
QUEUE = ("/usr/lib/python3.11/queue.py", "get")


def stack(*frames: tuple[str, str]):
    """Return the innermost frame of a stack, which is given from outside."""
    found = None
    for file, function in frames:
        code = SimpleNamespace(co_filename=file, co_name=function)
        found = SimpleNamespace(f_code=code, f_back=found)
    return found


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ((SCRIPT,), "compute"),
        ((SCRIPT, QUEUE), "compute"),
        ((SCRIPT, LOADER), "data"),
        ((SCRIPT, LOADER, QUEUE), "data"),
        ((SCRIPT, LOADER, SCRIPT), "data"),  # the program's dataset, in its own process
        ((SCRIPT, BARRIER), "communication"),
        ((SCRIPT, BARRIER, QUEUE), "communication"),
        ((SCRIPT, DDP), "communication"),
        ((SCRIPT, DDP, LINEAR), "compute"),
        ((SCRIPT, SAVE, QUEUE), "report"),
        ((SCRIPT, LOAD), "compute"),
        ((SCRIPT, (f"{TORCH}/distributed/checkpoint/api.py", "save"), BARRIER), "report"),
        ((QUEUE,), "compute"),
    ],
    ids=str,
)
def test_activity_of_a_stack(frames, expected):
    assert time_split.activity(stack(*frames), lambda: False) == expected


def test_sleeping_backward_pass_communicates_on_cpus(monkeypatch):
    frame = stack(SCRIPT, BACKWARD)
    assert time_split.activity(frame, lambda: True) == "communication"
    assert time_split.activity(frame, lambda: False) == "compute"
    monkeypatch.setattr(time_split, "_uses_cuda", lambda: True)
    assert time_split.activity(frame, lambda: True) == "compute"


def test_memory_of_a_process_without_a_look_says_nothing():
    reader = time_split.TimeReader()
    assert reader.read() is None
    reader.close()
