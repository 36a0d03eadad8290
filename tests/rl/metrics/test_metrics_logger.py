"""`MetricsLogger`: keys, groups, timers, aggregation, state, and names of results."""

import pickle
import threading

import pytest

from syncline.rl.metrics import names
from syncline.rl.metrics.metrics_logger import DEFAULT_STATS_CLS_LOOKUP, MetricsLogger
from syncline.rl.metrics.series_stats import MeanStats, SeriesStats


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_keys_and_nested_results():
    logger = MetricsLogger()
    logger.log_value("loss", 1.0, window=10)
    logger.log_value("loss", 3.0)
    logger.log_value(("steps", "agent_1"), 5, reduce="sum")
    logger.log_value(("steps", 7), 6, reduce="sum")
    assert logger.peek("loss") == logger.peek(("loss",)) == 2.0
    assert logger.peek(("steps", "agent_1")) == 5
    assert logger.peek("steps") == {"agent_1": 5, 7: 6}
    assert logger.peek() == {"loss": 2.0, "steps": {"agent_1": 5, 7: 6}}
    assert "steps" in logger
    assert ("steps", 7) in logger
    assert "step" not in logger
    assert logger.reduce(compile=True) == {"loss": 2.0, "steps": {"agent_1": 5, 7: 6}}
    assert logger.peek("steps") == {"agent_1": 0, 7: 0}
    assert isinstance(logger.stats["loss"], MeanStats)


def test_default_reductions():
    logger = MetricsLogger()
    for value in (1.0, 2.0):
        logger.log_value("ema", value)
        logger.log_value("ema_by_coeff", value, reduce="mean", ema_coeff=0.5)
        logger.log_value("mean", value, window=2)
        logger.log_value("percentiles", value, percentiles=[50], window=10)
        logger.log_value("lifetime", value, reduce="sum", clear_on_reduce=False)
    assert logger.peek("ema") == pytest.approx(1.01)
    assert logger.peek("ema_by_coeff") == 1.5
    assert logger.peek("mean") == 1.5
    assert logger.peek("percentiles") == {50: 1.5}
    assert logger.stats["lifetime"].stats_cls_identifier == "lifetime_sum"


def test_peek_of_unknown_key():
    logger = MetricsLogger()
    logger.log_value("episode_return_mean", 1.0)
    assert logger.peek("nothing", default=5) == 5
    with pytest.raises(KeyError, match="'episode_reward_mean' was never logged. Did you mean"):
        logger.peek("episode_reward_mean")
    assert MetricsLogger().peek() == {}


def test_log_dict_and_delete():
    logger = MetricsLogger()
    logger.log_dict({"a": 1, "b": {"c": 2}}, key="group", reduce="sum")
    logger.log_dict({"a": 1, "b": {"c": 2}}, key="group", reduce="sum")
    assert logger.peek() == {"group": {"a": 2, "b": {"c": 4}}}
    logger.delete("group", "b")
    assert logger.peek() == {"group": {"a": 2}}
    with pytest.raises(KeyError, match="group/b"):
        logger.delete("group", "b")
    logger.delete("group", "b", key_error=False)
    logger.log_value(("group", "b"), 5, reduce="item")
    assert logger.peek(("group", "b")) == 5
    with pytest.raises(TypeError, match="log_value"):
        logger.log_dict(5)


def test_log_time_with_a_fake_clock_and_threads():
    clock = FakeClock()
    logger = MetricsLogger(clock=clock)
    with logger.log_time("outer", reduce="sum"):
        clock.now = 2.0
        with logger.log_time("outer"):
            clock.now = 3.0
    assert logger.peek("outer") == 1.0 + 3.0

    real = MetricsLogger()
    barrier = threading.Barrier(3)

    def work() -> None:
        with real.log_time("t", reduce="item_series"):
            barrier.wait()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(real.peek("t")) == 3


def test_aggregate_of_components():
    runners = [MetricsLogger() for _ in range(2)]
    root = MetricsLogger(root=True)
    for iteration in range(2):
        for index, runner in enumerate(runners):
            runner.log_value("num_env_steps_sampled", 10, reduce="sum")
            runner.log_value("num_env_steps_sampled_lifetime", 10, reduce="lifetime_sum")
            runner.log_value("episode_return_mean", index + 2 * iteration, window=3)
        parts = [pickle.loads(pickle.dumps(runner.reduce())) for runner in runners]
        root.aggregate(parts, key="env_runners")
        results = root.reduce(compile=True)
    assert results == {
        "env_runners": {
            "num_env_steps_sampled": 20,
            "num_env_steps_sampled_lifetime": 40,
            "episode_return_mean": 2.0,
        }
    }
    assert MetricsLogger.peek_results(parts[0])["num_env_steps_sampled"] == 10


