"""The dashboard command on a local port over HTTP: URLs, tokens, hostile runs, ports in use,
shutdown.
"""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from syncline.dashboard.server import DEFAULT_PORT, PortTakenError, listen, url_host
from syncline.runs import LocalFiles, RunDirectory, discovery

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "{{constructor.constructor('x')()}}",
    "a'b\"c",
    "${x}",
    "`x`",
    "a?b#c&d=e",
    "%2e%2e",
)
SECRET = "hunter2-hunter2"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True)
class Up:
    """A running dashboard."""

    process: "subprocess.Popen[str]"
    url: str
    token: str

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(
                method,
                path,
                headers={name.replace("_", "-"): value for name, value in headers.items()},
            )
            response = connection.getresponse()
            return Answer(
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                response.read().decode(),
            )
        finally:
            connection.close()


Start = Callable[..., Up]


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("runs")
    for name in ("plain", *HOSTILE):
        with RunDirectory(LocalFiles(storage / name)) as run:
            run.write_run(name, {"password": SECRET, "lr": 0.1})
            run.report(0, 0, {name: 0.5, "loss": 0.25})
            run.write_outcome("errored", "<script>alert(1)</script>")
        (storage / name / "logs").mkdir(exist_ok=True)
        (storage / name / "logs" / "rank-0.log").write_text("<b>printed</b>\n")
        (storage / name / "logs" / "rank-1.log").symlink_to("/etc/passwd")
    (storage / "broken").mkdir()
    (storage / "broken" / "run.json").write_text("{")
    (storage / "linked").symlink_to(storage / "plain")
    return storage


def start_in(directory: Path) -> Iterator[Start]:
    started: list[Up] = []

    def start(*arguments: str) -> Up:
        process = subprocess.Popen(
            [sys.executable, "-m", "syncline", "dashboard", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=directory,
            env={**os.environ, "SYNCLINE_TMPDIR": str(directory)},
        )
        said = ""
        assert process.stdout is not None
        for line in process.stdout:
            said += line
            found = re.search(r"^Dashboard: (http://\S+)/\?token=(\S+)$", line, re.MULTILINE)
            if found:
                up = Up(process, found[1], found[2])
                started.append(up)
                return up
        raise AssertionError(f"it ended with {process.wait()} and said {said!r}")

    yield start
    for up in started:
        up.process.kill()
        up.process.wait()
        assert up.process.stdout is not None
        up.process.stdout.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    yield from start_in(tmp_path)


@pytest.fixture(scope="module")
def up(storage: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    for start in start_in(tmp_path_factory.mktemp("tmp")):
        yield start(str(storage), "--port", "0")


@pytest.mark.promise
@pytest.mark.processes
def test_the_list_is_read_without_a_token_and_holds_every_run(up: Up):
    answer = up.get("/")
    assert answer.status == 200
    for name in ("plain", "broken", *HOSTILE):
        assert f"/run/0/{quote(name, safe='')}" in answer.body
    assert "/run/0/linked" not in answer.body


@pytest.mark.processes
@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_never_markup(up: Up, name: str):
    for path in (
        "/",
        f"/run/0/{quote(name, safe='')}",
        f"/?q={quote(name, safe='')}",
        f"/nothing/{quote(name, safe='')}",
    ):
        answer = up.get(path)
        assert "<img src=x" not in answer.body
        assert "<script>alert" not in answer.body
        assert answer.body.count("<script") == answer.body.count("<script nonce=")


@pytest.mark.processes
def test_a_page_shows_no_secret_and_no_token(up: Up):
    page = up.get("/run/0/plain", authorization=f"Bearer {up.token}")
    assert page.status == 200
    assert "plain" in page.body
    assert SECRET not in page.body
    assert up.token not in page.body


@pytest.mark.processes
def test_the_address_that_is_printed_gives_a_cookie_and_goes_on_without_the_token(up: Up):
    answer = up.get(f"/?token={up.token}&state=errored")
    assert (answer.status, answer.headers["location"].partition("#")[0]) == (303, "/?state=errored")
    cookie = answer.headers["set-cookie"].partition(";")[0]
    assert up.get("/", cookie=cookie).status == 200
    assert up.get("/?token=wrong").status == 401


@pytest.mark.processes
@pytest.mark.parametrize(
    "path",
    [
        "/run/0/..",
        "/run/0/%2e%2e",
        "/run/0/..%2f..%2fetc",
        "/run/0/a%00b",
        "/files/0/plain/logs/..%2f..%2frun.json",
        "/files/0/plain/logs/%2e%2e/run.json",
        "/files/0/%2e%2e/plain/logs/rank-0.log",
        "/files/0/plain/logs//etc/passwd",
        "/files/0/plain/logs/%2fetc%2fpasswd",
        "//evil.example/",
    ],
)
def test_paths_that_lead_elsewhere_are_refused(up: Up, path: str):
    assert up.get(path).status == 400


@pytest.mark.processes
def test_files_that_are_not_given_out_are_not_found(up: Up):
    for path in (
        "plain/logs/rank-1.log",
        "plain/./run.json",
        "plain/data/x.log",
        "linked/logs/rank-0.log",
        "plain/logs/rank-0.txt",
    ):
        assert up.get(f"/files/0/{path}").status in (400, 404)
    for number in ("1", "-1", "x", "99999999999999999999"):
        assert up.get(f"/files/{number}/plain/logs/rank-0.log").status == 404


@pytest.mark.processes
def test_a_log_is_downloaded_as_text(up: Up):
    answer = up.get("/files/0/plain/logs/rank-0.log")
    assert (answer.status, answer.body) == (200, "<b>printed</b>\n")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-security-policy"].startswith("sandbox;")


@pytest.mark.processes
def test_runs_that_cannot_be_shown_say_why(up: Up):
    for name, said in (
        ("broken", "Cannot show this run"),
        ("linked", "symbolic link"),
        ("missing", "Cannot show this run"),
    ):
        answer = up.get(f"/run/0/{name}")
        assert answer.status == 200
        assert said in answer.body
    assert "no storage path number 7" in up.get("/run/7/plain").body
    assert up.get("/nothing").status == 404


@pytest.mark.processes
def test_other_sites_and_names_are_refused(up: Up):
    assert up.get("/", host="evil.example").status == 421
    assert up.get("/", origin="http://evil.example").status == 403
    assert up.get("/", method="POST", origin=up.url).status == 405
    sockets = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec_websocket_version": "13",
        "sec_websocket_key": "x" * 22 + "==",
    }
    assert up.get(sockets, **upgrade).status == 403
    assert up.get(sockets, origin="http://evil.example", **upgrade).status == 403


@pytest.mark.processes
def test_prometheus_is_answered(up: Up):
    answer = up.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "syncline_runs_running 0.0" in answer.body


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_is_found_while_it_is_up_and_leaves_nothing_but_the_token(
    start: Start,
    storage: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
):
    up = start(str(storage), "--port", "0")
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(tmp_path))
    assert up.get("/").status == 200
    assert discovery.page_of(str(storage / "plain")) == f"{up.url}/run/0/plain"
    up.process.send_signal(number)
    assert up.process.wait(30) == 0
    assert up.process.stdout is not None
    assert up.process.stdout.read() == ""
    assert discovery.page_of(str(storage / "plain")) is None
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["token"]


