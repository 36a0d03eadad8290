"""Trials for tests of tables, analyses and figures."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from syncline.train.config import CheckpointConfig
from syncline.train.storage.context import StorageContext
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial

MakeTrial = Callable[..., Trial]


@pytest.fixture
def make_trial(tmp_path: Path) -> MakeTrial:
    """`make_trial(index, config={…}, losses=[…])`: a trial with one result per loss, written to its
    directory if `write` is set.
    """

    def make(
        index: int,
        *,
        config: dict[str, Any] | None = None,
        losses: Sequence[float] = (),
        status: str = Trial.TERMINATED,
        write: bool = False,
        **metrics: Any,
    ) -> Trial:
        values = {"lr": 0.1 * (index + 1)} if config is None else config
        trial = Trial(
            trial_id=f"1a2b_{index:05d}",
            index=index,
            trainable_name="train",
            config=values,
            evaluated_params=values,
            experiment_tag=str(index),
            placement_group_factory=PlacementGroupFactory([{"CPU": 1}]),
            storage=StorageContext(tmp_path / "search", f"train_{index:05d}"),
            checkpoint_config=CheckpointConfig(),
        )
        trial.status = status
        results = []
        for iteration, loss in enumerate(losses, start=1):
            own = {
                "trial_id": trial.trial_id,
                "training_iteration": iteration,
                "time_total_s": 0.5 * iteration,
                "config": values,
            }
            results.append({**own, "loss": loss, **metrics})
            trial.record_result(results[-1])
        if write:
            directory = Path(trial.path)
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "result.json").write_text(
                "".join(json.dumps(result) + "\n" for result in results), encoding="utf-8"
            )
            (directory / "params.json").write_text(json.dumps(values), encoding="utf-8")
        return trial

    return make


class Clock:
    """Clock set by the test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()
