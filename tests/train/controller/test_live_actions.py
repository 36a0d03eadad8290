"""What a run answers about its workers, over a group that the test plays."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline.core import api, control
from syncline.exceptions import ActorDiedError, GetTimeoutError, RayTaskError
from syncline.train.backend import Worker
from syncline.train.controller import live_actions as live
from syncline.train.controller.live_actions import LiveActions, LiveError
from syncline.train.workers.group import TrainingGroup
from syncline.train.workers.profiling.profile_request import ProfileError


class FakeGroup(TrainingGroup):
    """Ranks that stand where they are told to, and profiles that end as they are told to."""

    def __init__(
        self, size: int = 2, profile: Callable[[], Any] = lambda: "profiles/x.svg"
    ) -> None:
        self.profile = profile
        self.asked: list[tuple[int, Any]] = []
        self.silent: set[int] = set()
        self._workers = [
            Worker(
                rank=rank,
                node_id="n",
                node_ip="127.0.0.1",
                hostname="h",
                pid=100 + rank,
                local_rank=rank,
                local_world_size=size,
                node_rank=0,
                gpu_ids=[],
            )
            for rank in range(size)
        ]

    @property
    def workers(self) -> Sequence[Worker]:
        return self._workers

    def execute_single_async(
        self, rank: int, fn: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        self.asked.append((rank, *args))
        return api.put(self.profile())

    def gather(self, refs: Sequence[Any]) -> list[Any]:
        return [api.get(ref) for ref in refs]

    def stacks(self, ranks: Sequence[int]) -> Mapping[int, str]:
        return {rank: f"stack {rank}" for rank in ranks if rank not in self.silent}

    def start(self) -> None: ...
    def prepare(self, specs: Sequence[Any]) -> None: ...
    def launch(
        self, function: Any, config: Any, context: Any, on_batch: Any, on_end: Any
    ) -> None: ...
    def send(self, rank: int, message: Any) -> None: ...
    def drain(self, ranks: Sequence[int]) -> None: ...
    def kill(self) -> None: ...


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.init(local_mode=True, ignore_reinit_error=True)
    yield
    syncline.shutdown()


def actions(group: FakeGroup | None) -> LiveActions:
    made = LiveActions(stop=lambda reason: None)
    made.group = group
    return made


def failing(error: Exception) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


def test_workers_are_listed_with_rank_pid_and_place() -> None:
    listed: Any = actions(FakeGroup()).answer("workers", {})
    assert [(worker["rank"], worker["pid"], worker["hostname"]) for worker in listed] == [
        (0, 100, "h"),
        (1, 101, "h"),
    ]


def test_stacks_of_all_ranks_or_of_some() -> None:
    asked = actions(FakeGroup())
    assert asked.answer("stacks", {}) == {"0": "stack 0", "1": "stack 1"}
    assert asked.answer("stacks", {"ranks": ["1"]}) == {"1": "stack 1"}


def test_a_rank_that_does_not_answer_is_there_all_the_same() -> None:
    group = FakeGroup()
    group.silent = {0}
    assert actions(group).answer("stacks", {"ranks": None}) == {"0": "(no answer)", "1": "stack 1"}


def test_a_profile_is_asked_of_its_rank_and_answered_with_its_file() -> None:
    group = FakeGroup()
    assert actions(group).answer("profile", {"rank": "1", "kind": "cpu", "seconds": 3}) == {
        "file": "profiles/x.svg"
    }
    ((rank, request),) = group.asked
    assert (rank, request.kind.value, request.seconds) == (1, "cpu", 3)


@pytest.mark.parametrize("wanted", [2, -1, "x", None, True, "²"])
def test_a_rank_that_there_is_not_is_refused_with_those_that_there_are(wanted: object) -> None:
    with pytest.raises(LiveError, match="only ranks 0-1"):
        actions(FakeGroup()).answer("profile", {"rank": wanted, "kind": "cpu"})


def test_between_attempts_the_answer_says_so() -> None:
    with pytest.raises(LiveError, match="between attempts"):
        actions(None).answer("stacks", {})


def test_an_unknown_action_and_an_impossible_request_are_refused() -> None:
    with pytest.raises(ValueError, match="Actions: workers, stacks, profile"):
        actions(FakeGroup()).answer("explode", {})
    with pytest.raises(ValueError, match="is not a kind of profile"):
        actions(FakeGroup()).answer("profile", {"rank": 0, "kind": "x"})


def test_why_a_worker_took_no_profile_is_told_without_its_frames() -> None:
    group = FakeGroup(
        profile=failing(
            RayTaskError("take_profile", "Traceback …", ProfileError("py-spy is missing"))
        )
    )
    with pytest.raises(LiveError, match="^py-spy is missing$"):
        actions(group).answer("profile", {"rank": 0, "kind": "cpu"})


def test_a_worker_that_dies_or_stands_still_ends_its_profile_with_an_error() -> None:
    for error, said in (
        (ActorDiedError("it was killed"), "Rank 1 ended while"),
        (GetTimeoutError("late"), r"no profile within \d+ s"),
    ):
        with pytest.raises(LiveError, match=said):
            actions(FakeGroup(profile=failing(error))).answer("profile", {"rank": 1, "kind": "cpu"})


def test_a_group_that_is_gone_meanwhile_is_no_riddle() -> None:
    group = FakeGroup()
    asked = actions(group)

    def stopped() -> Any:
        asked.group = None  # as the controller does when it stops the attempt
        raise IndexError("list index out of range")

    group.profile = stopped
    with pytest.raises(LiveError, match="The attempt ended before the answer"):
        asked.answer("profile", {"rank": 0, "kind": "cpu"})


def test_other_programs_ask_through_the_control_point_while_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(tmp_path))
    control.close()
    asked = actions(FakeGroup())
    with asked.offered("/runs/a"):
        program = control.find("run:/runs/a")
        assert program is not None
        assert program.pid == os.getpid()
        assert control.request(program, "run:/runs/a", "stacks", {"ranks": [0]}) == {"0": "stack 0"}
        asked.group = None
        with pytest.raises(control.ActionFailed, match="between attempts"):
            control.request(program, "run:/runs/a", "stacks")
    assert control.find("run:/runs/a") is None


def test_questions_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()
    group = FakeGroup(profile=lambda: may_end.wait(60) and "profiles/x.svg")
    asked = actions(group)
    answers: list[Any] = []
    slow = threading.Thread(
        target=lambda: answers.append(asked.answer("profile", {"rank": 0, "kind": "cpu"}))
    )
    slow.start()
    assert asked.answer("stacks", {"ranks": [1]}) == {"1": "stack 1"}
    assert answers == []
    may_end.set()
    slow.join()
    assert answers == [{"file": "profiles/x.svg"}]


def test_the_limit_of_a_profile_is_its_own_and_some_more(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float | None] = []

    def get(ref: Any, *, timeout: float | None = None) -> str:
        limits.append(timeout)
        return "profiles/x.svg"

    monkeypatch.setattr(api, "get", get)
    actions(FakeGroup()).answer("profile", {"rank": 0, "kind": "memory", "seconds": 20})
    assert limits == [20 + 180 + live.SLACK_S]


def test_a_run_is_stopped_also_while_nothing_trains() -> None:
    reasons: list[str] = []
    assert LiveActions(stop=reasons.append).answer("stop", {}) == {}
    assert len(reasons) == 1
    assert "syncline runs stop" in reasons[0]
