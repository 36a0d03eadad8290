"""Shared by the programs: arguments, timers, and the file for the values."""

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
"""Runs an operation n times."""


def arguments() -> argparse.Namespace:
    """Parse `library` (the contender's argument) and `out` (the file for the values)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--out", required=True)
    return parser.parse_args()


def write(out: str, values: Values) -> None:
    """Write the values of this measurement atomically: a program may be killed at any moment."""
    scratch = Path(f"{out}.{os.getpid()}")
    scratch.write_text(json.dumps(values))
    scratch.replace(out)


def read(path: str) -> Values:
    """Return the values of `write`."""
    values: Values = json.loads(Path(path).read_text())
    return values


def calls(library: ModuleType, submit: Callable[[int], Any]) -> tuple[Run, Run]:
    """Return functions that make n calls, one at a time and many in flight, with workers started.

    `submit(value)` returns a reference to the value.
    """

    def one_at_a_time(count: int) -> None:
        for index in range(count):
            library.get(submit(index))

    def many_in_flight(count: int) -> None:
        assert library.get([submit(index) for index in range(count)])[-1] == count - 1

    many_in_flight(500)
    return one_at_a_time, many_in_flight


def rate(run: Run, count: int, repeats: int = 3) -> float:
    """Return the operations per second of `run(count)`: the median over `repeats`."""
    rates = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run(count)
        rates.append(count / (time.perf_counter() - begin))
    return statistics.median(rates)


def interleaved_rates(runs: Sequence[Run], count: int, rounds: int) -> list[float]:
    """Return the operations per second of each run, medians over the rounds. The runs alternate, so
    that other load on the machine affects all of them.
    """
    rates: list[list[float]] = [[] for _ in runs]
    for round_index in range(rounds):
        for offset in range(len(runs)):
            index = (round_index + offset) % len(runs)
            rates[index].append(rate(runs[index], count, repeats=1))
    return [statistics.median(own) for own in rates]


def seconds_each(call: Callable[[int], None], count: int, finish: Callable[[], object]) -> float:
    """Return the mean seconds of `count` calls and one `finish()`, after a warm-up call."""
    call(0)
    begin = time.perf_counter()
    for index in range(1, count + 1):
        call(index)
    finish()
    return (time.perf_counter() - begin) / count


def median_ms(seconds: Sequence[float]) -> float:
    """Return the median in milliseconds."""
    return statistics.median(seconds) * 1e3
