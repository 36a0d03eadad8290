"""`submit` and `jobs` against a stand-in for the job API: packages, runtime environment, following,
stopping, exit codes.
"""

import base64
import hashlib
import io
import json
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import click
import pytest

from syncline.cli.submit import runtime_environment
from syncline.job_submission import http_api, packages


class FakeApi(ThreadingHTTPServer):
    """Jobs that end when all that they print was looked at. `token`: what it asks for; `breaks`:
    how many WebSockets break.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.jobs, self.packages, self.pieces, self.end = (
            {},
            {},
            ["one\n", "two\n", "three"],
            "SUCCEEDED",
        )
        self.token, self.shown, self.breaks, self.connections, self.whole = None, [], 0, 0, 0
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: FakeApi

    def log_message(self, *arguments):
        pass

    def answer(self, value, status=200):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def refuses(self):
        if self.server.token is None:
            return False
        shown = self.headers.get("Authorization")
        self.server.shown.append(shown)
        if shown == f"Bearer {self.server.token}":
            return False
        self.answer(b"no token" if shown is None else b"wrong token", 401 if shown is None else 403)
        return True

    def tail(self, job):
        """The output over a WebSocket: a piece a message, the connection closed at the end; or
        broken after the first piece.
        """
        self.server.connections += 1
        accept = hashlib.sha1(
            (self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()
        ).digest()
        self.send_response(101)
        for name, value in (
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", base64.b64encode(accept).decode()),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        broken = self.server.connections <= self.server.breaks
        for piece in self.server.pieces[: 1 if broken else None]:
            self.wfile.write(bytes([0x81, len(piece)]) + piece.encode())
            job["looks"] += 1
        if not broken:
            job["looks"] = len(self.server.pieces)
            self.wfile.write(b"\x88\x00")

    def do_GET(self):
        if self.refuses():
            return None
        parts = self.path.strip("/").split("/")
        if self.path == "/api/version":
            return self.answer({"ray_version": "2.60.0"})
        if parts[1] == "packages":
            return self.answer(
                b"" if parts[-1] in self.server.packages else b"missing",
                200 if parts[-1] in self.server.packages else 404,
            )
        if self.path == "/api/jobs/":
            # The last has no submission_id: a driver that somebody started by hand.
            return self.answer([*self.server.jobs.values(), {"job_id": "01", "status": "RUNNING"}])
        job = self.server.jobs.get(parts[2])
        if job is None:
            return self.answer(b"Job does not exist", 404)
        if parts[-1] == "tail":
            return self.tail(job)
        if parts[-1] == "logs":
            self.server.whole += 1
            return self.answer({"logs": "".join(self.server.pieces)})
        if job["looks"] >= len(self.server.pieces) and job["status"] == "RUNNING":
            job.update(status=self.server.end, end_time=3000, message="the reason\nmore")
        return self.answer(job)

    def do_PUT(self):
        if self.refuses():
            return
        self.server.packages[self.path.rpartition("/")[2]] = self.body()
        self.answer(b"")

    def do_POST(self):
        if self.refuses():
            return None
        parts = self.path.strip("/").split("/")
        if parts[-1] == "stop":
            was = self.server.jobs[parts[2]]["status"]
            self.server.jobs[parts[2]]["status"] = "STOPPED"
            return self.answer({"stopped": was == "RUNNING"})
        asked = json.loads(self.body())
        name = asked["submission_id"] or "made-up"
        self.server.jobs[name] = {
            "submission_id": name,
            "status": "RUNNING",
            "entrypoint": asked["entrypoint"],
            "start_time": 1000,
            "looks": 0,
            "asked": asked,
        }
        return self.answer({"submission_id": name})


@pytest.fixture
def api(monkeypatch):
    monkeypatch.setattr(http_api, "PAUSE_S", 0.001)
    with FakeApi() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def directory(tmp_path):
    folder = tmp_path / "program"
    (folder / "part").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "part" / "model.py").write_text("x = 1\n")
    (folder / "part" / "data.bin").write_bytes(b"0" * 1000)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "train.pyc").write_bytes(b"")
    return folder


def test_program_runs_with_its_directory_and_its_output_is_shown(syncline_command, api, directory):
    done = syncline_command(
        "submit",
        "--address",
        api.url,
        "--working-dir",
        str(directory),
        "--",
        "python",
        "train.py",
        "--name",
        "a b",
    )
    assert done.exit_code == 0, done.output
    assert done.stdout == "one\ntwo\nthree\n"
    asked = api.jobs["made-up"]["asked"]
    assert asked["entrypoint"] == "python train.py --name 'a b'"
    ((name, data),) = api.packages.items()
    assert asked["runtime_env"] == {
        "working_dir": f"gcs://{name}",
        "env_vars": {"SYNCLINE_ADDRESS": "auto"},
    }
    assert sorted(zipfile.ZipFile(io.BytesIO(data)).namelist()) == [
        "part/data.bin",
        "part/model.py",
        "train.py",
    ]


def test_package_that_the_cluster_has_is_not_sent_again(syncline_command, api, directory):
    name = packages.pack(str(directory)).name
    api.packages[name] = b"kept"
    assert (
        syncline_command(
            "submit",
            "--address",
            api.url,
            "--working-dir",
            str(directory),
            "--no-wait",
            "--",
            "true",
        ).exit_code
        == 0
    )
    assert api.packages == {name: b"kept"}


def test_program_that_fails_ends_with_1_and_the_reason(syncline_command, api):
    api.end = "FAILED"
    done = syncline_command(
        "submit", "--address", api.url, "--submission-id", "mine", "--", "false"
    )
    assert done.exit_code == 1
    assert "mine failed: the reason" in done.stderr


def test_json_of_submit_is_the_job_alone(syncline_command, api):
    done = syncline_command(
        "submit", "--address", api.url, "--json", "--num-cpus", "2", "--", "true"
    )
    job = json.loads(done.stdout)
    assert set(job) == {"id", "status", "command", "started", "ended", "message"}
    assert (job["status"], job["started"], job["ended"]) == ("SUCCEEDED", 1.0, 3.0)
    assert api.jobs["made-up"]["asked"]["entrypoint_num_cpus"] == 2


def test_jobs_are_listed_followed_and_stopped(syncline_command, api):
    syncline_command(
        "submit", "--address", api.url, "--no-wait", "--submission-id", "mine", "--", "sleep", "9"
    )
    listed = json.loads(syncline_command("jobs", "list", "--address", api.url, "--json").stdout)[
        "jobs"
    ]
    assert [(job["id"], job["status"], job["command"]) for job in listed] == [
        ("mine", "RUNNING", "sleep 9")
    ]
    assert (
        syncline_command("jobs", "logs", "mine", "--address", api.url).stdout == "one\ntwo\nthree"
    )
    stopped = syncline_command("jobs", "stop", "mine", "--address", api.url)
    assert (stopped.exit_code, "was stopped" in stopped.output) == (0, True)
    assert syncline_command("jobs", "logs", "-f", "mine", "--address", api.url).exit_code == 1
    assert "mine" in syncline_command("jobs", "list", "--address", api.url).output


def test_output_that_was_followed_comes_once_also_where_the_connection_breaks(
    syncline_command, api
):
    api.breaks = 2
    assert (
        syncline_command("submit", "--address", api.url, "--", "true").stdout == "one\ntwo\nthree\n"
    )
    assert api.connections == 3
    assert api.whole == 1  # at the end, for what came after the last look


def test_token_is_shown_to_a_cluster_that_asks_and_to_no_other(
    syncline_command, api, monkeypatch, tmp_path
):
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert syncline_command("jobs", "list", "--address", api.url).exit_code == 0
    api.token = "secret"
    done = syncline_command("submit", "--address", api.url, "--", "true")
    assert (done.exit_code, done.stdout) == (0, "one\ntwo\nthree\n")
    assert api.shown[0] is None
    assert set(api.shown[1:]) == {"Bearer secret"}


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "RAY_AUTH_MODE is not set"),
        ({"RAY_AUTH_MODE": "disabled"}, "RAY_AUTH_MODE=disabled"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": ""}, "there is none"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "another's"}, "refuses the token"),
        (
            {
                "RAY_AUTH_MODE": "token",
                "RAY_AUTH_TOKEN": "",
                "RAY_AUTH_TOKEN_PATH": "/nowhere/token",
            },
            "/nowhere/token",
        ),
    ],
)
def test_missing_token_is_named_with_what_to_set(
    syncline_command, api, monkeypatch, variables, said
):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    api.token = "secret"
    for name, value in {"RAY_AUTH_TOKEN": "secret", **variables}.items():
        monkeypatch.setenv(name, value)
    done = syncline_command("jobs", "list", "--address", api.url)
    assert (done.exit_code, done.stdout) == (1, "")
    assert said in done.stderr
    assert "secret" not in done.stderr


def test_job_that_does_not_exist_is_an_error(syncline_command, api):
    for command in (["logs", "nobody"], ["logs", "-f", "nobody"]):
        done = syncline_command("jobs", *command, "--address", api.url)
        assert (done.exit_code, "does not exist" in done.stderr) == (1, True)


def test_where_nothing_answers_the_addresses_that_were_tried_are_named(
    syncline_command, monkeypatch
):
    monkeypatch.setattr(http_api, "DEFAULT_PORT", 1)
    done = syncline_command("jobs", "list", "--address", "127.0.0.1:2")
    assert done.exit_code == 1
    assert "http://127.0.0.1:2" in done.stderr
    assert "http://127.0.0.1:1" in done.stderr
    assert "ray[default]" in done.stderr


def test_directories_of_the_runtime_environment_are_sent_and_the_rest_kept(directory):
    sent = []
    given = {
        "py_modules": [str(directory), "s3://b/m.zip"],
        "pip": ["x"],
        "env_vars": {"SYNCLINE_ADDRESS": "local"},
        "excludes": ["*.bin"],
    }
    environment = runtime_environment(json.dumps(given), None, (), sent.append)
    (package,) = sent
    assert environment == {
        "py_modules": [package.uri, "s3://b/m.zip"],
        "pip": ["x"],
        "env_vars": {"SYNCLINE_ADDRESS": "local"},
    }
    names = zipfile.ZipFile(io.BytesIO(package.data)).namelist()
    assert sorted(names) == ["program/part/model.py", "program/train.py"]


def test_variables_of_the_command_line_count_before_those_of_the_environment(syncline_command, api):
    given = '--runtime-env-json={"env_vars": {"A": "1", "B": "2"}}'
    assert (
        syncline_command(
            "submit", "--address", api.url, "--env", "A=x=y", "--env=C=", given, "--", "true"
        ).exit_code
        == 0
    )
    variables = api.jobs["made-up"]["asked"]["runtime_env"]["env_vars"]
    assert variables == {"SYNCLINE_ADDRESS": "auto", "A": "x=y", "B": "2", "C": ""}
    assert (
        syncline_command("submit", "--address", api.url, "--env", "=x", "--", "true").exit_code == 2
    )


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"env_vars": 1}'])
def test_runtime_environment_that_is_none_is_a_usage_error(text):
    with pytest.raises(click.UsageError):
        runtime_environment(text, None)


def test_jobs_run_on_this_machine_without_a_cluster(syncline_command, tmp_path):
    (tmp_path / "program.py").write_text("import os; print('ran', os.environ['A'], os.getcwd())")
    here = ("--address", "local")
    options = ("--working-dir", str(tmp_path), "--env", "A=b", "--submission-id", "mine")
    done = syncline_command("submit", *here, *options, "--", "python", "program.py")
    assert (done.exit_code, done.stdout) == (0, f"ran b {tmp_path}\n")
    (job,) = json.loads(syncline_command("jobs", "list", *here, "--json").stdout)["jobs"]
    assert (job["id"], job["status"], job["command"]) == ("mine", "SUCCEEDED", "python program.py")
    assert syncline_command("jobs", "logs", "mine", *here).stdout == done.stdout
    assert "already ended" in syncline_command("jobs", "stop", "mine", *here).stdout
    assert syncline_command("submit", *here, "--", "false").exit_code == 1
    started = syncline_command("submit", *here, "--no-wait", "--json", "--", "sleep", "600")
    job_id = json.loads(started.stdout)["id"]
    assert "was stopped" in syncline_command("jobs", "stop", job_id, *here).stdout
