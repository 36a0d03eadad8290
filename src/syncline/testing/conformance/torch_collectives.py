"""`util.collective` between actors, and `experimental.collective` in graphs of their calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

import syncline
from syncline.dag import InputNode, MultiOutputNode
from syncline.experimental import collective as graph_collective
from syncline.testing.conformance.suite import Suite, Trait
from syncline.testing.tasks import get
from syncline.util import collective
from syncline.util.collective import ReduceOp

TIMEOUT_MS = 120_000


@syncline.remote
class Member:
    """An actor of a group."""

    def join(self, world_size: int, rank: int, name: str = "default") -> tuple[int, int]:
        collective.init_collective_group(world_size, rank, "gloo", name, TIMEOUT_MS)
        return collective.get_rank(name), collective.get_collective_group_size(name)

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


@syncline.remote
class Computer:
    """An actor whose methods are bound in graphs."""

    def scaled(self, values: list[float], factor: float) -> Any:
        import torch

        return torch.tensor(values) * factor

    def total(self, tensor: Any) -> float:
        return float(tensor.sum())

    def failed(self, values: list[float]) -> Any:
        raise LookupError("no tensor")


class CollectiveGraphs(Suite):
    """Collective operations that are bound in graphs."""

    needs: ClassVar[tuple[Trait, ...]] = ("processes", "parallel")

    @pytest.fixture(scope="class")
    @classmethod
    def actors(cls) -> Iterator[Any]:
        pytest.importorskip("torch")
        actors = [Computer.remote() for _ in range(2)]
        yield actors
        for actor in actors:
            syncline.kill(actor)

    def test_compiled_graph_reduces_in_each_execution(self, actors: Any) -> None:
        with InputNode() as values:
            scaled = [actor.scaled.bind(values, n) for n, actor in enumerate(actors, 1)]
            reduced = graph_collective.allreduce.bind(scaled)
            totals = [actor.total.bind(each) for actor, each in zip(actors, reduced, strict=True)]
        compiled = MultiOutputNode(totals).experimental_compile()
        assert [get(compiled.execute([n, 1.0])) for n in (1.0, 2.0)] == [[6.0, 6.0], [9.0, 9.0]]
        compiled.teardown()

    def test_every_operation_of_one_graph(self, actors: Any) -> None:
        with InputNode() as values:
            scaled = [actor.scaled.bind(values, n) for n, actor in enumerate(actors, 1)]
            outputs = [
                *graph_collective.allgather.bind(scaled),
                *graph_collective.reducescatter.bind(scaled),
                *(
                    node
                    for op in graph_collective.ReduceOp
                    for node in graph_collective.allreduce.bind(scaled, op)[:1]
                ),
            ]
        found = get(MultiOutputNode(outputs).execute([1.0, 4.0]))
        assert [each.tolist() for each in found] == [
            *[[1.0, 4.0, 2.0, 8.0]] * 2,
            *[[3.0], [12.0]],
            *[[3.0, 12.0], [2.0, 32.0], [2.0, 8.0], [1.0, 4.0], [1.5, 6.0]],
        ]

    def test_several_tensors_of_each_actor(self, actors: Any) -> None:
        with InputNode() as values:
            nested = graph_collective.allreduce.bind(
                [[actor.scaled.bind(values, n) for actor in actors] for n in (1, 10)]
            )
        found = get(MultiOutputNode([node for own in nested for node in own]).execute([2.0]))
        assert [each.tolist() for each in found] == [[4.0], [40.0]] * 2

    def test_results_are_inputs_of_other_operations(self, actors: Any) -> None:
        with InputNode() as values:
            first = graph_collective.allreduce.bind(
                [actor.scaled.bind(values, 1) for actor in actors]
            )
            second = graph_collective.allgather.bind(first)
        assert get(second[0].execute([1.0])).tolist() == [2.0, 2.0]

    def test_a_failed_input_fails_all_outputs(self, actors: Any) -> None:
        with InputNode() as values:
            outputs = graph_collective.allreduce.bind(
                [actors[0].scaled.bind(values, 1), actors[1].failed.bind(values)]
            )
        for ref in MultiOutputNode(outputs).execute([1.0]):
            with pytest.raises(LookupError):
                get(ref)

    def test_wrong_tensors_are_refused(self, actors: Any) -> None:
        with InputNode() as values:
            scaled = [actor.scaled.bind(values, 1) for actor in actors]
            totals = [actor.total.bind(node) for actor, node in zip(actors, scaled, strict=True)]
            numbers = graph_collective.allreduce.bind(totals)
            uneven = graph_collective.reducescatter.bind(scaled)
        with pytest.raises(ValueError, match="returns a torch tensor"):
            get(numbers[0].execute([1.0]))
        with pytest.raises(ValueError, match="cannot be divided among 2 actors"):
            get(uneven[0].execute([1.0, 2.0, 3.0]))


class Collectives(Suite):
    """A group of two actors with gloo."""

    needs: ClassVar[tuple[Trait, ...]] = ("processes", "parallel")

    @pytest.fixture(scope="class")
    @classmethod
    def members(cls) -> Iterator[Any]:
        pytest.importorskip("torch")
        members = [Member.remote() for _ in range(2)]
        joined = get([member.join.remote(2, rank) for rank, member in enumerate(members)])
        assert joined == [(0, 2), (1, 2)]
        yield members
        for member in members:
            syncline.kill(member)

    def test_allreduce_combines_arrays_and_tensors_in_place(self, members: Any) -> None:
        def combine(rank: int) -> Any:
            import numpy
            import torch

            array, tensor = numpy.full(3, rank + 1.0), torch.tensor([rank, 5 - rank])
            collective.allreduce(array)
            collective.allreduce(tensor, op=ReduceOp.MAX)
            return array.tolist(), tensor.tolist()

        found = get([member.run.remote(combine, rank) for rank, member in enumerate(members)])
        assert found == [([3.0] * 3, [1, 5])] * 2

    def test_every_other_operation(self, members: Any) -> None:
        def use(rank: int) -> Any:
            import numpy

            def array() -> Any:
                return numpy.array([rank + 1, 10 * (rank + 1)])

            copied, kept = array(), array()
            collective.broadcast(copied, src_rank=1)
            collective.reduce(kept, dst_rank=0, op=ReduceOp.PRODUCT)
            gathered = [numpy.zeros(2, dtype=int) for _ in range(2)]
            collective.allgather(gathered, array())
            scattered = numpy.zeros(2, dtype=int)
            collective.reducescatter(scattered, [array(), 2 * array()])
            received = numpy.zeros(2, dtype=int)
            if rank == 0:
                collective.send(array(), dst_rank=1)
            else:
                collective.recv(received, src_rank=0)
            collective.barrier()
            every = [copied, kept, *gathered, scattered, received]
            return [each.tolist() for each in every]

        found = get([member.run.remote(use, rank) for rank, member in enumerate(members)])
        assert found[0] == [[2, 20], [2, 200], [1, 10], [2, 20], [3, 30], [0, 0]]
        assert found[1] == [[2, 20], [2, 20], [1, 10], [2, 20], [6, 60], [1, 10]]

    def test_default_group_of_torch_is_left_alone(self, members: Any) -> None:
        def default() -> bool:
            import torch.distributed

            return torch.distributed.is_initialized()

        assert not get(members[0].run.remote(default))

    def test_strided_arrays_are_changed_in_place(self, members: Any) -> None:
        def combine() -> Any:
            import numpy

            whole = numpy.ones((2, 2))
            collective.allreduce(whole[:, 0])
            return whole.tolist()

        found = get([member.run.remote(combine) for member in members])
        assert found == [[[2.0, 1.0], [2.0, 1.0]]] * 2

    def test_wrong_arguments_are_refused(self, members: Any) -> None:
        def refused(error: type[Exception], operation: str, *arguments: Any) -> None:
            with pytest.raises(error):
                getattr(collective, operation)(*arguments)

        def check() -> None:
            import numpy

            array = numpy.ones(1)
            refused(ValueError, "broadcast", array, 2)
            refused(RuntimeError, "send", array, 0)
            refused(RuntimeError, "allgather", [array], array)
            refused(RuntimeError, "allreduce", [1.0])
            refused(RuntimeError, "init_collective_group", 2, 0, "gloo")
            refused(RuntimeError, "allreduce", array, "unknown")
            refused(NotImplementedError, "allreduce_multigpu", [array, array])
            array.flags.writeable = False
            refused(ValueError, "allreduce", array)

        get(members[0].run.remote(check))

    def test_declared_group_is_joined_with_the_first_operation(self) -> None:
        pytest.importorskip("torch")

        def combine(rank: int) -> Any:
            import numpy

            array = numpy.ones(2) * rank
            collective.allreduce(array, "declared")
            return array.tolist(), collective.get_rank("declared")

        def leave() -> int:
            collective.destroy_collective_group("declared")
            return collective.get_rank("declared")

        members = [Member.remote() for _ in range(2)]
        for _ in range(2):  # the name is free again after the first round
            collective.create_collective_group(
                members, 2, [1, 0], "gloo", "declared", gloo_timeout=TIMEOUT_MS
            )
            with pytest.raises(RuntimeError, match="declared"):
                collective.create_collective_group(members, 2, [1, 0], "gloo", "declared")
            found = get([member.run.remote(combine, 1) for member in members])
            assert found == [([2.0, 2.0], 1), ([2.0, 2.0], 0)]
            assert get([member.run.remote(leave) for member in members]) == [-1, -1]

    def test_group_of_members_that_died_can_be_made_anew(self) -> None:
        pytest.importorskip("torch")
        for _ in range(2):
            members = [Member.remote() for _ in range(2)]
            get([each.join.remote(2, rank, "again") for rank, each in enumerate(members)])
            for member in members:
                syncline.kill(member)

    def test_driver_is_no_member(self) -> None:
        with pytest.raises(RuntimeError, match="driver"):
            collective.init_collective_group(1, 0, "gloo")
        with pytest.raises(RuntimeError, match="driver"):
            collective.get_rank()

    def test_ranks_must_fit_the_actors(self) -> None:
        member = Member.remote()
        for actors, size, ranks in (([member], 2, [0]), ([member], 1, [1]), ([member], 1, [0, 1])):
            with pytest.raises(RuntimeError):
                collective.create_collective_group(actors, size, ranks, "gloo", "unfit")
        with pytest.raises(ValueError, match="backend"):
            collective.create_collective_group([member], 1, [0], "mpi", "unfit")
