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
    """Return the frames of a stack, which is given from outside."""
    return [
        SimpleNamespace(f_code=SimpleNamespace(co_filename=file, co_name=function))
        for file, function in reversed(frames)
    ]


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
    assert time_split.activity(stack(*frames), sleeps=False, has_gpu=False) == expected


@pytest.mark.parametrize(
    ("sleeps", "has_gpu", "expected"),
    [(True, False, "communication"), (False, False, "compute"), (True, True, "compute")],
)
def test_sleeping_backward_pass_communicates_on_cpus(sleeps, has_gpu, expected):
    frames = stack(SCRIPT, BACKWARD)
    assert time_split.activity(frames, sleeps=sleeps, has_gpu=has_gpu) == expected
