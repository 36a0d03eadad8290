"""An early end of a search is logged with its reason and the way to continue."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import tune


def train(config: dict[str, Any]) -> None:
    tune.report({"x": config["x"]})
    if config["x"] == 1:
        raise RuntimeError("broken")


@pytest.mark.parametrize("fail_fast", [True, False])
def test_a_first_failure_that_ends_the_search_is_told(
    fail_fast: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    syncline.init(local_mode=True, ignore_reinit_error=True)
    config = tune.RunConfig(
        name="search",
        storage_path=str(tmp_path),
        verbose=0,
        failure_config=tune.FailureConfig(fail_fast=fail_fast or None),
    )
    logging.getLogger("syncline").addHandler(caplog.handler)
    try:
        results = tune.Tuner(
            train, param_space={"x": tune.grid_search([1, 2, 3])}, run_config=config
        ).fit()
    finally:
        logging.getLogger("syncline").removeHandler(caplog.handler)
    told = [message for message in caplog.messages if "ended early" in message]
    if not fail_fast:
        assert told == []
        assert (len(results), results.num_errors) == (3, 1)
        return
    assert len(results) < 3
    assert "`fail_fast` is set" in told[0]
    assert f"`Tuner.restore('{tmp_path / 'search'}', …)`" in told[0]
