"""Videos of episodes: frames, files, and what evaluations write."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from syncline import runs
from syncline.rl.algorithms.ppo import PPOConfig
from syncline.rl.envs.multi_agent_env import MultiAgentEnv
from syncline.rl.records.videos import play_episodes, write_video

av = pytest.importorskip("av")
image = pytest.importorskip("PIL.Image")

LENGTH = 5


class Lights(gym.Env):
    """Lights step `t` of five; a frame is a picture whose red value is the step."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gym.spaces.Box(0, LENGTH, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config=None):
        self.t = 0

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.array([self.t], np.float32), 1.0, self.t == LENGTH, False, {}

    def render(self):
        frame = np.zeros((17, 32, 3), np.uint8)
        frame[..., 0] = 40 * self.t
        return frame


class Blind(Lights):
    def render(self):
        return None


class Pair(MultiAgentEnv):
    """Two agents that see the same lights."""

    def __init__(self, config=None):
        super().__init__()
        self.inner = Lights()
        self.agents = self.possible_agents = ["a", "b"]
        self.observation_spaces = dict.fromkeys(self.agents, Lights.observation_space)
        self.action_spaces = dict.fromkeys(self.agents, Lights.action_space)

    def reset(self, *, seed=None, options=None):
        obs, _ = self.inner.reset()
        return dict.fromkeys(self.agents, obs), {}

    def step(self, actions):
        obs, reward, done, _, _ = self.inner.step(0)
        both = dict.fromkeys(self.agents, obs), dict.fromkeys(self.agents, reward)
        return *both, {"__all__": done}, {"__all__": False}, {}

    def render(self):
        return self.inner.render()


def config(env):
    return (
        PPOConfig()
        .environment(env)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=20, minibatch_size=10, num_epochs=1)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .reporting(record=False)
    )


def reds(frames):
    return [int(frame[0, 0, 0]) for frame in frames]


def test_an_episode_has_a_frame_for_its_beginning_and_for_every_step():
    algo = config(Lights).build_algo()
    first, second = play_episodes(algo, 2)
    algo.stop()
    for played in (first, second):
        assert reds(played.frames) == [0, 40, 80, 120, 160, 200]
        assert (played.result.episode_return, played.result.length) == (LENGTH, LENGTH)
    assert first.fps == 10


def test_episodes_of_several_agents_have_frames():
    algo = config(Pair).multi_agent(policies={"p"}, policy_mapping_fn=lambda *_: "p").build_algo()
    (played,) = play_episodes(algo)
    algo.stop()
    assert reds(played.frames) == [0, 40, 80, 120, 160, 200]


def test_playing_changes_neither_the_training_nor_its_environments():
    plain, played = config(Lights).debugging(seed=3), config(Lights).debugging(seed=3)
    results = []
    for each, plays in ((plain, False), (played, True)):
        algo = each.build_algo()
        algo.train()
        if plays:
            play_episodes(algo, 2)
        algo.train()
        results.append(algo.get_weights()["default_policy"])
        algo.stop()
    for one, other in zip(results[0].values(), results[1].values(), strict=True):
        assert np.array_equal(np.asarray(one), np.asarray(other))


def test_without_frames_nothing_is_rendered():
    algo = config(Blind).build_algo()
    (played,) = play_episodes(algo, with_frames=False)
    assert (played.frames, played.result.length) == ([], LENGTH)
    with pytest.raises(ValueError, match="returned a NoneType, not an image"):
        play_episodes(algo)
    algo.stop()


def test_mp4_and_gif_hold_the_frames(tmp_path):
    frames = [np.full((17, 33, 3), 40 * t, np.uint8) for t in range(6)]
    write_video(str(tmp_path / "a.mp4"), frames, 10)
    with av.open(str(tmp_path / "a.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.codec.name, stream.width, stream.height) == ("h264", 32, 16)
        means = [each.to_ndarray(format="rgb24").mean() for each in container.decode(video=0)]
    assert means == pytest.approx([0, 40, 80, 120, 160, 200], abs=6)
    write_video(str(tmp_path / "a.gif"), frames, 10)
    with image.open(tmp_path / "a.gif") as gif:
        assert (gif.n_frames, gif.size, gif.info["duration"]) == (6, (33, 17), 100)


def test_gifs_of_fast_environments_have_fewer_frames_and_the_same_length(tmp_path):
    frames = [np.full((40, 800, 3), t, np.uint8) for t in range(61)]
    write_video(str(tmp_path / "a.gif"), frames, 60)
    with image.open(tmp_path / "a.gif") as gif:
        assert gif.n_frames == 16
        assert gif.size == (400, 20)
        assert gif.n_frames * gif.info["duration"] == pytest.approx(1000, abs=80)


@pytest.mark.parametrize(
    ("name", "frames", "words"),
    [("a.avi", [np.zeros((2, 2, 3), np.uint8)], ".mp4 or .gif"), ("a.gif", [], "no frames")],
)
def test_what_cannot_be_written_is_an_error(tmp_path, name, frames, words):
    with pytest.raises(ValueError, match=words):
        write_video(str(tmp_path / name), frames)


def test_evaluations_with_render_env_write_videos_to_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNCLINE_STORAGE_PATH", str(tmp_path))
    made = config(Lights).environment(render_env=True).reporting(record=True)
    algo = made.evaluation(evaluation_interval=1, evaluation_duration=1).build_algo()
    algo.train()
    algo.train()
    algo.stop()
    videos = [each for each in runs.open(algo.run_path).events if each["event"] == "video"]
    assert [each["env_steps"] for each in videos] == [20, 40]
    assert videos[0]["episode_return"] == LENGTH
    for each in videos:
        assert (Path(algo.run_path) / each["file"]).stat().st_size > 100


@pytest.mark.processes
def test_evaluations_beside_the_training_write_videos_too(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNCLINE_STORAGE_PATH", str(tmp_path))
    made = config(Lights).environment(render_env=True).reporting(record=True)
    made.evaluation(evaluation_num_env_runners=1, evaluation_parallel_to_training=True)
    algo = made.evaluation(evaluation_interval=1, evaluation_duration=1).build_algo()
    algo.train()
    algo.stop()
    events = [each["event"] for each in runs.open(algo.run_path).events]
    assert events == ["started", "video", "evaluation", "finished"]


def test_an_environment_without_images_is_told_and_the_training_continues(caplog):
    made = config(Blind).environment(render_env=True)
    algo = made.evaluation(evaluation_interval=1, evaluation_duration=1).build_algo()
    assert algo.train()["training_iteration"] == 1
    algo.stop()
    assert any("No video is recorded" in each.message for each in caplog.records)
