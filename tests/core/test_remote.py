"""Remote functions, actor classes and handles: calls of the engine, and refused arguments."""

import pickle

import cloudpickle
import pytest

import syncline
from syncline.actor import ActorClass, ActorClassInheritanceException, ActorHandle
from syncline.core import definitions, refs
from syncline.core.definitions import CallDefinition, TaskDefinition
from tests.core.fake_engine import running_fake_engine


@pytest.fixture
def engine(monkeypatch):
    with running_fake_engine(monkeypatch) as started:
        syncline.init()
        yield started[0]


def add(a, b=1, *, c=0):
    """Adds."""
    return a + b + c


class Counter:
    """Counts."""

    LIMIT = 9

    def __init__(self, start=0):
        self.value = start

    def add(self, n=1):
        return n

    @syncline.method(num_returns=2)
    def both(self):
        return 1, 2

    def each(self):
        yield 1

    @staticmethod
    def fixed():
        return 1

    def _private(self):
        return 1


def test_a_call_reaches_the_engine_with_its_definition_and_arguments(engine):
    f = syncline.remote(num_cpus=2)(add)
    ref = f.remote(1, c=2)
    kind, plan, args, kwargs = engine.calls[-1]
    assert (kind, plan.function, plan.name, args, kwargs) == ("task", add, "add", (1,), {"c": 2})
    assert plan.options.num_cpus == 2
    assert isinstance(plan, TaskDefinition)
    assert isinstance(ref, syncline.ObjectRef)


def test_every_call_of_one_function_shares_one_definition(engine):
    f = syncline.remote(add)
    f.remote(1)
    f.remote(2)
    f.options(num_cpus=2).remote(3)
    f.options(num_cpus=2).remote(4)
    plans = [call[1] for call in engine.calls]
    assert plans[0] is plans[1]
    assert plans[2] is plans[3]
    assert plans[2] is not plans[0]


def test_equal_options_of_different_types_are_distinguished(engine):
    f = syncline.remote(add)
    f.options(num_returns=1)
    with pytest.raises(TypeError, match="num_returns=True"):
        f.options(num_returns=True)


def test_options_with_unhashable_values_work(engine):
    syncline.remote(add).options(resources={"special": 1}).remote(1)
    assert engine.calls[-1][1].options.resources == {"special": 1}


def test_first_use_starts_the_engine(monkeypatch):
    with running_fake_engine(monkeypatch) as started:
        syncline.remote(add).remote(1)
        assert len(started) == 1
        assert syncline.is_initialized()


def test_calling_a_remote_function_directly_names_the_remedy():
    with pytest.raises(TypeError, match=r"add\.remote\(\.\.\.\)"):
        syncline.remote(add)(1)


def test_a_remote_function_looks_like_its_function():
    f = syncline.remote(add)
    assert (f.__name__, f.__doc__, f.__wrapped__(1)) == ("add", "Adds.", 2)


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"d": 1})])
def test_arguments_that_do_not_fit_are_refused_at_the_call(engine, args, kwargs):
    with pytest.raises(TypeError, match=r"add\(a, b=…, \*, c=…\)"):
        syncline.remote(add).remote(*args, **kwargs)
    assert engine.calls == []


@pytest.mark.parametrize("target", [3, "f", [add]])
def test_remote_refuses_other_objects_than_functions_and_classes(target):
    with pytest.raises(TypeError, match="remote"):
        syncline.remote(target)


def test_remote_without_anything_is_refused():
    with pytest.raises(TypeError, match="one function or class"):
        syncline.remote()


def test_an_async_function_is_refused_with_a_remedy():
    async def later():
        return 1

    with pytest.raises(ValueError, match=r"method of an actor.*asyncio\.run"):
        syncline.remote(later)


def test_remote_twice_is_refused():
    with pytest.raises(TypeError, match="remote already"):
        syncline.remote(syncline.remote(add))


def test_a_generator_function_streams_by_default(engine):
    def numbers(n):
        yield from range(n)

    f = syncline.remote(numbers)
    f.remote(3)
    assert engine.calls[-1][1].options.num_returns == "streaming"
    f.options(num_returns=3).remote(3)
    assert engine.calls[-1][1].options.num_returns == 3


@pytest.mark.parametrize("num_returns", ["streaming", "dynamic"])
def test_only_generators_return_their_items(engine, num_returns):
    with pytest.raises(ValueError, match="generator functions"):
        syncline.remote(add).options(num_returns=num_returns)
    with pytest.raises(ValueError, match="generator functions"):
        syncline.method(num_returns=num_returns)(add)


