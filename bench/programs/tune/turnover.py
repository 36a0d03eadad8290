"""Time from a trial's end to the first line of its successor, which waits for the only CPU.

A trial ends because its function returns, or because the search stops it after a result.
BENCH_SCALE multiplies the numbers of trials.
"""

import importlib
import itertools
import json
import statistics
import time
import uuid
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.inputs import scaled
from bench.programs import common
from bench.programs.tune import searches

TRIALS = {"syncline": 30, "ray": 8}
SLEEP_S = 60.0


def trial(config: dict[str, Any]) -> None:
    begun = time.monotonic()
    report = importlib.import_module(f"{config['library']}.tune").report
    stamps = Path(config["stamps"], f"{uuid.uuid4().hex}.json")
    if config["is_stopped"]:
        stamps.write_text(json.dumps((begun, time.monotonic())))
        report({searches.METRIC: config["x"]})
        time.sleep(SLEEP_S)
    else:
        report({searches.METRIC: config["x"]})
        stamps.write_text(json.dumps((begun, time.monotonic())))


def gap_ms(tune: ModuleType, library: str, *, is_stopped: bool) -> float:
    """Return the median milliseconds between one trial and the next one."""
    name, samples = f"stopped-{is_stopped}", max(2, scaled(TRIALS[library]))
    stamps = Path(name).absolute()
    stamps.mkdir()
    space = {
        "x": tune.uniform(0, 1),
        "library": library,
        "stamps": str(stamps),
        "is_stopped": is_stopped,
    }
    run = {"stop": {"training_iteration": 1}} if is_stopped else {}
    searches.tuner(tune, trial, space, samples, name=name, run=run).fit()
    spans = sorted(json.loads(file.read_text()) for file in stamps.iterdir())
    assert len(spans) == samples, f"{len(spans)} trials have run instead of {samples}"
    gaps = [later[0] - earlier[1] for earlier, later in itertools.pairwise(spans)]
    assert min(gaps) > 0, f"two trials held the same CPU: {spans}"
    return statistics.median(gaps) * 1e3


if __name__ == "__main__":
    options = common.arguments()
    tune = searches.start(options.library, cpus=1)
    values = {
        "returned_ms": gap_ms(tune, options.library, is_stopped=False),
        "stopped_ms": gap_ms(tune, options.library, is_stopped=True),
    }
    common.write(options.out, values)
    importlib.import_module(options.library).shutdown()
