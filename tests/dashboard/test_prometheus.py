"""Prometheus metrics of running runs, and their limits per run."""

from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from syncline.dashboard.prometheus import MAX_LABEL_LENGTH, MAX_METRICS, RunMetrics
from syncline.dashboard.run_index import RunIndex
from syncline.dashboard.run_query import Query
from syncline.runs import LocalFiles, RunDirectory
from syncline.runs.run_storage import LocalDirectory

Samples = dict[str, list[tuple[dict[str, str], float]]]


@pytest.fixture
def scrape(tmp_path: Path) -> Callable[[], Samples]:
    run_index = RunIndex([LocalDirectory(tmp_path)])
    metrics = RunMetrics(run_index)

    def scraped() -> Samples:
        run_index.refresh()
        run_index.select_fresh(Query())
        text, content_type = metrics.text()
        assert content_type.startswith("text/plain")
        return {
            family.name: [(sample.labels, sample.value) for sample in family.samples]
            for family in text_string_to_metric_families(text.decode())
        }

    return scraped


def test_a_running_run_tells_its_figures(tmp_path: Path, scrape: Callable[[], Samples]):
    with RunDirectory(LocalFiles(tmp_path / "a")) as run:
        run.write_run("a", {})
        run.event("attempt", workers=[{"rank": 0}, {"rank": 1}])
        run.event("attempt", workers=[{"rank": 0}, {"rank": 1}])
        run.report(4, 0, {"loss": 0.5, "name": "x", "ok": True})
        run.line(
            "workers.jsonl",
            {
                "time": 1.0,
                "rank": 1,
                "attempt": 2,
                "pid": 1,
                "usage": {"cpu_percent": 93.0, "rss_bytes": 1024},
            },
        )
        run.event("goodput", goodput=0.75)
    labels = {"run": "a", "storage": str(tmp_path)}
    found = scrape()
    assert found["syncline_runs_running"] == [({}, 1.0)]
    assert found["syncline_run_state"] == [({**labels, "kind": "train", "state": "running"}, 1.0)]
    assert found["syncline_run_reports"] == [(labels, 5.0)]
    assert found["syncline_run_workers"] == [(labels, 2.0)]
    assert found["syncline_run_restarts"] == [(labels, 1.0)]
    assert found["syncline_run_goodput_ratio"] == [(labels, 0.75)]
    assert found["syncline_run_metric"] == [({**labels, "metric": "loss"}, 0.5)]
    assert found["syncline_worker_cpu_percent"] == [({**labels, "member": "1"}, 93.0)]
    assert found["syncline_worker_memory_bytes"] == [({**labels, "member": "1"}, 1024.0)]


def test_goodput_is_told_while_the_run_goes_on_and_nested_metrics_by_path(
    tmp_path: Path, scrape: Callable[[], Samples]
):
    spent = {"total_s": 10.0, "data_s": 2.0, "report_s": 0.0, "communication_s": 1.0}
    with RunDirectory(LocalFiles(tmp_path / "a")) as run:
        run.write_run("a", {})
        run.event("attempt", number=1, workers=[{"rank": 0}])
        run.report(0, 0, {"eval": {"top1": 0.5}})
        run.sample(0, 1, 1, {}, spent)
    found = scrape()
    labels = {"run": "a", "storage": str(tmp_path)}
    assert found["syncline_run_goodput_ratio"] == [(labels, pytest.approx(0.8))]
    assert found["syncline_run_metric"] == [({**labels, "metric": "eval/top1"}, 0.5)]


def test_a_run_that_has_ended_tells_nothing(tmp_path: Path, scrape: Callable[[], Samples]):
    with RunDirectory(LocalFiles(tmp_path / "a")) as run:
        run.write_run("a", {})
        run.report(0, 0, {"loss": 0.5})
        scrape()
        run.write_outcome("finished")
    assert scrape()["syncline_run_metric"] == []


def test_names_are_escaped_and_short_and_figures_are_few(
    tmp_path: Path, scrape: Callable[[], Samples]
):
    hostile = 'a"} 1\nsyncline_evil{x="'
    with RunDirectory(LocalFiles(tmp_path / hostile)) as run:
        run.write_run("another's name", {})
        run.report(
            0, 0, {hostile: 1.0, "y" * 5_000: 2.0, **{f"z{number}": 0.0 for number in range(1_000)}}
        )
    found = scrape()
    assert "syncline_evil" not in found
    assert found["syncline_run_reports"][0][0]["run"] == hostile
    assert len(found["syncline_run_metric"]) == MAX_METRICS
    assert (
        max(len(labels["metric"]) for labels, _ in found["syncline_run_metric"])
        <= MAX_LABEL_LENGTH + 30
    )
