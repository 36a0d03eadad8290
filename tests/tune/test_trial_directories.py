"""Names of trials and of their directories, chosen by the program."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import tune


@pytest.fixture(scope="module", autouse=True)
def inline_engine() -> Iterator[None]:
    syncline.init(local_mode=True, num_cpus=2)
    yield
    syncline.shutdown()


@pytest.mark.parametrize("argument", ["trial_name_creator", "trial_dirname_creator"])
def test_trials_of_one_name_have_directories_of_their_own(argument: str, tmp_path: Path) -> None:
    creator: dict[str, Any] = {argument: lambda trial: "same"}
    results = tune.Tuner(
        lambda config: {"score": config["x"]},
        param_space={"x": tune.grid_search([1, 2])},
        tune_config=tune.TuneConfig(**creator),
        run_config=tune.RunConfig(name="search", storage_path=str(tmp_path), verbose=0),
    ).fit()
    first, second = (Path(result.path) for result in results)
    assert first == tmp_path / "search" / "same"
    assert second.name.startswith("same_")
    assert [len(result.metrics_dataframe) for result in results] == [1, 1]
