"""`clock_offset`: how far the clock of another node is ahead.

As in Cristian's algorithm, its time is taken to belong to the middle between question and answer.
The answer with the shortest round trip counts; half of that trip bounds the error.
"""

from __future__ import annotations

import time
from collections.abc import Callable

QUESTIONS = 5


def clock_offset(ask: Callable[[], float], clock: Callable[[], float] = time.time) -> float:
    """Return the seconds by which the other clock is ahead of `clock`, after `QUESTIONS` questions.

    Args:
        ask: Returns the other clock's time in seconds since the epoch.
    """
    found = []
    for _ in range(QUESTIONS):
        asked = clock()
        answer = ask()
        answered = clock()
        found.append((answered - asked, answer - (asked + answered) / 2))
    return min(found)[1]
