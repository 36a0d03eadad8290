"""`start` and `stop`: flags of today and of older versions as Ray's, what is said when the node
runs, exit codes.
"""

import json
import signal
import subprocess
import sys

import click
import pytest

from syncline.cli import ray_command, start
from syncline.testing.waiting import eventually

STARTED = "Local node IP: 10.0.0.7\nRay runtime started.\n  ray start --address='10.0.0.7:6400'\n"
TAKES_JOBS = (
    STARTED
    + "To submit a Ray job:\n  RAY_API_SERVER_ADDRESS='http://127.0.0.1:8000' ray job submit --"
    " python my_script.py\n"
)
FLAGS = (
    "address",
    "node_ip_address",
    "port",
    "dashboard_host",
    "dashboard_port",
    "num_cpus",
    "num_gpus",
    "resources",
)
NOTHING = dict.fromkeys(
    (*FLAGS, "object_store_memory", "temp_dir", "redis_port", "redis_address", "redis_password")
)


def planned(others=(), **options):
    return start.plan({**NOTHING, "head": False, "block": False, **options}, others)


def calls(record):
    return [json.loads(line) for line in record.read_text().splitlines()]


def test_head_flags_are_those_of_ray():
    plan = planned(
        head=True,
        num_cpus=0,
        num_gpus=2,
        resources='{"ssd": 1}',
        dashboard_host="0.0.0.0",
        temp_dir="/x",
        block=True,
    )
    assert plan.arguments == [
        "start",
        "--head",
        "--port=6379",
        "--num-cpus=0",
        "--num-gpus=2",
        '--resources={"ssd": 1}',
        "--temp-dir=/x",
        "--dashboard-host=0.0.0.0",
        "--block",
    ]


def test_joining_names_the_cluster_and_passes_unknown_flags_on():
    assert planned(["--min-worker-port=9000"], address="head:6379").arguments == [
        "start",
        "--address=head:6379",
        "--min-worker-port=9000",
    ]


def test_flags_of_older_versions_mean_what_they_meant_with_a_warning():
    plan = planned(head=True, redis_port=7000, redis_password="secret")
    assert plan.arguments == ["start", "--head", "--port=7000"]
    assert len(plan.warnings) == 2
    assert not any("secret" in text for text in plan.warnings)
    assert planned(redis_address="head:1").arguments == ["start", "--address=head:1"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"head": True, "address": "head:6379"},
        {"address": "head:6379", "port": 1},
        {"head": True, "resources": "ssd=2"},
        {"head": True, "resources": '{"ssd": "two"}'},
    ],
)
def test_what_does_not_fit_together_is_a_usage_error(options):
    with pytest.raises(click.UsageError):
        planned(**options)


def test_head_says_its_address_and_what_to_do_next(syncline_command, fake_ray):
    record = fake_ray(output=TAKES_JOBS)
    done = syncline_command("start", "--head", "--port", "6400", "--dashboard-port=8000")
    assert done.exit_code == 0
    assert "running at 10.0.0.7:6400" in done.output
    assert " syncline start --address=10.0.0.7:6400\n" in done.output
    assert " SYNCLINE_ADDRESS=10.0.0.7:6400 python " in done.output
    assert " syncline submit --address=http://127.0.0.1:8000 " in done.output
    assert "Ray runtime started" not in done.output
    assert calls(record) == [["start", "--head", "--port=6400", "--dashboard-port=8000"]]


def test_dashboard_that_others_reach_is_named_as_they_reach_it(syncline_command, fake_ray):
    fake_ray(output=TAKES_JOBS)
    done = syncline_command("start", "--head", "--dashboard-host=0.0.0.0")
    assert "--address=http://10.0.0.7:8265 " in done.output


def test_head_that_takes_no_jobs_says_what_is_missing(syncline_command, fake_ray):
    fake_ray(output=STARTED)
    done = syncline_command("start", "--head")
    assert "syncline submit" not in done.output
    assert 'pip install "syncline[cluster]"' in done.output


