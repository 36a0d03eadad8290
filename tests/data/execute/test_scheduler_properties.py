"""Random trees of stages, budgets and orders of completion: what must hold whatever they are. The
simulation checks every instruction.
"""

import json
import random

import pytest

from syncline.data.execute.messages import Finish
from tests.data.execute.scheduler_simulation import Simulation, expected_blocks, random_stages

SEEDS = range(400)


def filled(blocks: list[list[object]]) -> list[list[object]]:
    return [block for block in blocks if block]


def simulation(tree: int, **options: object) -> Simulation:
    draw = random.Random(tree)
    settings = {
        "slots": draw.choice([1, 2, 4]),
        "budget_bytes": draw.choice([1, 100, 400, 10_000]),
        "consumer": draw.choice([0.05, 0.5, 0.95]),
        "seed": tree,
    }
    return Simulation(stages=random_stages(tree), **{**settings, **options})


@pytest.mark.parametrize("part", range(4))
def test_output_comes_in_one_order_whatever_ends_first(part: int) -> None:
    for seed in SEEDS[part::4]:
        run = simulation(seed).run()
        assert filled([rows for rows, _ in run.delivered]) == filled(expected_blocks(run.stages)), (
            f"seed {seed}"
        )
        assert isinstance(run.end, Finish)


def test_blocks_do_not_depend_on_budget_slots_or_completion_order() -> None:
    for seed in SEEDS[::8]:
        runs = [
            simulation(seed, seed=each, slots=each + 1, budget_bytes=10**each).run()
            for each in range(4)
        ]
        assert all(
            filled([rows for rows, _ in run.delivered])
            == filled([rows for rows, _ in runs[0].delivered])
            for run in runs
        )


def test_without_order_the_same_rows_come() -> None:
    for seed in SEEDS:
        stages = random_stages(seed)
        kinds = {type(stage.grouping).__name__ for stage in stages}
        if kinds & {"LimitRows", "MixInputs"}:  # which rows these take depends on the order
            continue
        run = simulation(seed, preserve_order=False).run()
        if not kinds & {
            "ZipInputs",
            "RepartitionRows",
            "RebatchRows",
            "BundleBlocks",
            "ExchangeRows",
            "ShuffleBlocks",
        }:
            assert sorted(run.rows) == sorted(
                row for block in expected_blocks(stages) for row in block
            )
        assert all(point is None for _, point in run.delivered)


@pytest.mark.parametrize("part", range(4))
def test_an_execution_starts_again_at_every_point_and_delivers_exactly_the_rest(part: int) -> None:
    for seed in SEEDS[part::16]:
        run = simulation(seed).run()
        for at, (_, point) in enumerate(run.delivered):
            rest = simulation(seed, start=json.loads(json.dumps(point)), seed=at).run()
            expected = filled([rows for rows, _ in run.delivered[at:]])
            assert filled([rows for rows, _ in rest.delivered]) == expected, (
                f"seed {seed}, from {point}"
            )


def test_a_restarted_execution_has_points_that_go_on_from_the_beginning() -> None:
    for seed in SEEDS[::16]:
        run = simulation(seed).run()
        for at in range(0, len(run.delivered), 3):
            rest = simulation(seed, start=run.delivered[at][1], seed=at + 1).run()
            for later, (_, point) in list(enumerate(rest.delivered))[::4]:
                again = simulation(seed, start=point, seed=later).run()
                assert again.rows == [row for rows, _ in rest.delivered[later:] for row in rows], (
                    f"seed {seed}, {point}"
                )


def test_abandoned_executions_give_everything_back_at_any_moment() -> None:
    for seed in SEEDS:
        run = simulation(seed)
        run.begin()
        for _ in range(run.random.randrange(60)):
            if run.end is None:
                run.step()
        if run.end is None:
            run.abandon()
        assert isinstance(run.end, Finish)
        run.check_end()
