from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from syncline.data.columnar import block as block_functions
from syncline.data.execute.physical_plan import TaskState
from syncline.data.execute.steps.function_steps import FilterRowsStep, FlatMapStep, MapRowsStep
from syncline.data.execute.steps.user_functions import UserFunctionError
from syncline.data.plan.nodes import UserFunction

Run = Callable[..., pa.Table]


def map_step(function: Callable[..., Any], **options: Any) -> MapRowsStep:
    return MapRowsStep(function=UserFunction(function=function, **options), name="Map(f)")


def flat_step(function: Callable[..., Any], **options: Any) -> FlatMapStep:
    return FlatMapStep(function=UserFunction(function=function, **options), name="FlatMap(f)")


def filter_step(function: Callable[..., Any], **options: Any) -> FilterRowsStep:
    return FilterRowsStep(function=UserFunction(function=function, **options), name="Filter(f)")


def ids(count: int, start: int = 0) -> pa.Table:
    return pa.table({"id": np.arange(start, start + count)})


def test_map_makes_a_row_of_each_row_in_order_across_blocks_and_portions(run_steps: Run) -> None:
    made = run_steps(
        [ids(3000), ids(0), ids(7, 3000)], map_step(lambda row: {"double": 2 * row["id"]})
    )
    assert made.column("double").to_pylist() == [2 * number for number in range(3007)]


def test_map_may_change_the_row_in_place_without_changing_the_block(run_steps: Run) -> None:
    def add(row: dict[str, Any]) -> dict[str, Any]:
        row["id"] += 1
        row["new"] = "x"
        return row

    table = ids(3)
    assert run_steps([table], map_step(add)).to_pydict() == {"id": [1, 2, 3], "new": ["x"] * 3}
    assert table.to_pydict() == {"id": [0, 1, 2]}


def test_arrays_in_rows_cannot_be_changed_in_place(run_steps: Run) -> None:
    table = block_functions.from_batch({"image": np.zeros((3, 2, 2))})

    def brighten(row: dict[str, Any]) -> dict[str, Any]:
        row["image"] += 1
        return row

    with pytest.raises(UserFunctionError, match="read-only"):
        run_steps([table], map_step(brighten))
    assert not block_functions.to_batch(table)["image"].any()


def test_map_makes_tensors_of_arrays_whatever_their_memory_order(run_steps: Run) -> None:
    images = np.arange(5 * 4 * 3 * 2, dtype=np.float32).reshape(5, 4, 3, 2)
    made = run_steps(
        [ids(5)], map_step(lambda row: {"image": images[row["id"]].transpose(2, 0, 1)})
    )
    assert made.schema.field("image").type == pa.fixed_shape_tensor(pa.float32(), (2, 4, 3))
    np.testing.assert_array_equal(
        block_functions.to_batch(made)["image"], images.transpose(0, 3, 1, 2)
    )


def test_map_may_return_the_same_dict_for_every_row(run_steps: Run) -> None:
    kept: dict[str, Any] = {}

    def refill(row: dict[str, Any]) -> dict[str, Any]:
        kept["id"] = row["id"]
        return kept

    assert run_steps([ids(4)], map_step(refill)).column("id").to_pylist() == [0, 1, 2, 3]


def test_map_takes_any_mapping_and_arguments(run_steps: Run) -> None:
    step = map_step(
        lambda row, add, *, times: MappingProxyType({"y": (row["id"] + add) * times}),
        args=(1,),
        kwargs={"times": 10},
    )
    assert run_steps([ids(2)], step).to_pydict() == {"y": [10, 20]}


@pytest.mark.parametrize("returned", [None, 3, [1], "text"])
def test_map_that_returns_no_mapping_names_what_it_returned_and_the_row(
    run_steps: Run, returned: Any
) -> None:
    with pytest.raises(UserFunctionError, match="row 2 of its task") as raised:
        run_steps([ids(4)], map_step(lambda row: returned if row["id"] == 2 else row))
    assert isinstance(raised.value.original, ValueError)
    assert type(returned).__name__ in str(raised.value.original)
    assert raised.value.rows == range(2, 3)


