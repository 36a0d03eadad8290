"""Metrics of user code in programs, from their control sockets to `/metrics`."""

import os

import pytest
from prometheus_client.parser import text_string_to_metric_families

from syncline.core import control
from syncline.dashboard.program_metrics import program_texts
from syncline.dashboard.prometheus import RunMetrics
from syncline.dashboard.run_index import RunIndex
from syncline.runs.run_storage import LocalDirectory


@pytest.fixture
def serve():
    yield lambda handler: control.serve(control.ENGINE, handler)
    control.close()


def test_metrics_of_a_program_are_in_the_answer_to_a_scrape(tmp_path, serve):
    serve(lambda action, arguments: f"# HELP {action} M\n# TYPE {action} counter\n{action} 7\n")
    metrics = RunMetrics(RunIndex([LocalDirectory(tmp_path)]))
    text, _ = metrics.text()
    families = {each.name: each for each in text_string_to_metric_families(text.decode())}
    (sample,) = families["metrics"].samples
    assert (sample.labels, sample.value) == ({"program": str(os.getpid())}, 7.0)
    assert "syncline_runs_running" in families


def test_programs_without_metrics_are_left_out(serve):
    def handler(action, arguments):
        raise ValueError("unknown action")

    serve(handler)
    assert program_texts() == {}
