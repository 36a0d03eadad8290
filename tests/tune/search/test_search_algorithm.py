"""SearchGenerator: what a searcher is given, what becomes of its suggestions, and that a state of
any moment goes on as before.
"""

import math
import pickle
import random
import threading
from pathlib import Path

import pytest

from syncline.tune.search import (
    ConcurrencyLimiter,
    Repeater,
    Searcher,
    SearchGenerator,
    choice,
    grid_search,
    sample_from,
    uniform,
)


class Drawing(Searcher):
    """Draws `x`, better near the best result so far: its suggestions depend on random numbers and
    on results.
    """

    def __init__(self, metric=None, mode=None, seed=0):
        super().__init__(metric, mode)
        self.random = random.Random(seed)
        self.best = 0.0
        self.space = None

    def set_search_properties(self, metric, mode, config, **spec):
        self._metric, self._mode = self._metric or metric, self._mode or mode
        self.space, self.spec = config, spec
        return True

    def suggest(self, trial_id):
        return {"x": self.best + self.random.random()}

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.best = max(self.best, (result or {}).get("loss", 0.0))


class Saving(Drawing):
    """Keeps its state in files."""

    def save(self, checkpoint_path):
        Path(checkpoint_path).write_bytes(pickle.dumps((self.random, self.best)))

    def restore(self, checkpoint_path):
        self.random, self.best = pickle.loads(Path(checkpoint_path).read_bytes())


class Stating(Drawing):
    """Has a state."""

    def get_state(self):
        return {"random": self.random.getstate(), "best": self.best}

    def set_state(self, state):
        self.random.setstate(state["random"])
        self.best = state["best"]


class Scripted(Searcher):
    """Suggests what it is told to."""

    def __init__(self, *script):
        super().__init__()
        self.script = list(script)

    def set_search_properties(self, metric, mode, config, **spec):
        return True

    def suggest(self, trial_id):
        return self.script.pop(0)

    def on_trial_complete(self, trial_id, result=None, error=False):
        pass


def made(searcher, space=None, num_samples=10, metric="loss", mode="min"):
    generator = SearchGenerator(searcher)
    generator.configure(metric, mode, space or {}, num_samples)
    return generator


def test_the_searcher_learns_what_to_search():
    searcher = Drawing()
    space = {"x": uniform(0, 1), "k": 3}
    generator = made(searcher, space, num_samples=7)
    assert searcher.space == space
    assert searcher.spec == {"num_samples": 7}
    assert (generator.metric, generator.mode, generator.total_samples) == ("loss", "min", 7)


def test_constants_surround_what_is_suggested():
    space = {"m": {"w": uniform(0, 1), "k": 3}, "l": [uniform(0, 1), 1], "c": {"d": "e"}}
    generator = made(Scripted({"m": {"w": 0.5}, "l": [0.25, 1]}), space)
    suggestion = generator.next_trial("t")
    assert suggestion.config == {"m": {"w": 0.5, "k": 3}, "l": [0.25, 1], "c": {"d": "e"}}
    assert suggestion.evaluated_params == {"m/w": 0.5, "l": [0.25, 1]}
    assert suggestion.tag == "0_l=0_25_1,w=0.5"


def test_trials_share_no_containers_with_the_searcher():
    mine = {"a": {"b": [1]}}
    generator = made(Scripted(mine, mine), {"k": {"l": [1]}})
    first = generator.next_trial("a").config
    first["a"]["b"].append(2)
    first["k"]["l"].append(2)
    assert generator.next_trial("b").config == {"a": {"b": [1]}, "k": {"l": [1]}}


