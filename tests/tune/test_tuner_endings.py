"""Searches that end early by Ctrl-C, SIGTERM or a full disk keep their results and can continue."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from syncline.testing.programs import assert_nothing_left, run_program

pytestmark = pytest.mark.processes

INTERRUPTED = """
import os, pathlib, sys, tempfile, time

import syncline
from syncline import tune

storage = pathlib.Path("results").absolute()


def train(config):
    checkpoint, count = tune.get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            count = int(pathlib.Path(directory, "count").read_text())
    for step in range(count + 1, 4):
        if config["x"] == 2 and step == 3 and not (storage / "go-on").exists():
            print("reached", flush=True)
            time.sleep(600)
        with tempfile.TemporaryDirectory() as directory:
            pathlib.Path(directory, "count").write_text(str(step))
            tune.report({"count": step, "began_at": count}, checkpoint=tune.Checkpoint(directory))


def main():
    syncline.init(num_cpus=1)
    path = storage / "search"
    if tune.Tuner.can_restore(path):
        (storage / "go-on").touch()
        tuner = tune.Tuner.restore(path, train)
    else:
        tuner = tune.Tuner(
            train,
            param_space={"x": tune.grid_search([1, 2, 3])},
            run_config=tune.RunConfig(name="search", storage_path=str(storage), verbose=0),
        )
    print("began", os.getpid(), flush=True)
    results = tuner.fit()
    counts = [(result.metrics or {}).get("count") for result in results]
    print("results", counts, results.num_errors, flush=True)
    if "again" in sys.argv:
        (storage / "go-on").touch()
        results = tune.Tuner.restore(path, train).fit()
        counts = [(result.metrics["count"], result.metrics["began_at"]) for result in results]
        print("again", counts, results.num_errors)


main()
"""


@pytest.mark.promise
def test_an_interrupted_search_returns_what_there_is_and_goes_on() -> None:
    with run_program(INTERRUPTED, "again") as program:
        program.wait_for("reached")
        program.signal_group(signal.SIGINT)
        assert program.wait_for("results") == "results [3, 2, None] 0"
        assert program.wait_for("again") == "again [(3, 0), (3, 2), (3, 0)] 0"
        ended = program.wait().check()
        assert "Traceback" not in ended.stderr
        assert_nothing_left(program)


def test_a_terminated_search_leaves_nothing_running_and_goes_on(tmp_path: Path) -> None:
    with run_program(INTERRUPTED) as program:
        program.wait_for("reached")
        program.send_signal(signal.SIGTERM)
        assert program.wait().return_code != 0
        assert_nothing_left(program)
        shutil.copytree(program.directory / "results", tmp_path / "results")
    with run_program(f"import os; os.chdir({str(tmp_path)!r})\n{INTERRUPTED}") as program:
        assert program.wait_for("results") == "results [3, 3, 3] 0"
        program.wait().check()


TRAINERS = """
import json, pathlib, tempfile

import syncline
from syncline import train, tune
from syncline.tune.integration.ray_train import TuneReportCallback

here = pathlib.Path.cwd()


def loop(config):
    checkpoint, step = train.get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            step = int(pathlib.Path(directory, "step").read_text())
    for step in range(step + 1, 8):
        with tempfile.TemporaryDirectory() as directory:
            pathlib.Path(directory, "step").write_text(str(step))
            saved = train.Checkpoint(directory) if step % 3 == 0 else None
            train.report({"step": step}, checkpoint=saved)


def in_a_function(config):
    directory = tune.get_context().get_trial_dir()
    run_config = train.RunConfig(
        name="run", storage_path=directory, callbacks=[TuneReportCallback()]
    )
    train.DataParallelTrainer(loop, run_config=run_config).fit()


syncline.init(num_cpus=1)
for name, trainable in (("trainer", train.DataParallelTrainer(loop)), ("function", in_a_function)):
    if tune.Tuner.can_restore(here / name):
        tuner = tune.Tuner.restore(here / name, trainable)
    else:
        run_config = tune.RunConfig(name=name, storage_path=str(here), verbose=0)
        tune_config = tune.TuneConfig(num_samples=2)
        tuner = tune.Tuner(trainable, tune_config=tune_config, run_config=run_config)
    for result in tuner.fit():
        rows = pathlib.Path(result.path, "result.json").read_text().splitlines()
        steps = [(row["training_iteration"], row["step"]) for row in map(json.loads, rows)]
        assert steps == [(step, step) for step in range(1, 8)], (name, steps)
print("done")
"""


def test_reports_of_trainers_in_trials_count_once_after_any_kill(tmp_path: Path) -> None:
    """The run of a trainer may know more than the search does when the kill comes."""
    for kill in (6, 11, 8):
        faults = {"SYNCLINE_FAULTS": f"tune.before_journal=kill:{kill}"}
        with run_program(
            f"import os; os.chdir({str(tmp_path)!r})\n{TRAINERS}", environment=faults
        ) as program:
            assert program.wait().return_code == -signal.SIGKILL
            assert_nothing_left(program)
    with run_program(f"import os; os.chdir({str(tmp_path)!r})\n{TRAINERS}") as program:
        program.wait_for("done")
        program.wait().check()


FULL = """
import os, pathlib, sys

if "inside" not in sys.argv:
    os.mkdir("small")
    mount = 'mount -t tmpfs -o size=24m tmpfs small && exec "$0" "$@"'
    program = [sys.executable, *sys.orig_argv[1:], "inside"]
    os.execvp("unshare", ["unshare", "-m", "sh", "-c", mount, *program])

import syncline
from syncline import tune

small = pathlib.Path("small").absolute()


def train(config):
    for step in range(3):
        if step == 1 and config["x"] == 3 and not pathlib.Path("room").exists():
            with open(small / "others", "wb", buffering=0) as file:  # somebody else fills the disk
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    pass
        tune.report({"step": step, "much": "a" * 5000})


syncline.init(num_cpus=1)
tuner = tune.Tuner(
    train,
    param_space={"x": tune.grid_search([1, 2, 3, 4])},
    run_config=tune.RunConfig(name="search", storage_path=str(small), verbose=0),
)
try:
    tuner.fit()
except Exception as error:
    print("refused", type(error).__name__, error)
else:
    raise AssertionError("the state of the search does not fit")
(small / "others").unlink()
pathlib.Path("room").touch()
results = tune.Tuner.restore(small / "search", train).fit()
print("results", [result.metrics["step"] for result in results], results.num_errors)
for result in results:
    lines = pathlib.Path(result.path, "result.json").read_text().splitlines()
    assert len(lines) == 3, lines
"""


def _may_mount(directory: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_full_disk_ends_a_search_that_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    if not _may_mount(tmp_path):
        pytest.skip("needs the right to mount a small disk of its own")
    with run_program(FULL) as program:
        refused = program.wait_for("refused")
        for part in ("search", "No space left", "Free disk space", "Tuner.restore"):
            assert part in refused, refused
        assert program.wait_for("results") == "results [2, 2, 2, 2] 0"
        program.wait().check()
