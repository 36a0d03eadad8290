"""Ray's module paths: what they contain, and what is said about those that do not exist."""

import importlib
import pickle
import subprocess
import sys

import pytest

import syncline
from syncline.ray_paths.finder import names_of
from syncline.ray_paths.retired import RETIRED, NoCounterpartError
from syncline.ray_paths.table import NAMES, PATHS

NEEDS_RAY = {"cluster_utils"}


@pytest.mark.parametrize("path", sorted(set(PATHS) - NEEDS_RAY))
def test_every_name_of_a_path_exists(path):
    module = importlib.import_module(f"syncline.{path}")
    for name in names_of(module.__name__):
        assert hasattr(module, name), name
        assert name in dir(module)


def test_every_name_of_the_package_exists():
    for name in names_of("syncline"):
        if name not in NEEDS_RAY:
            assert getattr(syncline, name) is not None, name
    assert len(NAMES) > 3
    assert {"cloudpickle", "logger", "ObjectID", "LoggingConfig", "_private"} <= set(dir(syncline))


def test_names_are_the_objects_that_syncline_uses():
    import cloudpickle

    import syncline.cloudpickle
    from syncline import _raylet
    from syncline.actor import ActorHandle
    from syncline.core import remote
    from syncline.remote_function import RemoteFunction
    from syncline.runtime_context import RuntimeContext
    from syncline.types import ObjectRef

    assert syncline.cloudpickle.dumps is cloudpickle.dumps
    assert syncline.ObjectID is _raylet.ObjectRef is ObjectRef is syncline.ObjectRef
    assert isinstance(syncline.remote(len), RemoteFunction)
    assert ActorHandle is remote.ActorHandle
    assert isinstance(syncline.get_runtime_context(), RuntimeContext)
    assert syncline.logger.name == "syncline"
    assert syncline._private.worker.global_worker is syncline.worker.global_worker


def test_star_imports_and_submodules():
    namespace = {}
    exec("from syncline._private.services import *", namespace)
    assert "get_node_ip_address" in namespace
    exec("import syncline.experimental.state.api as found", namespace)
    assert (
        namespace["found"].list_actors is importlib.import_module("syncline.util.state").list_actors
    )


def test_modules_of_the_table_can_be_pickled():
    module = importlib.import_module("syncline._private.worker")
    assert pickle.loads(pickle.dumps(module)) is module
    assert pickle.loads(pickle.dumps(module.global_worker)) is module.global_worker


@pytest.mark.parametrize("path", sorted(RETIRED))
def test_retired_paths_say_what_to_use(path):
    with pytest.raises(NoCounterpartError, match="no counterpart") as caught:
        importlib.import_module(f"syncline.{path}.below")
    assert caught.value.remedy == RETIRED[path]


@pytest.mark.parametrize("name", ["workflow", "cross_language", "java_function"])
def test_retired_names_say_what_to_use(name):
    with pytest.raises(AttributeError, match="no counterpart"):
        getattr(syncline, name)
    assert not hasattr(syncline, name)
    with pytest.raises(ImportError, match="no counterpart"):
        exec(f"from syncline import {name}")


def test_unknown_names_suggest_similar_ones():
    with pytest.raises(AttributeError, match="Did you mean 'global_worker'"):
        _ = syncline._private.worker.global_workers
    with pytest.raises(AttributeError, match="Did you mean 'cloudpickle'"):
        _ = syncline.cloudpickl
    with pytest.raises(ModuleNotFoundError, match="_private.nothing"):
        importlib.import_module("syncline._private.nothing")


def test_tensors_between_gpus_are_refused_with_advice():
    with pytest.raises(ValueError, match=r"torch\.distributed"):
        syncline.method(tensor_transport="nccl")
    with pytest.raises(ValueError, match=r"torch\.distributed"):
        syncline.remote(enable_tensor_transport=True)(type("A", (), {}))
    assert syncline.method(tensor_transport="object_store")


def test_names_load_on_first_use():
    code = (
        "import sys, syncline; before = set(sys.modules); import syncline._private.services;"
        "print(*sorted(m for m in sys.modules if m.startswith('syncline.core')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == []
