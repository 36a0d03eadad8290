"""ConcurrencyLimiter and Repeater: what goes through to the searcher inside, and when."""

import math

import pytest

from syncline.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
from syncline.tune.search.repeater import TRIAL_INDEX


class Counting(Searcher):
    """Suggests 1, 2, ... up to `limit`, and records every call."""

    def __init__(self, metric="loss", mode="min", limit=100, own_limit=False):
        super().__init__(metric, mode)
        self.limit, self.own_limit = limit, own_limit
        self.number = 0
        self.max_concurrent = None
        self.calls = []

    def suggest(self, trial_id):
        if self.number == self.limit:
            return Searcher.FINISHED
        self.number += 1
        return {"x": self.number}

    def set_search_properties(self, metric, mode, config, **spec):
        self.calls.append(("properties", metric, mode, config, spec))
        return True

    def set_max_concurrency(self, max_concurrent):
        self.max_concurrent = max_concurrent
        return self.own_limit

    def on_trial_result(self, trial_id, result):
        self.calls.append(("result", trial_id, result))

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.calls.append(("complete", trial_id, result, error))

    def on_pause(self, trial_id):
        self.calls.append(("pause", trial_id))

    def on_unpause(self, trial_id):
        self.calls.append(("unpause", trial_id))

    def add_evaluated_point(
        self, parameters, value, error=False, pruned=False, intermediate_values=None
    ):
        self.calls.append(("point", parameters, value))

    def save(self, checkpoint_path):
        self.calls.append(("save", checkpoint_path))

    def restore(self, checkpoint_path):
        self.calls.append(("restore", checkpoint_path))


@pytest.mark.parametrize(
    "wrap", [lambda s: ConcurrencyLimiter(s, 2), Repeater], ids=["limiter", "repeater"]
)
def test_wrappers_pass_on_what_they_do_not_change(wrap):
    inner = Counting()
    outer = wrap(inner)
    assert (outer.metric, outer.mode) == ("loss", "min")
    assert outer.set_search_properties("loss", "min", {"a": 1}, num_samples=3)
    outer.on_pause("t")
    outer.on_unpause("t")
    outer.add_evaluated_point({"x": 1}, 0.5)
    outer.save("file")
    outer.restore("file")
    assert inner.calls == [
        ("properties", "loss", "min", {"a": 1}, {"num_samples": 3}),
        ("pause", "t"),
        ("unpause", "t"),
        ("point", {"x": 1}, 0.5),
        ("save", "file"),
        ("restore", "file"),
    ]


def test_only_searchers_can_be_wrapped():
    with pytest.raises(TypeError, match=r"BasicVariantGenerator\(max_concurrent="):
        ConcurrencyLimiter(BasicVariantGenerator(), 2)
    for wrong in (0, -1, 1.5):
        with pytest.raises(ValueError, match="max_concurrent"):
            ConcurrencyLimiter(Counting(), wrong)
        with pytest.raises(ValueError, match="repeat"):
            Repeater(Counting(), wrong)


def test_the_limiter_waits_for_a_trial_to_end():
    inner = Counting()
    limiter = ConcurrencyLimiter(inner, max_concurrent=2)
    assert [limiter.suggest(name) for name in "abc"] == [{"x": 1}, {"x": 2}, None]
    limiter.on_trial_result("a", {"loss": 1})
    limiter.on_trial_complete("unknown")
    assert limiter.suggest("c") is None
    limiter.on_trial_complete("a", {"loss": 1})
    assert inner.calls == [("result", "a", {"loss": 1}), ("complete", "a", {"loss": 1}, False)]
    assert limiter.suggest("c") == {"x": 3}


def test_the_limiter_says_when_the_searcher_has_finished():
    limiter = ConcurrencyLimiter(Counting(limit=1), max_concurrent=2)
    limiter.suggest("a")
    assert limiter.suggest("b") == Searcher.FINISHED
    assert limiter.live_trials == {"a"}


def test_batches_reach_the_searcher_when_all_of_them_have_ended():
    inner = Counting()
    limiter = ConcurrencyLimiter(inner, max_concurrent=2, batch=True)
    limiter.suggest("a")
    limiter.suggest("b")
    limiter.on_trial_complete("b", {"loss": 2})
    assert inner.calls == []
    assert limiter.suggest("c") is None
    limiter.on_trial_complete("a", error=True)
    assert inner.calls == [("complete", "b", {"loss": 2}, False), ("complete", "a", None, True)]
    assert limiter.suggest("c") == {"x": 3}


def test_a_searcher_that_limits_itself_is_told_and_left_alone():
    inner = Counting(own_limit=True)
    limiter = ConcurrencyLimiter(inner, max_concurrent=1)
    assert inner.max_concurrent == 1
    assert [limiter.suggest(name) for name in "ab"] == [{"x": 1}, {"x": 2}]
    limiter.on_trial_complete("a", {"loss": 1})
    assert inner.calls == [("complete", "a", {"loss": 1}, False)]
    assert limiter.set_max_concurrency(5)
    assert inner.max_concurrent == 5


