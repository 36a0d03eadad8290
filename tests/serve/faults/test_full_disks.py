"""A full disk below the record, and full shared memory: serve answers on.

The programs run in mount namespaces of their own, where a small file system is mounted; that needs
root.
"""

import os
import subprocess
import sys

import pytest

from syncline.testing.programs import free_port

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a small file system"),
]

HEAD = """
import os, sys, time
from pathlib import Path
import numpy as np
from syncline import serve
from tests.serve.faults.harness import post

@serve.deployment(ray_actor_options={"num_cpus": 0.1})
class Sizes:
    async def __call__(self, request):
        return len(await request.body())

    def total(self, array):
        return int(array.sum())

def fill(directory):
    with open(f"{directory}/filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            print("full:", error.strerror, flush=True)
"""

RECORD = """
if __name__ == "__main__":
    port, directory = int(sys.argv[1]), sys.argv[2]
    serve.start(http_options={"port": port})
    handle = serve.run(Sizes.bind())
    def recorded():
        return sum(path.stat().st_size for path in Path(directory).glob("*/serve/*.jsonl"))

    while not recorded():
        time.sleep(0.05)
    fill(directory)
    end = time.monotonic() + 3
    answers = set()
    while time.monotonic() < end:
        answers.add(post(port, "full").outcome)
    print("answers:", answers, handle.total.remote(np.ones(10)).result())
    size = recorded()
    os.unlink(f"{directory}/filler")
    end = time.monotonic() + 30
    while recorded() <= size and time.monotonic() < end:
        post(port, "free")
    print("goes on:", recorded() > size)
    serve.run(Sizes.options(num_replicas=2).bind())
    serve.shutdown()
    print("ended")
"""

MEMORY = """
if __name__ == "__main__":
    port = int(sys.argv[1])
    serve.start(http_options={"port": port})
    handle = serve.run(Sizes.bind())
    fill("/dev/shm")
    array = np.ones(2_000_000)
    try:
        print("array:", handle.total.remote(array).result(timeout_s=60))
    except Exception as error:
        print("array:", type(error).__name__, error)
    print("small:", handle.total.remote(np.ones(10)).result(timeout_s=60))
    print("answers:", {post(port, f"id{n}").text for n in range(20)})
    os.unlink("/dev/shm/filler")
    print("array again:", handle.total.remote(array[:1000]).result(timeout_s=60))
    serve.shutdown()
    print("ended")
"""


def run(program, tmp_path, *, mount, size, variables):
    """Run a program in a namespace with a small file system at `mount`."""
    script = tmp_path / "program.py"
    script.write_text(HEAD + program)
    command = f'mount -t tmpfs -o size={size} none "$1" && exec "$2" "$3" "$4" "$1"'
    arguments = [str(mount), sys.executable, str(script), str(free_port())]
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", command, "sh", *arguments],
        env={**os.environ, "PYTHONPATH": os.getcwd(), **variables},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_full_disk_stops_the_record_only(tmp_path):
    records = tmp_path / "records"
    records.mkdir()
    done = run(
        RECORD,
        tmp_path,
        mount=records,
        size="512k",
        variables={"SYNCLINE_STORAGE_PATH": str(records)},
    )
    assert done.returncode == 0, done.stderr
    assert "full: No space left on device" in done.stdout
    assert "answers: {'200'} 10" in done.stdout
    assert "cannot be written" in done.stderr
    assert "goes on: True" in done.stdout
    assert done.stdout.endswith("ended\n")


def test_full_shared_memory_fails_at_most_large_values(tmp_path):
    done = run(MEMORY, tmp_path, mount="/dev/shm", size="64m", variables={})
    assert done.returncode == 0, done.stderr
    assert "full: No space left on device" in done.stdout
    assert "small: 10" in done.stdout
    assert "answers: {'1'}" in done.stdout
    assert "array again: 1000" in done.stdout
    assert done.stdout.endswith("ended\n")
