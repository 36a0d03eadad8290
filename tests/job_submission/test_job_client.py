"""`JobSubmissionClient`: jobs on this machine, and requests to a cluster's job API."""

import asyncio
import json
import os
import signal
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from syncline.core.engine import set_engine
from syncline.job_submission import JobDetails, JobStatus, JobSubmissionClient, JobType, http_api
from syncline.testing.waiting import eventually
from tests.core.fake_engine import FakeEngine


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobSubmissionClient:
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    return JobSubmissionClient("local")


def output(client: JobSubmissionClient, job_id: str) -> str:
    """Follow a job to its end."""

    async def follow() -> str:
        return "".join([piece async for piece in client.tail_job_logs(job_id)])

    return asyncio.run(asyncio.wait_for(follow(), 60))


class TestHere:
    """Jobs on this machine."""

    def test_a_job_runs_in_the_background_and_its_output_is_followed(
        self, client: JobSubmissionClient, tmp_path: Path
    ) -> None:
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        job_id = client.submit_job(
            entrypoint=f"echo begun; cat {gate}; echo $NAME; pwd",
            runtime_env={"env_vars": {"NAME": "a b"}},
            metadata={"owner": "me"},
            submission_id="first",
            entrypoint_num_cpus=2,
        )
        assert job_id == "first"
        assert eventually(lambda: client.get_job_logs(job_id) == "begun\n")
        assert client.get_job_status(job_id) == JobStatus.RUNNING == "RUNNING"
        with pytest.raises(RuntimeError, match="stop it first"):
            client.delete_job(job_id)
        gate.write_text("through\n")
        assert output(client, job_id) == f"begun\nthrough\na b\n{tmp_path}\n"
        info = client.get_job_info(job_id)
        assert info.status is JobStatus.SUCCEEDED
        assert info.status.is_terminal()
        assert info.type is JobType.SUBMISSION
        assert (info.submission_id, info.metadata) == ("first", {"owner": "me"})
        assert (info.entrypoint_num_cpus, info.driver_exit_code) == (2, 0)
        assert info.start_time is not None
        assert info.end_time is not None
        assert 0 <= info.end_time - info.start_time < 60_000
        assert info.driver_info is not None
        assert not client.stop_job(job_id)

    def test_a_failed_job_says_why(self, client: JobSubmissionClient) -> None:
        job_id = client.submit_job(entrypoint="echo the reason >&2; exit 3")
        assert job_id.startswith("raysubmit_")
        assert output(client, job_id) == "the reason\n"
        info = client.get_job_info(job_id)
        assert (info.status, info.driver_exit_code) == (JobStatus.FAILED, 3)
        assert info.message is not None
        assert "exit code 3" in info.message
        assert "the reason" in info.message
        assert info.error_type == "JOB_ENTRYPOINT_COMMAND_ERROR"

    def test_a_stopped_job_ends_with_its_processes(
        self, client: JobSubmissionClient, tmp_path: Path
    ) -> None:
        code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
        (tmp_path / "sleep.py").write_text(code)
        job_id = client.submit_job(entrypoint="python3 sleep.py & wait")
        assert eventually(lambda: client.get_job_logs(job_id).strip())
        pid = int(client.get_job_logs(job_id))
        assert client.stop_job(job_id)
        assert eventually(lambda: client.get_job_status(job_id).is_terminal())
        assert client.get_job_status(job_id) == JobStatus.STOPPED
        assert eventually(lambda: not _lives(pid))

    def test_a_killed_supervisor_is_noticed(self, client: JobSubmissionClient) -> None:
        job_id = client.submit_job(entrypoint="echo x; exec sleep 600")
        assert eventually(lambda: client.get_job_logs(job_id))
        assert eventually(lambda: client.get_job_info(job_id).driver_info is not None)
        state = json.loads(next(_jobs_root().glob("*/state.json")).read_text())
        os.kill(state["supervisor"], signal.SIGKILL)
        assert eventually(lambda: client.get_job_status(job_id) == JobStatus.FAILED)
        assert "killed" in str(client.get_job_info(job_id).message)
        assert output(client, job_id) == "x\n"
        os.killpg(int(client.get_job_info(job_id).driver_info.pid), signal.SIGKILL)

    def test_jobs_are_listed_latest_first_and_deleted(self, client: JobSubmissionClient) -> None:
        assert client.list_jobs() == []
        for name in ("a", "b"):
            client.submit_job(entrypoint="true", submission_id=name)
            output(client, name)
        assert [job.submission_id for job in JobSubmissionClient("local").list_jobs()] == ["b", "a"]
        assert client.delete_job("a")
        assert [job.submission_id for job in client.list_jobs()] == ["b"]
        with pytest.raises(RuntimeError, match="already a job 'b'"):
            client.submit_job(entrypoint="true", submission_id="b")
        for method in (client.get_job_status, client.get_job_logs, client.stop_job):
            with pytest.raises(RuntimeError, match="no job 'a'"):
                method("a")

    def test_code_of_the_runtime_environment_is_found(
        self, client: JobSubmissionClient, tmp_path: Path
    ) -> None:
        (tmp_path / "program").mkdir()
        (tmp_path / "program" / "main.py").write_text("import helper; print(helper.x)")
        (tmp_path / "lib" / "helper").mkdir(parents=True)
        (tmp_path / "lib" / "helper" / "__init__.py").write_text("x = 7")
        environment = {"working_dir": "program", "py_modules": [str(tmp_path / "lib" / "helper")]}
        job_id = client.submit_job(entrypoint="python3 main.py", runtime_env=environment)
        assert output(client, job_id) == "7\n"

    def test_a_directory_that_others_may_write_to_is_refused(
        self, client: JobSubmissionClient
    ) -> None:
        _jobs_root().mkdir(parents=True)
        _jobs_root().chmod(0o777)
        for use in (client.list_jobs, lambda: client.stop_job("a")):
            with pytest.raises(RuntimeError, match="others may write to it"):
                use()

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"entrypoint": ""}, ValueError),
            ({"entrypoint": "true", "submission_id": "../x"}, ValueError),
            ({"entrypoint": "true", "metadata": {"a": 1}}, TypeError),
            ({"entrypoint": "true", "runtime_env": []}, TypeError),
            ({"entrypoint": "true", "runtime_env": {"working_dir": "missing"}}, ValueError),
        ],
    )
    def test_wrong_requests_are_refused(
        self, client: JobSubmissionClient, arguments: dict[str, Any], error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            client.submit_job(**arguments)
        assert client.list_jobs() == []


@pytest.mark.processes
def test_packages_of_the_runtime_environment_are_installed(
    client: JobSubmissionClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = {
        "sl_job.py": "VERSION = 'installed'",
        "sl_job-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: sl_job\nVersion: 1.0\n",
        "sl_job-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n",
        "sl_job-1.0.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(tmp_path / "sl_job-1.0-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    options = ["--no-index", "--find-links", str(tmp_path)]
    environment = {"pip": {"packages": ["sl_job"], "pip_install_options": options}}
    code = "import sl_job, syncline, numpy; print(sl_job.VERSION)"
    job_id = client.submit_job(entrypoint=f'python -c "{code}"', runtime_env=environment)
    assert output(client, job_id).endswith("\ninstalled\n")
    environment["pip"]["packages"] = ["sl_job==2"]
    job_id = client.submit_job(entrypoint="true", runtime_env=environment)
    output(client, job_id)
    info = client.get_job_info(job_id)
    assert (info.status, info.error_type) == (JobStatus.FAILED, "RUNTIME_ENV_SETUP_FAILURE")
    assert "sl_job==2" in str(info.message)


@pytest.mark.processes
def test_a_program_of_a_local_job_runs_on_this_machine(
    client: JobSubmissionClient, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(
        "import syncline\n"
        "syncline.init(address='auto', num_cpus=1)\n"
        "print(syncline.get(syncline.remote(lambda: 42).remote()))\n"
    )
    job_id = client.submit_job(entrypoint="python program.py")
    assert output(client, job_id).endswith("42\n")
    assert client.get_job_status(job_id) == JobStatus.SUCCEEDED


def _jobs_root() -> Path:
    return Path(os.environ["SYNCLINE_TMPDIR"]) / f"syncline-jobs-{os.getuid()}"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


class Handler(BaseHTTPRequestHandler):
    """A job API with one job that has ended; notes the requests."""

    requests: list[tuple[str, str, Any, dict[str, str]]] = []

    def log_message(self, *arguments: object) -> None:
        pass

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        self.requests.append((self.command, self.path, body, dict(self.headers)))
        job = {
            "type": "SUBMISSION", "submission_id": "one", "job_id": "01000000", "status": "FAILED",
            "entrypoint": "python x.py", "message": "m", "start_time": 1, "end_time": 2,
            "driver_info": {"id": "01000000", "node_ip_address": "10.0.0.1", "pid": "7"},
            "metadata": {"a": "b"}, "a_new_field": 1,
        }  # fmt: skip
        answers = {
            ("GET", "/api/version"): {"ray_version": "2.60.0"},
            ("GET", "/api/jobs/"): [job, {"type": "DRIVER", "job_id": "02", "status": "RUNNING"}],
            ("GET", "/api/jobs/one"): job,
            ("GET", "/api/jobs/one/logs"): {"logs": "text"},
            ("POST", "/api/jobs/"): {"submission_id": "two"},
            ("POST", "/api/jobs/one/stop"): {"stopped": False},
            ("DELETE", "/api/jobs/one"): {"deleted": True},
        }
        answer = answers.get((self.command, self.path))
        data = json.dumps("Job does not exist" if answer is None else answer).encode()
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = _answer


@pytest.fixture
def server() -> Iterator[str]:
    Handler.requests = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class TestCluster:
    """Requests to a cluster."""

    def test_requests_are_those_of_the_job_api(self, server: str) -> None:
        client = JobSubmissionClient(
            server, headers={"X-Mine": "1"}, cookies={"c": "d"}, metadata={"team": "t"}
        )
        assert (client.get_address(), client.get_version()) == (server, "2.60.0")
        job_id = client.submit_job(
            entrypoint="python x.py",
            runtime_env={"pip": ["x"]},
            metadata={"owner": "me"},
            job_id="two",
            entrypoint_num_gpus=1,
        )
        assert job_id == "two"
        method, path, body, headers = Handler.requests[-1]
        assert (method, path, headers["X-Mine"], headers["Cookie"]) == (
            "POST", "/api/jobs/", "1", "c=d",
        )  # fmt: skip
        assert body == {
            "entrypoint": "python x.py",
            "submission_id": "two",
            "runtime_env": {"pip": ["x"], "env_vars": {"SYNCLINE_ADDRESS": "auto"}},
            "metadata": {"team": "t", "owner": "me"},
            "entrypoint_num_gpus": 1,
        }

    def test_answers_become_details(self, server: str) -> None:
        client = JobSubmissionClient(server)
        first, second = client.list_jobs()
        assert first == client.get_job_info("one")
        assert isinstance(first, JobDetails)
        assert first.driver_info is not None
        assert (first.job_id, first.driver_info.pid, first.metadata) == (
            "01000000", "7", {"a": "b"},
        )  # fmt: skip
        assert first.dict()["message"] == "m"
        assert (second.type, second.submission_id) == (JobType.DRIVER, None)
        assert client.get_job_status("one") is JobStatus.FAILED
        assert output(client, "one") == client.get_job_logs("one") == "text"
        assert not client.stop_job("one")
        assert client.delete_job("one")
        with pytest.raises(RuntimeError, match="does not exist"):
            client.get_job_info("nobody")


class TestAddresses:
    """Where jobs run."""

    @pytest.fixture(autouse=True)
    def no_cluster(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http_api, "DEFAULT_PORT", 1)

    def test_without_an_address_and_a_cluster_jobs_run_here(self) -> None:
        assert JobSubmissionClient().get_address() == "local"

    @pytest.mark.parametrize("address", ["auto", "http://127.0.0.1:2", "ray://127.0.0.1:2"])
    def test_a_named_cluster_that_does_not_answer_is_an_error(self, address: str) -> None:
        with pytest.raises(ConnectionError, match=r"JobSubmissionClient\('local'\)"):
            JobSubmissionClient(address)

    def test_the_address_of_this_machine_is_the_engine_that_runs_here(self) -> None:
        set_engine(FakeEngine())
        try:
            assert JobSubmissionClient("http://127.0.0.1:2").get_address() == "local"
        finally:
            set_engine(None)

    def test_variables_name_the_cluster(self, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SYNCLINE_ADDRESS", "http://127.0.0.1:2")
        monkeypatch.setenv("RAY_API_SERVER_ADDRESS", server)
        assert JobSubmissionClient().get_address() == server

    @pytest.mark.parametrize("arguments", [{"address": 1}, {"cookies": "x"}, {"verify": 1.5}])
    def test_arguments_have_their_types(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(TypeError):
            JobSubmissionClient(**arguments)