def test_the_limiters_state_goes_on():
    limiter = ConcurrencyLimiter(Counting(), max_concurrent=2, batch=True)
    limiter.suggest("a")
    limiter.suggest("b")
    limiter.on_trial_complete("b", {"loss": 2})
    inner = Counting()
    other = ConcurrencyLimiter(inner, max_concurrent=1)
    state = limiter.get_state()
    assert "searcher" not in state
    other.set_state(state)
    assert other.suggest("c") is None
    other.on_trial_complete("a", {"loss": 1})
    assert [call[1] for call in inner.calls] == ["b", "a"]


def test_configurations_are_repeated_and_the_searcher_sees_the_mean():
    inner = Counting()
    repeater = Repeater(inner, repeat=3)
    configs = [repeater.suggest(str(number)) for number in range(4)]
    assert configs == [
        {"x": 1, TRIAL_INDEX: 0},
        {"x": 1, TRIAL_INDEX: 1},
        {"x": 1, TRIAL_INDEX: 2},
        {"x": 2, TRIAL_INDEX: 0},
    ]
    repeater.on_trial_result("0", {"loss": 1})
    for trial_id, loss in (("2", 6.0), ("0", 1.0)):
        repeater.on_trial_complete(trial_id, {"loss": loss, "other": 1})
    assert inner.calls == []
    repeater.on_trial_complete("1", {"loss": 2.0})
    assert inner.calls == [("complete", "0", {"loss": 3.0}, False)]


def test_repeats_that_failed_or_gave_no_number_are_left_out_of_the_mean():
    inner = Counting()
    repeater = Repeater(inner, repeat=4, set_index=False)
    assert [repeater.suggest(str(number)) for number in range(4)] == [{"x": 1}] * 4
    repeater.on_trial_complete("0", {"loss": 9.0}, error=True)
    repeater.on_trial_complete("1", {"loss": math.nan})
    repeater.on_trial_complete("2", {"other": 1})
    repeater.on_trial_complete("3", {"loss": 4.0})
    assert inner.calls == [("complete", "0", {"loss": 4.0}, False)]


def test_a_configuration_of_which_all_repeats_failed_has_failed():
    inner = Counting()
    repeater = Repeater(inner, repeat=2)
    for number in range(4):
        repeater.suggest(str(number))
    repeater.on_trial_complete("0", error=True)
    repeater.on_trial_complete("1", None, error=True)
    repeater.on_trial_complete("2", {"loss": math.nan})
    repeater.on_trial_complete("3", {"loss": math.nan})
    assert inner.calls[0] == ("complete", "0", None, True)
    _, trial_id, result, error = inner.calls[1]
    assert (trial_id, error) == ("2", False)
    assert math.isnan(result["loss"])


def test_every_objective_has_its_mean():
    inner = Counting(metric=["a", "b"], mode=["min", "max"])
    repeater = Repeater(inner, repeat=2)
    for name in "xy":
        repeater.suggest(name)
    repeater.on_trial_complete("x", {"a": 1, "b": 10})
    repeater.on_trial_complete("y", {"a": 3, "b": 20})
    assert inner.calls == [("complete", "x", {"a": 2.0, "b": 15.0}, False)]


def test_the_repeaters_state_goes_on_in_the_middle_of_a_group():
    repeater = Repeater(Counting(), repeat=3)
    repeater.suggest("a")
    repeater.suggest("b")
    repeater.on_trial_complete("a", {"loss": 1.0})
    inner = Counting()
    other = Repeater(inner, repeat=3)
    other.set_state(repeater.get_state())
    assert other.suggest("c") == {"x": 1, TRIAL_INDEX: 2}
    other.on_trial_complete("b", {"loss": 2.0})
    other.on_trial_complete("c", {"loss": 3.0})
    assert inner.calls == [("complete", "a", {"loss": 2.0}, False)]


def test_a_repeater_keeps_nothing_of_groups_that_have_ended():
    repeater = Repeater(Counting(limit=10_000), repeat=2)
    for number in range(2000):
        repeater.suggest(str(number))
        repeater.on_trial_complete(str(number), {"loss": 1.0})
    assert not repeater._groups


def test_a_repeater_passes_on_that_there_is_nothing():
    repeater = Repeater(ConcurrencyLimiter(Counting(limit=1), 1), repeat=1)
    assert repeater.suggest("a")
    assert repeater.suggest("b") is None
    repeater.on_trial_complete("a", {"loss": 1.0})
    assert repeater.suggest("b") == Searcher.FINISHED
