"""`deployment`, `Deployment.options`, `bind`, and their errors."""

import pickle

import cloudpickle
import pytest

from syncline.core import api
from syncline.serve.deployment import Application, Deployment, deployment


@deployment
class Model:
    def __init__(self, path, *, scale=1.0):
        self.path = path
        self.scale = scale


@deployment(name="echo", num_replicas=2, max_ongoing_requests=8)
async def repeat(request):
    return request


@deployment
def numbers(count):
    yield from range(count)


def test_class_or_function_becomes_a_deployment_with_its_name():
    assert isinstance(Model, Deployment)
    assert (Model.name, Model.num_replicas, Model.max_ongoing_requests) == ("Model", 1, 5)
    assert (Model.max_queued_requests, Model.user_config) == (-1, None)
    assert Model.ray_actor_options == {"num_cpus": 1}
    assert Model.func_or_class.__name__ == "Model"
    assert (repeat.name, repeat.num_replicas, repeat.max_ongoing_requests) == ("echo", 2, 8)
    assert (numbers.name, numbers.func_or_class.__name__) == ("numbers", "numbers")
    assert repr(repeat) == "Deployment(name='echo')"


def test_options_return_a_copy():
    changed = Model.options(name="Other", user_config={"a": 1}, ray_actor_options={"num_cpus": 0})
    assert (changed.name, changed.user_config) == ("Other", {"a": 1})
    assert changed.ray_actor_options == {"num_cpus": 0}
    assert changed.func_or_class is Model.func_or_class
    assert (Model.name, Model.user_config) == ("Model", None)
    assert changed.options(max_queued_requests=3).user_config == {"a": 1}
    assert Model.options(repeat.func_or_class).func_or_class is repeat.func_or_class


def test_bind_returns_an_application_with_the_arguments():
    app = Model.bind("x", scale=2)
    assert isinstance(app, Application)
    assert (app.deployment.init_args, app.deployment.init_kwargs) == (("x",), {"scale": 2})
    assert (Model.init_args, Model.init_kwargs) == ((), {})
    assert repr(app) == "Application(Model.bind(...))"
    copy = pickle.loads(cloudpickle.dumps(app))
    assert (copy.deployment.name, copy.deployment.init_args) == ("Model", ("x",))


def test_calling_a_deployment_or_its_constructor_is_refused():
    with pytest.raises(RuntimeError, match=r"`handle = serve.run\(Model.bind"):
        Model("x")
    with pytest.raises(RuntimeError, match="decorate a class or function"):
        Deployment("name", None, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((), {}), "missing a required argument: 'path'"),
        ((("x",), {"scales": 2}), "unexpected keyword argument 'scales'"),
    ],
)
def test_wrong_arguments_of_a_constructor_are_refused_by_bind(arguments, message):
    args, kwargs = arguments
    with pytest.raises(TypeError, match=message):
        Model.bind(*args, **kwargs)


class Strict:
    def __init__(self, a, /, b=1, **others):
        pass


@pytest.mark.parametrize("keywords", [{}, {"a": 0}, {"b": 0}, {"c": 0}, {"a": 0, "b": 0}])
@pytest.mark.parametrize("count", range(4))
def test_bind_takes_exactly_the_arguments_that_the_constructor_takes(count, keywords):
    # `Signature.bind` of Python 3.13.0 takes `a` by name.
    args = (0,) * count
    try:
        Strict(*args, **keywords)
    except TypeError:
        with pytest.raises(TypeError, match=r"the constructor Strict\(a, /, b=…, \*\*others\)"):
            deployment(Strict).bind(*args, **keywords)
    else:
        assert deployment(Strict).bind(*args, **keywords).deployment.init_args == args


def test_arguments_of_a_function_are_refused_by_bind():
    with pytest.raises(ValueError, match="is called with each request"):
        repeat.bind(3)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Model, "it is a deployment already"),
        (api.remote(type("Plain", (), {})), "without `remote`"),
        (3, "decorate a class or function"),
        ("name", "decorate a class or function"),
    ],
    ids=["deployment", "actor", "number", "text"],
)
def test_only_classes_and_functions_can_be_decorated(value, message):
    with pytest.raises(TypeError, match=message):
        deployment(value)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"nmae": "x"}, TypeError, "no argument 'nmae'"),
        ({"version": "v1"}, ValueError, "was removed"),
        ({"name": "a#b"}, ValueError, "has '#'"),
        ({"name": ""}, ValueError, "is empty"),
        ({"name": 3}, TypeError, "give a string"),
        ({"num_replicas": 0}, ValueError, "at least 1"),
    ],
    ids=str,
)
def test_wrong_options_are_refused_at_decoration_and_by_options(options, error, message):
    with pytest.raises(error, match=message):
        deployment(**options)
    with pytest.raises(error, match=message):
        Model.options(**options)
