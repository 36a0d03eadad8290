"""Values of the pages of reinforcement learning: from complete and foreign records."""

import json
import math

import pytest

from syncline import runs
from syncline.dashboard import rl_figures
from syncline.dashboard.pages.rl_comparison import group_of, title_of
from syncline.dashboard.rl_figures import Curve
from syncline.runs import LocalFiles, RunDirectory
from syncline.runs.metric_series import Series


def metrics(iteration, value, **more):
    return {
        "env_runners/episode_return_mean": value,
        "num_env_steps_sampled_lifetime": 100 * (iteration + 1),
        "learners/default_policy/entropy": 0.5,
        "learners/__all_modules__/num_env_steps_trained": 1.0,
        "time_split/total_s": 10.0,
        "time_split/learning_s": 9.0 if iteration else 0.0,
        "time_split/evaluation_s": 0.0 if iteration else 8.0,
        **more,
    }


@pytest.fixture
def record(tmp_path):
    now = [1000.0]
    with RunDirectory(LocalFiles(tmp_path), clock=lambda: now[0]) as made:
        options = {"num_env_runners": 2, "num_envs_per_env_runner": 4}
        config = {"algorithm": "PPO", "env": "CartPole-v1", "all_options": options}
        made.write_run("cart", config, kind="rl", detailed=False)
        made.event("started", continued=False)
        made.now = now
        yield made


def opened(record):
    return runs.open(record._files.local_path)


def test_a_curve_over_steps_leaves_out_what_is_not_known(record):
    for iteration, value in enumerate((math.nan, 20.0, 30.0)):
        record.report(iteration, 0, metrics(iteration, value))
    series = opened(record).series
    over_steps = rl_figures.curve(series, rl_figures.RETURN, "0", rl_figures.STEPS)
    assert (over_steps.x, over_steps.y) == ([200.0, 300.0], [20.0, 30.0])
    assert rl_figures.curve(series, rl_figures.RETURN, "0", "").x == [2.0, 3.0]
    assert rl_figures.curve(series, "no such metric", "0", rl_figures.STEPS).x == []


def test_a_band_covers_the_common_range_of_all_curves():
    found = rl_figures.band([Curve(x=[0, 10], y=[0, 10]), Curve(x=[5, 20], y=[7, 22])])
    assert (found.count, found.x[0], found.x[-1]) == (2, 5.0, 10.0)
    assert (found.mean[0], found.low[0], found.high[0]) == (6.0, 5.0, 7.0)


def test_the_band_of_many_curves_is_the_interval_of_their_mean():
    curves = [Curve(x=[0, 1], y=[value, value]) for value in (1.0, 2.0, 3.0, 4.0)]
    found = rl_figures.band(curves)
    half = 3.18 * math.sqrt(5 / 3) / 2
    assert found.mean[0] == pytest.approx(2.5)
    assert found.high[0] == pytest.approx(2.5 + half)
    assert found.low[0] == pytest.approx(2.5 - half)


@pytest.mark.parametrize(
    "curves",
    [
        [],
        [Curve(x=[0, 1], y=[0, 1])],
        [Curve(x=[0, 1], y=[0, 1]), Curve(x=[2, 3], y=[0, 1])],
        [Curve(x=[0, 1], y=[0, 1]), Curve(x=[1], y=[0])],
    ],
)
def test_without_a_common_range_there_is_no_band(curves):
    assert rl_figures.band(curves) is None


def test_runs_that_differ_in_the_seed_alone_are_one_group():
    assert group_of({"lr": 1, "seed": 1}) == group_of({"seed": 2, "lr": 1})
    assert group_of({"lr": 1}) != group_of({"lr": 2})
    assert title_of({"lr": 1, "seed": 3, "gamma": 0.9}, ["lr", "seed"]) == "lr=1"


def test_what_limits_is_that_of_several_iterations(record):
    for iteration in range(3):
        record.report(iteration, 0, metrics(iteration, 1.0))
    found = rl_figures.limits(opened(record))
    assert found.limit == "learning"
    assert found.rows["iteration"]["learning"] == pytest.approx(18 / 30)
    assert found.rows["iteration"]["evaluation"] == pytest.approx(8 / 30)


