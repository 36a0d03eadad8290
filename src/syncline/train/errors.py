"""The errors with which training ends, and how a worker group's failures read.

    TrainingFailedError          training ended without success
    ├── WorkerGroupError         one worker or more failed (.worker_failures)
    │   └── NCCLHangError        a collective operation did not end
    ├── ControllerError          the controller itself failed (.controller_failure)
    └── PreemptionError          machines were taken away (.preemption_info, .drain_timed_out)

All of them can be pickled, also when they hold a user's exception that cannot be: that one is then
replaced by its description. Mistakes in a program's arguments are no part of this tree: they are
`ValueError` and `TypeError`, raised before anything starts.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PreemptionInfo:
    """Which machines are about to be taken away, and when."""

    deadline_ms: int | None = None
    """When the first of them goes, in milliseconds since the epoch; None where that is not
    known.
    """

    preempted_node_to_ranks: dict[str, list[int]] = field(default_factory=dict)
    """Node id to the world ranks that run on it."""


class TrainingFailedError(RuntimeError):
    """Training ended without success; the parent of every error that `fit()` raises for a run that
    had started.
    """


class WorkerGroupError(TrainingFailedError):
    """At least one worker failed.

    Args:
        error_message: The whole text, as `worker_failure_message` makes it.
        worker_failures: The original exception of each failed rank, by rank, the first to fail
            first.
    """

    def __init__(self, error_message: str, worker_failures: Mapping[int, BaseException]) -> None:
        super().__init__(error_message)
        self.error_message = error_message
        self.worker_failures: dict[int, BaseException] = dict(worker_failures)

    def __reduce__(self) -> tuple[Any, ...]:
        failures = {
            rank: picklable_exception(error) for rank, error in self.worker_failures.items()
        }
        return type(self), (self.error_message, failures)


class NCCLHangError(WorkerGroupError):
    """A collective operation of the worker group did not end within its limit."""


class ControllerError(TrainingFailedError):
    """The controller failed, not a worker.

    Args:
        controller_failure: What it failed with.
    """

    def __init__(self, controller_failure: BaseException) -> None:
        super().__init__(
            f"Training failed due to a controller error:\n{describe_exception(controller_failure)}"
        )
        self.controller_failure = controller_failure

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (picklable_exception(self.controller_failure),)


class PreemptionError(TrainingFailedError):
    """Machines under the worker group were taken away, or the program was told to end. A run of the
    same name goes on.

    Args:
        preemption_info: Which ones and when.
        drain_timed_out: Whether workers still ran when the deadline and its grace were over.
        program_terminated: Whether it was the program that was told to end (SIGTERM).
    """

    def __init__(
        self,
        preemption_info: PreemptionInfo,
        drain_timed_out: bool = False,
        program_terminated: bool = False,
    ) -> None:
        nodes = ", ".join(sorted(preemption_info.preempted_node_to_ranks)) or "unknown"
        ranks = sorted(
            rank for ranks in preemption_info.preempted_node_to_ranks.values() for rank in ranks
        )
        if drain_timed_out:
            ending = "some workers still ran at the deadline and were stopped"
        else:
            ending = (
                "every worker had ended by the deadline"
                if ranks or not program_terminated
                else "no worker had begun"
            )
        machines = f"machines were preempted (nodes: {nodes}; ranks: {ranks})"
        cause = "the program was told to end (SIGTERM)" if program_terminated else machines
        super().__init__(
            f"Training was interrupted because {cause}: {ending}. A run of the same name goes on from its latest checkpoint."
        )
        self.preemption_info = preemption_info
        self.drain_timed_out = drain_timed_out
        self.program_terminated = program_terminated

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.preemption_info, self.drain_timed_out, self.program_terminated)


def worker_failure_message(
    failures: Mapping[int, BaseException], tracebacks: Mapping[int, str] | None = None
) -> str:
    """The text of a `WorkerGroupError`: the error that came first with its whole traceback, the
    others in a line each.

    Ranks with equal errors (same type, same message) stand together, because the usual failure hits
    every rank in the same way.

    Args:
        failures: Exception by rank, in the order in which the ranks failed.
        tracebacks: The traceback that each rank saw. An exception leaves it behind when it crosses
            processes; where a rank has none here, what the exception still carries is shown.
    """
    groups: dict[tuple[type[BaseException], str], list[int]] = {}
    for rank, error in failures.items():
        groups.setdefault((type(error), str(error)), []).append(rank)
    lines = ["Training failed due to worker errors:"]
    for position, ranks in enumerate(groups.values()):
        first = ranks[0]
        if position == 0:
            text = (tracebacks or {}).get(first) or describe_exception(failures[first])
        else:
            text = "".join(traceback.format_exception_only(failures[first]))
        lines += [f"[Rank {','.join(map(str, sorted(ranks)))} Error Snippet]:", text.rstrip()]
    return "\n".join(lines)


def describe_exception(error: BaseException) -> str:
    """Traceback, causes and message of `error`, as Python prints them, without the last newline."""
    return "".join(traceback.format_exception(error)).rstrip()


def picklable_exception(error: BaseException) -> BaseException:
    """`error` itself if it survives a round trip through pickle, else a RuntimeError with its type
    and message.
    """
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return RuntimeError(f"{type(error).__qualname__}: {error}")
