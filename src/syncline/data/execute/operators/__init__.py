"""The moving parts of stages, one class per grouping, used by the scheduler alone.

`ledger` (blocks: references and bytes), `base` (what all operators have in common), `tasked` (those
with tasks), then one class per grouping: `listed`, `bundled` (`Bundled`, `Cut`), `gathered`
(`CutEvenly`, `Shuffled`), `aligned`, `exchanged`, and without tasks `reserve` (`Passed`), `passing`
(`First`, `Keeping`, `Chained`), `interleaved`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syncline.data.execute import stages
from syncline.data.execute.operators.aligned import AlignedOperator
from syncline.data.execute.operators.base import Operator
from syncline.data.execute.operators.bundled import BundledOperator, CutOperator
from syncline.data.execute.operators.exchanged import ExchangedOperator
from syncline.data.execute.operators.gathered import CutEvenlyOperator, ShuffledOperator
from syncline.data.execute.operators.interleaved import InterleavedOperator
from syncline.data.execute.operators.ledger import Ledger
from syncline.data.execute.operators.listed import ListedOperator
from syncline.data.execute.operators.passing import ChainedOperator, FirstOperator, KeepingOperator
from syncline.data.execute.operators.reserve import PassedOperator

_CLASSES: dict[type[Any], type[Operator[Any]]] = {
    stages.Listed: ListedOperator,
    stages.Passed: PassedOperator,
    stages.Bundled: BundledOperator,
    stages.Cut: CutOperator,
    stages.CutEvenly: CutEvenlyOperator,
    stages.First: FirstOperator,
    stages.Keeping: KeepingOperator,
    stages.Chained: ChainedOperator,
    stages.Shuffled: ShuffledOperator,
    stages.Aligned: AlignedOperator,
    stages.Interleaved: InterleavedOperator,
    stages.Exchanged: ExchangedOperator,
}


def operators_for(
    all_stages: Sequence[stages.Stage], ledger: Ledger, *, preserve_order: bool
) -> list[Operator[Any]]:
    """An operator for each stage, with its inputs and where its blocks go; that of the last one is
    left open.
    """
    reader: dict[int, tuple[int, int]] = {}  # stage -> the stage and port that read it
    for number, stage in enumerate(all_stages):
        for port, each in enumerate(stage.inputs):
            assert each < number, f"stage {number} reads stage {each}, which comes after it"
            assert each not in reader, (
                f"stage {each} is read by stages {reader[each][0]} and {number}: every use needs stages of its own"
            )
            reader[each] = (number, port)
    ordered = _ordered(all_stages, reader, preserve_order)
    operators: list[Operator[Any]] = []
    for number, stage in enumerate(all_stages):
        inputs = [operators[each] for each in stage.inputs]
        operator_class = _CLASSES[type(stage.grouping)]
        operators.append(
            operator_class(number, stage, stage.grouping, inputs, ledger, ordered=ordered[number])
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
    """For each stage, whether its output has to be in order: rows that are put side by side, or
    kept, always have to.
    """
    ordered = [preserve_order] * len(all_stages)
    for number in reversed(range(len(all_stages) - 1)):
        assert number in reader, f"nothing reads stage {number} ({all_stages[number].name})"
        target = reader[number][0]
        ordered[number] = (
            ordered[number]
            or ordered[target]
            or isinstance(all_stages[target].grouping, stages.Aligned | stages.Keeping)
        )
    return ordered


def _name_held_blocks(operators: Sequence[Operator[Any]]) -> None:
    """Blocks that exist have negative names, as `stages.held_blocks` counts them."""
    count = 0
    for operator in reversed(operators):
        if isinstance(operator, PassedOperator):
            count += len(operator.grouping.blocks)
            operator.first_name = -count
