"""`LiveActions`: answers to `syncline stack`, `syncline profile`, `syncline runs stop` and the
dashboard about the workers of this node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from syncline.launcher import worker_stacks
from syncline.runs.outliers import NO_ANSWER, ranks_text
from syncline.runs.record_files import Files


class LiveError(RuntimeError):
    """A request cannot be answered. The message has cause and remedy."""


class LiveActions:
    """Answers requests, on any thread.

    Args:
        stop: Ends the job without waiting.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self.workers: Mapping[int, Mapping[str, object]] = {}
        """Fields of each worker by rank; empty before the first start."""
        self.files: Files | None = None
        """Files of the run directory, whose writes run on the threads of requests; None without a
        record.
        """
        self.diagnosis: Callable[[], dict[str, object]] = dict
        """Returns the state of the diagnosis; see `RankHealth.to_json`."""

    def answer(self, action: str, arguments: Mapping[str, object]) -> object:
        """Return the answer in values that JSON can hold; the actions are those of a training.

        Raises:
            LiveError: There is no such rank, or nothing runs.
            ValueError: An unknown action, or arguments that cannot be meant.
        """
        if action == "stop":
            self._stop()
            return {}
        if action == "diagnosis":
            return self.diagnosis()
        workers = self.workers
        if not workers:
            raise LiveError("The workers have not started yet. Try again in a moment.")
        if action == "workers":
            return [dict(worker) for worker in workers.values()]
        if action == "stacks":
            wanted = arguments.get("ranks")
            ranks = (
                [_rank(workers, each) for each in wanted]
                if isinstance(wanted, list)
                else list(workers)
            )
            found = worker_stacks.stacks({rank: _pid(workers, rank) for rank in ranks})
            return {str(rank): found.get(rank, NO_ANSWER) for rank in ranks}
        if action == "profile":
            from syncline.launcher import profile_tools  # loads much of the library

            if self.files is None:
                raise LiveError("The run has no record that a profile could be written to.")
            rank = _rank(workers, arguments.get("rank"))
            pid = _pid(workers, rank)
            return {"file": profile_tools.take(rank, pid, self.files, arguments)}
        raise ValueError(
            f"Unknown action {action!r} of a run. Actions: workers, stacks, profile, diagnosis, "
            "stop."
        )


def _pid(workers: Mapping[int, Mapping[str, object]], rank: int) -> int:
    pid = workers[rank]["pid"]
    assert isinstance(pid, int)
    return pid


def _rank(workers: Mapping[int, object], wanted: object) -> int:
    """Return a rank of this node, given as a number or as digits."""
    if isinstance(wanted, str) and wanted.isascii() and wanted.isdigit():
        wanted = int(wanted)
    if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted not in workers:
        raise LiveError(f"This node has no rank {wanted!r}, only {ranks_text(list(workers))}.")
    return wanted