def test_remote_functions_and_actor_classes_can_be_pickled(engine):
    f = pickle.loads(cloudpickle.dumps(syncline.remote(num_cpus=2)(add)))
    f.remote(1)
    assert engine.calls[-1][1].options.num_cpus == 2
    made = pickle.loads(cloudpickle.dumps(syncline.remote(Counter)))
    assert made.remote().add.remote() is not None


def test_an_actor_is_created_with_its_definition(engine):
    handle = syncline.remote(Counter).options(name="c", max_restarts=2).remote(5)
    kind, plan, args, _ = engine.calls[-1]
    assert (kind, plan.cls, plan.name, plan.options.name, args, plan.is_async) == (
        "actor",
        Counter,
        "Counter",
        "c",
        (5,),
        False,
    )
    assert isinstance(handle, syncline.actor.ActorHandle)


def test_async_methods_make_an_async_actor(engine):
    class Sleeper:
        async def later(self):
            return 1

    syncline.remote(Sleeper).remote()
    assert engine.calls[-1][1].is_async


def test_calls_that_overlap_have_no_order(engine):
    class Sleeper:
        async def later(self):
            return 1

    for cls, options in ((Sleeper, {}), (Counter, {"max_concurrency": 2})):
        with pytest.raises(ValueError, match="allow_out_of_order_execution"):
            syncline.remote(cls).options(allow_out_of_order_execution=False, **options)
    syncline.remote(Counter).options(allow_out_of_order_execution=False).remote()


def test_a_constructor_with_wrong_arguments_is_refused_at_the_call(engine):
    with pytest.raises(TypeError, match=r"Counter\(start=…\)"):
        syncline.remote(Counter).remote(1, 2)


def test_a_class_without_constructor_takes_no_arguments(engine):
    class Empty:
        pass

    syncline.remote(Empty).remote()
    with pytest.raises(TypeError):
        syncline.remote(Empty).remote(1)


def test_a_method_call_reaches_the_engine(engine):
    handle = syncline.remote(Counter).remote()
    handle.add.remote(n=3)
    kind, plan, args, kwargs = engine.calls[-1]
    assert isinstance(plan, CallDefinition)
    assert (kind, plan.actor_id, plan.method, plan.name, args, kwargs) == (
        "call",
        handle._actor_id,
        "add",
        "Counter.add",
        (),
        {"n": 3},
    )
    handle.add.remote()
    assert engine.calls[-1][1] is plan


@pytest.mark.parametrize(("args", "kwargs"), [((1, 2), {}), ((1,), {"n": 1}), ((), {"m": 1})])
def test_a_method_call_with_wrong_arguments_is_refused_at_the_call(engine, args, kwargs):
    handle = syncline.remote(Counter).remote()
    made = len(engine.calls)
    for given in (handle, pickle.loads(pickle.dumps(handle))):
        with pytest.raises(TypeError, match=r"Counter\.add\(n=…\)"):
            given.add.remote(*args, **kwargs)
        with pytest.raises(TypeError, match=r"Counter\.fixed\(\)"):
            given.fixed.remote(1)
    assert len(engine.calls) == made


def test_a_class_with_its_own_new_takes_the_arguments_of_it(engine):
    class Made:
        def __new__(cls, size):
            return super().__new__(cls)

    syncline.remote(Made).remote(3)
    with pytest.raises(TypeError, match=r"Made\(size\)"):
        syncline.remote(Made).remote()


def test_methods_are_listed(engine):
    assert {"add", "both", "each", "fixed"} <= set(dir(syncline.remote(Counter).remote()))


def test_options_of_methods_are_known_to_the_handle(engine):
    handle = syncline.remote(max_restarts=1, max_task_retries=4)(Counter).remote()
    handle.both.remote()
    assert engine.calls[-1][1].options.num_returns == 2
    assert engine.calls[-1][1].options.max_task_retries == 4
    handle.each.remote()
    assert engine.calls[-1][1].options.num_returns == "streaming"
    handle.add.options(num_returns=0, name="adding").remote()
    assert (engine.calls[-1][1].options.num_returns, engine.calls[-1][1].options.name) == (
        0,
        "adding",
    )


def test_an_unknown_method_is_refused_with_those_that_exist(engine):
    handle = syncline.remote(Counter).remote()
    with pytest.raises(
        AttributeError,
        match=r"Counter has no method 'ad'. Did you mean 'add'\? It has add, both, each, fixed",
    ):
        _ = handle.ad
    assert not hasattr(handle, "value")
    assert not hasattr(handle, "__fspath__")


