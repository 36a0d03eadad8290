"""`runtime_env`: normal form, merging, keys, and application to a process."""

import email
import os
import sys

import pytest

from syncline.core import runtime_env
from syncline.core.runtime_env import RuntimeEnv, RuntimeEnvConfig, merge, normalize


def test_the_normal_form_has_absolute_paths_and_nothing_empty(tmp_path, monkeypatch):
    (tmp_path / "code").mkdir()
    monkeypatch.chdir(tmp_path)
    normal = normalize(
        {
            "env_vars": {"A": "1"},
            "working_dir": "code",
            "py_modules": [email],
            "excludes": ["x"],
            "pip": None,
        }
    )
    assert normal == {
        "env_vars": {"A": "1"},
        "working_dir": str(tmp_path / "code"),
        "py_modules": [os.path.dirname(email.__file__)],
    }
    assert normalize({"env_vars": {}}) == normalize(None) == {}


@pytest.mark.parametrize(
    ("env", "error", "message"),
    [
        ({"conda": "torch"}, ValueError, "before the program starts"),
        ({"pip": 3}, TypeError, "list of strings"),
        ({"pip": {"packags": []}}, ValueError, "'packages'"),
        ({"pip": "/no/such/file"}, ValueError, "requirements file"),
        ({"pip": ["torch"], "uv": ["torch"]}, ValueError, "one of the two"),
        ({"worker_process_setup_hook": print}, ValueError, "start of the task"),
        ({"env_var": {}}, ValueError, "Did you mean 'env_vars'"),
        ({"env_vars": {"A": 1}}, TypeError, "write 'A': '1'"),
        ({"working_dir": "/no/such/directory"}, ValueError, "not an existing directory"),
        ({"working_dir": "s3://bucket/code.zip"}, ValueError, "fetch and unpack"),
        ({"py_modules": "/tmp"}, TypeError, "pass a list"),
        (["A"], TypeError, "pass a dict"),
    ],
)
def test_impossible_environments_are_refused(env, error, message):
    with pytest.raises(error) as caught:
        normalize(env)
    assert message in str(caught.value)


def test_an_object_may_have_fields_for_clusters_only():
    env = RuntimeEnv(pip=["torch"], env_vars={"A": "1"}, working_dir=None)
    assert env.to_dict() == {"pip": ["torch"], "env_vars": {"A": "1"}}


def test_a_task_adds_variables_and_replaces_the_rest():
    merged = merge(
        {"env_vars": {"A": "1", "B": "1"}, "working_dir": "/a"},
        {"env_vars": {"B": "2"}, "working_dir": "/b"},
    )
    assert merged == {"env_vars": {"A": "1", "B": "2"}, "working_dir": "/b"}


def test_applying_changes_variables_directory_and_import_path(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    (tmp_path / "lib" / "package").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("BASE", "/base")
    monkeypatch.setenv("ADDED", "before")
    env = {
        "env_vars": {"ADDED": "${BASE}/more"},
        "working_dir": str(tmp_path / "work"),
        "py_modules": [str(tmp_path / "lib/package")],
    }
    runtime_env.apply(env)
    assert (os.environ["ADDED"], os.getcwd()) == ("/base/more", str(tmp_path / "work"))
    assert sys.path[:2] == [str(tmp_path / "work"), str(tmp_path / "lib")]


def test_config_of_the_setup_is_checked():
    config = RuntimeEnvConfig(setup_timeout_seconds=5, log_files=["a.log"])
    assert config == {"setup_timeout_seconds": 5, "eager_install": True, "log_files": ["a.log"]}
    assert RuntimeEnv(config=RuntimeEnvConfig())["config"]["setup_timeout_seconds"] == 600
    for seconds in (0, -2):
        with pytest.raises(ValueError, match="-1 for no limit"):
            RuntimeEnvConfig(setup_timeout_seconds=seconds)
    with pytest.raises(TypeError, match="whole seconds"):
        RuntimeEnvConfig(setup_timeout_seconds="5")
    with pytest.raises(TypeError, match="True or False"):
        RuntimeEnvConfig(eager_install=1)
