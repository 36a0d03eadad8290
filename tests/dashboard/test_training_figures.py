"""Values of the training page: from complete, restarted and foreign records."""

import json

import pytest

from syncline import runs
from syncline.dashboard import training_figures
from syncline.runs import LocalFiles, RunDirectory


class Clock:
    """Clock set by the test."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def spent(
    total: float, data: float = 0.0, report: float = 0.0, communication: float = 0.0
) -> dict[str, float]:
    return {"total_s": total, "data_s": data, "report_s": report, "communication_s": communication}


@pytest.fixture
def run(tmp_path):
    """Two ranks; the first attempt saved a checkpoint after 10 of 20 s, the second has run for 10
    s.
    """
    clock = Clock()
    with RunDirectory(LocalFiles(tmp_path), clock=clock) as record:
        record.write_run("demo", {}, detailed=False)
        record.event("started", continued=False)
        record.event(
            "attempt",
            number=1,
            first_report=0,
            workers=[{"rank": 0, "hostname": "a", "pid": 1, "gpu_ids": []}],
        )
        clock.now += 10
        record.event("checkpoint", report=4, name="checkpoint_000004")
        clock.now += 10
        record.event("failure", attempt=1, ranks={"0": "ValueError('no')"})
        clock.now += 10
        workers = [
            {"rank": 10, "hostname": "b", "pid": 3, "gpu_ids": ["0"]},
            {"rank": 2, "hostname": "a", "pid": 2, "gpu_ids": []},
        ]
        record.event("attempt", number=2, first_report=5, workers=workers)
        clock.now += 5
        record.sample(2, 2, 2, {"rss_bytes": 1}, spent(5, data=1))
        clock.now += 5
        gpu = {"id": "0", "util_percent": 80, "memory_bytes": 1024**3}
        host = {"host_cpu_percent": 7.0}
        record.sample(
            2,
            2,
            2,
            {"cpu_percent": 99.0, "rss_bytes": 2 * 1024**3, **host},
            spent(10, data=3, report=1),
        )
        record.sample(
            10, 2, 3, {"cpu_percent": 50.0, "gpus": [gpu], **host}, spent(10, communication=2)
        )
    described = json.loads((tmp_path / "run.json").read_text())
    described["environment"]["process"] = "another start of the machine/its numbers/1"
    (tmp_path / "run.json").write_text(json.dumps(described))
    return runs.open(tmp_path)


def test_workers_of_the_latest_attempt_by_rank(run) -> None:
    first, second = training_figures.worker_rows(run)
    assert (first.rank, first.host, first.pid, first.device) == ("2", "a", 2, "cpu")
    assert first.state == "killed"  # the record names another process
    assert (first.cpu_percent, first.rss_bytes, first.gpu_percent) == (99.0, 2 * 1024**3, None)
    assert first.shares == pytest.approx(
        {"compute": 0.6, "communication": 0.0, "data": 0.3, "report": 0.1}
    )
    assert (second.rank, second.device, second.gpu_percent, second.gpu_memory_bytes) == (
        "10",
        "GPU 0",
        80.0,
        1024**3,
    )


def test_goodput_counts_neither_waiting_nor_what_was_lost(run) -> None:
    training = (0.6 + 1.0) / 2
    # time until the checkpoint and of the second attempt, divided by the total
    kept = (10 + 10) / 40
    assert training_figures.goodput(run) == pytest.approx(training * kept)


def test_goodput_that_the_run_has_worked_out_itself_counts(tmp_path) -> None:
    with RunDirectory(LocalFiles(tmp_path)) as record:
        record.write_run("demo", {}, detailed=False)
        record.event("attempt", number=1, workers=[])
        record.event("goodput", goodput=0.75)
    assert training_figures.goodput(runs.open(tmp_path)) == 0.75


def test_curves_over_time(run) -> None:
    assert training_figures.usage_curves(run, "rss_bytes") == {
        "2": ([1035.0, 1040.0], [1 / 1024**3, 2.0])
    }
    assert training_figures.gpu_curves(run, "memory_bytes") == {
        "GPU 0 of rank 10": ([1040.0], [1.0])
    }
    assert training_figures.share_curves(run, "data")["2"] == (
        [1035.0, 1040.0],
        pytest.approx([0.2, 0.4]),
    )


def test_a_machine_has_one_curve_however_many_workers_it_has(run, tmp_path_factory) -> None:
    assert training_figures.host_curves(run, "host_cpu_percent") == {
        "a": ([1040.0], [7.0]),
        "b": ([1040.0], [7.0]),
    }
    alone = tmp_path_factory.mktemp("alone")
    with RunDirectory(LocalFiles(alone), clock=Clock()) as record:
        record.write_run("demo", {}, detailed=False)
        record.event(
            "attempt", number=1, workers=[{"rank": rank, "hostname": "a"} for rank in range(3)]
        )
        for rank in (2, 1):
            record.sample(rank, 1, 1, {"host_cpu_percent": float(rank)}, spent(1))
    assert training_figures.host_curves(runs.open(alone), "host_cpu_percent") == {
        "a": ([1000.0], [1.0])
    }


def test_what_happened_in_words(run) -> None:
    assert [moment.what for moment in training_figures.event_views(run)] == [
        "started",
        "attempt 1",
        "checkpoint",
        "attempt 1 failed",
        "attempt 2",
    ]
    assert training_figures.event_views(run)[3].detail == "rank 0: ValueError('no')"
    text = {"event": "verdict", "time": 1.0, "ranks": [1], "text": "Rank 1 is slow."}
    assert training_figures._describe_event(text) == ("verdict", "Rank 1 is slow.")
    assert training_figures.restart_marks(run, "iteration") == [(5.0, "attempt 2")]
    assert training_figures.restart_marks(run, "time") == [(1030.0, "attempt 2")]


@pytest.mark.parametrize(
    "value", [None, [], {}, "x", -1, float("inf"), True, {"0": []}, [{"id": []}]]
)
def test_records_of_other_forms_are_shown_as_far_as_they_go(tmp_path, value) -> None:
    with RunDirectory(LocalFiles(tmp_path)) as record:
        record.write_run("demo", {}, detailed=False)
    fields = (
        "workers",
        "ranks",
        "tracebacks",
        "report",
        "name",
        "number",
        "goodput",
        "first_report",
        "attempt",
        "continued",
    )
    kinds = ("started", "attempt", "checkpoint", "failure", "goodput", "resize")
    lines = [
        {"time": float(place), "event": kind, **dict.fromkeys(fields, value)}
        for place, kind in enumerate(kinds)
    ]
    lines.append(
        {
            "time": 9.0,
            "event": "attempt",
            "workers": [{"rank": value, "pid": value, "gpu_ids": value, "hostname": value}],
        }
    )
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    usage = {"cpu_percent": value, "rss_bytes": value, "gpus": value, "host_cpu_percent": value}
    times = dict.fromkeys(("total_s", "data_s", "report_s"), value)
    samples = [
        {"time": 10.0, "rank": 0, "usage": usage, "spent": times},
        {"time": 11.0, "rank": 0, "usage": usage, "spent": value},
    ]
    (tmp_path / "workers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in samples))
    run = runs.open(tmp_path)
    training_figures.worker_rows(run)
    training_figures.goodput(run)
    training_figures.event_views(run)
    training_figures.restart_marks(run, "iteration")
    for key in training_figures.USAGE:
        training_figures.usage_curves(run, key)
    for key in training_figures.HOST_USAGE:
        training_figures.host_curves(run, key)
    for key in training_figures.GPU_USAGE:
        training_figures.gpu_curves(run, key)
    for part in training_figures.PARTS:
        training_figures.share_curves(run, part)


def test_the_diagnosis_of_a_rank_is_in_its_row(tmp_path) -> None:
    with RunDirectory(LocalFiles(tmp_path)) as record:
        record.write_run("demo", {}, detailed=False)
        record.event("attempt", number=1, first_report=0, workers=[{"rank": 0}, {"rank": 1}])
        record.event("verdict", cause="data", ranks=[1], seconds=3.0, text="Rank 1 is slow.")
        record.sample(1, 1, 2, {}, {**spent(5), "waited_for": 0.4})
    first, second = training_figures.worker_rows(runs.open(tmp_path))
    assert (first.verdict, first.waited_for) == ("", None)
    assert (second.verdict, second.waited_for) == ("data", 0.4)


def test_flops_are_known_where_the_configuration_has_those_of_a_step(tmp_path) -> None:
    flops = {"flops_per_step": 3e12, "peak_flops_per_s": 1e13}
    for name, config in (("with", flops), ("without", {})):
        with RunDirectory(LocalFiles(tmp_path / name)) as record:
            record.write_run("demo", {"run_config": config}, detailed=False)
            workers = [{"rank": 0}, {"rank": 1}]
            record.event("attempt", number=1, first_report=0, workers=workers)
            for step in range(11):
                record.report(step, 0, {"loss": 1.0}, 100.0 + 0.5 * step, wanted=True)
    found = training_figures.model_flops(runs.open(tmp_path / "with"))
    assert found == pytest.approx((6e12, 0.3))
    assert training_figures.model_flops(runs.open(tmp_path / "without")) is None
