"""`rl evaluate`: plays episodes with a checkpoint, and writes a video of them."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Sequence

import click

from syncline import runs
from syncline.cli import find_runs
from syncline.cli.output import console, json_option, print_json, table
from syncline.cli.rl.train import command_errors, latest_checkpoint
from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.records.videos import FORMATS, PlayedEpisode, play_episodes, write_video
from syncline.runs.run_list import RunNotFoundError, find_run

logger = logging.getLogger("syncline")


@click.command(name="evaluate")
@click.argument("checkpoint")
@click.option("--episodes", type=click.IntRange(1), default=10, show_default=True)
@click.option("--render", metavar="FILE", help="Write a video of the episodes: .mp4 or .gif.")
@click.option("--explore/--no-explore", default=None, help="Draw actions, or take the best ones.")
@click.option("--seed", type=int, help="Seed of the environments.")
@click.option("--algo", "--run", "algo", help="Has no effect: checkpoints name their algorithm.")
@find_runs.storage_option
@json_option
def evaluate_command(
    checkpoint: str,
    episodes: int,
    render: str | None,
    explore: bool | None,
    seed: int | None,
    algo: str | None,
    storage_path: str | None,
    as_json: bool,
) -> None:
    """Play episodes with a checkpoint and print their returns.

    CHECKPOINT is the directory of a checkpoint, or a run, whose latest checkpoint is used. By
    default, actions are chosen as the configuration says for evaluations.
    """
    if render is not None and not render.lower().endswith(FORMATS):
        raise click.UsageError(f"--render writes {' or '.join(FORMATS)} files, not {render!r}")
    path = _found(checkpoint, storage_path)
    with command_errors():
        algorithm = _restored(path)
    try:
        with command_errors():
            played = play_episodes(
                algorithm, episodes, explore=explore, seed=seed, with_frames=render is not None
            )
            if render is not None:
                frames = [frame for each in played for frame in each.frames]
                write_video(render, frames, played[0].fps)
    finally:
        algorithm.stop()
    _print(type(algorithm).__name__, path, played, render, as_json=as_json)


def _found(checkpoint: str, storage_path: str | None) -> str:
    """Return the path of a checkpoint, or of the latest one of a run."""
    try:
        directory = find_run(checkpoint, find_runs.storage_directory(storage_path))
    except RunNotFoundError:
        return checkpoint
    return latest_checkpoint(runs.open(directory))


def _restored(path: str) -> Algorithm:
    """Return the algorithm of a checkpoint, without processes that sample and learn."""
    config = Algorithm.saved_config(path)
    config.num_env_runners = config.evaluation_num_env_runners = config.num_learners = 0
    config.evaluation_interval, config.record = None, False
    level = logger.level
    logger.setLevel(logging.ERROR)  # that the environments begin new episodes goes without saying
    try:
        return Algorithm.from_checkpoint(path, config=config)
    finally:
        logger.setLevel(level)


def _print(
    algorithm: str, path: str, played: Sequence[PlayedEpisode], render: str | None, *, as_json: bool
) -> None:
    returns = [each.result.episode_return for each in played]
    lengths = [each.result.length for each in played]
    mean, deviation = statistics.fmean(returns), statistics.pstdev(returns)
    if as_json:
        episodes = [
            {"return": each, "length": length}
            for each, length in zip(returns, lengths, strict=True)
        ]
        print_json(
            {
                "algorithm": algorithm,
                "checkpoint": path,
                "episodes": episodes,
                "return_mean": mean,
                "return_std": deviation,
                "video": render,
            }
        )
        return
    rows = [
        (str(number), f"{each:g}", str(length))
        for number, (each, length) in enumerate(zip(returns, lengths, strict=True), start=1)
    ]
    columns = ("episode", "return", "length")
    console().print(table(columns, rows, right=columns))
    click.echo(
        f"{algorithm}: return {mean:.4g} ± {deviation:.3g} over {len(played)} "
        f"episode{'s'[: len(played) > 1]}, length {statistics.fmean(lengths):.4g}"
    )
    if render is not None:
        click.echo(render)
