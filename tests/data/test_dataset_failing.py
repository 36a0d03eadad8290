"""What a program sees in its terminal when a dataset fails: its own line, one text that says what
to do, and none of syncline's frames.
"""

import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import syncline
from syncline.data.columnar.expressions import col
from syncline.data.dataset import Dataset
from syncline.data.from_memory import from_items
from syncline.data.read import range as numbers
from syncline.exceptions import UserCodeException

pytestmark = pytest.mark.processes
PACKAGE = syncline.__file__.removesuffix("__init__.py")


@pytest.fixture(autouse=True, scope="module")
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


def seen(program: Callable[[], Any]) -> tuple[BaseException, str]:
    """The error of a program, and what Python prints for it."""
    with pytest.raises(Exception) as caught:
        program()
    return caught.value, "".join(traceback.format_exception(caught.value))


def quotient(row: dict[str, int]) -> dict[str, float]:
    return {"q": 1 / (row["id"] - row["id"])}


def texts() -> Dataset:
    return numbers(4).map(lambda row: {"name": "x"})


def torch_batches() -> None:
    pytest.importorskip("torch")
    list(
        numbers(4, override_num_blocks=1)
        .map(lambda row: {"x": np.ones(row["id"] + 1)})
        .iter_torch_batches()
    )


# Python 3.10 keeps the frame that raises again.
@pytest.mark.skipif(sys.version_info < (3, 11), reason="shows one frame more")
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda: numbers(4).map(lambda row: [row]).show(), "map needs a dict"),  # type: ignore[return-value]
        (
            lambda: numbers(4).map_batches(lambda batch: batch["id"]).take_all(),
            "give the values a name",
        ),
        (lambda: texts().sort("nam").materialize(), "Did you mean 'name'"),
        (lambda: texts().with_column("y", col("nam")).to_pandas(), "Did you mean 'name'"),
        (
            lambda: texts().filter(expr=col("name") > 3).count(),
            "greater does not take string and int64",
        ),
        (lambda: texts().groupby("name").sum("name").take_all(), "needs numbers"),
        (lambda: texts().zip(numbers(5)).take_all(), "equally many rows"),
        (
            lambda: list(
                texts().union(numbers(4).map(lambda row: {"name": 1})).iter_batches(batch_size=8)
            ),
            "column 'name' is",
        ),
        (lambda: from_items([{"x": [1]}, {"x": [2]}]).sort("x"), "cannot sort by column 'x'"),
        (lambda: numbers(4).map_batches(quotient, batch_size=0), "batch_size=0"),
        (torch_batches, "is ragged"),
    ],
)
def test_what_syncline_refuses_is_told_without_its_frames(
    program: Callable[[], Any], expected: str
) -> None:
    _, text = seen(program)
    assert expected in text
    assert PACKAGE not in text


@pytest.mark.skipif(sys.version_info < (3, 11), reason="shows one frame more")
@pytest.mark.parametrize(
    "program",
    [
        lambda: numbers(4).map(quotient).show(),
        lambda: numbers(4).map(quotient).sum("q"),
        lambda: list(numbers(4).map(quotient).iter_rows()),
        lambda: list(numbers(4).map(quotient).iter_batches()),
    ],
)
def test_a_function_that_raises_shows_its_own_frames_alone(program: Callable[[], Any]) -> None:
    error, text = seen(program)
    assert isinstance(error, UserCodeException)
    assert isinstance(error, ZeroDivisionError)
    assert "in quotient" in text
    assert PACKAGE not in text


def test_an_async_function_shows_its_own_frames_alone() -> None:
    class Fails:
        async def __call__(self, batch: Any) -> Any:
            raise LookupError("not here")

    error, _ = seen(numbers(4).map_batches(Fails, concurrency=1).materialize)
    assert isinstance(error, LookupError)
    assert "concurrent" not in str(error)


def test_the_wrong_result_of_a_row_function_is_a_value_error_as_that_of_a_batch_function() -> None:
    for ds in (
        numbers(2).map(lambda row: 1),  # type: ignore[return-value]
        numbers(2).flat_map(lambda row: 1),  # type: ignore[return-value]
        numbers(2).map_batches(lambda batch: 1),
    ):
        with pytest.raises(ValueError, match="but"):
            ds.materialize()


def test_a_function_that_cannot_be_sent_is_named_with_what_it_uses() -> None:
    lock = threading.Lock()

    def uses(row: dict[str, int]) -> dict[str, int]:
        with lock:
            return row

    with pytest.raises(TypeError, match=r"Map\(uses\) cannot be sent to another process.*lock"):
        numbers(4).map(uses).take_all()


def test_a_process_that_ends_is_told_with_its_end_and_what_to_look_for() -> None:
    def ends(batch: Any) -> Any:
        os._exit(3)

    error, _ = seen(numbers(2, override_num_blocks=1).map_batches(ends).materialize)
    assert "MapBatches(ends)" in str(error)
    assert "exited with code 3. Look for" in str(error)


def test_results_of_differing_types_are_named_as_aggregates() -> None:
    mixed = from_items([{"x": 1}]).union(from_items([{"x": "a"}]))
    with pytest.raises(
        ValueError, match=r"column 'max\(x\)' is int64 in one and string in another"
    ):
        mixed.max("x")


def test_all_frames_are_kept_where_the_program_asks_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SYNCLINE_FULL_TRACEBACK", "1")
    _, text = seen(lambda: numbers(4).map_batches(quotient, batch_size=0))
    assert PACKAGE in text
