"""Cost of run records: 5-ms training steps with a report each, compared with the same steps
without.

Blocks of both kinds alternate in one run, so that other load affects both. Also measured: the
record of 10 000 reports of five metrics by two ranks.
"""

import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import syncline
from bench.programs import common
from syncline import train
from syncline.train.torch import TorchTrainer

STEP_S = 0.005
BLOCKS = 80
STEPS = 50
REPORTS = 10_000


def train_fn(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    matrix = torch.randn(128, 128)
    multiplications = _multiplications_per_step(matrix)
    blocks: list[float] = []
    used: list[float] = []
    for number in range(2 * BLOCKS + 1):
        began, cpu = time.perf_counter(), time.process_time()
        for step in range(STEPS):
            _compute(matrix, multiplications)
            metrics = _metrics(step)
            if number % 2:
                train.report(metrics)
        blocks.append((time.perf_counter() - began) / STEPS)
        used.append((time.process_time() - cpu) / STEPS)
    step_s = statistics.median(blocks[::2])
    values = {
        "step_ms": 1000 * step_s,
        "overhead_percent": 100 * _difference(blocks) / step_s,
        "worker_us": 1e6 * _difference(used),
    }
    Path(config["values"]).write_text(json.dumps(values))


def _difference(blocks: list[float]) -> float:
    """Return the median excess of each odd block over the mean of its two neighbors, because the
    machine's speed drifts.
    """
    triples = zip(blocks[::2], blocks[1::2], blocks[2::2], strict=False)
    return statistics.median(report - (before + after) / 2 for before, report, after in triples)


def report_fn() -> None:
    for step in range(REPORTS):
        train.report(_metrics(step))


def _metrics(step: int) -> dict[str, float]:
    return dict.fromkeys(("loss", "accuracy", "lr", "grad_norm", "epoch"), step / 7)


def _compute(matrix: torch.Tensor, multiplications: int) -> None:
    for _ in range(multiplications):
        matrix @ matrix


def _multiplications_per_step(matrix: torch.Tensor) -> int:
    """Return the number of multiplications that take `STEP_S` on a warm processor."""
    for _ in range(10):
        began = time.perf_counter()
        _compute(matrix, 2000)
        took_s = time.perf_counter() - began
    return max(1, round(STEP_S * 2000 / took_s))


def main() -> None:
    options = common.arguments()
    with tempfile.TemporaryDirectory() as folder:
        values_file = Path(folder) / "values"
        run_config = train.RunConfig(name="steps", storage_path=folder)
        one = train.ScalingConfig(num_workers=1)
        TorchTrainer(
            train_fn,
            train_loop_config={"values": str(values_file)},
            scaling_config=one,
            run_config=run_config,
        ).fit()
        values: dict[str, float] = json.loads(values_file.read_text())
        run_config = train.RunConfig(name="reports", storage_path=folder)
        began, cpu = time.perf_counter(), time.process_time()
        result = TorchTrainer(
            report_fn, scaling_config=train.ScalingConfig(num_workers=2), run_config=run_config
        ).fit()
        values["controller_us"] = 1e6 * (time.process_time() - cpu) / (2 * REPORTS)
        values["fit_s"] = time.perf_counter() - began
        values["record_mb"] = (
            sum(entry.stat().st_size for entry in os.scandir(result.path) if entry.is_file()) / 1e6
        )
        began = time.perf_counter()
        run = syncline.runs.open(result.path)
        x, _ = run.series.reduced("loss")
        values["open_ms"] = 1000 * (time.perf_counter() - began)
        if run.summary.reports != REPORTS or not x:
            raise RuntimeError(f"the record has {run.summary.reports} reports instead of {REPORTS}")
    common.write(options.out, values)


if __name__ == "__main__":
    main()
