"""Metrics of several serves in one text."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from syncline.dashboard.prometheus import RunMetrics
from syncline.dashboard.run_index import RunIndex
from syncline.dashboard.run_query import Query
from syncline.dashboard.serving_metrics import merged
from syncline.runs import LocalFiles, RunDirectory
from syncline.runs.run_storage import LocalDirectory

TEXT = """\
# HELP syncline_serve_num_http_requests HTTP requests
# TYPE syncline_serve_num_http_requests counter
syncline_serve_num_http_requests{application="a",route="/"} 3
# HELP syncline_serve_up State
# TYPE syncline_serve_up gauge
syncline_serve_up 1
"""


def samples(text):
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_each_sample_gets_its_run_and_each_family_one_head():
    text = merged({"first": TEXT, "second": TEXT})
    assert text.splitlines() == [
        "# HELP syncline_serve_num_http_requests HTTP requests",
        "# TYPE syncline_serve_num_http_requests counter",
        'syncline_serve_num_http_requests{run="first",application="a",route="/"} 3',
        'syncline_serve_num_http_requests{run="second",application="a",route="/"} 3',
        "# HELP syncline_serve_up State",
        "# TYPE syncline_serve_up gauge",
        'syncline_serve_up{run="first"} 1',
        'syncline_serve_up{run="second"} 1',
    ]
    assert text.endswith("\n")


def test_metrics_of_programs_join_the_families_of_runs():
    text = merged({"first": TEXT}, {"41": 'syncline_serve_up{program="x"} 2\n' + TEXT})
    assert samples(text) == [
        'syncline_serve_num_http_requests{run="first",application="a",route="/"} 3',
        'syncline_serve_num_http_requests{program="41",application="a",route="/"} 3',
        'syncline_serve_up{run="first"} 1',
        'syncline_serve_up{program="41"} 1',
    ]


def test_label_that_is_added_here_renames_that_of_user_code():
    text = 'h{program="x",run="y"} 2'
    assert samples(merged({}, {"41": f"# TYPE h gauge\n{text}"})) == [
        'h{program="41",exported_program="x",exported_run="y"} 2'
    ]


def test_names_of_the_dashboard_itself_are_taken():
    assert merged({}, {"41": "# TYPE syncline_run_state gauge\nsyncline_run_state 2"}) == ""


def test_histograms_keep_their_suffixes():
    lines = ['h_bucket{le="1"} 2', 'h_bucket{le="+Inf"} 3', "h_sum 4.5", "h_count 3"]
    text = "\n".join(["# HELP h Times", "# TYPE h histogram", *lines])
    assert samples(merged({"r": text})) == [
        'h_bucket{run="r",le="1"} 2',
        'h_bucket{run="r",le="+Inf"} 3',
        'h_sum{run="r"} 4.5',
        'h_count{run="r"} 3',
    ]


def test_the_name_of_a_run_is_escaped():
    assert samples(merged({'a"b\\c\nd': "# TYPE up gauge\nup 1"})) == ['up{run="a\\"b\\\\c d"} 1']


@pytest.mark.parametrize(
    "line",
    [
        "other 1",  # of no family
        "up one",
        "up 1 2",  # with a time
        'up{name="unfinished} 1',
        'up{name="a"b"} 1',
        'up{na-me="a"} 1',
        "up 1\rinjected 2",
        "",
    ],
)
def test_lines_that_are_no_samples_are_left_out(line):
    assert samples(merged({"r": f"# TYPE up gauge\n{line}\nup 5"})) == ['up{run="r"} 5']


def test_a_sample_before_any_head_is_left_out():
    assert merged({"r": "up 1"}) == ""


def test_an_unknown_kind_becomes_untyped():
    assert "# TYPE up untyped" in merged({"r": "# TYPE up evil\nup 1"})


def test_a_cut_text_loses_its_last_line_only():
    assert samples(merged({"r": TEXT[:-8]})) == [
        'syncline_serve_num_http_requests{run="r",application="a",route="/"} 3'
    ]


def test_a_label_run_of_user_code_is_renamed():
    text = '# TYPE up gauge\nup{run="mine",rerun="x"} 1'
    assert samples(merged({"r": text})) == ['up{run="r",exported_run="mine",rerun="x"} 1']


def write_serve(directory, text):
    """Write the record of a running serve."""
    with RunDirectory(LocalFiles(directory)) as record:
        record.write_run(directory.name, {}, "serve", detailed=False)
        (directory / "serve").mkdir()
        (directory / "serve" / "metrics.prom").write_text(text)
        return record


@pytest.fixture
def scraped(tmp_path):
    """Text of `/metrics`."""
    index = RunIndex([LocalDirectory(tmp_path)])

    def scrape():
        index.refresh()
        index.select_fresh(Query())
        return RunMetrics(index).text()[0].decode()

    return scrape


def test_metrics_of_running_serves_are_scraped_with_those_of_runs(tmp_path, scraped):
    write_serve(tmp_path / "one", TEXT)
    write_serve(tmp_path / "two", TEXT)
    with RunDirectory(LocalFiles(tmp_path / "training")) as record:
        record.write_run("training", {}, detailed=False)
    families = {family.name: family for family in text_string_to_metric_families(scraped())}
    found = families["syncline_serve_num_http_requests"].samples
    assert {sample.labels["run"]: sample.value for sample in found} == {"one": 3.0, "two": 3.0}
    assert "syncline_runs_running" in families


def test_ended_serves_and_those_without_metrics_are_left_out(tmp_path, scraped):
    write_serve(tmp_path / "ended", TEXT).write_outcome("finished", None)
    with RunDirectory(LocalFiles(tmp_path / "young")) as record:
        record.write_run("young", {}, "serve", detailed=False)
    assert "syncline_serve" not in scraped()
