"""Control sockets: discovery, requests, errors and limits."""

import json
import os
import signal
import socket
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from syncline.core import control, control_server, host
from syncline.core.control import ActionFailed, ProgramUnreachable
from syncline.core.control_server import SOCKET_NAME, ControlServer, EngineHandler
from syncline.core.embedded.session_directories import create_session, sessions_directory
from syncline.core.engine import ActorInfo, ActorListing, TaskCount, TaskListing
from syncline.testing.programs import assert_nothing_left, run_program
from syncline.testing.waiting import eventually

LONG_S = 60.0


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """A private directory for temporary files; no handlers before and after the test."""
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(tmp_path))
    control.close()
    yield tmp_path
    control.close()


def echo(action, arguments):
    return {"action": action, "arguments": dict(arguments)}


def this_program():
    (program,) = control.programs()
    return program


def sockets_below(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if stat.S_ISSOCK(path.lstat().st_mode)]


def raw_connection(program):
    connection = socket.socket(socket.AF_UNIX)
    path = Path(program.socket)
    with host.short_socket_path(path) as short:
        connection.connect(short)
    connection.settimeout(LONG_S)
    return connection


# -- serving and discovery


def test_a_serving_program_is_found_and_answers(temporary):
    control.serve("run:/a", echo)
    program = this_program()
    assert (program.pid, program.subjects) == (os.getpid(), ("run:/a",))
    assert program.started < time.time()
    assert program.command
    assert control.request(program, "run:/a", "stacks", {"ranks": [0]}) == {
        "action": "stacks",
        "arguments": {"ranks": [0]},
    }


def test_a_program_without_handlers_has_no_socket(temporary):
    assert control.programs() == []
    assert list(temporary.iterdir()) == []


def test_the_socket_is_for_this_user_alone(temporary):
    control.serve("a", echo)
    directory = Path(this_program().socket).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(directory.parent.stat().st_mode) == 0o700


def test_the_socket_is_removed_with_the_last_handler(temporary):
    first = control.serve("a", echo)
    second = control.serve("b", echo)
    first()
    assert this_program().subjects == ("b",)
    second()
    second()
    assert control.programs() == []
    assert sockets_below(temporary) == []
    control.serve("c", echo)
    assert this_program().subjects == ("c",)


def test_withdrawals_after_close_have_no_effect(temporary):
    withdraw = control.serve("a", echo)
    control.close()
    assert sockets_below(temporary) == []
    control.serve("b", echo)
    withdraw()
    assert this_program().subjects == ("b",)


def test_the_latest_handler_of_a_subject_answers_until_it_is_withdrawn(temporary):
    control.serve("a", lambda *_: "first")
    withdraw = control.serve("a", lambda *_: "second")
    assert this_program().subjects == ("a",)
    assert control.request(this_program(), "a", "") == "second"
    withdraw()
    assert control.request(this_program(), "a", "") == "first"


def test_find_searches_by_subject(temporary):
    control.serve("run:/a", echo)
    assert control.find("run:/a") == this_program()
    assert control.find("run:/b") is None


def test_the_session_of_an_engine_is_used_if_others_search_it(temporary, tmp_path):
    inside = create_session(str(temporary), shm_root=None)
    withdraw = control.serve("engine", echo, directory=inside.directory)
    assert Path(this_program().socket) == inside.directory / SOCKET_NAME
    withdraw()
    assert inside.directory.exists()
    inside.remove()

    outside = create_session(str(tmp_path / "elsewhere"), shm_root=None)
    control.serve("engine", echo, directory=outside.directory)
    assert Path(this_program().socket).parent.parent == sessions_directory(temporary)
    outside.remove()


def test_long_socket_paths_work(temporary, monkeypatch):
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(temporary / ("d" * 100) / ("e" * 100)))
    control.serve("a", echo)
    assert len(this_program().socket) > 200
    assert control.request(this_program(), "a", "x")["action"] == "x"


def test_a_program_without_a_socket_continues_with_a_warning(temporary, monkeypatch, caplog):
    (temporary / "file").touch()
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(temporary / "file"))
    monkeypatch.setattr(control._process, "is_warned", False)
    control.serve("a", echo)()
    control.serve("b", echo)()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "SYNCLINE_TMPDIR" in caplog.text
    assert control.programs() == []


