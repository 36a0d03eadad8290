"""`syncline serve` with real processes: run, reload, deploy, show and end applications."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from syncline.testing.programs import free_port
from syncline.testing.waiting import eventually

pytestmark = pytest.mark.processes

MODULE = """
from syncline import serve

@serve.deployment(ray_actor_options={"num_cpus": 0.1})
class Echo:
    def __init__(self, text="first"):
        self.text = text

    async def __call__(self, request):
        return self.text

app = Echo.bind()

def build(args):
    return Echo.bind(args["text"])
"""
FILE = """
applications:
- name: one
  route_prefix: /one
  import_path: served_app:app
- name: two
  route_prefix: /two
  import_path: served_app:build
  args: {text: second}
"""
LIMIT_S = 90


class Commands:
    """Runs `syncline serve` in a directory with a module, apart from other programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.module = folder / "served_app.py"
        self.module.write_text(MODULE)
        self.port = free_port()
        self.variables = {
            **os.environ,
            "SYNCLINE_TMPDIR": str(folder / "tmp"),
            "SYNCLINE_STORAGE_PATH": str(folder / "runs"),
        }
        self.variables.pop("SYNCLINE_ADDRESS", None)
        (folder / "tmp").mkdir()
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command that serves."""
        log = (self.folder / "log.txt").open("w")
        process = subprocess.Popen(
            self._command(arguments), env=self.variables, cwd=self.folder, stdout=log, stderr=log
        )
        self._started.append(process)
        return process

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self._command(arguments),
            env=self.variables,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "syncline", "serve", *arguments]

    def get(self, path: str = "/") -> str:
        """Return the response, or an empty text."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as reply:
                return reply.read().decode()
        except OSError:
            return ""

    def answers(self, text: str, path: str = "/") -> None:
        """Wait until this is the response."""
        assert eventually(lambda: self.get(path) == text, within_s=LIMIT_S, what=self.log())

    def prints(self, text: str) -> None:
        """Wait until this is printed."""
        assert eventually(lambda: text in self.log(), within_s=LIMIT_S, what=text)

    def log(self) -> str:
        file = self.folder / "log.txt"
        return file.read_text() if file.exists() else ""

    def status(self) -> dict[str, Any]:
        return json.loads(self("status", "--json").stdout)

    def close(self) -> None:
        self("shutdown", "-y")
        for process in self._started:
            process.kill()
            process.wait()


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    made = Commands(tmp_path)
    yield made
    made.close()


