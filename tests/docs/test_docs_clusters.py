"""The page on clusters: its commands exist, its manifests are what Kubernetes and Ray take, and its
Slurm script runs with a stand-in.
"""

import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from syncline.testing.waiting import eventually
from tests.docs.page_commands import commands, parse
from tests.docs.page_programs import ROOT, blocks, page

PAGE = page("clusters")
EXAMPLES = ROOT / "examples" / "cluster"
SLURM = EXAMPLES / "slurm.sh"

SRUN = f"""#!{sys.executable}
# A task for each node, all on this machine; SIGTERM ends them.
import os, signal, subprocess, sys
arguments, count = sys.argv[1:], int(os.environ["SLURM_JOB_NUM_NODES"])
while arguments[0].startswith("--"):
    name, _, value = arguments.pop(0).partition("=")
    count = int(value) if name == "--nodes" else count
tasks = [
    subprocess.Popen(arguments, env={{**os.environ, "SLURM_NODEID": str(number)}})
    for number in range(count)
]
signal.signal(signal.SIGTERM, lambda *_: [task.terminate() for task in tasks])
sys.exit(max(abs(task.wait()) for task in tasks))
"""


def test_page_shows_every_way_and_names_files_that_exist() -> None:
    names = {arguments[0] for arguments in commands("\n".join(blocks(PAGE, "bash")))}
    assert {
        "start",
        "status",
        "logs",
        "doctor",
        "submit",
        "jobs",
        "stop",
        "up",
        "exec",
        "down",
    } <= names
    files = set(re.findall(r"\bexamples/[\w./-]+\w", PAGE))
    assert {
        f"examples/cluster/{name}"
        for name in ("train.py", "slurm.sh", "kuberay.yaml", "aws.yaml", "Dockerfile")
    } <= files
    assert [name for name in files if not (ROOT / name).exists()] == []


