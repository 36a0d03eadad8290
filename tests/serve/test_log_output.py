"""Output of the serve loggers of a replica."""

import json
import logging

import pytest

from syncline.serve.context import RequestContext, request_context
from syncline.serve.log_output import LOGGERS, LogOutput, LogSource
from syncline.serve.logging_config import LoggingConfig
from syncline.serve.wire.routes import DeploymentId


@pytest.fixture
def output():
    output = LogOutput(LogSource.of_replica(DeploymentId("app", "D"), "app#D#1"))
    yield output
    output.apply(None)


def lines(directory):
    (path,) = directory.iterdir()
    assert path.name == "replica_app_D_1.log"
    return path.read_text().splitlines()


@pytest.mark.parametrize("name", LOGGERS)
def test_level_and_directory(output, tmp_path, name):
    output.apply(LoggingConfig(log_level="WARNING", logs_dir=str(tmp_path / "logs")))
    logging.getLogger(name).info("hidden")
    logging.getLogger(name).warning("shown %d", 3)
    (line,) = lines(tmp_path / "logs")
    assert line.startswith("WARNING ")
    assert line.endswith(" app#D#1 -- shown 3")


def test_json_lines_have_attributes_and_the_request(output, tmp_path):
    config = LoggingConfig(
        encoding="JSON", logs_dir=str(tmp_path), additional_log_standard_attrs=["lineno", "name"]
    )
    output.apply(config)
    token = request_context.set(RequestContext(request_id="r1"))
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        logging.getLogger("ray.serve").exception("failed")
    finally:
        request_context.reset(token)
    (line,) = map(json.loads, lines(tmp_path))
    assert line["message"] == "failed"
    assert (line["application"], line["deployment"], line["replica"]) == ("app", "D", "app#D#1")
    assert line["request_id"] == "r1"
    assert (line["name"], line["levelname"]) == ("ray.serve", "ERROR")
    assert "ZeroDivisionError" in line["exc_text"]
    assert isinstance(line["lineno"], int)


def test_other_options_replace_the_handler_and_none_restores_the_loggers(output, tmp_path):
    logger = logging.getLogger("ray.serve")
    before = (logger.level, logger.propagate, list(logger.handlers))
    output.apply(LoggingConfig(logs_dir=str(tmp_path)))
    output.apply(LoggingConfig(logs_dir=str(tmp_path), log_level="DEBUG"))
    logger.debug("once")
    assert len(lines(tmp_path)) == 1
    output.apply(None)
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
