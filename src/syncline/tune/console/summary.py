"""How a search is summed up in lines of text. Pure.

The lines are short and few: programs print them where their own output goes, too.
"""

from __future__ import annotations

import math

from syncline.train.console.values import counted, duration, shortened
from syncline.tune.console.snapshot import Best, Failure, Snapshot


def status_text(snapshot: Snapshot, expected: int | float | None) -> str:
    """`12 of 50 trials: 2 RUNNING, 10 TERMINATED`; without the second number where it is not known
    or the first has reached it.
    """
    total = snapshot.total
    known = expected is not None and not math.isinf(expected) and expected > total
    trials = (
        f"{total} of {int(expected)} trials"
        if known and expected is not None
        else counted(total, "trial")
    )
    states = ", ".join(f"{count} {status}" for status, count in snapshot.counts.items())
    return f"{trials}: {states}" if states else trials


def hidden_text(snapshot: Snapshot) -> str:
    """How many trials a table leaves out; "" for none."""
    if not snapshot.hidden:
        return ""
    states = ", ".join(f"{count} {status}" for status, count in snapshot.hidden.items())
    return f"... {counted(sum(snapshot.hidden.values()), 'more trial')} not shown ({states})"


def best_text(best: Best) -> str:
    """`train_00003 with loss=0.12 after 10 iterations and parameters={'lr': 0.01}`."""
    iterations = f" after {counted(best.iteration, 'iteration')}" if best.iteration else ""
    return (
        f"{best.trial} with {best.metric}={best.value}{iterations} and parameters={best.parameters}"
    )


def failure_text(failure: Failure) -> str:
    """`train_00003 failed: ValueError: no data`."""
    times = f" {failure.times} times" if failure.times > 1 else ""
    after = " and went on" if failure.recovered else ""
    return f"{failure.trial} failed{times}{after}: {shortened(failure.message, 200)}"


def closing_lines(snapshot: Snapshot, running_for_s: float) -> list[str]:
    """What is said when a search is over: how the trials ended, then the best one and where its
    checkpoint lies.
    """
    lines = [f"Tune: {status_text(snapshot, None)}, after {duration(running_for_s)}."]
    if snapshot.best is not None:
        lines.append(f"Best trial: {best_text(snapshot.best)}")
        if snapshot.best.checkpoint is not None:
            lines[-1] += f"; checkpoint: {snapshot.best.checkpoint}"
    return lines


def errors_line(snapshot: Snapshot) -> str | None:
    """What went wrong, in one line, where there is no table of errors; None if no trial has ended
    so.
    """
    ended = [failure for failure in snapshot.failures if not failure.recovered]
    if not ended:
        return None
    others = (
        f" ({counted(snapshot.errored - 1, 'more trial')} failed)" if snapshot.errored > 1 else ""
    )
    return f"{failure_text(ended[-1])}{others}; see {ended[-1].file}"
