"""A search that is killed after many trials, and goes on in another process: how long until it
trains again.

All trials but the last two end at once; these two wait, and while they do, the program that
searches is killed. Of the search that is restored, the clock runs until the first of the two
trains, the engine being up. BENCH_SCALE multiplies the numbers of trials.
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
from bench.measure import MARK, clear
from bench.programs import common
from bench.programs.tune import searches

ENDED = {"syncline": 10_000, "ray": 200}
NAME = "killed"
FILL_LIMIT_S = 400.0
SAVED_AFTER_S = {"syncline": 0.0, "ray": 15.0}
"""Ray writes the state of a search every ten seconds; what has happened since is lost to it."""
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
    """Searches until it is killed."""
    space = {"x": tune.uniform(0, 1), "library": library, "folder": os.getcwd(), "ended": ended}
    # Processes that serve several trials: the search is to come about quickly.
    searches.tuner(tune, trial, space, ended + searches.CPUS, name=NAME, reuse_actors=True).fit()


def fill_and_kill(library: str, ended: int) -> None:
    """Leaves the files of a search with so many trials that have ended, and two that had begun."""
    mark = uuid.uuid4().hex
    arguments = [sys.executable, "-m", "bench.programs.tune.restore", library, "--fill", str(ended)]
    process = subprocess.Popen(arguments, env={**os.environ, MARK: mark}, stdin=subprocess.DEVNULL)
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
        clear(mark, GONE_S)
    Path("killed").touch()


def restore(tune: ModuleType, ended: int) -> common.Values:
    """Seconds until a trial trains, and what came of the search."""
    path, tuner_class = (
        os.path.abspath(f"storage/{NAME}"),
        tune.Tuner,
    )  # which is imported when it is named first
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