def test_an_error_keeps_the_frames_of_the_function(run_steps: Run) -> None:
    def fails(row: dict[str, Any]) -> dict[str, Any]:
        raise KeyError(row["id"])

    with pytest.raises(UserFunctionError) as raised:
        run_steps([ids(5), ids(5, 5)], map_step(lambda row: row if row["id"] < 7 else fails(row)))
    assert raised.value.rows == range(7, 8)
    assert raised.value.operator == "Map(f)"
    cause = raised.value.__cause__
    assert isinstance(cause, KeyError)
    frame = cause.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    assert frame is not None
    assert frame.tb_frame.f_code.co_name == "fails"


def test_an_error_of_an_earlier_step_is_not_blamed_on_a_later_one(run_steps: Run) -> None:
    later = FilterRowsStep(
        function=UserFunction(function=lambda row: True, on_error="skip"), name="Later"
    )
    with pytest.raises(UserFunctionError, match="Map"):
        run_steps([ids(2)], map_step(lambda row: row["nothing"]), later)


def test_skip_leaves_out_failing_rows_and_keeps_their_numbers(run_steps: Run) -> None:
    task = TaskState()

    def fails(row: dict[str, Any]) -> Any:
        if row["id"] % 2:
            raise ValueError(f"odd {row['id']}")
        return row if row["id"] else 5

    made = run_steps([ids(3), ids(3, 3)], map_step(fails, on_error="skip"), task=task)
    assert made.column("id").to_pylist() == [2, 4]
    assert [(skipped.operator, skipped.first_row, skipped.rows) for skipped in task.skipped] == [
        ("Map(f)", 0, 1),
        ("Map(f)", 1, 1),
        ("Map(f)", 3, 1),
        ("Map(f)", 5, 1),
    ]
    assert [skipped.error for skipped in task.skipped][1:] == [
        "ValueError: odd 1",
        "ValueError: odd 3",
        "ValueError: odd 5",
    ]


def test_values_of_two_types_in_a_column_are_an_error_of_the_function_that_names_column_and_rows(
    run_steps: Run,
) -> None:
    with pytest.raises(
        UserFunctionError, match=r"'y' has an int \(1\) in row 0 and a str \('x'\) in row 3"
    ):
        run_steps([ids(5)], map_step(lambda row: {"y": "x" if row["id"] == 3 else 1}))


def test_values_of_two_types_in_different_portions_are_an_error_too(run_steps: Run) -> None:
    with pytest.raises(
        UserFunctionError, match=r"'y' is int64 in one and string in another"
    ) as raised:
        run_steps([ids(5), ids(5, 5)], map_step(lambda row: {"y": "x" if row["id"] >= 5 else 1}))
    assert raised.value.rows == range(5, 10)
    assert isinstance(raised.value.original, TypeError)


def test_skip_leaves_out_rows_whose_types_do_not_fit_those_before(run_steps: Run) -> None:
    task = TaskState()
    step = map_step(lambda row: {"y": "x" if row["id"] in (3, 6) else row["id"]}, on_error="skip")
    made = run_steps([ids(5), ids(3, 5)], step, task=task)
    assert made.column("y").to_pylist() == [0, 1, 2, 4, 5, 7]
    assert [skipped.first_row for skipped in task.skipped] == [3, 6]


def test_int_and_float_of_different_portions_become_float(run_steps: Run) -> None:
    made = run_steps([ids(2), ids(2, 2)], map_step(lambda row: {"y": 0.5 if row["id"] == 3 else 1}))
    assert made.column("y").to_pylist() == [1.0, 1.0, 1.0, 0.5]


