"""Trials per second of trials that only report.

The argument is a library and a workload: `syncline-few` (50 trials of 10 reports), `ray-many`
(1 000 and 10 000 trials of one report; only a few on Ray, which would need hours). With
`isolation="worker"`, which Ray does not have, trials share processes. BENCH_SCALE multiplies the
numbers of trials.
"""

import importlib
import time
from collections import deque
from types import ModuleType
from typing import Any

import psutil

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
    tune: ModuleType, library: str, samples: int, reports: int, **options: Any
) -> float:
    """Return the trials per second of one `fit()` with these options of `TuneConfig`."""
    space = {"x": tune.uniform(0, 1), "reports": reports, "library": library}
    tuner = searches.tuner(
        tune,
        trial,
        space,
        samples,
        name="-".join(map(str, (samples, "trials", *options.values()))),
        **options,
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
        values = {"trials_per_s": few[False], "reused_per_s": few[True]}
        if library == "syncline":
            values["starts_per_s"] = starts_per_s(importlib.import_module(library), scaled(FEW))
        return values
    if library == "ray":
        return {"thousand_per_s": trials_per_s(tune, library, scaled(MANY_ON_RAY), 1)}
    began = time.process_time()
    processes = trials_per_s(tune, library, scaled(THOUSAND), 1)
    spent = time.process_time() - began
    thousand = trials_per_s(tune, library, scaled(THOUSAND), 1, isolation="worker")
    memory = resident_bytes()
    ten_thousand = trials_per_s(tune, library, scaled(TEN_THOUSAND), 1, isolation="worker")
    return {
        "thousand_per_s": processes,
        "controller_ms": 1e3 * spent / scaled(THOUSAND),
        "worker_thousand_per_s": thousand,
        "ten_thousand_per_s": ten_thousand,
        "growth": thousand / ten_thousand,
        "trial_kb": (resident_bytes() - memory) / scaled(TEN_THOUSAND) / 1e3,
    }


def starts_per_s(library: ModuleType, count: int, concurrent: int = searches.CPUS) -> float:
    """Return the processes per second that start, answer one call and end, without a search."""

    class Empty:
        def call(self) -> None:
            pass

    remote = library.remote(Empty)
    waiting: deque[Any] = deque()
    begin = time.perf_counter()
    for started in range(count + concurrent):
        if started >= concurrent:
            actor, ref = waiting.popleft()
            library.get(ref)
            library.kill(actor)
        if started < count:
            actor = remote.options(num_cpus=0).remote()
            waiting.append((actor, actor.call.remote()))
    return count / (time.perf_counter() - begin)


def resident_bytes() -> int:
    """Return the memory of this process."""
    return psutil.Process().memory_info().rss


if __name__ == "__main__":
    options = common.arguments()
    library, _, workload = options.library.partition("-")
    common.write(options.out, measure(library, workload))
    importlib.import_module(library).shutdown()
