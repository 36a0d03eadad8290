"""The operators of a running execution, one class per grouping, used only by the scheduler.

Files, in the order in which data flows through them:

    base.py           blocks, their references and bytes; the interface of all operators
    passthrough.py    operators without tasks: source blocks, limit, tee, union, mix, shuffle
    task_operator.py  operators with tasks; source tasks
    grouping.py       tasks made of rows: bundle, rebatch, repartition, zip
    exchange.py       all-to-all exchange
"""

from __future__ import annotations

from collections.abc import Sequence

from syncline.data.execute import physical_plan as stages
from syncline.data.execute.operators.base import AnyOperator, BlockTracker, OperatorSetup
from syncline.data.execute.operators.exchange import ExchangeOperator
from syncline.data.execute.operators.grouping import (
    BundleOperator,
    RebatchOperator,
    RepartitionOperator,
    ZipOperator,
)
from syncline.data.execute.operators.passthrough import (
    LimitOperator,
    MixOperator,
    ShuffleOperator,
    SourceBlockOperator,
    TeeOperator,
    UnionOperator,
)
from syncline.data.execute.operators.task_operator import SourceTaskOperator

_CLASSES: dict[type[object], type[AnyOperator]] = {
    stages.SourceTasks: SourceTaskOperator,
    stages.SourceBlocks: SourceBlockOperator,
    stages.BundleBlocks: BundleOperator,
    stages.RebatchRows: RebatchOperator,
    stages.RepartitionRows: RepartitionOperator,
    stages.LimitRows: LimitOperator,
    stages.TeeBlocks: TeeOperator,
    stages.UnionInputs: UnionOperator,
    stages.ShuffleBlocks: ShuffleOperator,
    stages.ZipInputs: ZipOperator,
    stages.MixInputs: MixOperator,
    stages.ExchangeRows: ExchangeOperator,
}


def operators_for(
    all_stages: Sequence[stages.Stage], tracker: BlockTracker, *, preserve_order: bool
) -> list[AnyOperator]:
    """Return an operator for each stage, connected to its inputs and its reader.

    The target of the last operator is left to the caller.
    """
    reader: dict[int, tuple[int, int]] = {}  # stage -> the stage and port that read it
    for number, stage in enumerate(all_stages):
        for port, each in enumerate(stage.inputs):
            assert each < number, f"stage {number} reads stage {each}, which comes after it"
            assert each not in reader, (
                f"stage {each} is read by stages {reader[each][0]} and {number}: "
                "every use needs stages of its own"
            )
            reader[each] = (number, port)
    ordered = _ordered(all_stages, reader, preserve_order)
    operators: list[AnyOperator] = []
    for number, stage in enumerate(all_stages):
        inputs = tuple(operators[each] for each in stage.inputs)
        operator_class = _CLASSES[type(stage.grouping)]
        operators.append(
            operator_class(OperatorSetup(number, stage, inputs, tracker, ordered[number]))
        )
    for number, (target, port) in reader.items():
        operators[number].target = operators[target]
        operators[number].target_port = port
    for number in reversed(range(len(operators) - 1)):
        target_operator = operators[reader[number][0]]
        operators[number].depth = target_operator.depth + target_operator.holds_blocks
    _name_held_blocks(operators)
    return operators


def _ordered(
    all_stages: Sequence[stages.Stage], reader: dict[int, tuple[int, int]], preserve_order: bool
) -> list[bool]:
    """Return for each stage whether its output has to be in order.

    Inputs of a zip and of a tee are ordered even if the output of the execution is not.
    """
    ordered = [preserve_order] * len(all_stages)
    for number in reversed(range(len(all_stages) - 1)):
        assert number in reader, f"nothing reads stage {number} ({all_stages[number].name})"
        target = reader[number][0]
        ordered[number] = (
            ordered[number]
            or ordered[target]
            or isinstance(all_stages[target].grouping, stages.ZipInputs | stages.TeeBlocks)
        )
    return ordered


def _name_held_blocks(operators: Sequence[AnyOperator]) -> None:
    """Assign the negative block numbers, as `physical_plan.held_blocks` counts them."""
    count = 0
    for operator in reversed(operators):
        if isinstance(operator, SourceBlockOperator):
            count += len(operator.grouping.blocks)
            operator.first_number = -count
