"""Programs that leave records: whole ones, of programs that were killed, and of training runs."""

import json
import signal
from pathlib import Path

import pytest

import syncline
from syncline import data, runs, train
from syncline.testing.programs import run_program
from syncline.testing.waiting import eventually

pytestmark = pytest.mark.processes

PROGRAM = """
import time
import syncline
from syncline import data


def slow(batch):
    time.sleep(0.1)
    return batch


dataset = data.range(1200, override_num_blocks=60).map_batches(slow, batch_size=20)
dataset.set_name("slow one")
rows = 0
for batch in dataset.iter_batches(batch_size=20):
    rows += len(batch["id"])
    if rows == 20:
        print("first", flush=True)
    {body}
print(rows)
"""


def runs_of(storage: Path) -> list[Path]:
    return sorted(storage.iterdir()) if storage.exists() else []


def records(run: Path) -> list[dict]:
    (file,) = (run / "data").iterdir()
    return [json.loads(line) for line in file.read_text().splitlines()]


def rows_so_far(file: Path) -> int:
    """What the last line of a file says that is still written to."""
    lines = file.read_bytes().split(b"\n")[:-1]
    return json.loads(lines[-1]).get("rows", 0) if lines else 0


def plan(storage: Path, *, body: str = ""):
    return run_program(
        PROGRAM.format(body=body), environment={"SYNCLINE_STORAGE_PATH": str(storage)}
    )


def test_a_slow_pipeline_leaves_a_record_with_its_totals(tmp_path):
    with plan(tmp_path) as running:
        ended = running.wait().check()
    assert ended.stderr == ""
    (run,) = runs_of(tmp_path)
    assert run.name.startswith("data_slow-one_")
    first, *samples = records(run)
    last = samples[-1]
    assert [each["name"] for each in first["operators"]] == ["ReadRange->MapBatches(slow)"]
    assert (
        last["ended"],
        last["rows"],
        last["operators"][0]["rows"],
        last["operators"][0]["tasks"],
    ) == ("finished", 1200, 1200, 60)
    assert last["operators"][0]["function_s"] > 5.0
    assert "MapBatches(slow)" in json.loads((run / "run.json").read_text())["config"]["plan"]
    assert (runs.open(run).kind, runs.open(run).state) == ("data", "finished")


@pytest.mark.parametrize("end", ["break", "raise SystemExit(3)"])
def test_an_execution_that_is_left_has_a_record_with_an_end(tmp_path, end):
    with plan(tmp_path, body=f"if rows > 700: {end}") as running:
        running.wait()
    (run,) = runs_of(tmp_path)
    last = records(run)[-1]
    assert last["ended"] == "stopped"
    assert 700 < last["operators"][0]["rows"] <= 1200
    assert runs.open(run).state == "finished"


def test_a_killed_program_leaves_a_record_that_can_be_read(tmp_path):
    with plan(tmp_path, body="time.sleep(1.0)") as running:
        eventually(lambda: any(rows_so_far(file) for file in tmp_path.glob("*/data/*.jsonl")))
        running.send_signal(signal.SIGKILL)
        running.wait()
    (run,) = runs_of(tmp_path)
    last = records(run)[-1]
    assert last["rows"] > 0
    assert "ended" not in last
    assert not (run / "outcome.json").exists()
    assert runs.open(run).state == "killed"


def test_storage_that_cannot_be_written_changes_nothing_for_the_program(tmp_path):
    (tmp_path / "file").write_text("")
    with plan(tmp_path / "file" / "below") as running:
        ended = running.wait().check()
    assert (ended.stdout.split(), ended.stderr) == (["first", "1200"], "")


def test_a_training_run_has_the_records_of_what_it_reads(tmp_path, monkeypatch):
    def loop():
        for _ in range(3):
            for name in ("train", "valid"):
                rows = sum(
                    len(batch["id"])
                    for batch in train.get_dataset_shard(name).iter_batches(batch_size=10)
                )
            train.report({"rows": rows})

    monkeypatch.setenv("SYNCLINE_STORAGE_PATH", str(tmp_path))
    syncline.shutdown()
    given = {
        "train": data.range(400, override_num_blocks=8).map(lambda row: row),
        "valid": data.range(10),
    }
    train.DataParallelTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=str(tmp_path), name="run"),
        datasets=given,
        dataset_config=train.DataConfig(datasets_to_split=["train"]),
    ).fit()
    assert [run.name for run in runs_of(tmp_path)] == ["run"], (
        "what feeds a run is not a run of its own"
    )
    found = {
        file.name: [json.loads(line) for line in file.read_text().splitlines()]
        for file in (tmp_path / "run" / "data").iterdir()
    }
    by_dataset = {lines[0]["dataset"]: [] for lines in found.values()}
    for lines in found.values():
        by_dataset[lines[0]["dataset"]].append(lines)
    assert {name: len(files) for name, files in by_dataset.items()} == {"train": 1, "valid": 2}, (
        "the coordinator's, and each rank's"
    )
    (lines,) = by_dataset["train"]
    ended = [line for line in lines if "ended" in line]
    assert (ended[0]["pass"], ended[0]["rows"], ended[0]["ended"]) == (0, 400, "finished")
    assert given["train"].context._record_target is None, (
        "the program's own dataset has no part in the run"
    )
