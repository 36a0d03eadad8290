"""Logs of proxies: their own lines and the access log, as `LoggingConfig` says."""

import json
import logging
import os
import time

import httpx
import pytest

import syncline
from syncline import serve
from syncline.serve.log_output import LogOutput, LogSource
from syncline.serve.logging_config import LoggingConfig
from syncline.serve.monitoring.access_log import ACCESS_LOG, AccessLog, access_log_for
from syncline.serve.monitoring.reports import RecordTo
from syncline.testing.programs import free_port

ENTRY = ("id-1", "GET", b"/a?b", 200, 1.0, 0.25)


@pytest.mark.parametrize(
    ("level", "is_written"), [("DEBUG", True), ("INFO", True), ("WARNING", False), ("FATAL", False)]
)
def test_requests_are_lines_of_level_info(tmp_path, level, is_written):
    message = RecordTo(
        directory=str(tmp_path), metrics_path="", logging_config=LoggingConfig(log_level=level)
    )
    log = access_log_for(message, is_same_node=True)
    assert (log is not None) is is_written
    if log is not None:
        log.close()


@pytest.mark.parametrize("as_json", [False, True])
def test_attributes_are_added_to_each_line(tmp_path, as_json):
    path = tmp_path / "access.log"
    log = AccessLog(str(path), as_json=as_json, attributes=["process", "levelname", "asctime"])
    log.add(ENTRY)
    log.write()
    (line,) = path.read_text().splitlines()
    if as_json:
        found = json.loads(line)
        assert (found["process"], found["levelname"]) == (os.getpid(), "INFO")
        assert found["asctime"] == found["time"]
    else:
        assert f" /a 200 250.00ms process={os.getpid()} levelname=INFO asctime=" in line


def test_lines_of_a_proxy_name_it(tmp_path):
    output = LogOutput(LogSource.of_proxy("proxy-1", "node-1"))
    output.apply(LoggingConfig(encoding="JSON", logs_dir=str(tmp_path)))
    logging.getLogger("syncline.serve").warning("hot")
    output.apply(None)
    line = json.loads((tmp_path / "proxy_proxy-1.log").read_text())
    assert (line["proxy"], line["node_id"], line["message"]) == ("proxy-1", "node-1", "hot")


@serve.deployment(ray_actor_options={"num_cpus": 0.1})
def hello():
    return "hello"


@pytest.fixture
def port():
    number = free_port()
    syncline.init(num_cpus=2)
    yield number
    serve.shutdown()
    syncline.shutdown()


def written(path, limit_s=60.0):
    """Return the lines of a file, once it has some."""
    end = time.monotonic() + limit_s
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < end, f"nothing is written to {path}"
        time.sleep(0.02)
    return path.read_text().splitlines()


@pytest.mark.processes
def test_the_options_of_start_apply_to_proxies(port, tmp_path):
    serve.start(
        http_options={"host": "0.0.0.0", "port": port},  # of which proxies warn
        logging_config={
            "encoding": "JSON",
            "logs_dir": str(tmp_path),
            "additional_log_standard_attrs": ["process"],
        },
    )
    serve.run(hello.bind(), logging_config={"log_level": "ERROR"})  # for the replicas
    assert httpx.get(f"http://127.0.0.1:{port}/x", timeout=60).text == "hello"
    (access,) = map(json.loads, written(tmp_path / f"{ACCESS_LOG}.log"))
    (path,) = tmp_path.glob("proxy_*.log")
    warning = json.loads(written(path)[0])
    assert warning["levelname"] == "WARNING"
    assert "0.0.0.0" in warning["message"]
    assert warning["process"] == access["process"] != os.getpid()


@pytest.mark.processes
def test_the_level_of_start_hides_lines_of_proxies(port, tmp_path):
    serve.start(
        http_options={"host": "0.0.0.0", "port": port},
        logging_config={"log_level": "ERROR", "logs_dir": str(tmp_path)},
    )
    serve.run(hello.bind())
    assert httpx.get(f"http://127.0.0.1:{port}/x", timeout=60).text == "hello"
    serve.shutdown()  # writes what is noted
    assert [each.read_text() for each in tmp_path.iterdir()] == [""]
