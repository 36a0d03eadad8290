"""Trials per second of trials that only report.

The argument is a library and a workload: `syncline-few` (50 trials of 10 reports), `ray-many`
(1 000 and 10 000 trials of one report; only a few on Ray, which would need hours). BENCH_SCALE
multiplies the numbers of trials.
"""

import importlib
import time
from types import ModuleType
from typing import Any

from bench.inputs import scaled
from bench.programs import common
from bench.programs.tune import searches

FEW, REPORTS = 50, 10
THOUSAND, TEN_THOUSAND = 1_000, 10_000
MANY_ON_RAY = 40


def trial(config: dict[str, Any]) -> None:
    tune = importlib.import_module(f"{config['library']}.tune")
    for step in range(config["reports"]):
        tune.report({searches.METRIC: config["x"] / (step + 1)})


def trials_per_s(
    tune: ModuleType, library: str, samples: int, reports: int, *, reuse_actors: bool = False
) -> float:
    """Return the trials per second of one `fit()`."""
    space = {"x": tune.uniform(0, 1), "reports": reports, "library": library}
    tuner = searches.tuner(
        tune,
        trial,
        space,
        samples,
        name=f"{samples}-trials-{reuse_actors}",
        reuse_actors=reuse_actors,
    )
    begin = time.perf_counter()
    results = tuner.fit()
    seconds = time.perf_counter() - begin
    assert len(results) == samples, f"{len(results)} trials instead of {samples}"
    assert results.num_errors == 0, results.errors
    assert results[0].metrics["training_iteration"] == reports, results[0].metrics
    print(f"user: {samples} trials of {reports} reports, {samples / seconds:.1f} per s", flush=True)
    return samples / seconds


def measure(library: str, workload: str) -> common.Values:
    tune = searches.start(library)
    if workload == "few":
        few = {
            reuse: trials_per_s(tune, library, scaled(FEW), REPORTS, reuse_actors=reuse)
            for reuse in (False, True)
        }
        return {"trials_per_s": few[False], "reused_per_s": few[True]}
    if library == "ray":
        return {"thousand_per_s": trials_per_s(tune, library, scaled(MANY_ON_RAY), 1)}
    thousand, ten_thousand = (
        trials_per_s(tune, library, scaled(samples), 1) for samples in (THOUSAND, TEN_THOUSAND)
    )
    return {
        "thousand_per_s": thousand,
        "ten_thousand_per_s": ten_thousand,
        "growth": thousand / ten_thousand,
    }


if __name__ == "__main__":
    options = common.arguments()
    library, _, workload = options.library.partition("-")
    common.write(options.out, measure(library, workload))
    importlib.import_module(library).shutdown()