def test_private_and_static_methods_can_be_called(engine):
    handle = syncline.remote(Counter).remote()
    handle._private.remote()
    handle.fixed.remote()
    assert [call[1].method for call in engine.calls[-2:]] == ["_private", "fixed"]


def test_direct_calls_of_classes_and_methods_name_the_remedy(engine):
    cls = syncline.remote(Counter)
    with pytest.raises(TypeError, match=r"Counter\.remote"):
        cls()
    with pytest.raises(TypeError, match=r"add\.remote"):
        cls.remote().add()


def test_deriving_from_an_actor_class_is_refused():
    base = syncline.remote(Counter)
    with pytest.raises(TypeError, match="derive from the ordinary class"):
        type("Derived", (), {}) and exec("class Derived(base): pass", {"base": base})


def test_class_attributes_stay_visible():
    cls = syncline.remote(Counter)
    assert (cls.LIMIT, cls.__doc__, cls.__name__) == (9, "Counts.", "Counter")


def test_handles_can_be_pickled_and_compare_by_actor(engine):
    handle = syncline.remote(Counter).remote()
    copy = pickle.loads(pickle.dumps(handle))
    assert copy == handle
    assert len({copy, handle}) == 1
    copy.both.remote()
    assert engine.calls[-1][1].options.num_returns == 2
    method = pickle.loads(pickle.dumps(handle.both))
    method.remote()
    assert engine.calls[-1][1].actor_id == handle._actor_id


def test_a_method_keeps_its_actor_alive_until_the_last_handle_is_gone(engine):
    handle = syncline.remote(Counter).remote()
    actor_id, method = int(handle._actor_id), handle.add
    refs.journal.clear()
    del handle
    assert list(refs.journal) == []
    del method
    assert list(refs.journal) == [-actor_id]


def test_methods_of_every_actor(engine):
    handle = syncline.remote(Counter).remote()
    for name in ("__ray_terminate__", "__ray_ready__", "__ray_call__"):
        getattr(handle, name).remote()
        assert engine.calls[-1][1].method == name
    counter = Counter(3)
    assert definitions.bound_method(counter, "__ray_ready__")() is True
    assert (
        definitions.bound_method(counter, "__ray_call__")(lambda actor, n: actor.value + n, 4) == 7
    )
    assert definitions.bound_method(counter, "add")(5) == 5
    for name in ("add", "fixed"):
        setattr(counter, name, "an attribute with the name of a method")
    assert definitions.bound_method(counter, "add")(5) == 5
    assert definitions.bound_method(counter, "fixed")() == 1
    definitions.bound_method(counter, "__ray_terminate__")()
    assert engine.calls[-1] == ("exit_actor",)


def test_method_options_are_checked_at_the_decorator():
    with pytest.raises(ValueError, match="num_return.*Did you mean 'num_returns'"):
        syncline.method(num_return=2)
    with pytest.raises(TypeError, match="options by name"):
        syncline.method(add)


def test_an_undeclared_concurrency_group_is_refused():
    class Io:
        @syncline.method(concurrency_group="io")
        def read(self):
            return 1

    with pytest.raises(ValueError, match="concurrency group 'io'"):
        syncline.remote(Io)
    assert syncline.remote(concurrency_groups={"io": 2})(Io)


def test_calls_with_options_in_one_step(engine):
    function = syncline.remote(add)
    function._remote(args=[1], kwargs={"b": 2}, num_cpus=3)
    _, plan, args, kwargs = engine.calls[-1]
    assert (plan.options.num_cpus, args, kwargs) == (3, (1,), {"b": 2})
    handle = syncline.remote(Counter)._remote(args=[3], name="c")
    assert (engine.calls[-1][1].options.name, engine.calls[-1][2]) == ("c", (3,))
    handle.both._remote(num_returns=1)
    assert engine.calls[-1][1].options.num_returns == 1


def test_ordinary_function_and_class_under_rays_names(engine):
    assert syncline.remote(add)._function is add
    cls = syncline.remote(Counter)
    assert cls.__ray_actor_class__ is Counter
    modified = cls.__ray_metadata__.modified_class
    assert modified.__ray_actor_class__ is Counter
    assert (modified.__name__, modified.__module__) == (Counter.__name__, Counter.__module__)

    class Derived(modified):
        pass

    assert "add" in dir(syncline.remote(Derived).remote())
    with pytest.raises(ActorClassInheritanceException, match="derive from the ordinary class"):

        class Wrong(cls):
            pass


def test_types_of_actors_name_their_class():
    assert ActorHandle[Counter].__args__ == (Counter,)
    assert ActorClass[Counter].__origin__ is ActorClass
