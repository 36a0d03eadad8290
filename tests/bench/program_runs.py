"""Run a measured program on few rows, and list the values that the table needs from it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from bench.inputs import INPUT, SCALE
from bench.measure import PYTHON_PATH
from bench.rows import ROWS


def run(
    module: str, argument: str, folder: Path, given: Path | None = None, scale: str = "0.001"
) -> dict[str, float]:
    """Run one program on few rows; return its values."""
    out = folder / "values.json"
    variables = {
        **os.environ,
        "PYTHONPATH": PYTHON_PATH,
        SCALE: scale,
        **({INPUT: str(given)} if given else {}),
    }
    done = subprocess.run(
        [sys.executable, "-m", f"bench.programs.{module}", argument, "--out", str(out)],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    values: dict[str, float] = json.loads(out.read_text())
    return values


def keys_of(module: str) -> set[str]:
    """Return the keys that rows read from a program of syncline, without those of the launcher."""
    from_launcher = {"first_batch_s", "peak_mb", "peak_per_budget"}
    return {
        metric.key
        for row in ROWS
        if row.contenders[0].module == module
        for metric in row.metrics
        if metric.key not in from_launcher
    }
