"""`DataContext`: current, copied, forgiving."""

import math
import pickle
import threading
import warnings

import pytest

from syncline.data import context as context_module
from syncline.data.context import WITHOUT_EFFECT, DataContext, ExecutionResources


def test_the_current_context_is_shared_by_threads():
    found = []
    thread = threading.Thread(target=lambda: found.append(DataContext.get_current()))
    thread.start()
    thread.join()
    assert found == [DataContext.get_current()]
    assert found[0] is DataContext.get_current()


def test_another_context_may_be_current_for_a_while_in_one_thread():
    mine, shared = DataContext(max_errored_blocks=3), DataContext.get_current()
    with DataContext.current(mine):
        assert DataContext.get_current() is mine
    assert DataContext.get_current() is shared


def test_the_current_context_can_be_replaced():
    before = DataContext.get_current()
    try:
        mine = DataContext()
        DataContext._set_current(mine)
        assert DataContext.get_current() is mine
    finally:
        DataContext._set_current(before)


def test_copies_share_nothing_and_travel():
    context = DataContext()
    context.execution_options.preserve_order = False
    context.set_config("mine", [1])
    other = context.copy()
    other.execution_options.preserve_order = True
    other.get_config("mine").append(2)
    assert context.execution_options.preserve_order is False
    assert context.get_config("mine") == [1]
    assert pickle.loads(pickle.dumps(context)) == context
    context.remove_config("mine")
    assert context.get_config("mine", 7) == 7


def test_order_is_kept_and_blocks_are_128_mib_unless_somebody_says_otherwise():
    context = DataContext()
    assert context.execution_options.preserve_order is True
    assert context.execution_options.is_resource_limits_default()
    assert context.target_max_block_size == 128 * 1024**2
    context.execution_options.resource_limits = ExecutionResources(cpu=2)
    assert not context.execution_options.is_resource_limits_default()


def test_settings_without_effect_are_kept_in_silence():
    context = DataContext()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, default in WITHOUT_EFFECT.items():
            assert getattr(context, name) == default
            setattr(context, name, "set")
            assert getattr(context, name) == "set"
    assert pickle.loads(pickle.dumps(context)).use_push_based_shuffle == "set"


def test_an_unknown_setting_warns_once_and_is_kept(monkeypatch):
    monkeypatch.setattr(context_module, "_warned", set())
    context = DataContext()
    with pytest.warns(
        UserWarning, match=r"'max_errored_block', .*Did you mean 'max_errored_blocks'\?"
    ) as caught:
        context.max_errored_block = 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        context.max_errored_block = 2
    assert context.max_errored_block == 2
    with pytest.raises(AttributeError, match="no setting 'nothing'"):
        _ = context.nothing


def test_resources_for_limits_are_unlimited_where_unset():
    assert ExecutionResources.for_limits() == ExecutionResources()
    limits = ExecutionResources.for_limits(cpu=2, object_store_memory=0)
    assert (limits.cpu, limits.gpu, limits.object_store_memory) == (2, math.inf, 0)