def test_functions_are_called_with_what_was_suggested_and_kept_from_the_searcher():
    searcher = Drawing()
    space = {
        "x": uniform(0, 1),
        "n": {"double": sample_from(lambda spec: spec.config.x * 2)},
        "l": [sample_from(lambda: 4), 5],
    }
    generator = made(searcher, space)
    assert searcher.space == {"x": space["x"], "n": {}}
    suggestion = generator.next_trial("t")
    assert suggestion.config["n"]["double"] == 2 * suggestion.config["x"]
    assert suggestion.config["l"] == [4, 5]
    assert suggestion.evaluated_params == {
        "x": suggestion.config["x"],
        "n/double": suggestion.config["n"]["double"],
        "l/0": 4,
    }


def test_what_the_searcher_leaves_out_is_drawn():
    suggestion = made(Scripted({"x": 1}), {"x": uniform(0, 1), "y": choice([7])}).next_trial("t")
    assert suggestion.config == {"x": 1, "y": 7}
    assert suggestion.evaluated_params == {"x": 1, "y": 7}


def test_the_number_of_samples_is_kept():
    generator = made(Drawing(), num_samples=2)
    assert [generator.next_trial(name) is None for name in "abc"] == [False, False, True]
    assert generator.is_finished()
    generator.add_samples(1)
    assert generator.total_samples == 3
    assert generator.next_trial("d").tag.startswith("2_x=")
    assert generator.is_finished()


def test_a_search_without_end():
    generator = made(Drawing(), num_samples=-1)
    assert generator.total_samples == math.inf
    assert all(generator.next_trial(str(number)) for number in range(50))


def test_nothing_for_now_is_not_the_end():
    generator = made(Scripted(None, {"x": 1}, Searcher.FINISHED))
    assert generator.next_trial("a") is None
    assert not generator.is_finished()
    assert generator.next_trial("a").tag == "0_x=1"
    assert generator.next_trial("b") is None
    assert generator.is_finished()
    assert generator.total_samples == 1


def test_a_finished_searcher_is_asked_again_when_samples_are_added():
    generator = made(Scripted(Searcher.FINISHED, {"x": 1}))
    assert generator.next_trial("a") is None
    generator.add_samples(1)
    assert generator.next_trial("a")


def test_a_suggestion_of_a_wrong_type_is_an_error():
    with pytest.raises(
        TypeError,
        match=r"Scripted.suggest\(\) must return a dictionary, None or FINISHED, not \[1\]",
    ):
        made(Scripted([1])).next_trial("t")


def test_events_reach_the_searcher():
    seen = []

    class Listening(Drawing):
        def on_trial_result(self, trial_id, result):
            seen.append(("result", trial_id, result))

        def on_trial_complete(self, trial_id, result=None, error=False):
            seen.append(("complete", trial_id, result, error))

        def on_pause(self, trial_id):
            seen.append(("pause", trial_id))

        def on_unpause(self, trial_id):
            seen.append(("unpause", trial_id))

    generator = made(Listening())
    generator.on_trial_result("t", {"loss": 1})
    generator.on_pause("t")
    generator.on_unpause("t")
    generator.on_trial_complete("t", {"loss": 1}, error=True)
    assert seen == [
        ("result", "t", {"loss": 1}),
        ("pause", "t"),
        ("unpause", "t"),
        ("complete", "t", {"loss": 1}, True),
    ]


def test_grids_are_refused_with_key_and_remedy():
    with pytest.raises(
        ValueError, match=r"grid_search at `m/lr`, which Drawing does not support. Use tune.choice"
    ):
        made(ConcurrencyLimiter(Drawing(), 2), {"m": {"lr": grid_search([1, 2])}})


def test_two_search_spaces_are_refused():
    class OwnSpace(Drawing):
        def set_search_properties(self, metric, mode, config, **spec):
            return False

    with pytest.raises(ValueError, match="but `param_space` has parameters to search: `m/lr`, `b`"):
        made(OwnSpace(), {"m": {"lr": uniform(0, 1)}, "b": choice([1])})
    assert (
        made(OwnSpace(), {"k": 1, "f": sample_from(lambda spec: spec.config.x)})
        .next_trial("t")
        .config["k"]
        == 1
    )


