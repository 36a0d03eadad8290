"""Applications of configuration files: import paths, builders, and replaced options."""

import pickle
import sys

import pytest

from syncline.serve.application_loader import build_from_schema, load_application
from syncline.serve.deployment import Application
from syncline.serve.schema import ServeApplicationSchema

MODULE = """
from __future__ import annotations
from pydantic import BaseModel
from syncline import serve

@serve.deployment(num_replicas=2, max_ongoing_requests=7, ray_actor_options={"num_cpus": 0.5})
class Leaf:
    def __init__(self, value): pass
    def reconfigure(self, config): pass

@serve.deployment
class Root:
    def __init__(self, *leaves): pass

app = Root.bind(Leaf.bind(1), Leaf.bind(2))

class Settings(BaseModel):
    value: int

def from_dict(args): return Leaf.bind(args["value"])
def from_model(args: Settings): return Leaf.bind(args.value)
def without_parameters(): return app
def not_an_application(args): return 3
class nested:
    app = app
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "served_module.py").write_text(MODULE)
    (tmp_path / "needs_missing.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("served_module", None)


def schema(**fields):
    return ServeApplicationSchema(**{"import_path": "served_module:app", **fields})


def value_of(target):
    return pickle.loads(target.deployments[0].init_args)[0][0]


def test_application_or_builder_is_found():
    assert isinstance(load_application("served_module:app"), Application)
    assert isinstance(load_application("served_module.app"), Application)
    assert isinstance(load_application("served_module:nested.app"), Application)
    built = build_from_schema(schema(import_path="served_module:from_dict", args={"value": 5}))
    assert value_of(built) == 5
    built = build_from_schema(schema(import_path="served_module:from_model", args={"value": "6"}))
    assert value_of(built) == 6


@pytest.mark.parametrize(
    ("path", "args", "error", "message"),
    [
        ("no_such_module:app", {}, ImportError, "module 'no_such_module' not found"),
        ("needs_missing:app", {}, ModuleNotFoundError, "no_such_library"),
        ("served_module:ap", {}, AttributeError, "has no 'ap'. Did you mean 'app'"),
        ("served_module:app", {"a": 1}, ValueError, "is an application: remove `args`"),
        ("served_module:Leaf", {}, TypeError, r"bind it, such as `app = Leaf.bind"),
        ("served_module:without_parameters", {}, TypeError, "0 parameters, but needs one"),
        ("served_module:not_an_application", {}, TypeError, "returned 3"),
        ("served_module:serve.__all__", {}, TypeError, "neither an application"),
        ("served_module:from_model", {"value": "x"}, ValueError, "value"),
        ("served_module", {}, ValueError, "not an import path"),
    ],
)
def test_wrong_path_is_refused(path, args, error, message):
    with pytest.raises(error, match=message):
        load_application(path, args)


def test_options_of_the_file_replace_those_in_the_code():
    built = build_from_schema(
        schema(
            name="app",
            route_prefix="/x",
            deployments=[
                {"name": "Leaf", "num_replicas": 3, "user_config": {"a": 1}},
                {"name": "Leaf_1", "autoscaling_config": {"max_replicas": 4}},
            ],
        )
    )
    first, second, root = (deployment.config for deployment in built.deployments)
    assert (first.num_replicas, first.user_config, first.max_ongoing_requests) == (3, {"a": 1}, 7)
    assert (second.autoscaling_config.max_replicas, second.max_ongoing_requests) == (4, 7)
    assert root.num_replicas == 1
    assert (built.name, built.route_prefix) == ("app", "/x")


def test_options_of_a_missing_deployment_are_refused():
    with pytest.raises(ValueError, match="no deployment 'Laef'.*Did you mean 'Leaf'"):
        build_from_schema(schema(deployments=[{"name": "Laef"}]))


def test_environment_of_the_application_is_the_default(tmp_path):
    env = {"working_dir": str(tmp_path), "env_vars": {"A": "1"}}
    options = {"runtime_env": {"env_vars": {"B": "2"}}}
    built = build_from_schema(
        schema(runtime_env=env, deployments=[{"name": "Leaf", "ray_actor_options": options}])
    )
    environments = [d.config.ray_actor_options["runtime_env"] for d in built.deployments]
    assert environments[0] == options["runtime_env"]
    assert environments[1] == environments[2] == env


def test_target_capacity_reduces_the_numbers_of_replicas():
    scaling = {"min_replicas": 0, "initial_replicas": 4, "max_replicas": 9}
    deployments = [
        {"name": "Leaf", "num_replicas": 5},
        {"name": "Leaf_1", "autoscaling_config": scaling},
    ]
    built = build_from_schema(schema(deployments=deployments), target_capacity=50)
    leaf, scaled, root = (deployment.config for deployment in built.deployments)
    assert (leaf.num_replicas, root.num_replicas) == (3, 1)
    bounds = scaled.autoscaling_config
    assert (bounds.min_replicas, bounds.initial_replicas, bounds.max_replicas) == (0, 2, 5)


def test_logging_config_of_the_application_is_used():
    built = build_from_schema(schema(logging_config={"log_level": "ERROR"}))
    assert {d.config.logging_config.log_level for d in built.deployments} == {"ERROR"}