def test_flat_map_takes_lists_and_generators(run_steps: Run) -> None:
    def repeat(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for _ in range(row["id"]):
            row["again"] = row.get("again", 0) + 1
            yield row

    made = run_steps([ids(4)], flat_step(repeat))
    assert made.to_pydict() == {"id": [1, 2, 2, 3, 3, 3], "again": [1, 1, 2, 1, 2, 3]}
    assert run_steps([ids(3)], flat_step(lambda row: [{"a": row["id"]}] * 2)).column(
        "a"
    ).to_pylist() == [0, 0, 1, 1, 2, 2]
    assert run_steps([ids(3)], flat_step(lambda row: [])).num_rows == 0


@pytest.mark.parametrize("returned", [None, 3, {"id": 1}, "text", [3], ["a"]])
def test_flat_map_that_returns_no_list_of_dicts_says_so(run_steps: Run, returned: Any) -> None:
    with pytest.raises(UserFunctionError, match="flat_map needs") as raised:
        run_steps([ids(2)], flat_step(lambda row: returned if row["id"] else []))
    assert raised.value.rows == range(1, 2)


def test_flat_map_names_the_input_row_whose_results_do_not_fit(run_steps: Run) -> None:
    with pytest.raises(UserFunctionError) as raised:
        run_steps(
            [ids(4)], flat_step(lambda row: [{"y": 1}] * 3 + [{"y": "x" if row["id"] == 2 else 1}])
        )
    assert raised.value.rows == range(2, 3)


def test_filter_keeps_rows_for_which_the_function_is_true(run_steps: Run) -> None:
    table = block_functions.from_batch(
        {"id": np.arange(5), "image": np.arange(20.0).reshape(5, 2, 2)}
    )
    made = run_steps([table], filter_step(lambda row: np.bool_(row["id"] % 2)))
    assert made.column("id").to_pylist() == [1, 3]
    np.testing.assert_array_equal(
        block_functions.to_batch(made)["image"], np.arange(20.0).reshape(5, 2, 2)[[1, 3]]
    )


def test_filter_keeps_the_schema_where_no_row_stays_and_where_none_was(run_steps: Run) -> None:
    for tables in ([ids(3)], [ids(0)]):
        assert run_steps(tables, filter_step(lambda row: False)).schema == ids(0).schema


def test_filter_on_an_ambiguous_truth_value_is_an_error_of_the_function(run_steps: Run) -> None:
    with pytest.raises(UserFunctionError, match="ambiguous"):
        run_steps([ids(2)], filter_step(lambda row: np.array([True, False])))


def test_filter_skips_failing_rows(run_steps: Run) -> None:
    task = TaskState()
    made = run_steps(
        [ids(4)], filter_step(lambda row: 1 / (row["id"] - 1) > 0, on_error="skip"), task=task
    )
    assert made.column("id").to_pylist() == [2, 3]
    assert [(skipped.first_row, skipped.error) for skipped in task.skipped] == [
        (1, "ZeroDivisionError: division by zero")
    ]


def test_a_call_with_a_time_limit_is_shown_to_the_watchdog(run_steps: Run) -> None:
    task = TaskState()
    seen: list[Any] = []

    def look(row: dict[str, Any]) -> dict[str, Any]:
        seen.append(task.in_call)
        return row

    run_steps([ids(2), ids(1, 2)], map_step(look, timeout_s=60), task=task)
    assert [(call[0], call[2], call[3]) for call in seen] == [
        ("Map(f)", 0, 1),
        ("Map(f)", 1, 1),
        ("Map(f)", 2, 1),
    ]
    assert task.in_call is None
    assert task.function_s > 0


def test_a_call_that_hung_in_an_earlier_run_is_left_out(run_steps: Run) -> None:
    task = TaskState(timed_out_calls=frozenset({("Map(f)", 2), ("Map(f)", 0)}))
    made = run_steps([ids(4)], map_step(lambda row: row, timeout_s=3, on_error="skip"), task=task)
    assert made.column("id").to_pylist() == [1, 3]
    assert task.skipped[0].error == "TimeoutError: the call took longer than 3 s"


def test_steps_of_one_name_are_told_apart(run_steps: Run) -> None:
    task = TaskState(timed_out_calls=frozenset({("Map(f) (2)", 0)}))
    seen: list[int] = []

    def look(row: dict[str, Any]) -> dict[str, Any]:
        seen.append(row["id"])
        return row

    options: dict[str, Any] = {"timeout_s": 3, "on_error": "skip"}
    made = run_steps(
        [ids(2)], map_step(look, **options), map_step(lambda row: row, **options), task=task
    )
    assert seen == [0, 1]
    assert made.column("id").to_pylist() == [1]


def test_portions_of_rows_with_large_results_are_short(run_steps: Run) -> None:
    begun: list[int] = []
    step = map_step(lambda row: begun.append(row["id"]) or {"image": np.zeros(200_000)})
    outputs = step.run(iter([ids(500)]), TaskState())
    step.open()
    next(outputs)
    next(outputs)
    assert len(begun) < 50


def test_portions_of_large_rows_are_short() -> None:
    table = pa.table({"payload": pa.array([bytes(1024 * 1024)] * 40)})
    called: list[int] = []
    step = filter_step(lambda row: called.append(1))
    step.open()
    next(step.run(iter([table]), TaskState()))
    assert len(called) < 8
