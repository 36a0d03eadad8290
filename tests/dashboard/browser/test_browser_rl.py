"""Page of reinforcement learning in a browser, with a video that plays."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.rl.records.videos import write_video
from syncline.runs import LocalFiles, RunDirectory
from tests.dashboard.browser.browser_harness import Site, Watched, address

pytest.importorskip("playwright.sync_api")
pytest.importorskip("av")
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.processes]


@pytest.fixture
def run(place: Site) -> str:
    """A run of three iterations with a video; returns its name."""
    directory = place.prepared / "cart-pole"
    with RunDirectory(LocalFiles(directory)) as record:
        record.write_run("cart-pole", {"algorithm": "PPO"}, kind="rl", detailed=False)
        for iteration in range(3):
            metrics = {
                "env_runners/episode_return_mean": 10.0 * iteration,
                "env_runners/episode_return_min": 5.0 * iteration,
                "env_runners/episode_return_max": 20.0 * iteration,
                "num_env_steps_sampled_lifetime": 100 * (iteration + 1),
                "time_total_s": 1.0 + iteration,
                "time_split/total_s": 1.0,
                "time_split/learning_s": 0.9,
                "learners/default_policy/entropy": 0.5,
            }
            record.report(iteration, 0, metrics)
        (directory / "videos").mkdir()
        frames = [np.full((32, 48, 3), 10 * t, np.uint8) for t in range(20)]
        write_video(str(directory / "videos" / "steps-1.mp4"), frames)
        record.event("video", file="videos/steps-1.mp4", env_steps=100, episode_return=3.0)
        record.write_outcome("finished")
    return "cart-pole"


def test_returns_advice_and_videos_are_seen(watched: Watched, run: str) -> None:
    page = watched.go(address(1, run))
    expect(page.get_by_text("The learner is the bottleneck (90%")).to_be_visible()
    for chart in ("Return: training ends at 20", "Entropy: default_policy ends at 0.5"):
        expect(page.locator(f"[role=img][aria-label='{chart}'] canvas").first).to_be_visible()
    video = page.locator("video")
    expect(video).to_have_count(1)
    page.wait_for_function("document.querySelector('video').readyState >= 3")
    assert video.evaluate("each => [each.videoWidth, each.videoHeight]") == [48, 32]
    assert watched.wrong == []
