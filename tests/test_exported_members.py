"""Freezes the public surface of `syncline`: a name that comes or goes is a decision, and shows
here.
"""

import inspect
import subprocess
import sys

import pytest

import syncline
from syncline import exceptions


def test_names_of_syncline():
    assert sorted(syncline.__all__) == [
        "ObjectRef",
        "ObjectRefGenerator",
        "__version__",
        "actor",
        "available_resources",
        "cancel",
        "cluster_resources",
        "exceptions",
        "get",
        "get_actor",
        "get_gpu_ids",
        "get_runtime_context",
        "init",
        "is_initialized",
        "kill",
        "method",
        "nodes",
        "put",
        "remote",
        "shutdown",
        "timeline",
        "wait",
    ]
    for name in syncline.__all__:
        assert getattr(syncline, name) is not None


def test_names_of_exceptions():
    classes = {
        name
        for name, value in vars(exceptions).items()
        if inspect.isclass(value) and value.__module__ == exceptions.__name__ and name[0] != "_"
    }
    assert classes == set(exceptions.__all__)
    assert len(exceptions.__all__) == 45
    for name in set(exceptions.__all__) - {"WorkerTraceback"}:
        assert issubclass(getattr(exceptions, name), exceptions.RayError)
        assert name in exceptions.__doc__


def test_names_of_actor():
    assert syncline.actor.__all__ == [
        "ActorClass",
        "ActorClassInheritanceException",
        "ActorHandle",
        "ActorMethod",
        "exit_actor",
        "method",
    ]


def test_names_of_modules_with_one_type():
    assert syncline.types.__all__ == ["ObjectRef"]
    assert syncline.remote_function.__all__ == ["RemoteFunction"]
    assert syncline.runtime_context.__all__ == ["RuntimeContext", "get_runtime_context"]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = syncline.nothing


def test_submodules_load_on_first_use():
    assert syncline.runtime_env.RuntimeEnv(env_vars={"A": "1"}) == {"env_vars": {"A": "1"}}
    assert {"train", "util", "testing"} <= set(dir(syncline))


def test_importing_syncline_imports_nothing_heavy():
    code = (
        "import sys, syncline; print([m for m in ('torch', 'pyarrow', 'numpy', 'pandas', "
        "'syncline.train') if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )
