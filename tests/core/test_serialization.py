"""Packing of values: by value or by reference, out-of-band buffers, and errors."""

import functools
import pickle
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from syncline.core import serializability, serialization
from syncline.core.serialization import (
    IN_BAND_BYTES,
    OUT_OF_BAND_BYTES,
    RemoteException,
    note_ref,
    pack,
    pack_call,
    pack_callable,
    pack_error,
    unpack,
    unpack_error,
)


def roundtrip(value):
    packed = pack(value)
    return unpack(packed.data, [bytes(buffer) for buffer in packed.buffers])


class Ref:
    """A substitute for ObjectRef."""

    def __init__(self, id):
        self.id = id

    def __reduce__(self):
        note_ref(self.id)
        return Ref, (self.id,)


class Plain:
    def __init__(self, **fields):
        self.__dict__.update(fields)


class Slotted:
    __slots__ = ("lock",)

    def __init__(self):
        self.lock = threading.Lock()


class LeavesOutItsLock:
    def __init__(self, other):
        self.lock = threading.Lock()
        self.other = other

    def __getstate__(self):
        return {"other": self.other}


class PacksInside:
    """Its `__reduce__` packs a value, like a handle that contains one."""

    def __reduce__(self):
        note_ref(1)
        inner = pack([Ref(99)])
        assert inner.refs == (99,)
        assert pack((1,)).refs == ()
        note_ref(2)
        return int, (3,)


SCALE = threading.Lock()


def uses_global():
    return SCALE


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        2**80,
        1.5,
        "x",
        b"y",
        (),
        [],
        {},
        (1, [2, {"a": (b"z", None)}]),
        {"k": {"k": {"k": {"k": {"k": 1}}}}},
        {1, 2},
        1j,
    ],
    ids=repr,
)
def test_values_round_trip_with_their_type(value):
    back = roundtrip(value)
    assert back == value
    assert type(back) is type(value)


def test_a_shared_object_stays_shared():
    shared = [1]
    left, right = roundtrip((shared, shared))
    assert left is right


def test_a_recursive_list_round_trips():
    ring = []
    ring.append(ring)
    back = roundtrip(ring)
    assert back[0] is back


def test_lambdas_closures_and_local_classes_are_pickled_by_value():
    offset = 5

    class Local:
        def value(self):
            return offset

    assert unpack(pack_callable(lambda x: x + offset))(2) == 7
    assert unpack(pack_callable(Local))().value() == 5
    assert roundtrip({"f": lambda: offset})["f"]() == 5


def test_importable_functions_are_pickled_by_reference():
    data = pack_callable(functools.reduce)
    assert len(data) < 100
    assert unpack(data) is functools.reduce


def test_functions_of_the_main_module_are_pickled_by_value():
    main = types.ModuleType("__main__")
    exec("def double(x):\n    return 2 * x", main.__dict__)
    assert unpack(pack_callable(main.double))(4) == 8
    assert b"return" not in pack_callable(main.double)


def test_references_are_collected_in_order_without_repeats():
    packed = pack({"a": [Ref(4), Ref(2)], "b": Ref(4)})
    assert packed.refs == (4, 2)
    assert pack_call((Ref(7), 1), {"x": [Ref(3)]}, function_name="f").refs == (7, 3)


def test_a_pack_inside_a_pack_keeps_its_references_apart():
    assert pack([PacksInside()]).refs == (1, 2)


def test_a_failed_pack_leaves_no_collector_behind():
    with pytest.raises(TypeError):
        pack([Ref(1), threading.Lock()])
    assert pack((Ref(5), lambda: None)).refs == (5,)


def test_references_pickled_outside_of_a_pack_are_allowed():
    assert pickle.loads(pickle.dumps(Ref(8))).id == 8


def test_registered_plain_classes_still_report_their_references(monkeypatch):
    monkeypatch.setattr(serialization, "_plain_types", set())
    serialization.register_plain(Ref)
    packed = pack_call((Ref(7), 1), {}, function_name="f")
    assert packed.refs == (7,)
    assert unpack(packed.data)[0][0].id == 7


def test_references_captured_by_a_function_are_reported():
    ref = Ref(11)
    refs = []
    pack_callable(lambda: ref, refs=refs)
    assert refs == [11]


