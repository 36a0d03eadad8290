"""`runtime_env`: variables, working directory and modules of tasks and actors."""

from __future__ import annotations

import importlib
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline.testing.conformance.suite import Suite
from syncline.testing.tasks import get, one


class Environments(Suite):
    """Environments of tasks and actors."""

    init_options = {
        "num_cpus": 4,
        "runtime_env": {"env_vars": {"FROM_PROGRAM": "program", "FROM_BOTH": "program"}},
    }

    def test_variables_of_the_program_and_of_the_task(self) -> None:
        @syncline.remote
        def look() -> object:
            return [os.environ.get(name) for name in ("FROM_PROGRAM", "FROM_BOTH", "FROM_TASK")]

        assert get(look.remote()) == ["program", "program", None]
        own = {"env_vars": {"FROM_BOTH": "task", "FROM_TASK": "task"}}
        assert get(look.options(runtime_env=own).remote()) == ["program", "task", "task"]
        assert get(look.remote()) == ["program", "program", None]

    def test_variables_of_an_actor(self) -> None:
        @syncline.remote(runtime_env={"env_vars": {"FROM_ACTOR": "actor"}})
        class Looking:
            def __init__(self) -> None:
                self.at_start = os.environ.get("FROM_ACTOR")

            def look(self) -> object:
                return self.at_start, os.environ.get("FROM_ACTOR")

        assert get(Looking.remote().look.remote()) == ("actor", "actor")

    def test_the_programs_own_environment_is_untouched(self) -> None:
        @syncline.remote(runtime_env={"env_vars": {"ONLY_IN_TASK": "1"}})
        def look() -> object:
            return os.environ["ONLY_IN_TASK"]

        assert get(look.remote()) == "1"
        assert "ONLY_IN_TASK" not in os.environ

    def test_working_directory_and_its_modules(self, tmp_path: Path) -> None:
        module = f"in_directory_{uuid.uuid4().hex}"
        (tmp_path / f"{module}.py").write_text("VALUE = 'from the directory'")
        (tmp_path / "data.txt").write_text("data")

        @syncline.remote
        def look() -> object:
            return Path("data.txt").read_text(), importlib.import_module(module).VALUE

        before = os.getcwd()
        found = get(look.options(runtime_env={"working_dir": str(tmp_path)}).remote())
        assert found == ("data", "from the directory")
        assert os.getcwd() == before

    def test_modules_beside_the_program(self, tmp_path: Path) -> None:
        package = f"package_{uuid.uuid4().hex}"
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("VALUE = 'from the package'")

        @syncline.remote
        def look() -> object:
            return importlib.import_module(package).VALUE

        found = get(look.options(runtime_env={"py_modules": [str(tmp_path / package)]}).remote())
        assert found == "from the package"

    @pytest.mark.parametrize(
        "wrong",
        [
            {"env_var": {}},
            {"working_dir": "/no/such/directory"},
            {"env_vars": {"A": 1}},
            {"pip": 3},
            {"pip": {"wheels": []}},
            {"pip": "/no/such/requirements.txt"},
            {"pip": ["numpy"], "uv": ["numpy"]},
        ],
        ids=str,
    )
    def test_impossible_environment_is_refused_at_once(self, wrong: dict[str, Any]) -> None:
        with pytest.raises((TypeError, ValueError)):
            one.options(runtime_env=wrong)

    def test_environment_that_installs_is_refused(self) -> None:
        for field in ("conda", "container"):
            with pytest.raises(ValueError, match=field):
                one.options(runtime_env={field: {"name": "x"}})

    @pytest.mark.parametrize("form", ["list", "dict", "file", "uv"])
    def test_packages_that_are_installed_need_nothing(self, form: str, tmp_path: Path) -> None:
        lines = ["numpy>=1", f"pytest=={pytest.__version__}"]
        file = tmp_path / "requirements.txt"
        file.write_text("# comment\n" + "\n".join(lines))
        environment = {
            "list": {"pip": lines},
            "dict": {"pip": {"packages": lines}},
            "file": {"pip": str(file)},
            "uv": {"uv": lines},
        }[form]
        assert get(one.options(runtime_env=environment).remote()) == 1
