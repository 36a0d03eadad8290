"""`LoggingConfig`: formats of log records, and the root logger of the program."""

import json
import logging

import pytest

import syncline
from syncline.core.logging_config import LoggingConfig, RecordFormatter
from tests.core.fake_engine import running_fake_engine


@pytest.fixture
def root():
    logger = logging.getLogger()
    handlers, level = list(logger.handlers), logger.level
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)


def record(**extra):
    made = logging.LogRecord("library", logging.INFO, "/x/file.py", 3, "%d rows", (5,), None)
    made.__dict__.update(extra)
    return made


def test_text_has_place_message_and_extra():
    line = RecordFormatter("TEXT", ["name"]).format(record(user="u"))
    assert "INFO file.py:3 -- 5 rows name=library user=u" in line


def test_json_has_message_extra_and_exception():
    try:
        raise ValueError("no")
    except ValueError as error:
        made = record(user={"a": 1}, exc_info=(ValueError, error, error.__traceback__))
    row = json.loads(RecordFormatter("JSON", ["name"]).format(made))
    assert (row["message"], row["lineno"], row["name"], row["user"]) == (
        "5 rows", 3, "library", {"a": 1},
    )  # fmt: skip
    assert "ValueError: no" in row["exc_text"]


def test_json_names_the_running_code(monkeypatch):
    with running_fake_engine(monkeypatch):
        syncline.init()
        row = json.loads(RecordFormatter("JSON", []).format(record()))
    assert (row["job_id"], row["node_id"], row["worker_id"]) == ("01", "n1", "w1")
    assert "actor_id" not in row


def test_init_configures_the_root_logger_once(monkeypatch, root):
    with running_fake_engine(monkeypatch):
        syncline.init(logging_config=syncline.LoggingConfig(log_level="ERROR"))
        syncline.shutdown()
        syncline.init(logging_config=syncline.LoggingConfig(encoding="JSON", log_level="WARNING"))
    (handler,) = [h for h in root.handlers if isinstance(h.formatter, RecordFormatter)]
    assert (handler.formatter.encoding, root.level) == ("JSON", logging.WARNING)


def test_wrong_values_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="TEXT or JSON"):
        LoggingConfig(encoding="XML")
    with pytest.raises(ValueError, match="LOUD"):
        LoggingConfig(log_level="LOUD")
    with pytest.raises(ValueError, match="nothing"):
        LoggingConfig(additional_log_standard_attrs=["nothing"])
    with running_fake_engine(monkeypatch), pytest.raises(TypeError, match="LoggingConfig"):
        syncline.init(logging_config={"encoding": "JSON"})


@pytest.mark.processes
def test_workers_write_records_in_the_same_format(capfd, root):
    @syncline.remote(name="speaks")
    def speak():
        logging.getLogger("library").info("five rows", extra={"rows": 5})

    syncline.init(num_cpus=1, logging_config=syncline.LoggingConfig(encoding="JSON"))
    try:
        syncline.get(speak.remote())
        job_id = syncline.get_runtime_context().get_job_id()
    finally:
        syncline.shutdown()
    lines = [line for line in capfd.readouterr().err.splitlines() if "five rows" in line]
    row = json.loads(lines[0][lines[0].index("{") :])
    assert (row["rows"], row["task_name"], row["job_id"]) == (5, "speaks", job_id)