@pytest.mark.processes
def test_on_other_addresses_everything_needs_the_token_and_a_warning_says_what_is_better(
    start: Start, storage: Path
):
    up = start(str(storage), "--port", "0", "--host", "0.0.0.0")
    for path in ("/", "/metrics", "/files/0/plain/logs/rank-0.log"):
        assert up.get(path, origin=f"http://127.0.0.1:{up.port}").status == 401
        assert up.get(path, authorization=f"Bearer {up.token}").status == 200
    up.process.terminate()
    assert up.process.stdout is not None
    assert "not encrypted" in (said := up.process.stdout.read())
    assert "ssh -L" in said


@pytest.mark.processes
def test_a_second_one_says_that_there_is_a_first_and_takes_the_same_token(
    start: Start, storage: Path, tmp_path: Path
):
    first = start(str(storage), "--port", "0")
    assert start(str(storage), "--port", "0").token == first.token
    command = [
        sys.executable,
        "-m",
        "syncline",
        "dashboard",
        str(storage),
        "--port",
        str(first.port),
    ]
    environment = {**os.environ, "SYNCLINE_TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    assert done.returncode == 1
    assert (
        f"Port {first.port} of 127.0.0.1 is in use by another program: specify another one "
        "with --port" in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_an_error_only_where_it_was_asked_for():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PortTakenError, match="--port"):
            listen("127.0.0.1", taken.getsockname()[1])
    with listen("127.0.0.1", None) as first, listen("127.0.0.1", None) as second:
        ports = [first.getsockname()[1], second.getsockname()[1]]
    assert DEFAULT_PORT <= ports[0] < ports[1]


def test_addresses_are_shown_as_browsers_take_them():
    assert url_host("::1") == "[::1]"
    assert url_host("0.0.0.0") == socket.gethostname()
    assert url_host("127.0.0.1") == "127.0.0.1"


def test_the_package_loads_no_web_framework_until_it_serves():
    program = (
        "import sys, json, syncline.dashboard.server, syncline.cli.dashboard; "
        "print(json.dumps([name for name in ('nicegui', 'fastapi', 'uvicorn', 'torch', "
        "'pyarrow') if name in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert json.loads(done.stdout) == []
