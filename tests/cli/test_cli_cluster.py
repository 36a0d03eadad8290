"""The commands on a real cluster: started by `start`, looked at by the others, its processes killed
by number at the end.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import psutil
import pytest

from syncline.testing.programs import free_port
from syncline.testing.waiting import eventually

pytest.importorskip("ray", reason="no Ray here: pip install 'syncline[cluster]'")
pytestmark = [pytest.mark.processes, pytest.mark.cluster]

LOOPBACK = "127.0.0.1"


def command(*arguments, home):
    # A home of its own: Ray asks for a token where the user's home has one.
    return subprocess.run(
        [sys.executable, "-m", "syncline", *arguments],
        capture_output=True,
        text=True,
        timeout=150,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "HOME": home, "CI": "true", "RAY_AUTH_MODE": "disabled"},
    )


def processes_of(folder):
    found = []
    for process in psutil.process_iter():
        try:
            if any(folder in argument for argument in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.pid != os.getpid()]


@pytest.fixture(scope="module")
def cluster():
    """(address, home): a cluster of two nodes on this machine, on free ports and below a directory
    of its own.
    """
    folder = tempfile.mkdtemp(prefix="sl-cli-", dir="/tmp")  # short: Ray's sockets lie below it
    port = free_port()
    try:
        flags = [
            f"--temp-dir={folder}",
            "--include-dashboard=false",
            "--object-store-memory=100000000",
        ]
        head = command(
            "start",
            "--head",
            f"--port={port}",
            "--num-cpus=2",
            '--resources={"ssd": 2}',
            *flags,
            home=folder,
        )
        assert head.returncode == 0, head.stderr
        announced = re.search(rf"is running at (\S+:{port})\.", head.stdout)
        assert announced is not None, head.stdout
        address = announced.group(1)
        joined = command(
            "start",
            f"--address={address}",
            "--num-cpus=1",
            "--object-store-memory=100000000",
            home=folder,
        )
        assert joined.returncode == 0, joined.stderr
        yield address, folder
    finally:
        # Children of the raylets do not have the directory on their command lines, and end with
        # them.
        for process in processes_of(folder):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        eventually(lambda: not processes_of(folder), what="every process of the cluster is gone")
        shutil.rmtree(folder, ignore_errors=True)


def test_status_and_nodes_tell_what_the_cluster_has(cluster, tmp_path):
    address, home = cluster
    done = command(
        "status", "--address", address, "--storage-path", str(tmp_path), "--json", home=home
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["cluster"]["nodes_alive"] == 2
    assert answer["cluster"]["resources"]["CPU"] == {"used": 0.0, "total": 3.0}
    done = command("nodes", "--address", address, "--json", home=home)
    nodes = json.loads(done.stdout)["nodes"]
    assert [(node["head"], node["alive"], node["resources"]["CPU"]) for node in nodes] == [
        (True, True, 2.0),
        (False, True, 1.0),
    ]
    assert nodes[0]["resources"]["ssd"] == 2.0


def test_doctor_examines_every_node(cluster, tmp_path):
    address, home = cluster
    done = command(
        "doctor", "--address", address, "--storage-path", str(tmp_path), "--json", home=home
    )
    assert done.stdout, done.stderr
    answer = json.loads(done.stdout)
    checks = {check["check"]: check for check in answer["checks"]}
    assert len(answer["nodes"]) == 2
    assert checks["network"]["message"] == "all 2 links between 2 nodes"
    for name in ("nodes", "python", "syncline", "ray", "clocks", "network", "gloo", "storage"):
        assert checks[name]["status"] == "ok", checks[name]
    assert done.returncode == (0 if answer["ok"] else 1)


def test_microbenchmark_measures_the_cluster(cluster):
    address, home = cluster
    done = command("microbenchmark", "--address", address, "--seconds", "0.05", "--json", home=home)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["engine"] == address
    assert all(measurement["value"] > 0 for measurement in answer["measurements"])


def test_address_where_nothing_answers_ends_with_1(cluster):
    _, home = cluster
    address = f"{LOOPBACK}:{free_port()}"
    done = command("status", "--address", address, home=home)
    assert done.returncode == 1
    assert address in done.stderr
    assert done.stdout == ""