@pytest.mark.parametrize(
    ("own", "given", "message"),
    [
        (
            ("acc", "max"),
            ("loss", "max"),
            "Drawing has metric='acc', but the tuner has metric='loss'",
        ),
        (("loss", "max"), ("loss", "min"), "Drawing has mode='max'"),
    ],
)
def test_a_second_metric_or_mode_is_refused(own, given, message):
    with pytest.raises(ValueError, match=message):
        made(Drawing(*own), metric=given[0], mode=given[1])


@pytest.mark.parametrize(("metric", "mode"), [("loss", "min"), (None, None)])
def test_the_same_metric_twice_is_fine(metric, mode):
    assert made(Drawing("loss", "min"), metric=metric, mode=mode).metric == "loss"


def test_one_of_several_objectives_may_be_named_again():
    assert made(Drawing(["loss", "acc"], ["min", "max"]), metric="loss", mode="min").metric == [
        "loss",
        "acc",
    ]


def test_only_searchers_can_be_used():
    with pytest.raises(TypeError, match="extend Searcher, but 3 does neither"):
        SearchGenerator(3)


def test_a_rest_of_repeats_is_a_warning(caplog):
    made(ConcurrencyLimiter(Repeater(Drawing(), repeat=3), 2), num_samples=7)
    assert "num_samples=7 is not a multiple of repeat=3" in caplog.text
    caplog.clear()
    made(Repeater(Drawing(), repeat=3), num_samples=-1)
    made(Repeater(Drawing(), repeat=3), num_samples=6)
    assert caplog.text == ""


def searched(generator, numbers):
    """Suggestions, each of which ends with a result before the next."""
    found = []
    for number in numbers:
        suggestion = generator.next_trial(str(number))
        found.append(suggestion)
        if suggestion is not None:
            generator.on_trial_complete(str(number), {"loss": suggestion.config["x"]})
    return found


@pytest.mark.parametrize("kind", [Drawing, Saving, Stating])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: s,
        lambda s: ConcurrencyLimiter(s, 2),
        lambda s: ConcurrencyLimiter(Repeater(s, 2), 3),
    ],
    ids=["bare", "limited", "limited repeats"],
)
def test_a_state_of_any_moment_goes_on_as_before(kind, wrap):
    space = {
        "x": uniform(0, 1),
        "y": uniform(0, 1),
        "z": sample_from(lambda spec: spec.config.y + 1),
    }
    generator = made(wrap(kind()), space, num_samples=9)
    searched(generator, range(3))
    generator.next_trial("open")
    state = generator.get_state()
    rest = [searched(generator, range(3, 12)), generator.total_samples]
    for other in (SearchGenerator(wrap(kind(seed=5))), made(wrap(kind(seed=5)), {}, num_samples=2)):
        other.set_state(state)
        assert [searched(other, range(3, 12)), other.total_samples] == rest
        assert other.is_finished()


def test_the_end_is_part_of_the_state():
    generator = made(Scripted(Searcher.FINISHED))
    generator.next_trial("t")
    other = SearchGenerator(Scripted())
    other.set_state(generator.get_state())
    assert other.is_finished()


def test_a_searcher_whose_state_cannot_be_kept_is_named_once_and_starts_anew(caplog):
    class Locked(Drawing):
        def __init__(self):
            super().__init__()
            self.lock = threading.Lock()

    generator = made(Locked())
    generator.next_trial("a")
    state = generator.get_state()
    generator.get_state()
    assert caplog.text.count("The state of Locked cannot be saved") == 1
    other = SearchGenerator(Locked())
    other.set_state(state)
    assert "Locked starts from scratch" in caplog.text
    assert other.next_trial("b").tag.startswith("1_")


def test_a_state_needs_the_same_searchers_around_each_other():
    state = made(ConcurrencyLimiter(Drawing(), 2)).get_state()
    with pytest.raises(
        ValueError, match="has 2 nested searchers, but the given `search_alg` has 1: Drawing"
    ):
        SearchGenerator(Drawing()).set_state(state)