def test_call_arguments_share_one_stream():
    shared = [1]
    packed = pack_call((shared,), {"again": shared}, function_name="f")
    args, kwargs = unpack(packed.data, packed.buffers)
    assert args[0] is kwargs["again"]


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_long_bytes_stay_out_of_the_stream(kind):
    value = kind(b"x" * OUT_OF_BAND_BYTES)
    packed = pack(value)
    assert len(packed.data) < 200
    assert packed.nbytes >= OUT_OF_BAND_BYTES
    back = roundtrip(value)
    assert back == value
    assert type(back) is kind
    call = pack_call((value,), {"v": value}, function_name="f")
    assert len(call.data) < 400
    assert unpack(call.data, call.buffers) == ((value,), {"v": value})


def test_numpy_arrays_large_ones_beside_the_stream_small_ones_inside():
    np = pytest.importorskip("numpy")
    large = np.arange(IN_BAND_BYTES, dtype=np.int32)
    packed = pack({"x": large, "y": [large[:3]]})
    assert [buffer.nbytes for buffer in packed.buffers] == [large.nbytes]
    back = unpack(packed.data, packed.buffers)
    np.testing.assert_array_equal(back["x"], large)
    np.testing.assert_array_equal(back["y"][0], large[:3])
    assert np.shares_memory(back["x"], large)
    assert pack(large[:3]).buffers == []


@pytest.mark.parametrize(
    "make",
    [
        lambda np: np.arange(40000).reshape(200, 200).T,
        lambda np: np.arange(40000)[::2],
        lambda np: np.zeros((0, 3)),
        lambda np: np.array(3.0),
        lambda np: np.float32(2.5),
        lambda np: np.zeros(5000, dtype=[("a", "i4"), ("b", "f8")]),
        lambda np: np.array(["2020-01-01"], dtype="datetime64[D]"),
    ],
)
def test_numpy_shapes_orders_and_types(make):
    np = pytest.importorskip("numpy")
    value = make(np)
    back = roundtrip(value)
    np.testing.assert_array_equal(back, value)
    assert type(back) is type(value)
    assert back.dtype == value.dtype


def test_numpy_object_arrays_keep_cloudpickles_semantics():
    np = pytest.importorskip("numpy")
    assert roundtrip(np.array([lambda: 3], dtype=object))[0]() == 3


def test_arrays_on_read_only_buffers_are_read_only():
    np = pytest.importorskip("numpy")
    assert not roundtrip(np.zeros(100_000)).flags.writeable


def test_arrow_tables_stay_out_of_the_stream():
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"x": list(range(10_000))})
    packed = pack(table)
    assert packed.buffers
    assert unpack(packed.data, packed.buffers).equals(table)


@pytest.mark.parametrize(
    "make",
    [
        lambda torch: torch.arange(1000),
        lambda torch: torch.randn(100, 500),
        lambda torch: torch.randn(100, 500).t(),
        lambda torch: torch.randn(100, 500)[:, ::3],
        lambda torch: torch.randn(200, 300).to(torch.bfloat16),
        lambda torch: torch.tensor(3.0),
        lambda torch: torch.zeros(0, 3),
        lambda torch: torch.tensor([True, False]),
        lambda torch: torch.randn(3, 2, dtype=torch.complex64),
        lambda torch: torch.randn(3, 2, dtype=torch.complex64).conj(),
        lambda torch: torch.randn(50, 1000, requires_grad=True),
        lambda torch: torch.nn.Parameter(torch.randn(50, 1000)),
        lambda torch: torch.nn.Parameter(torch.arange(4), requires_grad=False),
        lambda torch: torch.randn(4, 16, 32, 32).to(memory_format=torch.channels_last),
        lambda torch: torch.eye(3).to_sparse(),
        lambda torch: torch.ones(1, 1).expand(200, 300),
    ],
)
@pytest.mark.filterwarnings("error")
def test_torch_tensors_round_trip_without_a_warning(make):
    torch = pytest.importorskip("torch")
    tensor = make(torch)
    back = roundtrip([tensor])[0]
    assert type(back) is type(tensor)
    assert back.dtype == tensor.dtype
    assert back.requires_grad == tensor.requires_grad
    assert back.shape == tensor.shape
    if tensor.layout == torch.strided:
        assert torch.equal(back, tensor)
        assert (
            not tensor.is_contiguous(memory_format=torch.channels_last)
            or back.stride() == tensor.stride()
        )
    else:
        assert torch.equal(back.to_dense(), tensor.to_dense())


