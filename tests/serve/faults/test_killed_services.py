"""The proxy, the controller and the program are killed under load."""

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from syncline import serve
from syncline.core.api import ensure_engine
from syncline.testing.programs import free_port, is_alive
from tests.serve.faults.harness import (
    ANSWERED,
    Effects,
    Load,
    Worker,
    check_all_slots_are_free,
    check_effects,
    controller_pid,
    pids,
    post,
    proxy_pid,
    wait_until,
)

pytestmark = pytest.mark.processes
CLIENTS = 4


def test_killed_proxy_loses_only_the_requests_under_way(port, effects):
    handle = serve.run(Worker.options(num_replicas=2).bind(effects))
    with Load(port, CLIENTS, handle=handle) as load:
        for _ in range(2):
            load.wait_for(30)
            killed = proxy_pid()
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda killed=killed: proxy_pid() not in (None, killed))
            load.wait_for(30)
    assert load.outcomes().keys() <= {ANSWERED, "lost"}
    assert len(load.having("lost")) <= 2 * CLIENTS
    assert not [id for id in load.having("lost") if id.startswith("handle")]
    check_effects(effects, load.answers)
    # The handlers of lost requests were cancelled, so their slots are free.
    check_all_slots_are_free(handle, effects, 2 * Worker.max_ongoing_requests)
    unfinished = set(effects.ids("begin")) - set(effects.ids("end"))
    assert unfinished <= set(effects.ids("cancelled"))


def test_killed_controller_stops_no_request_and_decides_again(port, effects):
    app = Worker.options(num_replicas=2)
    handle = serve.run(app.bind(effects))
    before = pids()
    with Load(port, CLIENTS, handle=handle) as load:
        load.wait_for(20)
        killed = controller_pid()
        os.kill(killed, signal.SIGKILL)
        load.wait_for(20)
        wait_until(lambda: controller_pid() not in (None, killed))
        serve.run(app.options(num_replicas=3).bind(effects))
        assert len(pids()) == 3
        assert before <= pids()
        os.kill(controller_pid(), signal.SIGKILL)
        serve.run(app.bind(effects, version=2))  # while it restarts
        assert len(pids()) == 2
        assert not before & pids()
        # The proxy may connect to the new controller later than the program does.
        wait_until(lambda: json.loads(post(port, new_id()).text)["version"] == 2)
        load.wait_for(20)
    assert load.outcomes().keys() == {ANSWERED}
    check_effects(effects, load.answers)


@pytest.mark.parametrize("shown", ["no replica", "STARTING"])
def test_controller_that_restarts_from_an_old_snapshot_stops_no_request(
    port, effects, tmp_path, shown
):
    """The snapshot does not show that callers know the third replica."""
    gate = tmp_path / "gate"
    app = Worker.options(num_replicas=2)
    gate.touch()
    handle = serve.run(app.bind(effects, gate=str(gate)))
    before = pids()
    snapshot = ensure_engine().session_directory / "serve" / "controller.snapshot"
    stored = snapshot.read_bytes()
    gate.unlink()
    serve.run_many(
        [
            serve.RunTarget(
                app.options(num_replicas=3).bind(effects, gate=str(gate)), route_prefix="/"
            )
        ],
        wait_for_applications_running=False,
    )
    if shown == "STARTING":
        stored = snapshot.read_bytes()
    with Load(port, CLIENTS, handle=handle) as load:
        gate.touch()
        wait_until(lambda: {each.pid for each in effects.read()} - before)
        (third,) = {each.pid for each in effects.read()} - before
        killed = controller_pid()
        os.kill(killed, signal.SIGSTOP)
        snapshot.write_bytes(stored)
        os.kill(killed, signal.SIGKILL)
        serve.run(app.bind(effects, gate=str(gate), version=2))
        wait_until(lambda: not is_alive(third))
        load.wait_for(20)
    assert load.outcomes().keys() == {ANSWERED}
    check_effects(effects, load.answers)


def test_controller_and_replica_killed_at_once(port, effects):
    handle = serve.run(Worker.options(num_replicas=2).bind(effects))
    with Load(port, CLIENTS, handle=handle) as load:
        load.wait_for(20)
        before = pids()
        victim = min(before)
        os.kill(controller_pid(), signal.SIGKILL)
        os.kill(victim, signal.SIGKILL)
        load.wait_for(20)
        wait_until(lambda: len(pids()) == 2 and victim not in pids())
        load.wait_for(20)
    assert load.outcomes().keys() <= {ANSWERED, "502", "ReplicaUnavailableError"}
    assert load.outcomes()[ANSWERED] >= 60
    check_effects(effects, load.answers)


def new_id():
    return f"probe-{uuid.uuid4().hex}"


PROGRAM = """
import sys, threading
import syncline
from syncline import serve
from syncline.core.api import ensure_engine
from tests.serve.faults.harness import Effects, Worker

if __name__ == "__main__":
    syncline.init(num_cpus=2)
    serve.start(http_options={"port": int(sys.argv[2])})
    serve.run(Worker.options(num_replicas=2).bind(Effects(sys.argv[1])))
    print(ensure_engine().session_directory, flush=True)
    threading.Event().wait()
"""
MARK = "SYNCLINE_FAULT_TEST"


def test_killed_program_leaves_nothing(tmp_path):
    effects = Effects(str(tmp_path / "effects"))
    script, files, mark = tmp_path / "program.py", tmp_path / "files", uuid.uuid4().hex
    script.write_text(PROGRAM)
    files.mkdir()
    port = free_port()
    shared = set(os.listdir("/dev/shm"))
    environment = {
        **os.environ,
        MARK: mark,
        "TMPDIR": str(files),
        "SYNCLINE_TMPDIR": str(files),
        "PYTHONPATH": os.getcwd(),
    }
    program = subprocess.Popen(
        [sys.executable, str(script), effects.path, str(port)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        session = Path(program.stdout.readline().strip())
        assert session.is_dir()
        with Load(port, 2) as load:
            load.wait_for(20)
            known = marked(mark)
            assert len(known) > 3
            program.kill()
            program.wait()
            wait_until(lambda: not marked(mark))
            wait_until(lambda: load.outcomes()["refused"])
        assert load.outcomes().keys() <= {ANSWERED, "lost", "502", "refused"}
        check_effects(effects, load.answers)
        wait_until(lambda: not any(is_alive(pid) for pid in known))
        left = [path for path in files.rglob("*") if "serve" in path.parts or path.is_socket()]
        assert left == []
        assert not session.exists()
        created = set(os.listdir("/dev/shm")) - shared
        assert not [name for name in created if str(program.pid) in name]
    finally:
        program.kill()
        program.stdout.close()


def marked(mark):
    """Return the live processes of the program and of everything that it started."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process.pid)
        except psutil.Error:
            continue
    return found
