"""Videos of episodes: playing episodes with frames, and writing GIF and MP4 files.

Covered: single environments of one or several agents whose `render()` returns images. Not covered:
environments that exist only as vectors.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from syncline.optional import load
from syncline.rl.envs.env_context import EnvContext
from syncline.rl.envs.registry import resolve_env
from syncline.rl.metrics.names import NUM_ENV_STEPS_SAMPLED_LIFETIME
from syncline.rl.runners.sample import EpisodeResult
from syncline.rl.value_types import AlgorithmType, Env, EnvRunnerType

FPS = 30.0
"""Default frames per second."""
MAX_FRAMES = 3_000
"""Maximum number of frames per episode; later frames are dropped."""
GIF_FPS = 15.0
GIF_WIDTH = 400
"""Maximum width and frames per second of GIF files, which are large."""
KEPT = 20
"""Number of evaluation videos to keep."""
FORMATS = (".mp4", ".gif")
INSTALL = "syncline[rl-video]"

Frame = np.ndarray
"""Image [height, width, 3] of uint8."""


@dataclass(frozen=True, kw_only=True)
class PlayedEpisode:
    """An episode with its frames."""

    frames: Sequence[Frame]
    """Frames of the first observation and of every step."""
    result: EpisodeResult
    fps: float = FPS


@dataclass
class _Camera:
    """Frames of the episodes of one environment."""

    episodes: list[list[Frame]] = field(default_factory=list)
    fps: float = FPS
    error: ValueError | None = None
    """Error of rendering; raised after the episodes, because stepping succeeded."""

    def attach(self, env: Any, name: str) -> Any:
        """Make `reset` and `step` of an environment capture frames; return the environment."""
        metadata = getattr(env, "metadata", None) or {}
        self.fps = float(metadata.get("render_fps") or FPS)
        _set_render_mode(env)
        reset, step = env.reset, env.step

        def reset_with_frame(*args: object, **kwargs: object) -> Any:
            made = reset(*args, **kwargs)
            self.episodes.append([])
            self._take(env, name)
            return made

        def step_with_frame(*args: object, **kwargs: object) -> Any:
            made = step(*args, **kwargs)
            self._take(env, name)
            return made

        env.reset, env.step = reset_with_frame, step_with_frame
        return env

    def _take(self, env: Env, name: str) -> None:
        if self.error is not None or len(self.episodes[-1]) >= MAX_FRAMES:
            return
        try:
            self.episodes[-1].append(_frame(env, name))
        except ValueError as error:
            self.error = error
        except Exception as error:  # an error of the program, or a missing library
            self.error = ValueError(f"`render()` of {name} failed: {error}")


def play_episodes(
    algorithm: AlgorithmType,
    count: int = 1,
    *,
    explore: bool | None = None,
    seed: int | None = None,
    with_frames: bool = True,
) -> list[PlayedEpisode]:
    """Play episodes in this process with the current policy of an algorithm.

    Args:
        algorithm: The algorithm.
        count: Number of episodes.
        explore: Sample actions; None for the configured value of evaluations.
        seed: Seed of the environment and of actions; None for the seed of evaluations.
        with_frames: Render every step.

    Raises:
        ValueError: The environment does not render images.
    """
    config = algorithm.config.get_evaluation_config_object()
    maker, camera = resolve_env(config.env, render_mode="rgb_array"), _Camera()

    def make(context: EnvContext) -> Any:
        return camera.attach(maker.make(context), maker.name)

    if with_frames:
        config.env = make
    config.num_env_runners = 0
    config.num_envs_per_env_runner = 1
    config.gym_env_vectorize_mode = "sync"
    config.restart_failed_sub_environments = False
    config.output = None
    if seed is not None:
        config.seed = seed
    group = algorithm.learner_group
    runner = algorithm.env_runner_class(config)(config=config, worker_index=0)
    try:
        runner.set_weights(group.get_weights(), group.weights_version)
        _copy_connectors(algorithm, runner)
        sample = runner.sample_episodes(count, explore=explore)
    finally:
        runner.stop()
    if camera.error is not None:
        raise camera.error
    played = [frames for frames in camera.episodes if len(frames) > 1]
    played += [[]] * (len(sample.episodes) - len(played))
    return [
        PlayedEpisode(frames=frames, result=result, fps=camera.fps)
        for frames, result in zip(played, sample.episodes, strict=False)
    ]


def write_video(path: str, frames: Sequence[Frame], fps: float = FPS) -> None:
    """Write frames to a file: MP4 with H.264, or GIF.

    Raises:
        ValueError: The file has another extension, or `frames` is empty.
        ImportError: The library for this format is not installed.
    """
    extension = os.path.splitext(path)[1].lower()
    if extension not in FORMATS:
        raise ValueError(f"Videos are written as {' or '.join(FORMATS)}, not as {path!r}.")
    if not frames:
        raise ValueError("There are no frames to write.")
    if extension == ".mp4":
        _write_mp4(path, frames, fps)
    else:
        _write_gif(path, frames, fps)


def _write_mp4(path: str, frames: Sequence[Frame], fps: float) -> None:
    av = load("av", purpose="An MP4 video", install=INSTALL)
    height, width = (size - size % 2 for size in frames[0].shape[:2])  # H.264 needs even sizes
    with av.open(path, "w", options={"movflags": "faststart"}) as container:
        stream = container.add_stream("libx264", rate=max(1, round(fps)))
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for frame in frames:
            image = np.ascontiguousarray(frame[:height, :width])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


def _write_gif(path: str, frames: Sequence[Frame], fps: float) -> None:
    pillow = load("PIL.Image", purpose="A GIF", install=INSTALL)
    step = max(1, round(fps / GIF_FPS))
    chosen = [*frames[:-1:step], frames[-1]]
    images = [pillow.fromarray(frame) for frame in chosen]
    height, width = chosen[0].shape[:2]
    if width > GIF_WIDTH:
        size = GIF_WIDTH, max(1, round(height * GIF_WIDTH / width))
        images = [image.resize(size) for image in images]
    duration_ms = max(20, round(1000 * step / fps))
    images[0].save(
        path, save_all=True, append_images=images[1:], duration=duration_ms, loop=0, optimize=False
    )


def save_video(
    algorithm: AlgorithmType, directory: str, *, keep: int = KEPT
) -> tuple[str, EpisodeResult]:
    """Play an episode and write its video to `directory`; return the file name and the result.

    Args:
        algorithm: The algorithm.
        directory: Local directory; it is created if missing.
        keep: Number of videos to keep; older ones are deleted.
    """
    extension = best_format()
    (episode,) = play_episodes(algorithm)
    os.makedirs(directory, exist_ok=True)
    steps = algorithm.timesteps()[NUM_ENV_STEPS_SAMPLED_LIFETIME]
    name = f"steps-{steps:010d}{extension}"
    write_video(os.path.join(directory, name), episode.frames, episode.fps)
    known = sorted(each for each in os.listdir(directory) if each.startswith("steps-"))
    for old in known[:-keep]:
        os.unlink(os.path.join(directory, old))
    return name, episode.result


def best_format() -> str:
    """Return the extension of the best format that the installed libraries support.

    Raises:
        ImportError: Neither library is installed.
    """
    try:
        load("av", purpose="An MP4 video", install=INSTALL)
    except ImportError:
        load("PIL.Image", purpose="A video of an episode", install=INSTALL)
        return ".gif"
    return ".mp4"


def _copy_connectors(algorithm: AlgorithmType, runner: EnvRunnerType) -> None:
    """Copy the connectors' state, such as means of observations, to the runner."""
    if not hasattr(runner, "get_connector_state") or runner.get_connector_state() is None:
        return
    states = algorithm.env_runner_group.foreach_env_runner("get_connector_state")
    if states and states[0] is not None:
        runner.set_connector_state(states[0])


def _set_render_mode(env: Env) -> None:
    """Set the render mode of user-defined environments; gymnasium's were created with it."""
    inner = getattr(env, "unwrapped", env)
    if getattr(inner, "render_mode", None) is None:
        try:
            inner.render_mode = "rgb_array"
        except AttributeError:  # read-only attribute
            return


def _frame(env: Env, name: str) -> Frame:
    image = env.render()
    if isinstance(image, list) and image:  # render modes that collect frames
        image = image[-1]
    if not isinstance(image, np.ndarray) or image.ndim != 3 or image.shape[2] not in (3, 4):
        raise ValueError(
            f"`render()` of {name} returned a {type(image).__name__}, not an image of shape "
            "(height, width, 3), so no video is written. Return a uint8 array if "
            "`render_mode` is 'rgb_array'."
        )
    return np.array(image[..., :3], np.uint8)