def test_aggregate_into_a_nested_key():
    part = MetricsLogger()
    part.log_value("x", 1.0)
    root = MetricsLogger(root=True)
    root.aggregate([part.reduce()], key=("learners", "p0"))
    assert root.peek(("learners", "p0", "x")) == 1.0


def test_aggregate_of_wrong_values():
    part, root = MetricsLogger(), MetricsLogger(root=True)
    with pytest.raises(TypeError, match="5 for The metric 'a/x'"):
        root.aggregate([{"x": 5}], key="a")
    part.log_value("x", 1.0, reduce="sum")
    root.log_value("x", 1.0, reduce="max")
    with pytest.raises(ValueError, match="'max' here, but a component logged it with 'sum'"):
        root.aggregate([part.reduce()])


def test_throughputs():
    clock = FakeClock()
    root = MetricsLogger(root=True, clock=clock)
    root.log_value("steps", 100, reduce="lifetime_sum", with_throughput=True)
    root.log_value("other", 1, reduce="sum")
    clock.now = 10.0
    rates = {"throughput_since_last_reduce": 10.0, "throughput_since_last_restore": 10.0}
    assert root.peek("steps", throughput=True) == rates
    assert root.peek(throughput=True) == {"steps_throughput": rates}
    with pytest.raises(ValueError, match="with_throughput=True"):
        root.peek("other", throughput=True)
    assert root.compile() == {"steps": 100, "steps_throughput": rates, "other": 1}


def test_settings_that_contradict():
    logger = MetricsLogger()
    with pytest.raises(ValueError, match="'meen'. Did you mean 'mean'"):
        logger.log_value("x", 1, reduce="meen")
    with pytest.raises(ValueError, match="has no window"):
        logger.log_value("x", 1, reduce="ema", window=5)
    with pytest.raises(ValueError, match="reduce='max' does not take these settings.*percentiles"):
        logger.log_value("x", 1, reduce="max", percentiles=[5])


def test_key_that_is_a_group():
    logger = MetricsLogger()
    logger.log_value(("a", "b"), 1)
    with pytest.raises(ValueError, match="'a' cannot have a value and also contain .*'a/b'"):
        logger.log_value("a", 1)
    with pytest.raises(ValueError, match="'a/b' cannot have a value and also contain .*'a/b/c'"):
        logger.log_value(("a", "b", "c"), 1)


def test_not_a_number_names_the_key():
    logger = MetricsLogger()
    logger.log_value(("a", "b"), "text")
    with pytest.raises(TypeError, match="'a/b'.*'text'"):
        logger.reduce(compile=True)
    with pytest.raises(TypeError, match="'a/b'.*'text'"):
        logger.peek()


def test_state_restores_everything():
    logger = MetricsLogger(root=True)
    logger.log_value(("agents", 3), 1.5, window=2)
    logger.log_value("total", 4, reduce="lifetime_sum", with_throughput=True)
    logger.log_value("last", "text", reduce="item")
    other = MetricsLogger(root=True)
    other.log_value("gone", 1)
    other.set_state(logger.get_state())
    for each in (logger, other):
        each.log_value(("agents", 3), 2.5)
        each.log_value(("agents", 3), 3.5)
        each.log_value("total", 1)
    assert other.peek() == logger.peek() == {"agents": {3: 3.0}, "total": 5, "last": "text"}
    logger.reset()
    assert logger.peek() == {}


def test_reduction_of_the_program():
    class Range(SeriesStats):
        stats_cls_identifier = "range"

        def reduce_numbers(self, values: list[float]) -> float:
            return max(values) - min(values)

    logger = MetricsLogger(stats_cls_lookup={**DEFAULT_STATS_CLS_LOOKUP, "range": Range})
    for value in (3, 8, 5):
        logger.log_value("x", value, reduce="range", window=10)
    assert logger.peek("x") == 5


def test_names_have_unique_constants_and_values_that_programs_use():
    constants = {name: value for name, value in vars(names).items() if name.isupper()}
    assert constants["NUM_ENV_STEPS_SAMPLED_LIFETIME"] == "num_env_steps_sampled_lifetime"
    assert constants["ENV_RUNNER_RESULTS"] == "env_runners"
    assert constants["LEARNER_RESULTS"] == "learners"
    assert constants["EPISODE_RETURN_MEAN"] == "episode_return_mean"
    assert constants["ALL_MODULES"] == "__all_modules__"
    assert constants["COMPONENT_RL_MODULE"] == "rl_module"
    assert constants["DEFAULT_MODULE_ID"] == constants["DEFAULT_POLICY_ID"] == "default_policy"
    assert len(constants) == 161
