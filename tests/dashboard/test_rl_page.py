"""The page of reinforcement learning without a browser."""

import pytest
from nicegui import Client
from nicegui.elements.mixins.text_element import TextElement
from nicegui.page import page

from syncline import runs
from syncline.dashboard.downloads import find_file
from syncline.dashboard.pages.rl_page import RlPage
from syncline.dashboard.pages.run_page import PAGES
from syncline.dashboard.pages.run_view import RunView
from syncline.runs import LocalFiles, RunDirectory
from syncline.runs.rotating_lines import RotatingLines
from syncline.runs.run_storage import open_directory

HTML = "<img src=x onerror=alert(1)>"


@pytest.fixture
def record(tmp_path):
    with RunDirectory(LocalFiles(tmp_path)) as made:
        made.write_run("cart", {"algorithm": "PPO", "env": HTML}, kind="rl", detailed=False)
        yield made


def shown(path):
    """Return page and texts of a record."""
    with Client(page("/")) as client:
        made = RlPage(RunView(storage=0, directory="cart", may_act=False, run=runs.open(path)))
        made.update()
    texts = [each.text for each in client.elements.values() if isinstance(each, TextElement)]
    return client, texts


def test_a_run_that_has_just_begun_has_a_page(record, tmp_path):
    _, texts = shown(tmp_path)
    assert "No episode has ended yet." in texts
    assert "PPO" in texts


def test_a_run_shows_returns_advice_episodes_and_videos(record, tmp_path):
    for iteration in range(3):
        record.report(
            iteration,
            0,
            {
                "env_runners/episode_return_mean": 100.0 + iteration,
                "env_runners/module_episode_returns_mean/p": 100.0,
                "num_env_steps_sampled_lifetime": 1000 * (iteration + 1),
                "time_split/total_s": 1.0,
                "time_split/learning_s": 0.9,
                "learners/p/entropy": 0.5,
            },
        )
    line = {"iteration": 0, "episodes": [{"return": 7.0, "length": 9}]}
    RotatingLines(str(tmp_path / "rl/episodes.jsonl"), 1000).append([line])
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos/steps-1.mp4").write_bytes(b"film")
    record.event("video", file="videos/steps-1.mp4", env_steps=1000, episode_return=7.0)
    client, texts = shown(tmp_path)
    assert any("The learner is the bottleneck" in text for text in texts)
    assert "after 1,000 steps, return 7" in texts
    (video,) = [each for each in client.elements.values() if each.tag == "video"]
    assert video.props["src"] == "/files/0/cart/videos/steps-1.mp4"
    charts = [str(each.props.get("aria-label")) for each in client.elements.values()]
    assert "Return: training ends at 102" in charts
    assert "Entropy: p ends at 0.5" in charts


def test_videos_are_served_and_nothing_else_in_their_folder(tmp_path):
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos/a.mp4").write_bytes(b"film")
    (tmp_path / "videos/a.html").write_bytes(b"<script>")
    found = find_file(open_directory(str(tmp_path)), "videos", "a.mp4")
    assert found.headers["content-type"] == "video/mp4"
    assert b"".join(found.chunks()) == b"film"
    with pytest.raises(LookupError):
        find_file(open_directory(str(tmp_path)), "videos", "a.html")


def test_the_kind_rl_has_this_page():
    assert PAGES["rl"] is RlPage