def test_large_torch_tensors_stay_out_of_the_stream():
    torch = pytest.importorskip("torch")
    packed = pack({"w": torch.zeros(1000, 1000)})
    assert [buffer.nbytes for buffer in packed.buffers] == [4_000_000]
    assert len(packed.data) < 1000


def test_writing_to_a_small_received_tensor_leaves_the_frame_alone():
    torch = pytest.importorskip("torch")
    packed = pack(torch.zeros(2000))
    unpack(packed.data, packed.buffers).fill_(1)
    assert unpack(packed.data, packed.buffers).sum() == 0


def test_torch_modules_stay_trainable():
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(300, 400)
    back = roundtrip(model)
    back(torch.ones(1, 300)).sum().backward()
    torch.optim.SGD(back.parameters(), lr=0.1).step()
    assert all(parameter.is_leaf and parameter.grad is not None for parameter in back.parameters())


@pytest.mark.processes
def test_importing_it_loads_no_heavy_module():
    code = (
        "import sys; import syncline.core.serialization, syncline.core.embedded.object_store; "
        "print(sorted({'numpy', 'torch', 'pyarrow'} & set(sys.modules)))"
    )
    source = str(Path(serialization.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r}); {code}"],
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "[]", done.stderr


# -- unpicklable values


def message_of(call):
    with pytest.raises(TypeError) as caught:
        call()
    assert caught.value.__cause__ is not None
    return str(caught.value)


def test_an_argument_that_is_a_lock_is_named():
    message = message_of(
        lambda: pack_call(
            (threading.Lock(),), {}, function_name="train_step", parameter_names=("lock",)
        )
    )
    assert "argument `lock` of `train_step()`" in message
    assert "it is a _thread.lock (cannot pickle '_thread.lock' object)" in message
    assert "Create it inside `train_step()`" in message


def test_an_argument_without_a_known_name_is_named_by_position():
    assert "argument `args[1]` of `f()`" in message_of(
        lambda: pack_call((1, threading.Lock()), {}, function_name="f")
    )


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": Plain(b=threading.Lock())}, '`config["a"].b` is a _thread.lock'),
        ([1, (2, {3: threading.Lock()})], "`config[1][1][3]` is a _thread.lock"),
        (Plain(slotted=Slotted()), "`config.slotted.lock` is a _thread.lock"),
        (
            Plain(f=functools.partial(print, threading.Lock())),
            "`config.f.args[0]` is a _thread.lock",
        ),
        (LeavesOutItsLock({"x": threading.Lock()}), '`config.other["x"]` is a _thread.lock'),
        (
            Plain(m=Plain(lock=threading.Lock()).__init__),  # type: ignore[misc]
            "`config.m.__self__.lock` is a _thread.lock",
        ),
    ],
)
def test_the_path_of_the_unpicklable_part_is_given(value, place):
    message = message_of(lambda: pack_call((), {"config": value}, function_name="f"))
    assert "argument `config` of `f()`" in message
    assert place in message


def test_a_closure_variable_is_named():
    guard = threading.Lock()

    def inner():
        return guard

    def outer():
        return inner()

    message = message_of(lambda: pack_callable(outer))
    assert "closure variable `guard` of function" in message
    assert "inner` is a _thread.lock" in message
    assert "a_closure_variable_is_named.outer` cannot be sent" in message


def test_a_global_is_named():
    local = types.FunctionType(uses_global.__code__, uses_global.__globals__, "local")
    local.__module__ = "__main__"
    local.__qualname__ = "local"
    assert "global `SCALE` used by function `local` is a _thread.lock" in message_of(
        lambda: pack_callable(local)
    )


def test_a_default_and_a_class_attribute_are_named():
    def with_default(x, lock=SCALE):
        return x

    class Holder:
        lock = threading.Lock()

    assert "default of parameter `lock` of function" in message_of(
        lambda: pack_callable(with_default)
    )
    message = message_of(lambda: pack_callable(Holder))
    assert "Holder.lock` is a _thread.lock" in message
    assert "class `" in message


def test_a_value_given_to_put_is_named():
    assert message_of(lambda: pack([threading.Lock()], what="the value given to put()")).startswith(
        "the value given to put() cannot"
    )


def test_the_search_ends_in_cycles_and_at_the_time_limit():
    ring = {"lock": None}
    ring["self"] = ring
    ring["lock"] = threading.Lock()
    assert '["lock"]` is a _thread.lock' in message_of(lambda: pack(ring))
    times = iter([0.0, *[100.0] * 10])
    locks = [threading.Lock()]
    found = serializability.find_unpicklable(
        locks, "value", TypeError("no"), lambda value: TypeError("no"), clock=lambda: next(times)
    )
    assert found == serializability.UnpicklablePart("value", "list", "no", locks)


