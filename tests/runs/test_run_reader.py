"""`runs.open`: reading runs that grow, were killed, are damaged, or come from another program."""

import json
import os

import pytest

from syncline import runs
from syncline.runs import LocalFiles, RunDirectory
from syncline.runs.run_directory import FORMAT

NOBODY = 2**22 + 1


def write(directory, **changes):
    """A record of two attempts, the first of which failed."""
    ticks = iter(range(100, 1000))
    with RunDirectory(LocalFiles(directory), clock=lambda: float(next(ticks))) as run:
        run.write_run("demo", {"lr": 0.1, "api_key": "abc"}, **changes)
        run.event("started", continued=False, next_report=0)
        run.event("attempt", number=1, workers=[{"rank": 0, "pid": 5}, {"rank": 1, "pid": 6}])
        run.report(0, 0, {"loss": 2.0})
        run.report(0, 1, {"loss": 4.0})
        run.sample(0, 1, 5, {"rss_bytes": 10}, {"total_s": 1.0})
        run.event(
            "failure", attempt=1, ranks={"1": "ValueError()"}, tracebacks={"1": "Traceback: here"}
        )
        run.event("attempt", number=2, workers=[{"rank": 0, "pid": 7}])
        run.report(1, 0, {"loss": 1.0})
        run.write_checkpoints(
            {"checkpoints": [{"index": 1, "name": "checkpoint_000001"}, "nonsense"]}
        )
    return directory


def test_everything_is_read(tmp_path) -> None:
    run = runs.open(write(tmp_path))
    assert (run.name, run.kind, run.state) == (
        "demo",
        "train",
        "killed" if run.environment["pid"] == NOBODY else run.state,
    )
    assert run.config == {"lr": 0.1, "api_key": "***"}
    assert run.environment["packages"]
    assert [event["event"] for event in run.events] == ["started", "attempt", "failure", "attempt"]
    first, second = run.attempts
    assert (first.number, len(first.workers), first.ended is not None, first.failures) == (
        1,
        2,
        True,
        {"1": "Traceback: here"},
    )
    assert (second.ended, second.failures) == (None, {})
    assert run.series.reduced("loss") == ([0.0, 1.0], [3.0, 1.0])
    assert run.samples["0"][0]["usage"] == {"rss_bytes": 10}
    assert run.checkpoints == [{"index": 1, "name": "checkpoint_000001"}]
    assert run.summary.reports == 2
    assert run.summary.metrics == {"loss": 1.0}
    assert run.problems == []


def test_a_run_is_followed(tmp_path) -> None:
    record = RunDirectory(LocalFiles(tmp_path))
    record.write_run("demo", {}, detailed=False)
    run = runs.open(tmp_path)
    assert run.state == "running"
    assert run.outcome is None
    record.report(0, 0, {"loss": 1.0})
    record.event("attempt", number=1, workers=[])
    record.line("trials.jsonl", {"trial": "a"})
    run.refresh()
    assert run.series.names == ["loss"]
    assert len(run.attempts) == 1
    assert run.lines("trials.jsonl") == [{"trial": "a"}]
    record.lines("trials.jsonl", [{"trial": "b"}, {"trial": "c"}])
    record.lines("trials.jsonl", [])
    assert len(run.lines("trials.jsonl")) == 1
    assert run.names_in("data") == []
    record.line("data/train.jsonl", {"dataset": "train"})
    record.write_outcome("finished")
    record.close()
    run.refresh()
    assert run.lines("trials.jsonl")[1:] == [{"trial": "b"}, {"trial": "c"}]
    assert run.names_in("data") == ["train.jsonl"]
    assert run.state == "finished"
    record.write_run("demo", {}, detailed=False)
    run.refresh()
    assert run.state == "running"


def test_a_program_that_is_gone_left_a_killed_run(tmp_path) -> None:
    directory = write(tmp_path)
    described = json.loads((directory / "run.json").read_text())
    described["environment"]["pid"] = NOBODY
    (directory / "run.json").write_text(json.dumps(described))
    assert runs.open(directory).state == "killed"


def test_no_run_and_later_formats_are_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"no readable run\.json"):
        runs.open(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"format": FORMAT + 1}))
    with pytest.raises(ValueError, match="use a newer version"):
        runs.open(tmp_path)


@pytest.mark.parametrize("value", [[], 5, "x", None, {"a": []}, -1e400])
@pytest.mark.parametrize(
    "name",
    [
        "run.json",
        "environment.json",
        "outcome.json",
        "checkpoints.json",
        "latest.json",
        "events.jsonl",
        "metrics.jsonl",
        "workers.jsonl",
    ],
)
def test_a_record_of_other_forms_is_shown_as_far_as_it_goes(
    tmp_path, name: str, value: object
) -> None:
    directory = write(tmp_path)
    text = json.dumps(value)
    if name == "run.json":
        text = json.dumps(
            {
                key: value
                for key in ("format", "kind", "name", "started", "config", "environment")
                if key != "format"
            }
        )
    if name.endswith(".jsonl"):
        keys = (
            "time",
            "event",
            "iteration",
            "rank",
            "metrics",
            "usage",
            "workers",
            "ranks",
            "tracebacks",
            "number",
        )
        text = "".join(
            json.dumps({key: value, "event": kind, "time": 1.0}) + "\n"
            for key in keys
            for kind in ("attempt", "failure", value)
        )
    (directory / name).write_text(text)
    run = runs.open(directory)
    for look in (
        "name",
        "kind",
        "state",
        "config",
        "environment",
        "events",
        "attempts",
        "samples",
        "checkpoints",
        "summary",
        "logs",
    ):
        getattr(run, look)
    for metric in run.series.names:
        run.series.reduced(metric)


def test_links_in_a_record_lead_nowhere(tmp_path) -> None:
    directory = write(tmp_path / "run")
    (directory / "outcome.json").unlink(missing_ok=True)
    os.symlink("/etc/passwd", directory / "outcome.json")
    (directory / "logs").mkdir(exist_ok=True)
    os.symlink("/etc/passwd", directory / "logs" / "rank-0.log")
    run = runs.open(directory)
    assert run.outcome is None
    assert run.logs == []
    assert run.log("rank-0").lines() == []
    with pytest.raises(ValueError, match="not a file name"):
        run.log("../../etc/passwd")
