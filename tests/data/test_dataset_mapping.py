"""`map`, `flat_map`, `map_batches`, `filter`: what becomes of their arguments, and which they
refuse at the call.
"""

import functools
from typing import Any

import pyarrow as pa
import pytest

from syncline.data.columnar.expressions import col
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.dataset import Dataset
from syncline.data.from_memory import from_arrow
from syncline.data.plan.compute import ActorPoolStrategy, ComputeStrategy, TaskPoolStrategy
from syncline.data.plan.function_options import NotAFunctionError
from syncline.data.plan.nodes import FilterExpr, FilterRows, FlatMap, MapBatches, MapRows


class Doubler:
    def __init__(self, factor: int = 2) -> None:
        self.factor = factor

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return row


class NeverCalled:
    pass


def same(row: Any) -> Any:
    return row


@pytest.fixture
def people() -> Dataset:
    return from_arrow(pa.table({"name": ["Ann", "Bo"], "age": [30, 40]}))


def test_methods_make_nodes_and_leave_the_dataset_alone(people: Dataset) -> None:
    before = people._node
    mapped = people.map(same)
    assert people._node is before
    assert isinstance(mapped._node, MapRows)
    assert mapped._node.input is before
    assert isinstance(people.flat_map(same)._node, FlatMap)
    assert isinstance(people.filter(same)._node, FilterRows)
    assert isinstance(people.map_batches(same)._node, MapBatches)


def test_arguments_reach_the_node(people: Dataset) -> None:
    node = people.map_batches(  # type: ignore[call-arg]
        Doubler,
        batch_size=7,
        batch_format="pandas",
        zero_copy_batch=False,
        udf_modifying_row_count=False,
        fn_args=[1],
        fn_kwargs={"a": 2},
        fn_constructor_args=(3,),
        fn_constructor_kwargs={"factor": 4},
        num_cpus=0.5,
        memory=100,
        resources={"special": 1},
        timeout_s=5,
        on_error="skip",
        max_restarts=2,
    )._node
    assert isinstance(node, MapBatches)
    assert (node.batch_size, node.batch_format, node.zero_copy, node.keeps_row_count) == (
        7,
        "pandas",
        False,
        True,
    )
    function = node.function
    assert (
        function.args,
        function.kwargs,
        function.constructor_args,
        function.constructor_kwargs,
    ) == ((1,), {"a": 2}, (3,), {"factor": 4})
    assert (function.timeout_s, function.on_error) == (5.0, "skip")
    assert (
        function.resources.num_cpus,
        function.resources.num_gpus,
        function.resources.memory,
    ) == (0.5, None, 100)
    assert function.resources.options == {"resources": {"special": 1}, "max_restarts": 2}


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (same, {}, TaskPoolStrategy()),
        (Doubler(), {}, TaskPoolStrategy()),
        (functools.partial(same), {"concurrency": 3}, TaskPoolStrategy(size=3)),
        (same, {"compute": TaskPoolStrategy(size=2)}, TaskPoolStrategy(size=2)),
        (same, {"compute": "tasks"}, TaskPoolStrategy()),
        (Doubler, {}, ActorPoolStrategy(min_size=1)),
        (Doubler, {"concurrency": 3}, ActorPoolStrategy(size=3)),
        (Doubler, {"concurrency": (1, 4)}, ActorPoolStrategy(min_size=1, max_size=4)),
        (
            Doubler,
            {"concurrency": (1, 4, 2)},
            ActorPoolStrategy(min_size=1, max_size=4, initial_size=2),
        ),
        (
            Doubler,
            {"compute": ActorPoolStrategy(size=2), "concurrency": 9},
            ActorPoolStrategy(size=2),
        ),
    ],
)
def test_functions_run_as_tasks_and_classes_in_actors(
    people: Dataset, function: Any, arguments: dict[str, Any], expected: ComputeStrategy
) -> None:
    node = people.map(function, **arguments)._node
    assert isinstance(node, MapRows)
    assert node.function.compute == expected


