"""Log files of the session."""

import pytest

from syncline.core.state_rows import StateListing
from syncline.util.state import get_log, list_logs
from syncline.util.state.exception import RayStateApiException
from tests.core.fake_engine import running_fake_engine


@pytest.fixture
def logs(monkeypatch, tmp_path):
    (tmp_path / "logs").mkdir()
    for name, text in {
        "worker-2.out": "one\ntwo\n\x1b[31mthree\x1b[0m\n",
        "worker-2.err": "oh\n",
        "worker-ab-01-77.out": "of ray\n",
        "gcs_server.out": "",
    }.items():
        (tmp_path / "logs" / name).write_text(text)
    with running_fake_engine(monkeypatch) as started:
        list_or_nothing()
        started[0].session_directory = tmp_path
        rows = {
            "actors": {"pid": 5},
            "workers": {"worker_id": f"{2:032x}"},
            "tasks": {"worker_pid": 77},
        }
        started[0].state = lambda resource, filters, limit: StateListing(rows=(rows[resource],))
        yield tmp_path / "logs"


def list_or_nothing():
    try:
        list_logs()
    except (RayStateApiException, OSError):
        return


def test_files_are_grouped_and_filtered(logs):
    assert list_logs(node_id="n1") == {
        "gcs_server": ["gcs_server.out"],
        "worker_err": ["worker-2.err"],
        "worker_out": ["worker-2.out", "worker-ab-01-77.out"],
    }
    assert list_logs(glob_filter="*.err") == {"worker_err": ["worker-2.err"]}


def test_a_file_is_read_by_name_actor_task_and_pid(logs):
    assert "".join(get_log(filename="worker-2.out", tail=2, filter_ansi_code=True)) == (
        "two\nthree\n"
    )
    assert list(get_log(actor_id="a", suffix="err", encoding=None)) == [b"oh\n"]
    assert "".join(get_log(task_id="t")) == "of ray\n"
    assert list(get_log(pid=77, tail=0)) == []


def test_following_yields_new_lines(logs):
    lines = get_log(filename="worker-2.err", follow=True, _interval=0.001)
    assert next(lines) == "oh\n"
    with (logs / "worker-2.err").open("a") as file:
        file.write("more\n")
    assert next(lines) == "more\n"


def test_what_cannot_be_read_is_an_error(logs):
    for arguments, message in [
        ({"filename": "nothing.out"}, "does not exist"),
        ({"filename": "../secret"}, "outside"),
        ({"node_id": "other", "filename": "worker-2.out"}, "this node"),
        ({"submission_id": "job"}, "get_job_logs"),
        ({}, "needs `filename`"),
    ]:
        with pytest.raises(RayStateApiException, match=message):
            list(get_log(**arguments))