def test_runners_show_the_shares_of_their_latest_process_and_restarts(record):
    def sample(attempt, pid, environment_s, steps):
        spent = {"environment_s": environment_s, "inference_s": 0.0, "env_steps": steps}
        record.sample(2, attempt, pid, {"cpu_percent": 50.0, "rss_bytes": 7}, spent)

    sample(1, 11, 100.0, 5)
    record.now[0] += 10
    sample(2, 12, 1.0, 10)
    record.now[0] += 10
    sample(2, 12, 6.0, 30)
    (row,) = rl_figures.runner_rows(opened(record))
    assert (row.index, row.pid, row.restarts, row.env_steps) == (2, 12, 1, 30)
    assert row.shares["environment"] == pytest.approx(0.5)
    assert row.shares["waiting"] == pytest.approx(0.5)
    assert (row.cpu_percent, row.rss_bytes) == (50.0, 7.0)


def test_modules_and_agents_are_listed_with_their_returns():
    series = Series()
    values = metrics(0, 1.0) | {
        "env_runners/module_episode_returns_mean/walker": 3.0,
        "env_runners/num_module_steps_sampled_lifetime/walker": 40,
        "env_runners/agent_episode_returns_mean/a/1": 5.0,
        "learners/walker/num_trainable_parameters": 99.0,
        "learners/walker/policy_loss": 0.1,
    }
    series.add({"iteration": 0, "time": 1.0, "rank": 0, "metrics": values})
    assert rl_figures.modules(series) == ["default_policy", "walker"]
    module, agent = rl_figures.module_rows(series)
    assert (module.kind, module.name, module.episode_return) == ("module", "walker", 3.0)
    assert (module.steps, module.parameters) == (40, 99.0)
    assert (agent.kind, agent.name, agent.episode_return) == ("agent", "a/1", 5.0)


def test_the_last_episodes_come_first_and_nonsense_is_left_out():
    lines = [
        {"iteration": 0, "episodes": [{"return": 1.0, "length": 2}, {"return": 3.0}]},
        {"iteration": 1, "episodes": [{"return": 5.0, "agents": {"a": 1.0, "b": "x"}}]},
        {"iteration": "x", "episodes": [{"return": 9.0}]},
        {"iteration": 2, "episodes": [7, {"return": "high"}]},
        {"iteration": 2, "episodes": None},
    ]
    found = rl_figures.episodes(lines)
    assert [(each.iteration, each.episode_return) for each in found] == [(2, 5), (1, 3), (1, 1)]
    assert found[0].agents == {"a": 1.0}


def test_only_videos_in_the_directory_are_shown(record, tmp_path):
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "steps-1.mp4").write_bytes(b"x")
    (tmp_path / "secret.mp4").write_bytes(b"x")
    for file in ("videos/steps-1.mp4", "videos/gone.mp4", "videos/../secret.mp4", 5):
        record.event("video", file=file, env_steps=2000, episode_return=12.5, length=30)
    (video,) = rl_figures.videos(opened(record))
    assert (video.file, video.is_image) == ("videos/steps-1.mp4", False)
    assert video.caption == "after 2,000 steps, return 12.5, length 30"


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"event": "started", "continued": True}, ("continued", "")),
        (
            {"event": "evaluation", "episode_return_mean": 450.0, "num_episodes": 10},
            ("evaluation", "return 450, 10 episodes"),
        ),
        (
            {"event": "env_runner_restarted", "runner": 2, "error": "it died"},
            ("env runner restarted", "2: it died"),
        ),
        ({"event": "failure", "error": "ValueError: no"}, ("failure", "ValueError: no")),
        ({"event": "else", "time": 1, "a": 1}, ("else", json.dumps({"a": 1}))),
    ],
)
def test_events_are_told_in_words(event, text):
    assert rl_figures.event_text(event) == text
