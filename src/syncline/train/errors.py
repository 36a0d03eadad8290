"""Errors of training, and the message for failures of a worker group.

    TrainingFailedError          training ended without success
    ├── WorkerGroupError         one worker or more failed (.worker_failures)
    │   └── NCCLHangError        a collective operation did not end
    ├── ControllerError          the controller itself failed (.controller_failure)
    └── PreemptionError          nodes were preempted (.preemption_info, .drain_timed_out)

All of them can be pickled: a user's exception that cannot be is replaced by its description.
Invalid arguments are `ValueError` and `TypeError`, raised before anything starts.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PreemptionInfo:
    """Announced preemption of nodes."""

    deadline_ms: int | None = None
    """Earliest preemption in milliseconds since the epoch; None if unknown."""

    preempted_node_to_ranks: dict[str, list[int]] = field(default_factory=dict)
    """Node id to the world ranks on it."""


class TrainingFailedError(RuntimeError):
    """Training ended without success. Base class of the errors of `fit()` for a started run."""


class WorkerGroupError(TrainingFailedError):
    """At least one worker failed.

    Args:
        error_message: Complete message, as returned by `worker_failure_message`.
        worker_failures: The original exception of each failed rank, by rank, the first to fail
            first.
    """

    def __init__(self, error_message: str, worker_failures: Mapping[int, BaseException]) -> None:
        super().__init__(error_message)
        self.error_message = error_message
        self.worker_failures: dict[int, BaseException] = dict(worker_failures)

    def __reduce__(self) -> tuple[object, ...]:
        failures = {
            rank: picklable_exception(error) for rank, error in self.worker_failures.items()
        }
        return type(self), (self.error_message, failures)


class NCCLHangError(WorkerGroupError):
    """A collective operation of the worker group did not end within its limit."""


class ControllerError(TrainingFailedError):
    """The controller failed, not a worker.

    Args:
        controller_failure: Its exception.
    """

    def __init__(self, controller_failure: BaseException) -> None:
        super().__init__(
            f"Training failed due to a controller error:\n{describe_exception(controller_failure)}"
        )
        self.controller_failure = controller_failure

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (picklable_exception(self.controller_failure),)


class PreemptionError(TrainingFailedError):
    """Nodes of the worker group were preempted, or the program received SIGTERM.

    Rerun with the same name to continue.

    Args:
        preemption_info: Nodes, ranks and deadline.
        drain_timed_out: Workers were still running after the deadline and its grace.
        program_terminated: The program received SIGTERM.
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
            ending = "some workers were still running at the deadline and were stopped"
        else:
            ending = (
                "every worker ended by the deadline"
                if ranks or not program_terminated
                else "no worker had started"
            )
        machines = f"nodes were preempted (nodes: {nodes}; ranks: {ranks})"
        cause = "the program received SIGTERM" if program_terminated else machines
        super().__init__(
            f"Training was interrupted because {cause}: {ending}. Run again with the same name to "
            "continue from the latest checkpoint."
        )
        self.preemption_info = preemption_info
        self.drain_timed_out = drain_timed_out
        self.program_terminated = program_terminated

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.preemption_info, self.drain_timed_out, self.program_terminated)


def worker_failure_message(
    failures: Mapping[int, BaseException], tracebacks: Mapping[int, str] | None = None
) -> str:
    """Return the message of a `WorkerGroupError`: the first error with traceback, others in a line.

    Ranks with equal errors (type and message) are grouped, as a failure often affects every rank.

    Args:
        failures: Exception by rank, in order of failure.
        tracebacks: Traceback on each rank. Exceptions lose theirs between processes; for a rank
            that is not included, the traceback of its exception is used.
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
    """Return traceback, causes and message of `error` as Python prints them."""
    return "".join(traceback.format_exception(error)).rstrip()


def picklable_exception(error: BaseException) -> BaseException:
    """Return `error` if it can be pickled and unpickled, else a RuntimeError that describes it."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return RuntimeError(f"{type(error).__qualname__}: {error}")
