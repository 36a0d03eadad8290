from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from syncline.data.columnar import block as block_functions
from syncline.data.context import DataContext
from syncline.data.execute.physical_plan import Chain, TaskState
from syncline.data.execute.steps.function_steps import MapGroupsStep
from syncline.data.execute.steps.heads import SortHead
from syncline.data.execute.steps.user_functions import UserFunctionError
from syncline.data.execute.task_run import open_chain, run_chain
from syncline.data.plan.nodes import UserFunction


def map_groups(
    pieces: list[pa.Table],
    function: Callable[..., Any],
    *,
    keys: tuple[str, ...] = ("k",),
    task: TaskState | None = None,
    **options: Any,
) -> pa.Table:
    own = {name: options.pop(name) for name in ("batch_format", "zero_copy") if name in options}
    step = MapGroupsStep(
        function=UserFunction(function=function, **options), name="MapGroups(f)", keys=keys, **own
    )
    chain = Chain(head=SortHead(keys=keys), steps=(step,), context=DataContext())
    open_chain(chain)
    return block_functions.concat(
        [output.table for output in run_chain(chain, [pieces], None, task or TaskState())]
    )


TABLES = [
    pa.table({"k": ["b", "a", "b"], "v": [1, 2, 3]}),
    pa.table({"k": ["a", None, "b"], "v": [4, 5, 6]}),
]


def test_each_group_is_one_call_in_order_of_the_keys() -> None:
    seen: list[list[int]] = []

    def total(group: dict[str, np.ndarray]) -> dict[str, Any]:
        seen.append(group["v"].tolist())
        return {"k": group["k"][:1], "total": [group["v"].sum()]}

    assert map_groups(TABLES, total).to_pydict() == {"k": ["a", "b", None], "total": [6, 10, 5]}
    assert seen == [[2, 4], [1, 3, 6], [5]]


@pytest.mark.parametrize(
    ("batch_format", "kind"), [("numpy", dict), ("pandas", pd.DataFrame), ("pyarrow", pa.Table)]
)
def test_groups_have_the_format_asked_for(batch_format: Any, kind: Any) -> None:
    def look(group: Any) -> Any:
        assert isinstance(group, kind)
        if kind is pd.DataFrame:
            assert list(group.index) == list(range(len(group)))
        return group

    made = map_groups(TABLES, look, batch_format=batch_format)
    assert made.column("v").to_pylist() == [2, 4, 1, 3, 6, 5]


def test_without_keys_all_rows_are_one_group() -> None:
    assert map_groups(TABLES, lambda group: {"rows": [len(group["v"])]}, keys=()).to_pydict() == {
        "rows": [6]
    }


def test_groups_may_be_changed_unless_they_are_views() -> None:
    def double(group: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        group["v"] *= 2
        return group

    assert map_groups(TABLES, double, zero_copy=False).column("v").to_pylist() == [
        4,
        8,
        2,
        6,
        12,
        10,
    ]
    with pytest.raises(UserFunctionError, match="read-only"):
        map_groups(TABLES, double)


def test_a_class_is_called_with_group_after_group() -> None:
    class Number:
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, group: dict[str, np.ndarray]) -> dict[str, Any]:
            self.calls += 1
            return {"call": [self.calls]}

    assert map_groups(TABLES, Number).column("call").to_pylist() == [1, 2, 3]


def test_a_failing_group_is_left_out() -> None:
    def fails(group: dict[str, np.ndarray]) -> dict[str, Any]:
        if 1 in group["v"]:
            raise ValueError("one")
        return {"rows": [len(group["v"])]}

    task = TaskState()
    assert map_groups(TABLES, fails, on_error="skip", task=task).column("rows").to_pylist() == [
        2,
        1,
    ]
    assert [(skipped.first_row, skipped.rows) for skipped in task.skipped] == [(2, 3)]