# -- exceptions


class Simple(ValueError):
    pass


class NeedsTwo(ValueError):
    def __init__(self, code, reason):
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class Reformats(KeyError):
    def __init__(self, key):
        super().__init__(f"no {key}")


class HoldsLock(RuntimeError):
    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()
        self.text = text


class CannotBeRebuilt(ValueError):
    def __new__(cls, *, secret):
        return super().__new__(cls, secret)

    def __init__(self, *, secret):
        self.lock = threading.Lock()

    def __str__(self):
        return "rebuilding is impossible"


@pytest.mark.parametrize(
    "error",
    [
        Simple("x"),
        NeedsTwo(3, "why"),
        Reformats("key"),
        KeyError("k"),
        OSError(2, "No such file", "/x"),
        SystemExit(3),
        UnicodeDecodeError("utf8", b"a", 0, 1, "bad"),
        KeyboardInterrupt(),
        HoldsLock("text"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_exceptions_round_trip_with_type_and_message(error):
    back = unpack_error(pack_error(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.args == error.args
    for name in ("code", "reason", "errno", "filename", "text"):
        assert getattr(back, name, None) == getattr(error, name, None)


def test_an_exception_of_a_class_sent_by_value_round_trips():
    class Inner(Exception):
        pass

    qualified_name, Inner.__qualname__ = (
        Inner.__qualname__,
        "Inner",
    )  # the name of a class that was sent by value
    data = pack_error(Inner("x"))
    Inner.__qualname__ = qualified_name
    assert type(unpack_error(data)) is Inner


def test_an_exception_that_cannot_be_rebuilt_has_a_stand_in():
    back = unpack_error(pack_error(CannotBeRebuilt(secret=1), traceback_text="Traceback: line 3"))
    assert isinstance(back, RemoteException)
    assert isinstance(back, ValueError)
    assert type(back).__name__ == "CannotBeRebuilt"
    assert back.type_name == f"{__name__}.CannotBeRebuilt"
    assert str(back) == "rebuilding is impossible"
    assert back.traceback_text == "Traceback: line 3"


def test_a_stand_in_can_be_sent_again():
    once = unpack_error(pack_error(CannotBeRebuilt(secret=1), traceback_text="Traceback: line 3"))
    twice = unpack_error(pack_error(once))
    assert isinstance(twice, RemoteException)
    assert isinstance(twice, ValueError)
    assert (type(twice).__name__, str(twice)) == ("CannotBeRebuilt", "rebuilding is impossible")
    assert (twice.type_name, twice.traceback_text) == (once.type_name, once.traceback_text)


@pytest.mark.parametrize(
    "base", [OSError, KeyboardInterrupt, UnicodeDecodeError, StopIteration, ImportError, SystemExit]
)
def test_an_exception_of_an_unknown_module_keeps_name_message_and_base(base, monkeypatch):
    module = types.ModuleType("only_on_the_worker")
    module.Odd = type(
        "Odd", (base,), {"__module__": module.__name__, "__str__": lambda self: "odd"}
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    data = pack_error(module.Odd.__new__(module.Odd))
    monkeypatch.delitem(sys.modules, module.__name__)
    back = unpack_error(data)
    assert type(back).__name__ == "Odd"
    assert str(back) == "odd"
    assert isinstance(back, RemoteException)
    assert isinstance(back, base) or base is UnicodeDecodeError


def test_causes_contexts_and_notes_are_included():
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise Simple("outer") from inner
    except Simple as error:
        error.__notes__ = ["a note"]
        back = unpack_error(pack_error(error))
    assert back.__notes__ == ["a note"]
    assert isinstance(back.__cause__, KeyError)
    assert back.__suppress_context__
    try:
        try:
            raise KeyError("inner")
        except KeyError:
            raise Simple("outer")
    except Simple as error:
        back = unpack_error(pack_error(error))
    assert isinstance(back.__context__, KeyError)
    assert back.__cause__ is None


def test_a_cyclic_chain_of_exceptions_is_cut():
    left, right = Simple("left"), Simple("right")
    left.__cause__, right.__cause__ = right, left
    back = unpack_error(pack_error(left))
    assert str(back.__cause__.__cause__) == "left"
