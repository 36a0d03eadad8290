"""The dashboard with 10 000 runs, with one run of 100 000 reports, and with a search of 10 000
trials: time to its pages, memory.

The time is that of the complete HTTP response, which contains the visible rows or the facts of the
run.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil

from bench.programs import common
from syncline import tune
from syncline.runs import LocalFiles, RunDirectory

RUNS = 10_000
REPORTS = 100_000
TRIALS = 10_000
START_LIMIT_S = 60.0


def make_runs(storage: Path) -> None:
    """Write finished runs of ten reports each."""
    for number in range(RUNS):
        with RunDirectory(LocalFiles(storage / f"run_{number:05d}")) as record:
            record.write_run(f"run_{number:05d}", {"lr": number}, detailed=False)
            record.event("attempt", number=1, workers=[{"rank": 0, "pid": 1}])
            for index in range(10):
                record.report(index, 0, {"loss": 1 / (index + 1)})
            record.write_outcome("finished")


def make_long_run(storage: Path) -> None:
    """Write one run of two ranks."""
    with RunDirectory(LocalFiles(storage / "long")) as record:
        record.write_run("long", {}, detailed=False)
        record.event("attempt", number=1, workers=[{"rank": rank, "pid": 1} for rank in range(2)])
        for index in range(REPORTS // 2):
            for rank in range(2):
                record.report(
                    index,
                    rank,
                    {"loss": 1 / (index + 1), "accuracy": index / REPORTS, "lr": 0.1},
                    time_s=1e9 + index,
                )
        record.write_outcome("finished")


def trial(config: dict[str, float]) -> None:
    """Report once."""
    tune.report({"loss": config["x"] ** 2})


def make_search(storage: Path) -> None:
    """Run a search of short trials."""
    tune.Tuner(
        trial,
        param_space={"x": tune.uniform(-1, 1)},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", num_samples=TRIALS, isolation="worker"
        ),
        run_config=tune.RunConfig(name="search", storage_path=str(storage), verbose=0),
    ).fit()


def start(storages: list[Path]) -> tuple[subprocess.Popen[str], str]:
    """Start the dashboard; return the process, and its address with the token."""
    command = [sys.executable, "-m", "syncline", "dashboard", *map(str, storages), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    deadline = time.monotonic() + START_LIMIT_S
    printed: list[str] = []
    for line in process.stdout:
        printed.append(line)
        found = re.search(r"http://\S+", line)
        if found:
            return process, found.group(0)
        if time.monotonic() > deadline:
            break
    raise RuntimeError(f"the dashboard printed no address: {''.join(printed)}")


def page_s(address: str, expected: str) -> float:
    """Return the seconds for loading a page. Raises RuntimeError if it lacks the expected text."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    began = time.perf_counter()
    with opener.open(address, timeout=60) as answer:
        text = answer.read().decode()
    if expected not in text:
        raise RuntimeError(f"{expected!r} is not in the page at {address}: {text[:300]}")
    return time.perf_counter() - began


def main() -> None:
    options = common.arguments()
    values = {}
    with tempfile.TemporaryDirectory() as folder:
        many, one, search = (Path(folder) / name for name in ("many", "one", "search"))
        make_runs(many)
        make_long_run(one)
        make_search(search)
        os.environ["SYNCLINE_TMPDIR"] = folder
        began = time.perf_counter()
        process, address = start([many, one, search])
        try:
            values["start_s"] = time.perf_counter() - began
            base, _, query = address.partition("?")
            values["first_list_s"] = page_s(address, "run_09999")
            values["list_s"] = page_s(address, "run_09999")
            values["run_s"] = page_s(f"{base.rstrip('/')}/run/1/long?{query}", "long")
            address = f"{base.rstrip('/')}/run/2/search?{query}"
            values["search_s"] = page_s(address, "Best trial")
            values["again_s"] = page_s(address, "Best trial")
            time.sleep(5)  # until the dashboard has read the other summaries
            values["memory_mb"] = psutil.Process(process.pid).memory_info().rss / 1e6
        finally:
            process.terminate()
            process.wait(30)
    common.write(options.out, values)


if __name__ == "__main__":
    main()