def test_a_directory_of_another_user_is_ignored(temporary, monkeypatch):
    control.serve("a", echo)
    monkeypatch.setattr(control, "is_private", lambda _: False)
    assert control.programs() == []


def test_sockets_of_killed_programs_are_skipped(temporary):
    control.serve("a", echo)
    dead = sessions_directory(temporary) / "session-1-dead"
    dead.mkdir()
    left = socket.socket(socket.AF_UNIX)
    with host.short_socket_path(dead / SOCKET_NAME) as short:
        left.bind(short)
    left.close()  # like a killed program: the name exists without a listener
    (sessions_directory(temporary) / "session-2-strange").mkdir()
    (sessions_directory(temporary) / "session-2-strange" / SOCKET_NAME).touch()
    assert [program.pid for program in control.programs()] == [os.getpid()]


def test_a_program_that_does_not_answer_is_listed_without_subjects(temporary):
    session = create_session(str(temporary), shm_root=None)
    with socket.socket(socket.AF_UNIX) as mute:
        with host.short_socket_path(session.directory / SOCKET_NAME) as short:
            mute.bind(short)
        mute.listen()
        (program,) = control.programs(timeout_s=0.05)
        assert (program.pid, program.subjects) == (os.getpid(), None)
        with pytest.raises(ProgramUnreachable, match=r"did not answer within 0\.05 s"):
            control.request(program, "a", "x", timeout_s=0.05)
    session.remove()


# -- replies


def test_an_error_of_a_handler_is_returned_as_text(temporary):
    def refuse(action, arguments):
        raise ValueError(f"{action}: rank 7 does not exist")

    control.serve("a", refuse)
    with pytest.raises(ActionFailed, match="^stacks: rank 7 does not exist$") as caught:
        control.request(this_program(), "a", "stacks")
    assert caught.value.kind == "ValueError"


def test_an_error_without_a_message_is_returned_by_name(temporary):
    def refuse(action, arguments):
        raise NotImplementedError

    control.serve("a", refuse)
    with pytest.raises(ActionFailed, match="^NotImplementedError$"):
        control.request(this_program(), "a", "x")


def test_an_answer_that_is_not_json_serializable_is_an_error(temporary):
    control.serve("a", lambda *_: {1, 2})
    with pytest.raises(ActionFailed, match="set is not JSON serializable"):
        control.request(this_program(), "a", "x")


def test_a_long_answer_is_an_error_with_both_sizes(temporary, monkeypatch):
    monkeypatch.setattr(control_server, "RESPONSE_BYTES", 1000)
    control.serve("a", lambda *_: "x" * 2000)
    with pytest.raises(ActionFailed, match="at most 1000"):
        control.request(this_program(), "a", "x")


def test_an_unknown_subject_is_an_error_with_the_known_ones(temporary):
    control.serve("engine", echo)
    with pytest.raises(ProgramUnreachable, match=r"'run:/gone' \(any more\).*'engine'"):
        control.request(this_program(), "run:/gone", "stacks")


def test_an_ended_program_is_unreachable(temporary):
    control.serve("a", echo)
    program = this_program()
    control.close()
    with pytest.raises(ProgramUnreachable, match="no program listens"):
        control.request(program, "a", "x")


def test_arguments_that_are_not_json_serializable_are_refused(temporary):
    control.serve("a", echo)
    with pytest.raises(TypeError):
        control.request(this_program(), "a", "x", {"value": object()})


def test_a_slow_handler_does_not_block_others(temporary):
    release = threading.Event()

    def answer(action, arguments):
        if action == "profile":
            assert release.wait(LONG_S)
        return action

    control.serve("a", answer)
    program = this_program()
    answers = []
    slow = threading.Thread(
        target=lambda: answers.append(control.request(program, "a", "profile", timeout_s=LONG_S))
    )
    slow.start()
    assert control.request(program, "a", "stacks") == "stacks"
    release.set()
    slow.join()
    assert answers == ["profile"]


