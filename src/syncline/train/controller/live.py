"""`LiveActions`: what a run answers while it trains: who its workers are, where they stand,
profiles of them.

Questions come on threads of their own, several at a time, and the controller's thread knows nothing
of them: it only says which group trains now. An answer belongs to the group that there was when it
was asked for; where that ends meanwhile, it is an error that says so. Questions come from programs
of the same user on the same machine (`core.control`), and on a cluster through the run's actor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from syncline.core import api, control
from syncline.exceptions import GetTimeoutError, RayActorError, RayTaskError
from syncline.train.backend import Worker
from syncline.train.controller.hangs import ranks_text
from syncline.train.workers.group import TrainingGroup
from syncline.train.workers.placement import is_hosted
from syncline.train.workers.profiling.recorder import take_profile
from syncline.train.workers.profiling.request import ProfileRequest

SLACK_S = 10.0
"""How much longer than its profile may take a worker is waited for."""


class LiveError(RuntimeError):
    """A question has no answer: cause and remedy."""


class LiveActions:
    """Answers about one run. Any thread may ask; `group` is set by the controller's."""

    def __init__(self) -> None:
        self.group: TrainingGroup | None = None
        """The workers that train now; None before, between and after attempts."""
        self._actions: Mapping[str, Callable[[TrainingGroup, Mapping[str, Any]], Any]] = {
            "workers": _workers,
            "stacks": _stacks,
            "profile": _profile,
        }

    @contextmanager
    def offered(self, path: str) -> Iterator[None]:
        """Answer programs of this machine, as the run in the directory `path`, until the block
        ends.

        Not in a trial of a search, whose process may be killed at any moment and must leave nothing
        behind: the search answers for it.
        """
        if is_hosted():
            yield
            return
        withdraw = control.offer(f"run:{path}", self.answer)
        try:
            yield
        finally:
            withdraw()

    def answer(self, action: str, arguments: Mapping[str, Any]) -> Any:
        """What JSON can hold.

        "workers": [{"rank", "pid", "hostname", …}]; "stacks" {"ranks": [0, …] or None}: {"0": "  File …"}; "profile" {"rank", "kind",
        "seconds", "steps"}: {"file": its path in the run directory}, after the time that it takes.

        Raises:
            LiveError: There is no such rank; nothing trains just now; the worker has ended, or the
            profile could not be taken. ValueError: An unknown action, or arguments that cannot be
            meant.
        """
        if action not in self._actions:
            raise ValueError(
                f"a training run does not know the action {action!r}: it knows {', '.join(self._actions)}"
            )
        group = self.group
        if group is None:
            raise LiveError(
                "the run has no workers in training just now: it is starting, between attempts, or ending; ask again in a moment"
            )
        try:
            return self._actions[action](group, arguments)
        except (LiveError, ValueError):
            raise
        except Exception as error:
            if self.group is not group:
                raise LiveError(
                    f"the attempt ended before the answer was there ({_first_line(error)}): ask again in a moment"
                ) from error
            raise


def _workers(group: TrainingGroup, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [vars(worker) for worker in group.workers]


def _stacks(group: TrainingGroup, arguments: Mapping[str, Any]) -> dict[str, str]:
    wanted = arguments.get("ranks")
    ranks = (
        [_rank(group, rank) for rank in wanted]
        if wanted is not None
        else [worker.rank for worker in group.workers]
    )
    found = group.stacks(ranks)
    return {str(rank): found.get(rank, "(it does not answer)") for rank in ranks}


def _profile(group: TrainingGroup, arguments: Mapping[str, Any]) -> dict[str, str]:
    request = ProfileRequest.of(arguments)
    rank = _rank(group, arguments.get("rank"))
    try:
        asked = group.execute_single_async(rank, take_profile, request)
        return {"file": api.get(asked, timeout=request.answer_within_s + SLACK_S)}
    except RayTaskError as error:
        raise LiveError(f"{error.cause or error}") from error
    except RayActorError as error:
        raise LiveError(
            f"rank {rank} ended while it was profiled, so there is no profile: {_first_line(error)}"
        ) from error
    except GetTimeoutError:
        raise LiveError(
            f"rank {rank} had no profile after {request.answer_within_s + SLACK_S:g} s: its Python may be stopped by a call that holds the "
            "interpreter; `syncline stack` shows where"
        ) from None


def _rank(group: TrainingGroup, wanted: object) -> int:
    """A rank of the group, from a number or its digits."""
    ranks: Sequence[Worker] = group.workers
    if isinstance(wanted, str) and wanted.isascii() and wanted.isdigit():
        wanted = int(wanted)
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted < len(ranks):
        raise LiveError(f"the run has no rank {wanted!r}: it has {ranks_text(range(len(ranks)))}")
    return wanted


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
