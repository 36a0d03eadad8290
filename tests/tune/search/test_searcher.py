"""The base class of searchers: what it checks, files, and learning from earlier trials."""

import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest

from syncline.tune.search import Searcher
from syncline.tune.search.searcher import set_search_properties


class Remembering(Searcher):
    """Suggests numbers in order, and remembers what it was told."""

    def __init__(self, metric=None, mode=None):
        super().__init__(metric, mode)
        self.number = 0
        self.points = []

    def suggest(self, trial_id):
        self.number += 1
        return {"x": self.number}

    def add_evaluated_point(
        self, parameters, value, error=False, pruned=False, intermediate_values=None
    ):
        self.points.append((parameters, value, error, pruned))

    def save(self, checkpoint_path):
        Path(checkpoint_path).write_bytes(pickle.dumps(self.number))

    def restore(self, checkpoint_path):
        self.number = pickle.loads(Path(checkpoint_path).read_bytes())


def trial(status="TERMINATED", **result):
    return SimpleNamespace(config={"x": 1}, status=status, last_result=result)


def test_metric_and_mode_are_known():
    assert (Searcher("loss", "min").metric, Searcher("loss", "min").mode) == ("loss", "min")
    assert Searcher(["a", "b"], ["max", "obs"]).mode == ["max", "obs"]
    assert Searcher().metric is None


@pytest.mark.parametrize(
    ("metric", "mode", "message"),
    [
        ("loss", "minimum", "must be one of min, max, not 'minimum'"),
        (None, "obs", "must be one of min, max, not 'obs'"),
        (["a"], ["up"], "must be one of min, max, obs, not 'up'"),
        (["a"], "min", "both be strings or both be lists"),
        (["a", "b"], ["min"], "2 metrics .* and 1 modes"),
    ],
)
def test_modes_that_do_not_fit_are_refused(metric, mode, message):
    with pytest.raises(ValueError, match=message):
        Searcher(metric, mode)


def test_the_tuner_fills_in_what_is_missing():
    searcher = Searcher(metric="loss")
    assert searcher.set_search_properties("other", "min", {}) is False
    assert (searcher.metric, searcher.mode) == ("loss", "min")


def test_searchers_without_further_keywords_can_be_told_too():
    class Older(Searcher):
        def set_search_properties(self, metric, mode, config):
            self.told = (metric, mode, config)
            return True

    older = Older()
    assert set_search_properties(older, "loss", "min", {"a": 1}, num_samples=3, stop=None)
    assert older.told == ("loss", "min", {"a": 1})


def test_what_a_searcher_does_not_implement_says_so():
    searcher = Searcher()
    calls = [
        lambda: searcher.suggest("t"),
        lambda: searcher.on_trial_complete("t"),
        lambda: searcher.save("file"),
        lambda: searcher.restore("file"),
        searcher.get_state,
        lambda: searcher.set_state({}),
        lambda: searcher.add_evaluated_point({}, 1.0),
    ]
    for call in calls:
        with pytest.raises(NotImplementedError):
            call()
    assert searcher.set_max_concurrency(3) is False
    for quiet in (searcher.on_pause, searcher.on_unpause):
        quiet("t")
    searcher.on_trial_result("t", {})


def test_directories_keep_the_state(tmp_path):
    searcher = Remembering()
    searcher.suggest("a")
    searcher.save_to_dir(str(tmp_path), session_str="2024-01-01")
    searcher.suggest("b")
    searcher.save_to_dir(str(tmp_path), session_str="2024-01-02")
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "searcher-state-2024-01-01.pkl",
        "searcher-state-2024-01-02.pkl",
    ]
    other = Remembering()
    other.restore_from_dir(str(tmp_path))
    assert other.suggest("c") == {"x": 3}


def test_a_directory_without_a_state_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="has no state of a searcher"):
        Remembering().restore_from_dir(str(tmp_path))


def test_a_searcher_that_cannot_save_leaves_nothing_behind(tmp_path, caplog):
    Searcher().save_to_dir(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert "does not implement save()" in caplog.text


def test_earlier_trials_are_learnt_from():
    searcher = Remembering()
    trials = [
        trial(loss=1, done=True),
        trial(loss=2),
        trial("ERROR", loss=3, done=False),
        trial(other=4),
        trial("ERROR"),
    ]
    searcher.add_evaluated_trials(trials, "loss")
    assert searcher.points == [
        ({"x": 1}, 1, False, False),
        ({"x": 1}, 2, False, True),
        ({"x": 1}, 3, True, False),
    ]


@pytest.mark.parametrize(
    "source",
    [
        trial(loss=1, done=True),
        SimpleNamespace(trials=[trial(loss=1, done=True)]),
        SimpleNamespace(_experiment_analysis=SimpleNamespace(trials=[trial(loss=1, done=True)])),
    ],
    ids=["trial", "analysis", "result grid"],
)
def test_earlier_trials_may_come_in_several_forms(source):
    searcher = Remembering()
    searcher.add_evaluated_trials(source, "loss")
    assert searcher.points == [({"x": 1}, 1, False, False)]


def test_earlier_trials_without_the_metric_are_a_warning():
    with pytest.warns(UserWarning, match="None of the trials reported 'los'"):
        Remembering().add_evaluated_trials([trial(loss=1)], "los")
    with pytest.raises(TypeError, match="Expected a trial"):
        Remembering().add_evaluated_trials(3, "loss")