def test_an_answer_in_progress_is_sent_after_withdrawal(temporary):
    begun, release = threading.Event(), threading.Event()

    def answer(action, arguments):
        begun.set()
        assert release.wait(LONG_S)
        return "last words"

    withdraw = control.serve("a", answer)
    program = this_program()
    answers = []
    asking = threading.Thread(
        target=lambda: answers.append(control.request(program, "a", "x", timeout_s=LONG_S))
    )
    asking.start()
    assert begun.wait(LONG_S)
    withdraw()
    release.set()
    asking.join()
    assert answers == ["last words"]


# -- misbehaving clients


@pytest.mark.parametrize(
    "line",
    [
        b"no json",
        b"[]",
        b"{}",
        b'{"subject": "a"}',
        b'{"subject": "a", "action": "x", "arguments": [1]}',
        b"[" * 10_000,
    ],
)
def test_a_malformed_request_gets_an_error(temporary, line):
    control.serve("a", echo)
    with raw_connection(this_program()) as connection:
        connection.sendall(line + b"\n")
        assert "does not understand" in json.loads(connection.makefile().readline())["failed"]


def test_a_long_request_is_cut_off(temporary, monkeypatch):
    monkeypatch.setattr(control_server, "REQUEST_BYTES", 1000)
    control.serve("a", echo)
    with pytest.raises(
        (ActionFailed, ProgramUnreachable),
        match="longer than 1000 bytes|gave no answer|no program listens",
    ):
        control.request(this_program(), "a", "x", {"text": "y" * 1_000_000})
    assert control.request(this_program(), "a", "x")["action"] == "x"


def test_a_silent_client_is_dropped(tmp_path):
    point = ControlServer(tmp_path, request_timeout_s=0.05)
    with socket.socket(socket.AF_UNIX) as client:
        with host.short_socket_path(tmp_path / SOCKET_NAME) as short:
            client.connect(short)
        client.settimeout(LONG_S)
        client.sendall(b'{"subject":')
        assert client.recv(1) == b""
    point.close()


def test_a_client_that_does_not_read_is_dropped(tmp_path):
    point = ControlServer(tmp_path, response_timeout_s=0.05)
    point.register("a", lambda *_: "x" * 5_000_000)
    with socket.socket(socket.AF_UNIX) as client:
        with host.short_socket_path(tmp_path / SOCKET_NAME) as short:
            client.connect(short)
        client.sendall(b'{"subject": "a", "action": "x"}\n')
        eventually(lambda: point._connections, what="the connection is served")
        eventually(lambda: not point._connections, what="the connection is dropped")
    point.close()


def test_clients_beyond_the_limit_are_refused(temporary, monkeypatch):
    monkeypatch.setattr(control_server, "MAX_CONNECTIONS", 2)
    control.serve("a", echo)
    program = this_program()
    silent = [raw_connection(program) for _ in range(2)]
    with pytest.raises(ProgramUnreachable):
        control.request(program, "a", "x")
    for connection in silent:
        connection.close()
    eventually(lambda: answers(program), what="there is room again")


def answers(program):
    try:
        return control.request(program, "a", "x")
    except ProgramUnreachable:
        return None


def test_another_user_gets_no_answer(tmp_path, monkeypatch):
    asked = []
    point = ControlServer(tmp_path)
    point.register("a", lambda *_: asked.append(1))
    monkeypatch.setattr(host, "peer", lambda _: host.Peer(1, os.getuid() + 1))
    with socket.socket(socket.AF_UNIX) as client:
        with host.short_socket_path(tmp_path / SOCKET_NAME) as short:
            client.connect(short)
        client.settimeout(LONG_S)
        with suppress(BrokenPipeError):  # closed already
            client.sendall(b'{"subject": "a", "action": "x"}\n')
        with pytest.raises((ConnectionResetError, EOFError)):
            host.receive_line(client, limit_bytes=100, deadline=time.monotonic() + LONG_S)
    assert asked == []
    point.close()


# -- the engine's handler


class SmallEngine:
    def nodes(self):
        return [{"NodeID": "a", "Alive": True}]

    def cluster_resources(self):
        return {"CPU": 4.0}

    def available_resources(self):
        return {"CPU": 1.0}

    def actors(self, limit):
        actor = ActorInfo(
            actor_id="1",
            class_name="Counter",
            name=None,
            state="ALIVE",
            pid=7,
            node_id="a",
            resources={},
            restarts=0,
            pending_calls=0,
        )
        return ActorListing(actors=(actor,)[:limit], total=1)

    def tasks(self, limit):
        return TaskListing(counts=(TaskCount(name="f", state="QUEUED", count=3),), total=3)

    def statistics(self):
        return {"hub": TaskCount(name="x", state="QUEUED", count=1)}


