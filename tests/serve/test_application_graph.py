"""From bound applications to targets: names, handles, versions, and errors."""

import logging
import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass

import cloudpickle
import pytest

from syncline.serve.application_graph import build_application
from syncline.serve.code_version import code_version
from syncline.serve.config import AutoscalingPolicy, LoggingConfig
from syncline.serve.deployment import Application, deployment
from syncline.serve.exceptions import RayServeException
from syncline.serve.handle import DeploymentHandle


@deployment
class Leaf:
    def __init__(self, value=0):
        self.value = value

    def reconfigure(self, config):
        pass


@deployment
class Root:
    def __init__(self, *children, **named):
        pass


@deployment
def plain(request):
    return request


@dataclass
class Settings:
    model: object
    size: int


def policy(context, step=1):
    return context.current_num_replicas + step, {}


def targets(app, **options):
    built = build_application(app, **{"name": "app", **options})
    return {target.name: target for target in built.deployments}


def arguments(target):
    return pickle.loads(target.init_args)


def test_nested_applications_become_handles():
    inner = Leaf.bind(1)
    app = Root.bind(
        inner,
        [Leaf.options(name="B").bind()],
        (plain.bind(),),
        key={"c": Leaf.options(name="C").bind()},
    )
    built = build_application(app, name="app", route_prefix="/x")
    assert [t.name for t in built.deployments] == ["Leaf", "B", "plain", "C", "Root"]
    assert [t.is_ingress for t in built.deployments] == [False] * 4 + [True]
    assert (built.name, built.route_prefix) == ("app", "/x")
    (leaf, in_list, in_tuple), named = arguments(built.deployments[-1])
    handles = [leaf, in_list[0], in_tuple[0], named["key"]["c"]]
    assert all(isinstance(handle, DeploymentHandle) for handle in handles)
    assert [h.deployment_name for h in handles] == ["Leaf", "B", "plain", "C"]
    assert {h.app_name for h in handles} == {"app"}
    assert arguments(built.deployments[0]) == ((1,), {})
    assert built.deployments[0].config.num_replicas == 1


def test_applications_are_found_in_sets_and_objects():
    found = targets(Root.bind(Settings(Leaf.bind(), 3), {plain.bind()}))
    assert set(found) == {"Leaf", "plain", "Root"}
    (settings, handles), _ = arguments(found["Root"])
    assert (settings.model.deployment_name, settings.size) == ("Leaf", 3)
    assert [handle.deployment_name for handle in handles] == ["plain"]


def test_one_object_bound_twice_is_one_deployment():
    leaf = Leaf.bind()
    middle = Root.options(name="Middle").bind(leaf)
    assert list(targets(Root.bind(leaf, middle, [leaf]))) == ["Leaf", "Middle", "Root"]


def test_equal_names_get_numbers_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING, logger="syncline.serve"):
        found = targets(Root.bind(Leaf.bind(1), Leaf.bind(2), Leaf.bind(3)))
    assert list(found) == ["Leaf", "Leaf_1", "Leaf_2", "Root"]
    assert "several deployments named 'Leaf': one of them is now 'Leaf_1'" in caplog.text
    (first, second, third), _ = arguments(found["Root"])
    assert [h.deployment_name for h in (first, second, third)] == ["Leaf", "Leaf_1", "Leaf_2"]
    assert arguments(found["Leaf_2"]) == ((3,), {})


def test_an_application_can_be_built_again():
    app = Root.bind(Leaf.bind())
    first, second = targets(app), targets(app)
    assert first == second
    assert isinstance(pickle.loads(cloudpickle.dumps(app)), Application)


def test_version_changes_with_code_and_arguments_only():
    def version(app):
        return next(iter(targets(app).values())).code_version

    first = version(Leaf.bind(1))
    assert version(Leaf.bind(1)) == first
    assert version(Leaf.options(num_replicas=3, user_config={"a": 1}).bind(1)) == first
    assert version(Leaf.bind(2)) != first
    assert version(Leaf.options(lambda request: 1).bind()) != first


def test_digest_depends_on_values_and_not_on_which_of_them_are_one_object():
    def digest(value):
        return code_version(len, cloudpickle.dumps(value))

    twice = "".join(["a", "b"])
    assert digest([("ab", twice), (1, 2)]) == digest([(twice, twice), (1, 2)])
    pair = ("ab", 1)
    assert digest({"x": pair, "y": pair}) == digest({"x": pair, "y": (twice, 1)})
    one, other = [1], [1]
    assert digest((one, one)) != digest((one, other))
    assert digest((1, 2)) != digest(((1, 2),)) != digest(("1", 2))
    cyclic = [1]
    cyclic.append((cyclic,))
    assert digest(cyclic) == digest(cyclic) != digest([1, ([1],)])


PROGRAM = """
import sys
sys.path.insert(0, {directory!r})
import used
from syncline.serve.application_graph import build_application
from syncline.serve.deployment import deployment

class Base: pass

@deployment
class Model(Base):
    def __init__(self, config): self.weights = used.weights()
    def __call__(self, request): return {answer}
    def names(self, request): return request in {{"one", "two", "three", "four", "five"}}

class Config: pass

target = build_application(Model.bind(Config()), name="app").deployments[0]
print(target.code_version)
"""