@pytest.mark.parametrize(
    ("mode", "said"),
    [("token", ""), (None, "Token authentication is enabled for this Ray cluster.")],
)
def test_cluster_that_asks_for_a_token_says_what_to_type_then(
    syncline_command, fake_ray, monkeypatch, mode, said
):
    if mode is None:
        monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    else:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    fake_ray(output=said + TAKES_JOBS)
    done = syncline_command("start", "--head")
    assert " RAY_AUTH_MODE=token syncline start --address=10.0.0.7:6400\n" in done.output
    assert " RAY_AUTH_MODE=token syncline submit " in done.output
    assert "~/.ray/auth_token to the other machines" in done.output


def test_python_of_the_cluster_is_the_one_that_started_it(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/env/bin/python")
    monkeypatch.setenv("PATH", "/usr/bin")
    assert ray_command.environment()["PATH"] == "/env/bin:/usr/bin"
    monkeypatch.setenv("PATH", "/usr/bin:/env/bin")
    assert ray_command.environment()["PATH"] == "/usr/bin:/env/bin"


def test_failure_shows_what_ray_said_and_its_code(syncline_command, fake_ray):
    fake_ray(output="the port is taken", code=7)
    done = syncline_command("start", "--head")
    assert done.exit_code == 7
    assert "the port is taken" in done.stderr


def test_without_ray_the_remedy_is_named(syncline_command, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for arguments in (["start", "--head"], ["stop"]):
        done = syncline_command(*arguments)
        assert done.exit_code == 1
        assert 'pip install "syncline[cluster]"' in done.stderr


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("Stopped all 7 Ray processes.", "7 cluster processes"),
        ("Did not find any active Ray processes.", "No cluster runs"),
    ],
)
def test_stop_tells_what_it_stopped(syncline_command, fake_ray, output, said):
    record = fake_ray(output=output)
    done = syncline_command("stop", "--grace-period", "3")
    assert done.exit_code == 0
    assert said in done.output
    assert calls(record) == [["stop", "--grace-period=3"]]


def test_stop_tells_of_clusters_that_this_user_may_not_stop(syncline_command, fake_ray):
    fake_ray(
        output=(
            "Could not terminate `raylet` due to AccessDenied\nDid not find any active Ray"
            " processes."
        )
    )
    done = syncline_command("stop")
    assert done.exit_code == 0
    assert "another user's cluster (1)" in done.stderr
    assert done.stdout == "This user has no cluster on this machine.\n"


def test_stop_passes_failure_on(syncline_command, fake_ray):
    fake_ray(output="Stopped only 2 out of 3", code=1)
    done = syncline_command("stop", "--force")
    assert done.exit_code == 1
    assert "2 out of 3" in done.stderr


@pytest.mark.processes
def test_block_announces_stays_and_passes_the_signal_on(tmp_path):
    ray = tmp_path / "bin" / "ray"
    ray.parent.mkdir()
    ray.write_text(
        f"#!{sys.executable}\nimport signal, sys\nsignal.signal(signal.SIGTERM, lambda *_:"
        " sys.exit(5))\nprint('Local node IP: 10.0.0.7'); print('Ray runtime started.');"
        " print('--block'); sys.stdout.flush(); signal.pause()\n"
    )
    ray.chmod(0o755)
    program = (
        f"import sys; sys.executable = {str(ray.with_name('python'))!r}; sys.argv[1:] = ['start',"
        " '--head', '--block'];from syncline.cli import main; sys.exit(main())"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-uc", program],
        stdout=pipe,
        stderr=pipe,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "10.0.0.7:6379" in process.stdout.readline()
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert eventually(lambda: process.poll() is not None)
        assert process.stderr.read() == "syncline: the node was stopped by SIGTERM\n"
    assert process.returncode == 5