def test_an_engine_answers_with_plain_values(temporary):
    control.serve(control.ENGINE, EngineHandler(SmallEngine()))
    program = this_program()
    assert control.request(program, "engine", "nodes") == [{"NodeID": "a", "Alive": True}]
    assert control.request(program, "engine", "resources") == {
        "total": {"CPU": 4.0},
        "available": {"CPU": 1.0},
    }
    assert control.request(program, "engine", "actors")["actors"][0]["class_name"] == "Counter"
    assert control.request(program, "engine", "actors", {"limit": 0})["actors"] == []
    assert control.request(program, "engine", "tasks")["counts"] == [
        {"name": "f", "state": "QUEUED", "count": 3}
    ]
    assert control.request(program, "engine", "statistics")["hub"]["count"] == 1
    with pytest.raises(
        ActionFailed,
        match=r"'shutdown' is unknown.*nodes, resources, actors, tasks, metrics, statistics",
    ):
        control.request(program, "engine", "shutdown")
    with pytest.raises(ActionFailed, match="limit=-1"):
        control.request(program, "engine", "actors", {"limit": -1})


# -- real programs

FORKING = """
import os, sys, time
from syncline.core import control
withdraw = control.serve("parent", lambda *_: os.getpid())
pid = os.fork()
if pid == 0:
    assert control._process.server is None
    withdraw()  # the parent's, not the child's
    if sys.argv[1] == "offers":
        control.serve("child", lambda *_: os.getpid())
    print("child", os.getpid(), flush=True)
    time.sleep(100)
print("parent", os.getpid(), flush=True)
time.sleep(100)
"""


@pytest.mark.processes
def test_a_forked_child_neither_serves_nor_removes_its_parents_socket(temporary):
    with run_program(FORKING, "offers", environment={"SYNCLINE_TMPDIR": str(temporary)}) as program:
        child = int(program.wait_for("child").split()[1])
        program.wait_for("parent")
        found = {subject: one.pid for one in control.programs() for subject in one.subjects}
        assert found == {"parent": program.pid, "child": child}
        assert control.request(control.find("parent"), "parent", "x") == program.pid


@pytest.mark.processes
def test_a_child_that_outlives_a_killed_program_does_not_keep_it_listed(temporary):
    with run_program(FORKING, "idle", environment={"SYNCLINE_TMPDIR": str(temporary)}) as program:
        program.wait_for("child")
        program.wait_for("parent")
        assert control.find("parent").pid == program.pid
        program.send_signal(signal.SIGKILL)
        program.process.wait()
        assert control.programs() == []


WITH_ENGINE = """
import time
import syncline

@syncline.remote(num_cpus=1)
class Keeper:
    def keep(self):
        print("kept", flush=True)
        time.sleep(100)

syncline.init(num_cpus=3)
keeper = Keeper.options(name="keeper").remote()
keeping = keeper.keep.remote()
time.sleep(100)
"""


@pytest.mark.processes
def test_the_engine_of_a_program_answers_until_the_program_is_killed(temporary):
    with run_program(WITH_ENGINE, environment={"SYNCLINE_TMPDIR": str(temporary)}) as program:
        program.wait_for("kept")
        found = eventually(lambda: control.find("engine"))
        assert found.pid == program.pid
        assert any("program.py" in part for part in found.command)
        resources = control.request(found, "engine", "resources")
        assert (resources["total"]["CPU"], resources["available"]["CPU"]) == (3, 2)
        (actor,) = control.request(found, "engine", "actors")["actors"]
        assert (actor["class_name"], actor["name"], actor["state"]) == ("Keeper", "keeper", "ALIVE")
        (running,) = control.request(found, "engine", "tasks")["running"]
        assert (running["name"], running["pid"]) == ("Keeper.keep", actor["pid"])
        program.send_signal(signal.SIGKILL)
        program.process.wait()
        assert control.programs() == []
        assert_nothing_left(program)
        eventually(lambda: sockets_below(temporary) == [], what="the session is removed")
