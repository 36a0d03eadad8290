"""Setting fault points (see `syncline.faults`): in this process, or in a program that is about to
be started.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from syncline import faults

VARIABLE = "SYNCLINE_FAULTS"


def fault_text(points: dict[str, str]) -> str:
    """`{"worker.before_result": "kill:3"}` as the text that `SYNCLINE_FAULTS` takes. ValueError for
    an action that does not exist.
    """
    text = ",".join(f"{point}={action}" for point, action in points.items())
    faults.parse(text)
    return text


def fault_environment(points: dict[str, str]) -> dict[str, str]:
    """The environment variables that make a program, with all of its processes, meet the faults in
    `points`.
    """
    return {VARIABLE: fault_text(points)}


@contextmanager
def faults_set(points: dict[str, str]) -> Iterator[None]:
    """Set the faults of this process only, until the end of the block. Processes that were started
    before know nothing of them.
    """
    faults.configure(fault_text(points))
    try:
        yield
    finally:
        faults.configure("")
