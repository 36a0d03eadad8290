"""Random numbers, UUIDs and ids: they depend on the position of a row, and on nothing else."""

import uuid as uuids

import numpy as np
import pyarrow as pa
import pytest

from syncline.data.columnar.expressions import (
    EvaluationContext,
    col,
    monotonically_increasing_id,
    random,
    uuid,
)
from syncline.data.columnar.expressions.generated import seeded

ROWS = pa.table({"x": range(100)})


def draw(context: EvaluationContext, rows: pa.Table = ROWS, **options: object) -> list[float]:
    values: list[float] = random(**{"seed": 7, **options}).evaluate(rows, context).to_pylist()
    return values


def test_seeded_numbers_are_the_same_for_the_same_position() -> None:
    context = EvaluationContext(block_index=3)
    assert draw(context) == draw(context)
    assert all(0 <= value < 1 for value in draw(context))
    others = [EvaluationContext(block_index=4), EvaluationContext(block_index=3, execution_index=1)]
    assert all(len(set(draw(context)) & set(draw(other))) == 0 for other in others)
    assert draw(context, seed=8) != draw(context)
    assert draw(context, seed=-7) != draw(context)


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4, 5, 50, 99])
def test_a_block_in_pieces_draws_the_same(cut: int) -> None:
    whole = draw(EvaluationContext(block_index=2))
    rest = draw(EvaluationContext(block_index=2, row_offset=cut), ROWS.slice(cut))
    assert rest == whole[cut:]


def test_numbers_may_be_the_same_in_every_execution() -> None:
    first = EvaluationContext(execution_index=0)
    later = EvaluationContext(execution_index=5)
    assert draw(first, reseed_after_execution=False) == draw(later, reseed_after_execution=False)


def test_without_a_seed_numbers_differ() -> None:
    assert random().evaluate(ROWS).to_pylist() != random().evaluate(ROWS).to_pylist()


def test_numbers_are_uniform() -> None:
    many = np.array(draw(EvaluationContext(), pa.table({"x": range(20_000)})))
    assert abs(many.mean() - 0.5) < 0.02
    assert abs(many.std() - 12**-0.5) < 0.02


def test_ids_grow_and_are_unique() -> None:
    ids = monotonically_increasing_id()
    found = [
        ids.evaluate(ROWS.slice(0, 3), EvaluationContext(block_index=block)).to_pylist()
        for block in range(3)
    ]
    flat = [value for block in found for value in block]
    assert flat == sorted(set(flat))
    assert found[0] == [0, 1, 2]
    assert found[1] == [2**33, 2**33 + 1, 2**33 + 2]
    assert ids.evaluate(
        ROWS.slice(5, 2), EvaluationContext(block_index=1, row_offset=5)
    ).to_pylist() == [2**33 + 5, 2**33 + 6]


def test_uuids_are_valid_and_unique() -> None:
    found = uuid().evaluate(ROWS).to_pylist()
    assert len(set(found)) == 100
    assert all(uuids.UUID(text).version == 4 and str(uuids.UUID(text)) == text for text in found)
    assert uuid().evaluate(ROWS.slice(0, 0)).to_pylist() == []


def test_types_and_equality() -> None:
    types = [
        expr.get_type(ROWS.schema)
        for expr in (random(seed=1), uuid(), monotonically_increasing_id())
    ]
    assert types == [pa.float64(), pa.string(), pa.int64()]
    assert random(seed=1).structurally_equals(random(seed=1))
    assert not random(seed=1).structurally_equals(random(seed=2))
    assert not random().structurally_equals(random())
    assert not uuid().structurally_equals(uuid())
    assert not (uuid().str.upper() + col("x")).is_idempotent()
    assert repr(random(seed=1) + random()) == "random(seed=1) + random()"


def test_seeded_gives_unseeded_numbers_and_uuids_a_seed_of_their_own() -> None:
    context = EvaluationContext(block_index=2, row_offset=5)
    for expr in (random(), uuid(), random() - random()):
        first = seeded(expr, [1, 2]).evaluate(ROWS, context)
        assert first.equals(seeded(expr, [1, 2]).evaluate(ROWS, context))
        assert not first.equals(seeded(expr, [1, 3]).evaluate(ROWS, context))
        later = seeded(expr, [1, 2]).evaluate(
            ROWS.slice(10), EvaluationContext(block_index=2, row_offset=15)
        )
        assert first.slice(10).equals(later)
    assert 0.0 not in seeded(random() - random(), [1]).evaluate(ROWS, context).to_pylist()


def test_seeded_leaves_other_expressions_as_they_are() -> None:
    for expr in (random(seed=3) + col("x"), col("x") * 2, monotonically_increasing_id()):
        assert seeded(expr, [1]) is expr
