"""Fixed-point resource arithmetic, validation, and the message for infeasible demands."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.core.resources import UNIT, Resources, infeasible_message, to_amount


def test_ten_tenths_are_exactly_one() -> None:
    tenth = Resources.of({"CPU": 0.1})
    assert sum([tenth] * 10, Resources()) == Resources.of({"CPU": 1})


def test_amounts_round_trip() -> None:
    assert Resources.of({"CPU": 2, "GPU": 0.5, "memory": 1e9}).amounts() == {
        "CPU": 2,
        "GPU": 0.5,
        "memory": 10**9,
    }
    assert repr(Resources.of({"CPU": 2})) == "Resources({'CPU': 2})"


def test_zero_amounts_are_left_out() -> None:
    assert Resources.of({"CPU": 0, "GPU": 1}) == Resources.of({"GPU": 1.0})
    assert not Resources.of({"CPU": 0})


def test_equal_resources_are_one_key() -> None:
    assert len({Resources.of({"CPU": 1, "x": 2}), Resources.of({"x": 2, "CPU": 1})}) == 1


def test_numpy_scalars_are_numbers() -> None:
    assert Resources.of({"CPU": np.float32(0.5)})["CPU"] == UNIT // 2


def test_subset_sum_and_difference() -> None:
    machine, task = Resources.of({"CPU": 2, "GPU": 1}), Resources.of({"CPU": 0.5})
    assert task.fits_in(machine)
    assert not machine.fits_in(task)
    assert (machine - task).amounts() == {"CPU": 1.5, "GPU": 1}
    assert (task - machine).units("CPU") == -3 * UNIT // 2
    assert to_amount((task - machine).units("CPU")) == -1.5


@pytest.mark.parametrize("amount", [-1, float("nan"), float("inf"), 0.00001])
def test_invalid_amounts_are_refused(amount: float) -> None:
    with pytest.raises(ValueError, match="'CPU' is "):
        Resources.of({"CPU": amount})


@pytest.mark.parametrize("amount", ["2", None, [1]])
def test_non_numeric_amounts_are_refused(amount: object) -> None:
    with pytest.raises(TypeError, match="must be a number"):
        Resources.of({"CPU": amount})  # type: ignore[dict-item]


def test_non_string_names_are_refused() -> None:
    with pytest.raises(TypeError, match="must be a non-empty string"):
        Resources.of({1: 1})  # type: ignore[dict-item]


def test_more_than_one_gpu_must_be_whole() -> None:
    with pytest.raises(ValueError, match=r"1\.5 GPUs were requested.*such as 2"):
        Resources.of({"GPU": 1.5})
    assert Resources.of({"GPU": 2}).units("GPU") == 2 * UNIT
    assert Resources.of({"CPU": 1.5}).units("CPU") == 3 * UNIT // 2


def test_infeasible_message_has_the_numbers_and_the_remedy() -> None:
    message = infeasible_message(
        Resources.of({"CPU": 8, "GPU": 1}), Resources.of({"CPU": 2, "GPU": 1})
    )
    assert message.startswith("asked {'CPU': 8} but this machine has {'CPU': 2}: ")
    assert "lower num_cpus" in message
    assert "resources={'tpu': …}" in infeasible_message(Resources.of({"tpu": 1}), Resources())


def test_infeasible_message_suggests_an_existing_resource() -> None:
    existing = Resources.of({"CPU": 2, "fast_disk": 1})
    assert infeasible_message(Resources.of({"fast-disk": 1}), existing).endswith(
        "has more. Did you mean 'fast_disk'?"
    )
    assert "Did you mean" not in infeasible_message(Resources.of({"fast_disk": 2}), existing)