@pytest.mark.long
@pytest.mark.processes
def test_program_of_the_page_runs_on_this_machine(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "train.py"), "--epochs=2", "--workers=1"],
        env={**os.environ, "SYNCLINE_STORAGE_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    assert "rank 0 of 1 runs on" in done.stdout
    assert f"checkpoint {tmp_path}/" in done.stdout


def ray_version() -> str:
    found = re.search(r"^ray==(\S+)", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)
    assert found is not None
    return found.group(1)


def pods(cluster: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for group in (cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]):
        yield group["template"]["spec"]


def test_kubernetes_manifest_fits_together() -> None:
    claim, cluster, job = yaml.safe_load_all((EXAMPLES / "kuberay.yaml").read_text())
    assert [part["kind"] for part in (claim, cluster, job)] == [
        "PersistentVolumeClaim",
        "RayCluster",
        "RayJob",
    ]
    assert {cluster["apiVersion"], job["apiVersion"]} == {"ray.io/v1"}
    assert cluster["spec"]["rayVersion"] == ray_version()
    assert f"rayproject/ray:{ray_version()}-" in (EXAMPLES / "Dockerfile").read_text()
    assert job["spec"]["clusterSelector"] == {"ray.io/cluster": cluster["metadata"]["name"]}
    variables = yaml.safe_load(job["spec"]["runtimeEnvYAML"])["env_vars"]
    for pod in pods(cluster):
        (container,) = pod["containers"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounted = {
            mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]
        }
        assert (
            mounted[variables["SYNCLINE_STORAGE_PATH"]]["persistentVolumeClaim"]["claimName"]
            == claim["metadata"]["name"]
        )
    _, program, *_ = shlex.split(job["spec"]["entrypoint"])
    assert program == "/home/ray/syncline/examples/cluster/train.py"


def test_cloud_manifest_is_valid_for_ray() -> None:
    pytest.importorskip("ray", reason="no Ray here: pip install 'syncline[cluster]'")
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load((EXAMPLES / "aws.yaml").read_text())
    validate_config(prepare_config(config))
    started = [
        line.rpartition("; ")[2]
        for name in ("head", "worker")
        for line in config[f"{name}_start_ray_commands"]
    ]
    assert len(started) == 4
    for arguments in commands("\n".join(started)):
        parse(arguments)


def test_slurm_script_is_understood_by_bash_and_asks_for_a_program() -> None:
    assert (
        subprocess.run(["bash", "-n", str(SLURM)], capture_output=True, check=False).returncode == 0
    )
    done = subprocess.run(
        ["bash", str(SLURM)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, "usage:" in done.stderr) == (2, True)


class SlurmJob:
    """The script under the stand-in for `srun`, as a job of two nodes that both are this
    machine.
    """

    def __init__(self, folder: Path) -> None:
        srun = folder / "bin" / "srun"
        srun.parent.mkdir()
        srun.write_text(SRUN)
        srun.chmod(srun.stat().st_mode | stat.S_IXUSR)
        self.sessions = Path(f"/tmp/syncline-{os.getpid()}")
        self.environment = {
            **os.environ,
            "PATH": os.pathsep.join(
                (str(srun.parent), str(Path(sys.executable).parent), os.environ["PATH"])
            ),
            "RAY_AUTH_MODE": "disabled",
            "SLURM_JOB_ID": str(os.getpid()),
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_CPUS_PER_TASK": "1",
            "SLURMD_NODENAME": "here",
            "SYNCLINE_STORAGE_PATH": str(folder / "runs"),
        }

    def start(self, *program: str) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        return subprocess.Popen(
            ["bash", str(SLURM), *program],
            env=self.environment,
            stdout=pipe,
            stderr=pipe,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def processes(self) -> list[psutil.Process]:
        """Everything that belongs to the job."""
        found = []
        for process in psutil.process_iter():
            try:
                if (
                    process.environ().get("SLURM_JOB_ID") == str(os.getpid())
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def cancel(self) -> None:
        """What `scancel` does first: SIGTERM for the tasks of the steps, and not for the script."""
        for process in self.processes():
            if "srun" in " ".join(process.cmdline()[:2]):
                process.terminate()

    def clean(self) -> None:
        for process in self.processes():
            process.kill()
        shutil.rmtree(self.sessions, ignore_errors=True)


@pytest.fixture
def slurm_job(tmp_path: Path) -> Iterator[SlurmJob]:
    pytest.importorskip("ray", reason="no Ray here: pip install 'syncline[cluster]'")
    job = SlurmJob(tmp_path)
    yield job
    job.clean()


@pytest.mark.cluster
@pytest.mark.processes
def test_slurm_job_runs_the_program_on_all_nodes_and_ends_with_its_code(
    slurm_job: SlurmJob,
) -> None:
    program = (
        "import syncline, sys; syncline.init(); print(len(syncline.nodes()), 'nodes'); sys.exit(3)"
    )
    with slurm_job.start("python", "-c", program) as job:
        out, err = job.communicate(timeout=150)
    assert "2 nodes\n" in out, err
    assert job.returncode == 3
    assert eventually(lambda: not slurm_job.processes(), what="every process of the job has ended")


@pytest.mark.cluster
@pytest.mark.processes
def test_slurm_job_that_is_cancelled_leaves_nothing(slurm_job: SlurmJob, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    program = (
        f"import pathlib, syncline, time; syncline.init(); pathlib.Path({str(begun)!r}).touch(); "
        "time.sleep(600)"
    )
    with slurm_job.start("python", "-c", program) as job:
        assert eventually(begun.exists, what="the program has begun")
        slurm_job.cancel()
        out, err = job.communicate(timeout=150)
    assert job.returncode not in (0, -signal.SIGKILL), err
    assert "the node was stopped by SIGTERM" in err
    assert eventually(lambda: not slurm_job.processes(), what="every process of the job has ended")
