"""Graphs: `bind`, `execute` and `experimental_compile`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import syncline
from syncline import dag
from syncline.testing.conformance.suite import Suite


@syncline.remote
def _add(a: Any, b: Any = 0) -> Any:
    return a + b


@syncline.remote
def _fail() -> None:
    raise ZeroDivisionError("in the graph")


@syncline.remote(num_returns=2)
def _both(x: int) -> tuple[int, int]:
    return x, -x


@syncline.remote
def _sum_of(values: Any) -> int:
    return sum(syncline.get(list(values)))


@syncline.remote
def _sum_of_box(box: _Box) -> int:
    return sum(syncline.get(box.parts))


@dataclass
class _Box:
    parts: list[Any]


@syncline.remote
class _Counter:
    def __init__(self, start: int = 0) -> None:
        self._value = start

    def add(self, amount: int) -> int:
        self._value += amount
        return self._value

    @syncline.method(num_returns=2)
    def split(self, x: int) -> tuple[int, int]:
        return x // 2, x - x // 2


@dataclass
class _Request:
    left: int
    right: int


class Graphs(Suite):
    """Graphs of tasks and actor calls."""

    def test_a_node_is_executed_as_often_as_asked(self) -> None:
        node = _add.bind(1, b=2)
        assert isinstance(node, dag.FunctionNode)
        assert [syncline.get(node.execute()) for _ in range(2)] == [3, 3]

    def test_options_and_results_of_nodes_pass_on(self) -> None:
        inner = _add.options(num_cpus=0.5).bind(1, 2)
        assert syncline.get(_add.bind(inner, inner).execute()) == 6

    def test_a_shared_node_runs_once_in_an_execution(self) -> None:
        counter = _Counter.remote()
        shared = counter.add.bind(1)
        assert syncline.get(_add.bind(shared, shared).execute()) == 2
        assert syncline.get(counter.add.remote(0)) == 1

    def test_nodes_inside_of_containers_and_objects_become_references(self) -> None:
        parts = [_add.bind(1), _add.bind(2)]
        assert syncline.get(_sum_of.bind(parts).execute()) == 3
        assert syncline.get(_sum_of.bind({parts[0]: 1, parts[1]: 2}).execute()) == 3
        assert syncline.get(_sum_of_box.bind(_Box([*parts, _add.bind(3)])).execute()) == 6

    def test_an_error_reaches_the_end_of_the_graph(self) -> None:
        with pytest.raises(ZeroDivisionError, match="in the graph"):
            syncline.get(_add.bind(_fail.bind()).execute())

    def test_wrong_arguments_fail_at_the_execution_of_tasks_and_at_the_bind_of_methods(
        self,
    ) -> None:
        node = _add.bind()
        with pytest.raises(TypeError):
            node.execute()
        counter = _Counter.remote()
        with pytest.raises(TypeError):
            counter.add.bind()

    def test_several_return_values_are_a_list(self) -> None:
        assert syncline.get(_both.bind(3).execute()) == [3, -3]

    def test_the_input_is_one_value(self) -> None:
        with dag.InputNode() as value:
            graph = _add.bind(value, 1)
        assert syncline.get([graph.execute(2), graph.execute(syncline.put(5))]) == [3, 6]

    def test_parts_of_the_input_are_attributes_keys_and_arguments(self) -> None:
        with dag.InputNode() as value:
            attributes = _add.bind(value.left, value.right)
            keys = _add.bind(value["left"], value["right"])
            positions = _add.bind(value[0], value[1])
            mixed = _add.bind(value[0], value.right)
        assert isinstance(value.left, dag.InputAttributeNode)
        assert syncline.get(attributes.execute(_Request(1, 2))) == 3
        assert syncline.get(keys.execute({"left": 1, "right": 3})) == 4
        assert syncline.get([positions.execute(2, 3), positions.execute([2, 4])]) == [5, 6]
        assert syncline.get(mixed.execute(5, right=6)) == 11
        with pytest.raises(IndexError, match="1 positional"):
            positions.execute(2, left=3)

    def test_every_execution_of_a_bound_class_starts_an_actor(self) -> None:
        counter = _Counter.bind(10)
        with dag.InputNode() as value:
            graph = counter.add.bind(value)
        assert syncline.get([graph.execute(1), graph.execute(2)]) == [11, 12]
        handle = counter.execute()
        assert syncline.get(handle.add.remote(5)) == 15

    def test_methods_of_a_bound_class_run_in_the_order_of_their_binding(self) -> None:
        counter = _Counter.bind(_add.bind(1, 1))
        counter.add.bind(10)
        last = counter.add.options(name="last").bind(100)
        assert syncline.get(last.execute()) == 112
        with pytest.raises(AttributeError, match="no method 'subtract'"):
            _ = counter.subtract

    def test_a_bound_class_takes_no_input(self) -> None:
        with dag.InputNode() as value, pytest.raises(ValueError, match="InputNode"):
            _Counter.bind(value)

    def test_methods_of_an_actor_keep_its_state(self) -> None:
        counter = _Counter.remote(1)
        with dag.InputNode() as value:
            graph = counter.add.bind(counter.add.bind(value))
        assert isinstance(graph, dag.ClassMethodNode)
        assert syncline.get(graph.execute(1)) == 4  # 1 + 1 = 2, then 2 + 2

    def test_each_of_several_return_values_of_a_method_is_a_node(self) -> None:
        counter = _Counter.remote()
        with dag.InputNode() as value:
            left, right = counter.split.bind(value)
            graph = dag.MultiOutputNode([right, _add.bind(left, 100)])
        assert syncline.get(graph.execute(7)) == [4, 103]

    def test_a_node_has_no_bind_and_no_remote(self) -> None:
        node = _add.bind(1)
        for name in ("bind", "remote"):
            with pytest.raises(AttributeError, match=r"\.execute\(\)"):
                getattr(node, name)
        with pytest.raises(AttributeError, match=r"\.bind\("):
            _ = _Counter.bind().add.remote

    def test_long_chains_need_no_recursion(self) -> None:
        counter = _Counter.bind()
        for _ in range(1500):
            last = counter.add.bind(1)
        assert syncline.get(last.execute()) == 1500

    def test_nodes_are_passed_on_and_executed_elsewhere(self) -> None:
        node = _add.bind(_add.bind(1, 2), 3)

        def execute(nodes: list[Any]) -> Any:
            return syncline.get(nodes[0].execute())

        assert syncline.get(syncline.remote(execute).remote([node])) == 6

    def test_a_compiled_graph_runs_until_its_end(self) -> None:
        first, second = _Counter.remote(), _Counter.remote(100)
        with dag.InputNode() as value:
            graph = dag.MultiOutputNode([first.add.bind(value), second.add.bind(value)])
        compiled = graph.experimental_compile(_buffer_size_bytes=1_000_000)
        assert [syncline.get(compiled.execute(1)) for _ in range(2)] == [[1, 101], [2, 102]]
        with pytest.raises(ValueError, match="1 positional"):
            compiled.execute(1, 2)
        with pytest.raises(ValueError, match="enable_asyncio=True"):
            asyncio.run(compiled.execute_async(1))
        with pytest.raises(ValueError, match="compiled before"):
            graph.experimental_compile()
        compiled.teardown()
        compiled.teardown()
        assert compiled.is_teardown
        with pytest.raises(syncline.exceptions.RayChannelError, match="torn down"):
            compiled.execute(1)
        assert syncline.get(first.add.remote(0)) == 2

    def test_a_compiled_graph_names_the_inputs_that_are_missing(self) -> None:
        counter = _Counter.remote()
        with dag.InputNode() as value:
            compiled = counter.add.bind(value["amount"]).experimental_compile()
        assert syncline.get(compiled.execute(amount=3)) == 3
        with pytest.raises(ValueError, match="amount"):
            compiled.execute()

    def test_graphs_that_cannot_be_compiled_are_refused(self) -> None:
        counter = _Counter.remote()
        with pytest.raises(ValueError, match="no InputNode"):
            counter.add.bind(1).experimental_compile()
        with dag.InputNode() as value:
            two_ways = dag.MultiOutputNode([counter.add.bind(value), counter.add.bind(value[0])])
            bound_class = _Counter.bind().add.bind(value)
        with pytest.raises(ValueError, match="in one way"):
            two_ways.experimental_compile()
        with pytest.raises(ValueError, match=r"\.remote\("):
            bound_class.experimental_compile()

    def test_tensors_pass_through_shared_memory_only(self) -> None:
        counter = _Counter.remote()
        with dag.InputNode() as value:
            node = counter.add.bind(value)
        assert node.with_tensor_transport() is node
        assert node.with_tensor_transport("shm", device="cpu") is node
        with pytest.raises(NotImplementedError, match=r"torch\.distributed"):
            node.with_tensor_transport("nccl")
        with pytest.raises(ValueError, match="transport"):
            node.with_tensor_transport("carrier pigeon")


class AwaitedGraphs(Suite):
    """Compiled graphs in an event loop."""

    needs = ("processes", "parallel")

    def test_execute_async_returns_what_can_be_awaited(self) -> None:
        counter = _Counter.remote()
        with dag.InputNode() as value:
            one = counter.add.bind(value).experimental_compile(enable_asyncio=True)
            many = dag.MultiOutputNode([counter.add.bind(value)])
        several = many.experimental_compile(enable_asyncio=True)

        async def run() -> tuple[int, list[int]]:
            first = await (await one.execute_async(1))
            return first, await asyncio.gather(*await several.execute_async(2))

        assert asyncio.run(run()) == (1, [3])
        with pytest.raises(ValueError, match="execute_async"):
            one.execute(1)

    def test_the_end_of_a_compiled_graph_kills_its_actors_if_asked(self) -> None:
        counter = _Counter.remote()
        with dag.InputNode() as value:
            compiled = counter.add.bind(value).experimental_compile()
        assert syncline.get(compiled.execute(1)) == 1
        compiled.teardown(kill_actors=True)
        with pytest.raises(syncline.exceptions.ActorDiedError):
            syncline.get(counter.add.remote(1), timeout=30)
