"""A fork server that starts with the import of serve, in programs of their own."""

import os
import subprocess
import sys
import textwrap

import pytest

HEAD = """
import os, sys, time
import psutil
from syncline.core.embedded import early_start
early_start.start("json.tool")
children = psutil.Process().children()
assert len(children) == 1, children
"""


def run(code, **environment):
    """Run a program, and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.processes
def test_engine_takes_the_fork_server_over_with_its_modules():
    output = run("""
        import syncline

        @syncline.remote(num_cpus=0)
        class Worker:
            def facts(self):
                return os.getppid(), sys.path, "json.tool" in sys.modules

        sys.path.insert(0, "/elsewhere")
        is_imported = False
        while not is_imported:  # the first worker may be earlier
            parent, path, is_imported = syncline.get(Worker.remote().facts.remote())
            assert parent == children[0].pid
            assert path == sys.path, (path, sys.path)
        print("done")
    """)
    assert output == ["done"]


@pytest.mark.processes
def test_changed_environment_needs_another_fork_server():
    output = run("""
        import syncline

        @syncline.remote
        def task():
            return os.getppid(), os.environ["OMP_NUM_THREADS"]

        os.environ["OMP_NUM_THREADS"] = "7"
        parent, threads = syncline.get(task.remote())
        assert parent != children[0].pid
        assert not children[0].is_running()
        print(threads)
    """)
    assert output == ["7"]


@pytest.mark.processes
@pytest.mark.parametrize("end", ["", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_program_without_an_engine_leaves_no_process(end):
    read, write = os.pipe()
    program = subprocess.Popen(
        [sys.executable, "-c", HEAD + f"\nos.write({write}, str(children[0].pid).encode()); {end}"],
        pass_fds=(write,),
    )
    os.close(write)
    pid = int(os.read(read, 20))
    os.close(read)
    program.wait(60)
    while os.path.exists(f"/proc/{pid}/exe"):  # until the limit of the test
        os.sched_yield()


@pytest.mark.processes
def test_forked_children_leave_the_fork_server_to_the_program():
    output = run("""
        child = os.fork()
        if child == 0:
            assert early_start.take() is None
            time.sleep(60)
        fork_server = early_start.take()
        fork_server.connection.close()
        assert fork_server.process.wait(30) == 0
        os.kill(child, 9)
        print("done")
    """)
    assert output == ["done"]


@pytest.mark.processes
def test_fork_server_imports_a_large_library_while_the_program_does():
    output = run("""
        import numpy
        while "numpy" not in open(f"/proc/{children[0].pid}/maps").read():
            time.sleep(0.01)
        print("done")
    """)
    assert output == ["done"]


@pytest.mark.processes
def test_children_of_multiprocessing_start_nothing():
    output = run("""
        import multiprocessing

        def check(queue):
            early_start.start()
            queue.put(early_start.take())

        queue = multiprocessing.Queue()
        child = multiprocessing.get_context("fork").Process(target=check, args=(queue,))
        child.start()
        print(queue.get(timeout=30))
        child.join()
    """)
    assert output == ["None"]


@pytest.mark.parametrize(
    "variable", ["SYNCLINE_SESSION", "SYNCLINE_ADDRESS", "SYNCLINE_START_METHOD"]
)
def test_processes_that_start_no_engine_here_start_nothing(variable):
    code = """
        from syncline.core.embedded import early_start
        early_start.start()
        assert early_start.take() is None
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, variable: "spawn"},
        timeout=60,
    )
    assert done.returncode == 0