def version_of_program(directory, answer):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(directory=str(directory), answer=answer)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_version_is_equal_in_every_process_and_covers_modules_of_the_program(tmp_path):
    (tmp_path / "used.py").write_text("from deeper import weights\n")
    (tmp_path / "deeper.py").write_text("def weights(): return 1\n")
    first = version_of_program(tmp_path, 1)
    assert version_of_program(tmp_path, 1) == first
    assert version_of_program(tmp_path, 2) != first
    (tmp_path / "deeper.py").write_text("def weights(): return 2\n")
    assert version_of_program(tmp_path, 1) != first


def test_user_code_in_options_is_pickled_apart():
    app = Leaf.options(
        autoscaling_config={
            "max_replicas": 3,
            "policy": AutoscalingPolicy(policy_function=policy, policy_kwargs={"step": 2}),
        },
        request_router_config={"request_router_class": Settings},
        deployment_actors=[{"name": "a", "actor_class": Settings, "init_args": [1, 2]}],
    ).bind()
    target = targets(app)["Leaf"]
    assert pickle.loads(target.autoscaling_policy).keywords == {"step": 2}
    assert pickle.loads(target.request_router).request_router_class is Settings
    actor = target.config.deployment_actors[0]
    assert pickle.loads(actor.actor_class) == (Settings, (1, 2), {})
    assert target.config.autoscaling_config.policy.policy_function.endswith(":policy")
    assert target.config.request_router_config.request_router_class.endswith(":Settings")
    plain_target = targets(Leaf.bind())["Leaf"]
    assert (plain_target.autoscaling_policy, plain_target.request_router) == (None, None)


def test_logging_config_of_the_application_is_the_default():
    debug, error = LoggingConfig(log_level="DEBUG"), LoggingConfig(log_level="ERROR")
    app = Root.bind(Leaf.options(logging_config=error).bind())
    found = targets(app, logging_config=debug)
    assert found["Root"].config.logging_config == debug
    assert found["Leaf"].config.logging_config == error


def test_access_logs_cannot_be_disabled_for_one_deployment(caplog):
    targets(Leaf.options(logging_config={"enable_access_log": False}).bind())
    assert "`enable_access_log=False` of deployment 'Leaf' has no effect" in caplog.text


class FirstApp:
    def __serve_build_asgi_app__(self):
        pass


class SecondApp(FirstApp):
    pass


def test_two_ingress_classes_are_refused():
    first, second = deployment(FirstApp), deployment(SecondApp)
    assert list(targets(first.bind())) == ["FirstApp"]
    with pytest.raises(RayServeException, match="2 classes with `@serve.ingress`: SecondApp, Root"):
        targets(
            deployment(type("Root", (FirstApp,), {"__init__": lambda self, other: None})).bind(
                second.bind()
            )
        )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Leaf, r"pass `Leaf.bind\(...\)`"),
        (3, "a int, but takes an application"),
        (None, "takes an application"),
    ],
)
def test_only_applications_are_built(value, message):
    with pytest.raises(TypeError, match=message):
        build_application(value, name="app")


@pytest.mark.parametrize(
    "prefix",
    [
        *("x", "", "/x/", "//", "/a//b", "/{x}", "/a/../b", "/.", "/-", "/-/routes", "/a b"),
        *("/a?b", "/a#b", "/a\n", "/a\\b", "/%2e%2e"),
    ],
)
def test_bad_route_prefix_is_refused(prefix):
    with pytest.raises(ValueError, match="route_prefix"):
        build_application(Leaf.bind(), name="app", route_prefix=prefix)


@pytest.mark.parametrize("prefix", [None, "/", "/a", "/a/b-c_d.e", "/-a", "/ü"])
def test_good_route_prefix_is_kept(prefix):
    assert build_application(Leaf.bind(), name="app", route_prefix=prefix).route_prefix == prefix


@pytest.mark.parametrize(("name", "error"), [("", ValueError), ("a#b", ValueError), (3, TypeError)])
def test_bad_application_name_is_refused(name, error):
    with pytest.raises(error, match="of an application"):
        build_application(Leaf.bind(), name=name)


def test_unpicklable_argument_is_named():
    with pytest.raises(
        TypeError, match=r"argument `value` of `Leaf.bind\(\)`.*value\[\"a\"\].*lock"
    ):
        targets(Leaf.bind({"a": threading.Lock()}))
    with pytest.raises(TypeError, match=r"argument `value` of `Leaf.bind\(\)`"):
        targets(Root.bind([Leaf.bind(threading.Lock())]))


def test_unpicklable_code_is_named():
    lock = threading.Lock()

    @deployment
    def locked(request):
        return lock

    with pytest.raises(TypeError, match="closure variable `lock`"):
        targets(locked.bind())


def test_user_config_without_reconfigure_is_refused():
    assert targets(Leaf.options(user_config={}).bind())
    with pytest.raises(RuntimeError, match="Deploying application 'app' failed.*no method `reconf"):
        targets(Root.options(user_config={"a": 1}).bind())
    with pytest.raises(RuntimeError, match="the function `plain` has no method"):
        targets(plain.options(user_config={"a": 1}).bind())


def test_missing_import_path_in_options_is_refused():
    app = Leaf.options(
        autoscaling_config={"policy": {"policy_function": "no_such_module:f"}}
    ).bind()
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        targets(app)
