"""Snapshots of a training, as a panel and as lines."""

import math

from rich.console import Console

from syncline.cli.rl.progress import Snapshot, TrainingDisplay, after, line, panel, sparkline
from syncline.cli.rl.stopping import Remaining

RESULT = {
    "training_iteration": 3,
    "time_total_s": 75.0,
    "env_runners": {
        "episode_return_mean": 150.0,
        "episode_return_min": 9.0,
        "episode_return_max": 500.0,
        "episode_len_mean": 150.0,
        "num_episodes_lifetime": 80,
    },
    "learners": {
        "__all_modules__": {"num_env_steps_trained": 1.0},
        "default_policy": {"policy_loss": -0.01, "entropy": 0.6, "vf_loss": math.nan},
    },
    "num_env_steps_sampled_lifetime": 12_000,
    "num_env_steps_sampled_throughput_per_sec": 5123.4,
    "fault_tolerance": {"num_remote_worker_restarts": 2},
    "time_split": {"total_s": 10.0, "sampling_s": 3.0, "environment_s": 3.0, "learning_s": 7.0},
}
START = Snapshot(title="PPO on CartPole-v1", path="/runs/cart", runners=2)


def drawn(snapshot, width=100):
    console = Console(width=width, file=None, record=True, force_terminal=False)
    with console.capture() as capture:
        console.print(panel(snapshot, width))
    return capture.get()


def test_a_panel_shows_what_a_person_asks_first():
    remaining = Remaining(share=0.25, left_s=90.0, metric="training_iteration")
    text = drawn(after(START, RESULT, remaining=remaining))
    for words in (
        "PPO on CartPole-v1: iteration 3, 75 s",
        "25%, about 90 s left",
        "mean 150, from 9 to 500, best mean 150",
        "length 150, 80 in all",
        "12,000, 5123 per second",
        "policy -0.01, entropy 0.6",
        "learning 70%, environment 30%",
        "2, 2 restarts",
        "/runs/cart",
    ):
        assert words in text
    assert "nan" not in text


def test_a_panel_keeps_the_best_return_and_the_last_evaluation():
    evaluated = {**RESULT, "evaluation": {"env_runners": {"episode_return_mean": 400.0}}}
    worse = {**RESULT, "env_runners": {**RESULT["env_runners"], "episode_return_mean": 100.0}}
    snapshot = after(after(START, evaluated), worse)
    assert (snapshot.best, snapshot.evaluation) == (150.0, 400.0)
    assert snapshot.curve == (150.0, 100.0)


def test_before_the_first_episode_ends_no_return_is_shown():
    snapshot = after(START, {**RESULT, "env_runners": {"episode_return_mean": math.nan}})
    assert snapshot.returns == {}
    assert "return" not in line(snapshot)
    assert "nan" not in drawn(snapshot)


def test_a_panel_fits_a_narrow_terminal():
    assert max(map(len, drawn(after(START, RESULT), width=40).splitlines())) <= 40


def test_a_line_has_the_same_facts():
    assert line(after(START, RESULT)) == (
        "iteration 3  return 150  length 150  12,000 steps  5123 steps/s"
    )


def test_a_sparkline_goes_from_the_lowest_to_the_highest_value():
    assert sparkline((0.0, 7.0, 3.5)) in ("▁█▄", "▁█▅")
    assert sparkline((5.0, 5.0)) == "▁▁"


def test_without_a_terminal_lines_come_every_few_seconds_and_the_last_one_always(capsys):
    now = [0.0]
    display = TrainingDisplay(Console(force_terminal=False), clock=lambda: now[0])
    for iteration in (1, 2, 3, 4):
        display.show(after(START, {**RESULT, "training_iteration": iteration}))
        now[0] += 3.0
    display.close()
    printed = [text.split("  ")[0] for text in capsys.readouterr().err.splitlines()]
    assert printed == ["iteration 1", "iteration 3", "iteration 4"]
