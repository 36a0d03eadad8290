"""Traces of steps, in this process: what the hook of the optimizers does, and that a training never
suffers from it.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from syncline.train.workers.profiling import torch_trace
from syncline.train.workers.profiling.profile_request import ProfileError

SOON_S = 60.0


@contextmanager
def training(step: Callable[[], None]) -> Iterator[threading.Thread]:
    """A thread that makes steps until the block ends."""
    over = threading.Event()

    def train() -> None:
        while not over.is_set():
            step()

    thread = threading.Thread(target=train)
    thread.start()
    try:
        yield thread
    finally:
        over.set()
        thread.join()


def model_and_optimizer(rate: float = 0.1) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(4, 4)
    return model, torch.optim.SGD(model.parameters(), lr=rate)


def step_of(model: torch.nn.Module, *optimizers: torch.optim.Optimizer) -> Callable[[], None]:
    def step() -> None:
        model(torch.randn(2, 4)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return step


def events_of(target: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(gzip.decompress(target.read_bytes()))["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


def steps_in(target: Path) -> list[str]:
    return sorted(
        event["name"]
        for event in events_of(target)
        if event.get("cat") == "user_annotation" and event["name"].startswith("step ")
    )


def test_a_trace_has_the_steps_and_what_they_did(tmp_path: Path) -> None:
    target = tmp_path / "trace.json.gz"
    with training(step_of(*model_and_optimizer())) as thread:
        assert torch_trace.record(3, SOON_S, target) is None
        assert thread.is_alive()
    assert steps_in(target) == ["step 1", "step 2", "step 3"]
    assert "aten::linear" in {event["name"] for event in events_of(target)}


def test_of_several_optimizers_one_counts(tmp_path: Path) -> None:
    target = tmp_path / "trace.json.gz"
    model, first = model_and_optimizer()
    second = torch.optim.Adam(model.parameters())
    with training(step_of(model, first, second)):
        assert torch_trace.record(2, SOON_S, target) is None
    made = [event["name"] for event in events_of(target) if "Optimizer.step" in event["name"]]
    assert steps_in(target) == ["step 1", "step 2"]
    assert sum("SGD" in name for name in made) >= 2
    assert sum("Adam" in name for name in made) >= 2


def test_a_program_that_makes_no_steps_gets_an_error_after_the_limit(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"No optimizer of `torch.optim` made a step in 0.1 s"):
        torch_trace.record(3, 0.1, tmp_path / "trace.json.gz")


def test_steps_that_stop_coming_leave_a_shorter_trace(tmp_path: Path) -> None:
    target = tmp_path / "trace.json.gz"
    step, made, stuck = step_of(*model_and_optimizer()), [], threading.Event()

    def step_three_times() -> None:
        if len(made) < 3 and torch_trace._hook.trace is not None:
            step()
            made.append(1)
        elif made:
            stuck.wait(SOON_S)

    with training(step_three_times):
        problem = torch_trace.record(10, 2.0, target)
        stuck.set()
    assert problem == "only 2 of 10 steps were made in 2 s"
    assert {"step 1", "step 2"} <= set(steps_in(target))


def test_a_second_trace_follows_the_first(tmp_path: Path) -> None:
    with training(step_of(*model_and_optimizer())):
        for name in ("a.json.gz", "b.json.gz"):
            assert torch_trace.record(2, SOON_S, tmp_path / name) is None
            assert steps_in(tmp_path / name) == ["step 1", "step 2"]


def test_what_goes_wrong_in_the_hook_is_told_to_who_asked_and_not_to_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise RuntimeError("Profiler is already enabled")

    monkeypatch.setattr(torch_trace, "profile", refuse)
    with training(step_of(*model_and_optimizer())) as thread:
        with pytest.raises(ProfileError, match="The program may use it itself"):
            torch_trace.record(2, SOON_S, tmp_path / "trace.json.gz")
        assert thread.is_alive()


def test_a_torch_that_cannot_trace_all_threads_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_the_option(**options: object) -> None:
        raise TypeError("unexpected keyword")

    monkeypatch.setattr(torch._C._profiler, "_ExperimentalConfig", without_the_option)
    with pytest.raises(ProfileError, match=r"need torch 2.7 or newer"):
        torch_trace.record(2, SOON_S, tmp_path / "trace.json.gz")
