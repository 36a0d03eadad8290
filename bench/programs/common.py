"""What the measured programs share: their arguments, their clocks, and the file for their
numbers.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

Values = dict[str, float]
Run = Callable[[int], None]
"""Does something so many times."""


def arguments() -> argparse.Namespace:
    """`library` (the contender's name for this program) and `out` (the file for the numbers)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--out", required=True)
    return parser.parse_args()


def write(out: str, values: Values) -> None:
    """Writes the numbers of this measurement; whole or not at all, because a program may be killed
    at any moment.
    """
    scratch = Path(f"{out}.{os.getpid()}")
    scratch.write_text(json.dumps(values))
    scratch.replace(out)


def calls(library: ModuleType, submit: Callable[[int], Any]) -> tuple[Run, Run]:
    """What makes so many calls: one at a time, and many in flight. `submit` gives a reference to
    what it is given; all is up on return.
    """

    def one_at_a_time(count: int) -> None:
        for index in range(count):
            library.get(submit(index))

    def many_in_flight(count: int) -> None:
        assert library.get([submit(index) for index in range(count)])[-1] == count - 1

    many_in_flight(500)
    return one_at_a_time, many_in_flight


def rate(run: Run, count: int, repeats: int = 3) -> float:
    """Calls per second of `run(count)`, the median over `repeats`."""
    rates = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run(count)
        rates.append(count / (time.perf_counter() - begin))
    return statistics.median(rates)


def rates_in_turns(runs: Sequence[Run], count: int, turns: int) -> list[float]:
    """Calls per second of each of `runs`, which take turns, so that what loads the machine slows
    them all; medians over the turns.
    """
    rates: list[list[float]] = [[] for _ in runs]
    for turn in range(turns):
        for place in range(len(runs)):
            index = (turn + place) % len(runs)
            rates[index].append(rate(runs[index], count, repeats=1))
    return [statistics.median(own) for own in rates]


def seconds_each(call: Callable[[int], None], count: int, finish: Callable[[], object]) -> float:
    """Mean seconds per call of `call(index)` over `count` calls and one `finish()`, a first call
    not counted.
    """
    call(0)
    begin = time.perf_counter()
    for index in range(1, count + 1):
        call(index)
    finish()
    return (time.perf_counter() - begin) / count


def median_ms(seconds: Sequence[float]) -> float:
    """The median in milliseconds."""
    return statistics.median(seconds) * 1e3
