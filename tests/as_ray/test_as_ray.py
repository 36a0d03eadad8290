"""Programs that import `ray`, run by `python -m syncline.as_ray` and after `install()`."""

import os
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from syncline import settings
from syncline.as_ray import API_VERSION, program
from syncline.settings import AS_RAY_STARTUP as STARTUP

Done = subprocess.CompletedProcess[str]
Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs a program with `python -m syncline.as_ray`."""

    def run_program(text: str, *arguments: str, env: dict[str, str] | None = None) -> Done:
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(text))
        return python("-m", "syncline.as_ray", str(script), *arguments, env=env, cwd=tmp_path)

    return run_program


def python(*arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Done:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **(env or {})},
        cwd=cwd,
    )


def lines(done: Done) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_modules_of_ray_are_those_of_syncline(run: Run) -> None:
    text = """
        import sys
        import ray, syncline
        import ray.util.queue as queue
        from ray.util.queue import Queue
        from ray.exceptions import GetTimeoutError
        print(sys.modules["ray.util.queue"] is sys.modules["syncline.util.queue"] is queue)
        print(ray.util is syncline.util, ray.get is syncline.get)
        print(GetTimeoutError is syncline.exceptions.GetTimeoutError)
        print(queue.__name__, queue.__spec__.name)
        from ray.dashboard.modules.job.sdk import JobSubmissionClient
        print(JobSubmissionClient is syncline.job_submission.JobSubmissionClient)
    """
    assert lines(run(text)) == [
        "True",
        "True True",
        "True",
        "syncline.util.queue syncline.util.queue",
        "True",
    ]


def test_libraries_get_syncline_and_the_version_of_rays_api(run: Run, tmp_path: Path) -> None:
    (tmp_path / "library.py").write_text("import ray\nfrom ray import remote\n")
    text = """
        import importlib.metadata, importlib.util
        print(importlib.metadata.version("ray"), importlib.metadata.metadata("ray")["Summary"])
        import library, syncline
        print(library.ray.__version__, syncline.__version__, library.remote is syncline.remote)
        print(importlib.util.find_spec("ray").name, importlib.util.find_spec("ray.util.queue").name)
    """
    version, versions, specs = lines(run(text))
    assert version.startswith(f"{API_VERSION} API of Ray, provided by syncline")
    assert versions == f"{API_VERSION} 0.1.0 True"
    assert specs == "ray ray.util.queue"


def test_lists_of_installed_distributions_do_not_change(run: Run) -> None:
    text = """
        import importlib.metadata as metadata
        print(sum("provided by syncline" in (each.metadata["Summary"] or "")
              for each in metadata.distributions()))
    """
    assert lines(run(text)) == ["0"]


def test_missing_names_say_what_to_use(run: Run) -> None:
    text = """
        for statement in (
            "import ray.nothing_like_it", "import ray.dashboard.utils", "import ray; ray.settings",
            "import ray; ray.nothing_like_it",
        ):
            try:
                exec(statement)
            except (ImportError, AttributeError) as error:
                print(type(error).__name__, error)
        from ray.util.queue import nothing_like_it
    """
    done = run(text)
    assert done.returncode == 1
    unknown, own, attribute, unknown_attribute = done.stdout.splitlines()
    assert unknown.startswith("ModuleNotFoundError `ray` is syncline in this program")
    assert unknown.endswith("no counterpart of `ray.nothing_like_it`")
    assert own.startswith("ModuleNotFoundError")
    assert attribute.startswith("AttributeError")
    assert "`ray.dashboard.utils`" in own
    assert attribute.endswith("`ray.settings`")
    assert unknown_attribute.endswith("`ray.nothing_like_it`")
    assert "ImportError: cannot import name 'nothing_like_it'" in done.stderr
    assert "no counterpart of `ray.util.queue.nothing_like_it`" in done.stderr
    assert "as_ray/program.py" not in done.stderr  # only frames of the program


def test_a_program_sees_what_python_gives_it(run: Run, tmp_path: Path) -> None:
    text = """
        import sys, os, __main__
        print(__name__, __main__.__file__ == sys.argv[0] == __file__, __spec__)
        print(sys.argv[1:], sys.path[0] == os.path.dirname(__file__))
        print(sys.modules["__main__"].__dict__ is globals())
        sys.exit(7)
    """
    done = run(text, "-m", "a b")
    assert done.returncode == 7
    assert done.stdout.splitlines() == ["__main__ True None", "['-m', 'a b'] True", "True"]


def test_modules_packages_directories_and_archives_run(tmp_path: Path) -> None:
    code = "import sys, ray; print(__spec__.name, sys.argv[1:], ray.__version__)\n"
    (tmp_path / "tool.py").write_text(code)
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(code)
    with zipfile.ZipFile(tmp_path / "program.zip", "w") as archive:
        archive.writestr("__main__.py", code)
    found = {
        name: lines(python("-m", "syncline.as_ray", *name.split(), "x", cwd=tmp_path))
        for name in ("-m tool", "-m package", "package", "program.zip")
    }
    assert found == {
        "-m tool": [f"tool ['x'] {API_VERSION}"],
        "-m package": [f"package.__main__ ['x'] {API_VERSION}"],
        "package": [f"__main__ ['x'] {API_VERSION}"],
        "program.zip": [f"__main__ ['x'] {API_VERSION}"],
    }


@pytest.mark.parametrize(
    ("arguments", "text"),
    [((), "no script"), (("-x",), "unknown option '-x'"), (("-m",), "`-m` needs the name")],
)
def test_command_lines_without_a_program_are_refused(
    arguments: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(arguments) == 2
    assert text in capsys.readouterr().err


def test_programs_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    for arguments in (["-m", "no.such.module"], ["missing.py"]):
        done = python("-m", "syncline.as_ray", *arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("syncline.as_ray: ")
        assert arguments[-1] in done.stderr


def test_children_inherit_it(run: Run) -> None:
    text = """
        import multiprocessing, subprocess, sys

        def version(queue):
            import ray
            queue.put((ray.__version__, ray.__file__))

        if __name__ == "__main__":
            code = "import importlib.metadata as m, ray; print(ray.__file__, m.version('ray'))"
            print(subprocess.run([sys.executable, "-c", code], stdout=-1, text=True).stdout.strip())
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            process = context.Process(target=version, args=(queue,))
            process.start()
            print(*queue.get())
            process.join()
    """
    file = str(Path(STARTUP).parents[1] / "__init__.py")
    assert lines(run(text)) == [f"{file} {API_VERSION}", f"{API_VERSION} {file}"]


def test_an_existing_sitecustomize_runs_in_children(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("print('theirs', __name__)\n")
    path = os.pathsep.join([STARTUP, str(theirs)])
    code = f"import sys, sitecustomize as s; print(s.__file__, sys.path.count({STARTUP!r}))"
    found = lines(python("-c", code, env={"PYTHONPATH": path}))
    assert found == ["theirs sitecustomize", f"{theirs / 'sitecustomize.py'} 0"]
    assert lines(python("-c", "import sitecustomize", env={"PYTHONPATH": STARTUP})) == []


def test_an_interpreter_without_syncline_imports_as_usual(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("place = 'own'\n")
    code = f"import sys; sys.path[:0] = [{STARTUP!r}, {str(tmp_path)!r}]; import sitecustomize, ray"
    assert lines(python("-S", "-E", "-c", f"{code}; print(ray.place)")) == ["own"]


def test_install_in_a_program_may_be_repeated() -> None:
    code = """if True:
        import sys, syncline
        syncline.as_ray.install()
        before = list(sys.meta_path)
        syncline.as_ray.install()
        import ray
        print(ray.get is syncline.get, before == sys.meta_path)
    """
    assert lines(python("-c", code)) == ["True True"]


def test_install_is_refused_after_ray_and_after_the_start(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("")
    code = "import ray, syncline.as_ray; syncline.as_ray.install()"
    done = python("-c", code, cwd=tmp_path)
    assert f"`ray` is already imported, from {tmp_path / 'ray.py'}" in done.stderr
    code = "import syncline; syncline.init(local_mode=True); syncline.as_ray.install()"
    assert "before `init`" in python("-c", code).stderr


def test_processes_of_ray_itself_do_not_inherit_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([STARTUP, "/mine"]))
    monkeypatch.setenv(settings.AS_RAY, "1")
    variables = settings.environment_for_ray()
    assert variables["PYTHONPATH"] == "/mine"
    assert settings.AS_RAY not in variables
    monkeypatch.setenv("PYTHONPATH", STARTUP)
    assert "PYTHONPATH" not in settings.environment_for_ray()
    monkeypatch.delenv(settings.AS_RAY)
    assert settings.environment_for_ray() == settings.inherited_environment()


def test_clusters_are_refused_because_their_engine_needs_ray(run: Run) -> None:
    text = """
        import ray
        try:
            ray.init()
        except ConnectionError as error:
            print(error)
    """
    (said,) = lines(run(text, env={"RAY_ADDRESS": "10.1.2.3:6379"}))
    assert "10.1.2.3:6379" in said
    assert "syncline migrate" in said


def test_nodes_of_ray_are_refused_when_they_are_started(run: Run) -> None:
    text = """
        import ray
        from ray.cluster_utils import Cluster
        assert ray.cluster_utils.Cluster is Cluster
        try:
            Cluster(initialize_head=True)
        except RuntimeError as error:
            print(error)
    """
    (said,) = lines(run(text))
    assert "ray.init(num_cpus=...)" in said


@pytest.mark.processes
def test_workers_and_their_children_get_syncline(run: Run, tmp_path: Path) -> None:
    (tmp_path / "library.py").write_text(
        textwrap.dedent("""
            import ray
            from ray.util.queue import Queue

            def versions():
                import subprocess, sys
                code = "import ray; print(ray.__version__)"
                child = subprocess.run([sys.executable, "-c", code], stdout=-1, text=True).stdout
                return ray.__version__, child.strip(), Queue.__module__

            @ray.remote
            class Actor:
                def versions(self):
                    return versions()
        """)
    )
    text = """
        import ray, library

        @ray.remote
        def refers_to_the_module():
            return ray.__version__, ray.__name__

        if __name__ == "__main__":
            ray.init(num_cpus=1)
            print(*ray.get(refers_to_the_module.remote()))
            print(*ray.get(ray.remote(library.versions).remote()))
            print(*ray.get(library.Actor.remote().versions.remote()))
    """
    expected = [f"{API_VERSION} ray", *[f"{API_VERSION} {API_VERSION} syncline.util.queue"] * 2]
    assert lines(run(text)) == expected
    assert lines(run(text, env={"SYNCLINE_START_METHOD": "spawn"})) == expected
