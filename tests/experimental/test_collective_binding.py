"""Checks of collective operations when they are bound, and of their tensors; without an engine."""

from types import SimpleNamespace

import pytest
import torch

import syncline
from syncline.core.dag.nodes import ClassMethodNode, FunctionNode, InputNode
from syncline.experimental import collective
from syncline.experimental.collective import ReduceOp, allgather, allreduce, reducescatter
from syncline.experimental.collective.execution import check, run
from syncline.experimental.collective.types import Operation
from syncline.ray_paths.retired import NoCounterpartAttributeError


def node(actor: int) -> ClassMethodNode:
    method = SimpleNamespace(name="f", actor_id=actor, actor_call=None)
    return ClassMethodNode((), {}, name="f", method=method)


def test_each_actor_has_an_output():
    first, second = allreduce.bind([node(1), node(2)])
    assert (first.actor_id, second.actor_id) == (1, 2)
    assert first.collective_op.reduce_op is ReduceOp.SUM
    assert repr(first) == "CollectiveOutputNode(allreduce)"


def test_nested_lists_give_a_list_for_each_actor():
    outputs = allreduce.bind([[node(1), node(2)], [node(1), node(2)], [node(1), node(2)]])
    assert [[each.actor_id for each in own] for own in outputs] == [[1] * 3, [2] * 3]


def test_nccl_is_used_if_it_is_named():
    (output,) = allgather.bind([node(1)], transport="nccl")
    assert output.collective_op.backend == "nccl"
    (output,) = reducescatter.bind([node(1)])
    assert output.collective_op.backend == "gloo"


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([], "a list with a node of each actor"),
        (5, "a list with a node of each actor"),
        ([[]], "a list with a node of each actor"),
        ([InputNode()], "bound methods of actors that run"),
        ([FunctionNode(None, (), {})], "bound methods of actors that run"),
        ([node(1), node(1)], "two nodes of the same actor"),
        ([[node(1), node(2)], [node(2), node(1)]], "another order"),
        ([[node(1), node(2)], [node(1)]], "list 1 has other actors"),
    ],
)
def test_nodes_of_other_kinds_are_refused(nodes, text):
    with pytest.raises(ValueError, match=text):
        allreduce.bind(nodes)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="only `allreduce` takes"):
        allgather.bind([[node(1)]])
    with pytest.raises(ValueError, match=r"ReduceOp\.SUM"):
        allreduce.bind([node(1)], op="sum")
    with pytest.raises(ValueError, match="transport='tcp'"):
        allreduce.bind([node(1)], transport="tcp")
    with pytest.raises(NotImplementedError, match="communicators of your own"):
        allreduce.bind([node(1)], transport=object())


@pytest.mark.parametrize(
    ("kind", "tensors", "text"),
    [
        ("allreduce", [1.5], "got a float"),
        ("allreduce", [torch.ones(1), torch.ones(1, dtype=torch.int64)], "the same type"),
        ("allgather", [torch.tensor(1.0)], "without a dimension"),
        ("reducescatter", [torch.ones(3)], "cannot be divided among 2 actors"),
    ],
)
def test_wrong_tensors_are_refused(kind, tensors, text):
    with pytest.raises(ValueError, match=text):
        check(None, kind, 2, None, *tensors)


@pytest.mark.parametrize("other", [torch.ones(3), torch.ones(1, dtype=torch.int64)])
def test_tensors_that_differ_between_actors_are_refused_before_an_actor_waits(other):
    checks = [check(None, "allreduce", 2, None, tensor) for tensor in (torch.ones(1), other)]
    with pytest.raises(ValueError, match=r"from actor 1, but torch.float32 of the shape \(1,\)"):
        run(None, Operation(kind="allreduce"), "group", 1, torch.ones(1), *checks)


@syncline.remote
class Actor:
    def tensor(self):
        return torch.ones(2)


def test_actors_of_one_process_have_no_group():
    syncline.init(local_mode=True)
    try:
        actors = [Actor.remote() for _ in range(2)]
        first, _ = allreduce.bind([actor.tensor.bind() for actor in actors])
        with pytest.raises(RuntimeError, match="`local_mode=True`"):
            first.execute()
    finally:
        syncline.shutdown()


def test_groups_of_direct_transport_have_advice():
    with pytest.raises(NoCounterpartAttributeError, match=r"syncline\.util\.collective"):
        collective.create_collective_group  # noqa: B018
