"""Configuration files and directories of modules: checks, errors of user code, imports."""

import sys
from pathlib import Path

import pytest

from syncline.serve.application_files import (
    ApplicationImportError,
    described,
    importing_from,
    read_config,
    targets_of,
)
from syncline.serve.config_file import ServeDeploySchema

MODULE = """
from syncline import serve

@serve.deployment(num_replicas=2, user_config={"a": 1})
class Model:
    def __init__(self, size):
        self.size = size

    def reconfigure(self, user_config): ...

def build(args):
    return Model.bind(args["size"])

app = Model.bind(VALUE)
"""
FILE = """
applications:
- import_path: served_here:app
  deployments:
  - name: Model
    num_replicas: 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "served_here.py").write_text(MODULE.replace("VALUE", "1"))
    return tmp_path


def config(folder: Path, text: str = FILE) -> ServeDeploySchema:
    (folder / "config.yaml").write_text(text)
    return read_config(folder / "config.yaml")


def targets(folder: Path, text: str = FILE):
    return targets_of(config(folder, text), folder, replicas_import_from_it=False)


def test_options_of_the_file_replace_those_in_the_code(folder):
    (target,) = targets(folder)
    (deployment,) = target.deployments
    assert (deployment.config.num_replicas, deployment.config.user_config) == (3, {"a": 1})
    assert target.import_path == "served_here:app"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("num_replicas", "num_replica", r"applications\[0\]\.deployments\[0\].*'num_replicas'"),
        ("num_replicas: 3", "num_replicas: -1", r"applications\[0\]\.deployments\[0\].*-1"),
        ("import_path: served_here:app", "import_path: served_here", "module:name"),
        ("applications:", "aplications:", "'applications'"),
        (FILE, "- 1", "not a mapping"),
        (FILE, "import_path: a:b", "single|one application"),
        (FILE, "a: [", "not YAML"),
        (FILE, "applications: 3", "list"),
    ],
)
def test_mistakes_in_a_file_are_named_with_their_place(folder, old, new, message):
    with pytest.raises(ValueError, match=message) as caught:
        config(folder, FILE.replace(old, new))
    assert "config.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("served_here:app", "served_her:app", "served_her"),
        ("served_here:app", "served_here:aps", "Did you mean 'app'"),
        ("served_here:app", "served_here:Model", "bind"),
        ("name: Model", "name: Modle", "Did you mean 'Model'"),
    ],
)
def test_wrong_names_are_answered_with_the_nearest(folder, old, new, message):
    with pytest.raises(ApplicationImportError, match=message) as caught:
        targets(folder, FILE.replace(old, new))
    assert str(caught.value).startswith("In `applications[0]")
    assert "Traceback" not in str(caught.value)


def test_errors_of_user_code_have_only_the_users_frames(folder):
    (folder / "served_here.py").write_text("def f():\n    return 1 / 0\n\n\nf()\n")
    with pytest.raises(ApplicationImportError) as caught:
        targets(folder)
    text = str(caught.value)
    assert text.endswith("ZeroDivisionError: division by zero")
    assert text.count("  File ") == 2
    assert "importlib" not in text
    assert f'{folder / "served_here.py"}", line 2, in f' in text


def test_missing_library_of_a_module_is_not_taken_for_the_module(folder):
    (folder / "served_here.py").write_text("import no_such_library\n")
    with pytest.raises(ApplicationImportError, match="line 1, in <module>[^$]*no_such_library"):
        targets(folder)


def test_module_that_exits_is_an_error(folder):
    (folder / "served_here.py").write_text("raise SystemExit('no model')\n")
    with pytest.raises(ApplicationImportError, match="no model"):
        targets(folder)


def test_arguments_that_do_not_fit_a_model_are_listed(folder):
    module = """
from pydantic import BaseModel
class Args(BaseModel):
    size: int
def build(args: Args): ...
"""
    (folder / "served_here.py").write_text(module)
    text = "applications: [{import_path: 'served_here:build', args: {size: big}}]"
    with pytest.raises(ApplicationImportError, match=r"(?s)served_here:build.*size\n.*integer"):
        targets(folder, text)


def test_changed_module_is_imported_again(folder):
    (before,) = targets(folder)
    (folder / "served_here.py").write_text(MODULE.replace("VALUE", "20"))
    (after,) = targets(folder)
    assert "served_here" not in sys.modules
    assert before.deployments[0].init_args != after.deployments[0].init_args


def test_applications_of_two_directories_may_have_modules_of_one_name(tmp_path):
    for name, value in (("one", "1"), ("two", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "served_here.py").write_text(MODULE.replace("VALUE", value))
    text = """
applications:
- {name: one, route_prefix: /1, import_path: "served_here:app", runtime_env: {working_dir: one}}
- {name: two, route_prefix: /2, import_path: "served_here:app", runtime_env: {working_dir: two}}
"""
    one, two = targets(tmp_path, text)
    assert one.deployments[0].init_args != two.deployments[0].init_args
    folders = [
        target.deployments[0].config.ray_actor_options["runtime_env"]["working_dir"]
        for target in (one, two)
    ]
    assert folders == [str(tmp_path / "one"), str(tmp_path / "two")]


def test_missing_working_dir_is_named(folder):
    text = FILE + "  runtime_env: {working_dir: nowhere}\n"
    with pytest.raises(ApplicationImportError, match=r"nowhere.*no such directory"):
        targets(folder, text)


def test_replicas_elsewhere_import_from_the_directory(folder):
    (target,) = targets_of(config(folder), folder, replicas_import_from_it=True)
    env = target.deployments[0].config.ray_actor_options["runtime_env"]
    assert env == {"working_dir": str(folder)}


def test_path_is_restored_after_an_error(folder):
    before = list(sys.path)
    with pytest.raises(RuntimeError), importing_from(folder):
        raise RuntimeError
    assert sys.path == before


@pytest.mark.parametrize("caches_byte_code", [True, False])
def test_description_of_what_runs_gives_the_same_code_and_options(
    folder, monkeypatch, caches_byte_code
):
    monkeypatch.setattr(sys, "dont_write_bytecode", not caches_byte_code)
    (target,) = targets(folder)
    again = described([target])
    assert again.applications[0].import_path == "served_here:app"
    (second,) = targets_of(again, folder, replicas_import_from_it=False)
    first, second = target.deployments[0], second.deployments[0]
    assert (second.code_version, second.config) == (first.code_version, first.config)
