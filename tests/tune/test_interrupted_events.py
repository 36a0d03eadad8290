"""Interrupt in the middle of an event: the journal counts, and the restored search completes the
event.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import tune
from syncline.tune.search import Searcher


@pytest.fixture(scope="module", autouse=True)
def inline_engine() -> Iterator[None]:
    syncline.init(local_mode=True, num_cpus=2)
    yield
    syncline.shutdown()


class OneAtATime(Searcher):
    """Searcher that suggests only after the last trial ended; interrupted once by that
    notification.
    """

    def __init__(self, interrupted: Path) -> None:
        super().__init__(metric="score", mode="max")
        self.interrupted = interrupted
        self.live: str | None = None

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        if self.live is not None:
            return None
        self.live = trial_id
        return {"x": 1}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        if not self.interrupted.exists():
            self.interrupted.touch()
            raise KeyboardInterrupt
        self.live = None

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).write_text(self.live or "")

    def restore(self, checkpoint_path: str) -> None:
        self.live = Path(checkpoint_path).read_text() or None


def train_function(config: dict[str, Any]) -> dict[str, Any]:
    return {"score": config["x"]}


def test_a_searcher_hears_of_the_end_that_the_interrupt_kept_from_it(tmp_path: Path) -> None:
    tuner = tune.Tuner(
        train_function,
        tune_config=tune.TuneConfig(search_alg=OneAtATime(tmp_path / "interrupted"), num_samples=3),
        run_config=tune.RunConfig(name="search", storage_path=str(tmp_path), verbose=0),
    )
    assert len(tuner.fit()) == 1
    assert len(tune.Tuner.restore(tmp_path / "search", train_function).fit()) == 3
