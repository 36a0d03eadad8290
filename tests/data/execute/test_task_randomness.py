"""Random numbers in user functions: the same for the same rows, whoever runs the task and wherever
a pass goes on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import syncline
from syncline import data
from syncline.data.execute import task_run as randomness


@pytest.fixture(
    scope="module", params=["local", pytest.param("processes", marks=pytest.mark.processes)]
)
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    syncline.shutdown()
    syncline.init(
        local_mode=request.param == "local", **({} if request.param == "local" else {"num_cpus": 2})
    )
    yield
    syncline.shutdown()


@pytest.fixture
def seeded() -> Iterator[None]:
    context = data.DataContext.get_current()
    context.seed = 5
    yield
    context.seed = None


def noise(batch: dict[str, Any]) -> dict[str, Any]:
    draws = [random.random() + float(np.random.rand()) + float(torch.rand(1)) for _ in batch["id"]]
    return {"id": batch["id"], "noise": np.array(draws)}


class Noisy:
    """Draws when it is made."""

    def __init__(self) -> None:
        self.weight = random.random()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"], "noise": np.full(len(batch["id"]), self.weight)}


def augmented() -> Any:
    return data.range(40, override_num_blocks=4).map_batches(noise, batch_size=3)


def noises(batches: Any) -> list[float]:
    return [float(value) for batch in batches for value in batch["noise"]]


def test_functions_draw_the_same_in_every_run_that_has_the_seed(engine: None, seeded: None) -> None:
    first, second = augmented().iterator(), augmented().iterator()
    epochs = [noises(first.iter_batches(batch_size=7)) for _ in range(2)]
    assert [noises(second.iter_batches(batch_size=9)) for _ in range(2)] == epochs
    assert len(set(epochs[0] + epochs[1])) == 80  # other numbers for each row and in each epoch


def test_a_pass_that_goes_on_in_the_middle_of_a_task_draws_what_it_would_have_drawn(
    engine: None,
) -> None:
    first = augmented().iterator()
    loop = iter(first.iter_batches(batch_size=4))
    for _ in range(4):
        next(loop)
    second = augmented().iterator()
    second.load_state_dict(first.state_dict())
    assert noises(second.iter_batches(batch_size=4)) == noises(loop)
    assert noises(second.iter_batches(batch_size=4)) == noises(first.iter_batches(batch_size=4))


def test_functions_of_two_stages_draw_other_numbers(engine: None, seeded: None) -> None:
    def again(batch: dict[str, Any]) -> dict[str, Any]:
        return {"noise": batch["noise"], "second": noise(batch)["noise"]}

    dataset = data.range(10).map_batches(noise).repartition(1).map_batches(again)
    (batch,) = dataset.iter_batches(batch_size=None)
    assert not set(batch["noise"]) & set(batch["second"])


def test_objects_of_functions_are_made_alike(engine: None, seeded: None) -> None:
    def weights() -> set[float]:
        return set(
            noises(
                data.range(40, override_num_blocks=4)
                .map_batches(Noisy, concurrency=2)
                .iter_batches()
            )
        )

    first = weights()
    assert len(first) == 1
    assert weights() == first


def test_unseeded_executions_differ(engine: None) -> None:
    assert noises(augmented().iter_batches()) != noises(augmented().iter_batches())


def test_programs_own_random_numbers_are_left_alone_in_local_mode() -> None:
    syncline.shutdown()
    syncline.init(local_mode=True)
    try:
        random.seed(1)
        np.random.seed(2)
        torch.manual_seed(3)
        expected = [
            (random.random(), float(np.random.rand()), float(torch.rand(1))) for _ in range(4)
        ]
        random.seed(1)
        np.random.seed(2)
        torch.manual_seed(3)
        dataset = (
            data.range(40, override_num_blocks=4)
            .map_batches(Noisy, concurrency=1)
            .map_batches(noise)
        )
        drawn = [
            (random.random(), float(np.random.rand()), float(torch.rand(1)))
            for _ in dataset.iter_batches(batch_size=10)
        ]
    finally:
        syncline.shutdown()
    assert drawn == expected


def test_a_task_goes_on_where_it_was_before_the_program_drew() -> None:
    random.seed(1)
    aside = randomness.RandomStateScope(1, 2)
    with aside:
        first = random.random()
    program = random.random()
    with aside:
        second = random.random()
    assert program == random.Random(1).random()
    with randomness.RandomStateScope(1, 2):
        assert [random.random(), random.random()] == [first, second]
    with randomness.RandomStateScope(1, 3):
        assert random.random() != first