@pytest.mark.promise
def test_application_runs_is_shown_and_ends_with_ctrl_c(commands: Commands) -> None:
    running = commands.start("run", "served_app:app", f"--port={commands.port}")
    commands.answers("first")
    (application,) = commands.status()["applications"].values()
    assert application["status"] == "RUNNING"
    shown = commands("status", "-v").stdout
    assert f"http://127.0.0.1:{commands.port}/" in shown
    assert "default#Echo#" in shown
    assert "1 of 1" in shown
    assert commands("controller-health").stdout.startswith("The controller answered in")
    running.send_signal(signal.SIGINT)
    assert running.wait(LIMIT_S) == 0
    assert commands.get() == ""
    assert commands("status").stdout == "serve is not running\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_requests_in_flight_are_answered_before_the_end(commands: Commands, number: int) -> None:
    slow = 'import asyncio; open("began", "w").close(); await asyncio.sleep(1); return self.text'
    commands.module.write_text(MODULE.replace("return self.text", slow))
    running = commands.start("run", "served_app:app", f"--port={commands.port}")
    commands.prints("Ctrl-C ends it.")
    program = (
        f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{commands.port}/').read())"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as client:
        assert eventually((commands.folder / "began").exists, what="the handler has begun")
        running.send_signal(number)
        answer, _ = client.communicate(timeout=LIMIT_S)
    assert answer == b"b'first'\n"
    assert running.wait(LIMIT_S) == 0


def test_requests_in_flight_are_answered_if_another_application_still_starts(
    commands: Commands,
) -> None:
    slow = MODULE.replace(
        "return self.text",
        'import asyncio; open("began", "w").close(); await asyncio.sleep(1); return self.text',
    )
    commands.module.write_text(
        f"{slow}\nclass Never(Echo.func_or_class):\n"
        "    def __init__(self):\n        import time; time.sleep(1000)\n\n"
        "never = serve.deployment(Never).bind()\n"
    )
    (commands.folder / "both.yaml").write_text(
        FILE.replace("served_app:build\n  args: {text: second}", "served_app:never")
    )
    running = commands.start("run", "both.yaml", f"--port={commands.port}")
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(
            eventually, lambda: commands.get("/one"), within_s=LIMIT_S, what="the answer"
        )
        assert eventually((commands.folder / "began").exists, what="the handler has begun")
        running.send_signal(signal.SIGTERM)
        assert answer.result(LIMIT_S) == "first"
    assert running.wait(LIMIT_S) == 0
    assert "Ending when the requests in flight are answered" in commands.log()


def test_arguments_reach_the_function_that_builds(commands: Commands) -> None:
    commands.start(
        "run", "served_app:build", "text=given", f"--port={commands.port}", "--route-prefix=/at"
    )
    commands.answers("given", "/at")


@pytest.mark.promise
def test_reload_deploys_changes_and_keeps_the_version_before_a_mistake(commands: Commands) -> None:
    commands.start("run", "served_app:app", f"--port={commands.port}", "--reload")
    commands.answers("first")
    # Of the same size, within the same second: byte code files would be taken for current.
    commands.module.write_text(MODULE.replace("first", "third"))
    commands.answers("third")
    for wrong, printed in (
        (MODULE + "x = (", "SyntaxError"),
        (MODULE.replace("self.text = text", "raise ValueError('no model')"), "no model"),
    ):
        commands.module.write_text(wrong)
        commands.prints(printed)
        commands.prints("former version")
        assert commands.get() == "third"
    commands.module.write_text(MODULE.replace("first", "fifth"))
    commands.answers("fifth")


def test_serve_in_the_background_takes_files(commands: Commands) -> None:
    started = commands("start", f"--port={commands.port}")
    assert started.returncode == 0, started.stderr
    assert "serves in the background" in started.stdout
    file = commands.folder / "config.yaml"
    file.write_text(FILE)
    deployed = commands("deploy", "config.yaml")
    assert deployed.returncode == 0, deployed.stderr
    assert (commands.get("/one"), commands.get("/two")) == ("first", "second")
    # A file names all applications.
    file.write_text(FILE.partition("- name: two")[0])
    assert commands("deploy", "config.yaml").returncode == 0
    assert list(commands.status()["applications"]) == ["one"]
    # The printed configuration can be deployed.
    (commands.folder / "printed.yaml").write_text(commands("config").stdout)
    assert commands("deploy", "printed.yaml").returncode == 0
    ended = commands("shutdown", "-y")
    assert (ended.returncode, ended.stdout) == (0, "serve was shut down\n")
    assert commands.get("/one") == ""


def test_program_that_serves_takes_files_and_survives_mistakes(commands: Commands) -> None:
    commands.start("run", "served_app:app", f"--port={commands.port}")
    commands.answers("first")
    file = commands.folder / "config.yaml"

    def deployed(text: str) -> str:
        file.write_text(text)
        done = commands("deploy", "config.yaml")
        assert done.returncode == 1
        assert commands.get() == "first"
        return done.stderr

    option = FILE.replace("/one\n", "/one\n  deployments: [{name: Echo, OPTION}]\n")
    assert "'num_replicas'" in deployed(option.replace("OPTION", "num_replica: 1"))
    impossible = deployed(option.replace("OPTION", "ray_actor_options: {num_cpus: 5000}"))
    assert "5000" in impossible
    assert "this machine has" in impossible
    failing = commands.folder / "failing.py"
    failing.write_text(MODULE.replace("self.text = text", "raise ValueError('no model')"))
    same = "applications: [{import_path: 'failing:app'}]"  # of the application that runs
    assert "failing.py" in deployed(same)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "served_ap:app"), "module 'served_ap' not found"),
        (("run", "served_app:ap"), "Did you mean 'app'?"),
        (("run", "served_app:Echo"), "bind"),
        (("run", "--non-blocking", "served_app:ap"), "Did you mean 'app'?"),
        (("run", "none.yaml"), "none.yaml"),
        (("deploy", "served_app.py"), "syncline serve start"),
        (("config",), "syncline serve start"),
        (("status", "-n", "other"), "'other' does not run"),
        (("status", "--pid", "1"), "process 1 does not run serve"),
    ],
)
def test_mistakes_end_with_1_and_the_remedy(
    commands: Commands, arguments: tuple[str, ...], message: str
) -> None:
    done = commands(*arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [("run",), ("run", "a:b", "c"), ("run", "a.yaml", "c=1"), ("statuss",)]
)
def test_wrong_command_lines_end_with_2(commands: Commands, arguments: tuple[str, ...]) -> None:
    assert commands(*arguments).returncode == 2


def test_port_in_use_is_told_with_the_program_that_serves(commands: Commands) -> None:
    commands.start("run", "served_app:app", f"--port={commands.port}")
    commands.answers("first")
    second = commands("run", "served_app:app", f"--port={commands.port}")
    assert second.returncode == 1
    assert "syncline serve deploy" in second.stderr


def test_built_file_runs(commands: Commands) -> None:
    done = commands("build", "served_app:app", "-o", "built.yaml")
    assert done.returncode == 0, done.stderr
    commands.start("run", "built.yaml", f"--port={commands.port}")
    commands.answers("first")


def test_programs_that_call_run_are_found_and_ended(
    commands: Commands, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    program = (
        f"from syncline import serve; import served_app, time\n"
        f"serve.start(http_options={{'port': {commands.port}}})\n"
        "serve.run(served_app.app)\ntime.sleep(600)\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", program], env=commands.variables, cwd=tmp_path
    )
    request.addfinalizer(running.kill)
    commands.answers("first")
    assert list(commands.status()["applications"]) == ["default"]
    assert commands("shutdown", "-y").returncode == 0
    assert running.poll() is None  # the program goes on
    assert commands.get() == ""
