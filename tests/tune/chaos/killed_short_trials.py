"""Search of short trials for kill tests: `python killed_short_trials.py FOLDER SAMPLES`. A restart
resumes the search.

Each trial appends its id to `ran` and reports twice. At the end, `ended` exists.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import syncline
from syncline import tune


def train(config: dict[str, Any]) -> None:
    with open(Path(config["folder"], "ran"), "a") as ran:
        ran.write(f"{tune.get_context().get_trial_id()}\n")
    for step in range(2):
        tune.report({"x": config["number"] * 2 + step})


def main() -> None:
    folder, samples = Path(sys.argv[1]), int(sys.argv[2])
    syncline.init(num_cpus=2)
    if tune.Tuner.can_restore(folder / "search"):
        tuner = tune.Tuner.restore(folder / "search", train)
    else:
        space = {"number": tune.grid_search(list(range(samples))), "folder": str(folder)}
        tuner = tune.Tuner(
            train,
            param_space=space,
            tune_config=tune.TuneConfig(isolation="worker"),
            run_config=tune.RunConfig(name="search", storage_path=str(folder), verbose=0),
        )
    assert not tuner.fit().errors
    (folder / "ended").touch()


if __name__ == "__main__":
    main()
