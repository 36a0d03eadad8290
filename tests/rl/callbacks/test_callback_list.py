"""`RLlibCallback` and the list that calls its hooks."""

import functools
import inspect
import tracemalloc
from typing import Any

import pytest

from syncline.rl.callbacks.callback_list import HOOKS, CallbackList, make_callback
from syncline.rl.callbacks.callbacks import DefaultCallbacks, MemoryTrackingCallbacks, RLlibCallback
from syncline.rl.envs.env_context import EnvContext
from syncline.rl.metrics.metrics_logger import MetricsLogger


class Recorder(RLlibCallback):
    def __init__(self, name: str = "recorder") -> None:
        self.name = name
        self.seen: list[Any] = []

    def on_train_result(self, *, algorithm, result, **kwargs) -> None:
        result["by"] = [*result.get("by", []), self.name]

    def get_state(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def set_state(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


def test_only_overridden_hooks_are_known():
    assert CallbackList().overridden == frozenset()
    assert CallbackList(RLlibCallback).overridden == frozenset()
    callbacks = CallbackList(Recorder, {"on_sample_end": lambda samples, **kwargs: None})
    assert callbacks.overridden == {"on_train_result", "on_sample_end"}
    assert callbacks.has("on_train_result")
    assert not callbacks.has("on_episode_step")
    assert not callbacks.needs_episodes
    assert CallbackList(None, {"on_episode_end": [lambda **kwargs: None]}).needs_episodes


def test_classes_run_before_functions_in_order():
    result: dict[str, Any] = {}
    callbacks = CallbackList(
        [Recorder, functools.partial(Recorder, "second")],
        {
            "on_train_result": [
                lambda result, **kwargs: result["by"].append("third"),
                lambda *, algorithm, result: result["by"].append(algorithm),
            ]
        },
    )
    callbacks.call("on_train_result", algorithm="algo", metrics_logger=None, result=result)
    assert result["by"] == ["recorder", "second", "third", "algo"]
    callbacks.call("on_evaluate_start", algorithm="algo")


def test_override_in_the_middle_of_a_class_tree_and_on_the_instance():
    class Child(Recorder):
        def __init__(self) -> None:
            super().__init__()
            self.on_sample_end = lambda **kwargs: self.seen.append(kwargs["samples"])  # type: ignore[method-assign]

    callbacks = CallbackList(Child)
    assert callbacks.overridden == {"on_train_result", "on_sample_end"}
    callbacks.call("on_sample_end", samples=[1])
    assert callbacks.callbacks[0].seen == [[1]]


def test_older_argument_names():
    seen = []

    class Older(DefaultCallbacks):
        def on_episode_end(self, *, worker, base_env, policies=None, episode, env_index, **kwargs):
            seen.append((worker, base_env, episode, sorted(kwargs)))

        def on_train_result(self, *, trainer, result):
            seen.append((trainer, result))

    callbacks = CallbackList(Older)
    callbacks.call("on_episode_end", episode="e", env_runner="r", env="v", env_index=0)
    callbacks.call("on_train_result", algorithm="a", metrics_logger=None, result=5)
    assert seen == [("r", "v", "e", ["env", "env_runner"]), ("a", 5)]


def test_required_argument_that_is_never_given():
    class Wrong(RLlibCallback):
        def on_train_result(self, *, algorithm, results, **kwargs) -> None:  # type: ignore[override]
            pass

    with pytest.raises(
        TypeError,
        match="Wrong.on_train_result requires the argument 'results'.*Did you mean 'result'",
    ):
        CallbackList(Wrong)


def test_unknown_hook_and_wrong_class():
    with pytest.raises(ValueError, match="'on_episode_ends'. Did you mean 'on_episode_end'"):
        CallbackList(None, {"on_episode_ends": print})
    with pytest.raises(TypeError, match="not an RLlibCallback"):
        CallbackList(dict)


def test_state_of_callbacks():
    callbacks = CallbackList([RLlibCallback, Recorder])
    callbacks.callbacks[1].seen.append(7)
    restored = CallbackList([RLlibCallback, Recorder, Recorder])
    restored.set_state(callbacks.get_state())
    assert restored.callbacks[1].seen == [7]
    assert restored.callbacks[2].seen == []


def test_exception_of_a_hook_is_not_hidden():
    def fail(**kwargs: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        CallbackList(None, {"on_train_result": fail}).call("on_train_result", result={})


def test_every_hook_takes_keywords_only():
    assert len(HOOKS) == 20
    for name in HOOKS:
        for parameter in inspect.signature(getattr(RLlibCallback, name)).parameters.values():
            if parameter.name != "self":
                assert parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD), name


def test_make_callback():
    seen: list[Any] = []
    recorder = Recorder()
    make_callback(
        "on_train_result",
        recorder,
        lambda algorithm, result: seen.append(result),
        kwargs={"algorithm": None, "result": (result := {})},
    )
    assert result == {"by": ["recorder"]}
    assert seen == [result]


def test_memory_tracking_logs_sizes():
    logger = MetricsLogger()
    CallbackList(MemoryTrackingCallbacks).call("on_episode_end", metrics_logger=logger)
    lines = logger.peek("tracemalloc")
    assert lines
    assert all(set(line) == {"size", "count"} for line in lines.values())
    assert not tracemalloc.is_tracing(), "tracing outlives the callbacks, and slows everything"


def test_env_context():
    context = EnvContext({"a": 1}, worker_index=2, num_workers=3)
    other = context.copy_with_overrides(vector_index=4)
    assert other == {"a": 1}
    assert (other.worker_index, other.vector_index, other.num_workers) == (2, 4, 3)
    assert context.copy_with_overrides(env_config={"b": 2}) == {"b": 2}
    context.set_defaults({"a": 5, "c": 6})
    assert context == {"a": 1, "c": 6}
    assert str(context) == "{'a': 1, 'c': 6, worker=2/3, vector_idx=0, remote=False}"
