"""Time to restore a search that was killed after many trials, until it trains again.

All trials but the last two end immediately; while these two wait, the driver is killed. The time is
measured from `restore` until the first of the two trains, with a running engine. BENCH_SCALE
multiplies the numbers of trials.
"""

import argparse
import importlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.inputs import scaled
from bench.measure import MEASUREMENT_ID, stop_processes
from bench.programs import common
from bench.programs.tune import searches

ENDED = {"syncline": 10_000, "ray": 200}
NAME = "killed"
FILL_LIMIT_S = 400.0
SAVED_AFTER_S = {"syncline": 3.0, "ray": 15.0}
"""Ray saves the state of a search every ten seconds only; later results would be lost. In syncline,
the trials before the two that wait are in the same batch."""
FAST: dict[str, dict[str, Any]] = {
    "syncline": {"isolation": "worker"},
    "ray": {"reuse_actors": True},
}
"""The option with which a library runs many trials fastest."""
GONE_S = 20.0


def trial(config: dict[str, Any]) -> None:
    begun = time.monotonic()
    tune = importlib.import_module(f"{config['library']}.tune")
    number, folder = (
        int(tune.get_context().get_trial_id().rpartition("_")[2]),
        Path(config["folder"]),
    )
    if (folder / "killed").exists():
        with (folder / "begun").open("a") as file:
            file.write(f"{begun}\n")
    elif number >= config["ended"]:
        (folder / f"waits-{number}").touch()
        time.sleep(FILL_LIMIT_S)
    tune.report({searches.METRIC: config["x"]})


def fill(tune: ModuleType, library: str, ended: int) -> None:
    """Search until killed."""
    space = {"x": tune.uniform(0, 1), "library": library, "folder": os.getcwd(), "ended": ended}
    searches.tuner(tune, trial, space, ended + searches.CPUS, name=NAME, **FAST[library]).fit()


def fill_and_kill(library: str, ended: int) -> None:
    """Start a search and kill it once `ended` trials have ended and two run."""
    measurement_id = uuid.uuid4().hex
    arguments = [sys.executable, "-m", "bench.programs.tune.restore", library, "--fill", str(ended)]
    process = subprocess.Popen(
        arguments, env={**os.environ, MEASUREMENT_ID: measurement_id}, stdin=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + FILL_LIMIT_S
        while len(list(Path().glob("waits-*"))) < searches.CPUS:
            assert process.poll() is None, f"the search ended with exit code {process.returncode}"
            assert time.monotonic() < deadline, f"{ended} trials took more than {FILL_LIMIT_S:g} s"
            time.sleep(0.05)
        time.sleep(SAVED_AFTER_S[library])
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        stop_processes(measurement_id, GONE_S)
    Path("killed").touch()


def restore(tune: ModuleType, ended: int) -> common.Values:
    """Return the seconds until a trial trains, and facts about the restored search."""
    # `Tuner` is imported on first use, before the clock starts.
    path, tuner_class = os.path.abspath(f"storage/{NAME}"), tune.Tuner
    begin = time.monotonic()
    results = tuner_class.restore(path, trial).fit()
    stamps = sorted(map(float, Path("begun").read_text().split()))
    assert len(results) == ended + searches.CPUS, (
        f"{len(results)} trials instead of {ended + searches.CPUS}"
    )
    assert results.num_errors == 0, results.errors
    restore_s = stamps[0] - begin
    begin = time.monotonic()
    assert len(tuner_class.restore(path, trial).get_results()) == ended + searches.CPUS
    return {
        "restore_s": restore_s,
        "each_ms": restore_s / ended * 1e3,
        "results_s": time.monotonic() - begin,
        "run_again": float(len(stamps) - searches.CPUS),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--out")
    parser.add_argument("--fill", type=int)
    options = parser.parse_args()
    if options.fill is not None:
        fill(searches.start(options.library), options.library, options.fill)
    else:
        trials = scaled(ENDED[options.library])
        fill_and_kill(options.library, trials)
        common.write(options.out, restore(searches.start(options.library), trials))
        importlib.import_module(options.library).shutdown()
