"""Suggestions for misspelled names."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable
from functools import partial

import pytest

import syncline
from syncline import data, train, tune
from syncline.suggestions import (
    check_resource_names,
    did_you_mean,
    missing_attribute,
    suggest_arguments,
    unknown_argument,
)


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("lss", ["epoch", "loss"], " Did you mean 'loss'?"),
        ("cpu", ["memory", "CPU"], " Did you mean 'CPU'?"),
        ("num_cpu", ["num_gpus", "num_cpus"], " Did you mean 'num_cpus'?"),
        ("x", ["loss"], ""),
        ("x", [], ""),
    ],
)
def test_the_nearest_name_is_suggested_regardless_of_case(
    name: str, known: list[str], hint: str
) -> None:
    assert did_you_mean(name, known) == hint


def test_an_unknown_argument_is_answered_with_the_public_ones() -> None:
    error = unknown_argument("fit", "epoch", ["epochs", "lr", "_secret"])
    assert str(error) == (
        "fit takes no argument 'epoch'. Did you mean 'epochs'? Arguments: epochs, lr."
    )


@suggest_arguments
@dataclasses.dataclass(frozen=True)
class Settings:
    lr: float = 0.1
    epochs: int = 1


def test_a_constructor_suggests_arguments_and_keeps_its_signature() -> None:
    assert Settings(0.2, epochs=3) == Settings(lr=0.2, epochs=3)
    assert list(inspect.signature(Settings).parameters) == ["lr", "epochs"]
    for make in (
        lambda: Settings(epoch=3),  # type: ignore[call-arg]
        lambda: dataclasses.replace(Settings(), epoch=3),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match=r"^Settings takes no argument 'epoch'. Did you mean"):
            make()


@pytest.mark.parametrize(
    ("call", "mistake", "hint"),
    [
        (train.ScalingConfig, "num_worker", "num_workers"),
        (train.RunConfig, "storage_paht", "storage_path"),
        (partial(train.DataParallelTrainer, print), "scaling_confg", "scaling_config"),
        (tune.TuneConfig, "num_sample", "num_samples"),
        (tune.Tuner, "param_spac", "param_space"),
        (partial(tune.run, print), "num_sample", "num_samples"),
        (data.ExecutionOptions, "preserve_ordr", "preserve_order"),
        (partial(data.range(3).map_batches, print), "batch_sise", "batch_size"),
        (partial(data.range(3).map_batches, print), "max_retry", "max_retries"),
        (data.range(3).random_shuffle, "sed", "seed"),
        (partial(data.range(3).write_parquet, "/x"), "min_row_per_file", "min_rows_per_file"),
        (partial(data.range(3).write_parquet, "/x"), "compresion", "compression"),
        (partial(data.range(3).write_json, "/x"), "date_formt", "date_format"),
        (partial(data.range(3).write_orc, "/x"), "compresion", "compression"),
    ],
)
def test_public_functions_and_classes_suggest_arguments(
    call: Callable[..., object], mistake: str, hint: str
) -> None:
    with pytest.raises(TypeError, match=f"takes no argument {mistake!r}. Did you mean {hint!r}"):
        call(**{mistake: 1})


def test_map_batches_lists_its_own_parameters() -> None:
    with pytest.raises(TypeError, match="Arguments: fn, batch_size, batch_format, .*`remote`"):
        data.range(3).map_batches(print, batch_sise=4)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "meant"), [("cpu", "CPU"), ("num_gpus", "GPU"), ("Memory", "memory")]
)
def test_other_spellings_of_standard_resources_are_errors(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}'. Did you mean '{meant}'"):
        check_resource_names("resources", [name])


@pytest.mark.parametrize(
    "make",
    [
        lambda: train.ScalingConfig(resources_per_worker={"cpu": 1}),
        lambda: syncline.remote(resources={"cpu": 1})(print),
        lambda: tune.PlacementGroupFactory([{"cpus": 1}]),
        lambda: syncline.util.placement_group([{"cpu": 1}]),
    ],
)
def test_resources_are_checked_where_programs_name_them(make: object) -> None:
    with pytest.raises(ValueError, match="Did you mean 'CPU'"):
        make()  # type: ignore[operator]


def test_custom_and_standard_resources_pass() -> None:
    check_resource_names("resources", ["CPU", "GPU", "TPU", "memory", "disk", "cpu_slots"])


def test_a_module_suggests_attributes() -> None:
    module = types.ModuleType("shapes")
    module.circle = None  # type: ignore[attr-defined]
    assert str(missing_attribute(module, "cirle")) == (
        "module 'shapes' has no attribute 'cirle'. Did you mean 'circle'?"
    )
    with pytest.raises(AttributeError, match="Did you mean 'read_parquet'"):
        data.read_parqet  # noqa: B018
    assert not hasattr(train, "__circle__")
