"""The table of trials: filter, order, paging."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.dashboard.search_table import Field, Query, page_of, sorted_by
from syncline.dashboard.search_trials import TrialReader, TrialView

METRIC = Field(source="metric", name="loss")


def trials(count: int = 6) -> tuple[TrialView, ...]:
    found = TrialReader()
    for number in range(count):
        config = {
            "lr": 10.0**-number,
            "opt": {"act": "ReLU" if number % 2 else "gelu"},
            "big": number % 2 == 0,
        }
        metrics = {"loss": float((number * 5) % count)} if number != 3 else {}
        status = "ERROR" if number == 3 else "TERMINATED"
        error = "Traceback\nValueError: too much" if number == 3 else None
        found.add(
            [
                {
                    "trial": f"a_{number}",
                    "name": f"train_{number}",
                    "status": status,
                    "config": config,
                    "metrics": metrics,
                    "error": error,
                }
            ]
        )
    return found.snapshot().trials


def numbers(page: Any) -> list[int]:
    return [trial.index for trial in page.trials]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", [0, 1, 2, 3, 4, 5]),
        ("lr<0.01", [3, 4, 5]),
        ("lr>=0.01 lr<1", [1, 2]),
        ("opt/act=relu", [1, 3, 5]),
        ("act!=relu", [0, 2, 4]),
        ("big=true", [0, 2, 4]),
        ("loss<=2", [0, 4, 5]),
        ("status=error", [3]),
        ("TOO error", [3]),
        ("train_4", [4]),
        ("iteration>0", []),
        ("nothing=1", []),
        ("lr<", []),
        ("=<>", []),
        ("lr<abc", [0, 1, 2, 3, 4, 5]),  # compared as texts: digits precede letters
    ],
)
def test_a_filter_finds(text: str, found: list[int]) -> None:
    assert numbers(page_of(trials(), Query(text=text), {"act": "opt/act"})) == found


def test_statuses_are_chosen() -> None:
    assert numbers(page_of(trials(), Query(statuses=("ERROR",)))) == [3]


def test_trials_without_a_value_come_last_whichever_way() -> None:
    ascending = sorted_by(trials(), METRIC, False)
    descending = sorted_by(trials(), METRIC, True)
    assert [trial.metrics.get("loss") for trial in ascending] == [0, 1, 2, 4, 5, None]
    assert [trial.metrics.get("loss") for trial in descending] == [5, 4, 2, 1, 0, None]


def test_numbers_and_texts_in_one_column_can_be_sorted() -> None:
    found = TrialReader()
    for number, value in enumerate(["b", 2, "A", None, 1.5, True]):
        found.add([{"trial": f"a_{number}", "config": {"x": value}}])
    ordered = sorted_by(found.snapshot().trials, Field(source="parameter", name="x"), False)
    assert [trial.parameters["x"] for trial in ordered] == [True, 1.5, 2, "A", "b", None]


def test_only_one_page_is_given_and_the_last_one_where_there_are_not_so_many() -> None:
    page = page_of(trials(), Query(page=1, page_size=4))
    assert (numbers(page), page.number, page.found) == ([4, 5], 1, 6)
    assert page_of(trials(), Query(page=100, page_size=4)).number == 1
    assert page_of(trials(), Query(page=-3, page_size=4)).number == 0
    nothing = page_of((), Query(page=2))
    assert (nothing.number, nothing.found, list(nothing.trials)) == (0, 0, [])


def test_a_filter_without_end_is_cut() -> None:
    assert page_of(trials(), Query(text="a" * 1_000_000)).found == 0