@pytest.mark.parametrize(
    ("function", "arguments", "error", "text"),
    [
        (5, {}, TypeError, "not callable"),
        (5, {}, ValueError, "not callable"),
        (NeverCalled, {}, TypeError, "__call__"),
        (same, {"concurrency": (1, 2)}, ValueError, "only classes have"),
        (Doubler, {"concurrency": (1, 2, 3, 4)}, ValueError, "(min, max)"),
        (Doubler, {"concurrency": "2"}, ValueError, "(min, max)"),
        (Doubler, {"concurrency": (4, 1)}, ValueError, "max_size=1"),
        (same, {"concurrency": 0}, ValueError, "at least 1"),
        (same, {"concurrency": 1.5}, TypeError, "int"),
        (same, {"compute": ActorPoolStrategy(size=1)}, ValueError, "not a class"),
        (Doubler, {"compute": TaskPoolStrategy()}, ValueError, "is a class"),
        (same, {"compute": 3}, ValueError, "TaskPoolStrategy"),
        (same, {"compute": "actors"}, ValueError, "ActorPoolStrategy"),
        (Doubler, {"compute": "actors"}, ValueError, "ActorPoolStrategy"),
        (same, {"fn_constructor_args": [1]}, ValueError, "not a class"),
        (same, {"fn_constructor_kwargs": {"a": 1}}, ValueError, "not a class"),
        (same, {"fn_kwargs": [1]}, TypeError, "dict"),
        (same, {"timeout_s": 0}, ValueError, "above 0"),
        (same, {"timeout_s": "1"}, ValueError, "above 0"),
        (same, {"on_error": "ignore"}, ValueError, "'skip'"),
        (same, {"num_cpus": -1}, ValueError, "num_cpus"),
        (same, {"num_gpu": 1}, TypeError, "num_gpu"),
        (same, {"batch_size": 0}, ValueError, "at least 1"),
        (same, {"batch_size": -4}, ValueError, "at least 1"),
        (same, {"batch_size": 2.5}, TypeError, "int"),
        (same, {"batch_size": True}, TypeError, "int"),
        (same, {"batch_format": "cudf"}, ValueError, "'pyarrow'"),
        (same, {"num_gpus": 1}, ValueError, "batch_size"),
        (same, {"num_gpus": 1, "batch_size": "auto"}, ValueError, "batch_size"),
    ],
)
def test_what_does_not_fit_fails_at_the_call(
    people: Dataset, function: Any, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text.replace("(", r"\(").replace(")", r"\)")):
        people.map_batches(function, **arguments)


def test_a_batch_on_a_gpu_has_a_size(people: Dataset) -> None:
    node = people.map_batches(same, num_gpus=0.5, batch_size=8)._node
    assert isinstance(node, MapBatches)
    assert node.function.resources.num_gpus == 0.5


def test_filters_by_expression_are_a_node_of_their_own(people: Dataset) -> None:
    for filtered in (people.filter(expr=col("age") > 30), people.filter(col("age") > 30)):
        assert isinstance(filtered._node, FilterExpr)
        assert filtered._node.predicate.structurally_equals(col("age") > 30)


def test_a_filter_as_text_is_parsed_and_deprecated(people: Dataset) -> None:
    with pytest.warns(DeprecationWarning, match="age > 30") as caught:
        filtered = people.filter(expr="age > 30")
    assert caught[0].filename == __file__
    assert isinstance(filtered._node, FilterExpr)
    assert filtered._node.predicate.structurally_equals(col("age") > 30)


def test_filter_takes_a_function_or_an_expression(people: Dataset) -> None:
    with pytest.raises(ValueError, match="either"):
        people.filter()
    with pytest.raises(ValueError, match="either"):
        people.filter(same, expr=col("age") > 30)
    with pytest.raises(ValueError, match="fn_args"):
        people.filter(expr=col("age") > 30, fn_args=[1])
    with pytest.raises(TypeError, match="not an expression"):
        people.filter(expr=5)
    with pytest.raises(NotAFunctionError):
        people.filter(5)


def test_filters_on_known_columns_are_checked_at_the_call(people: Dataset) -> None:
    with pytest.raises(UnknownColumnError, match="Did you mean 'age'"):
        people.filter(col("agee") > 30)
    with pytest.raises(TypeError, match="boolean"):
        people.filter(col("age") + 1)
    assert isinstance(
        people.map(same).filter(col("agee") > 30)._node, FilterExpr
    )  # nothing is known behind a function
