"""`rl train`: trains one algorithm, or runs a search if the experiment has several trials."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import click

from syncline import settings
from syncline.cli import find_runs
from syncline.cli.output import CommandError
from syncline.cli.rl import experiment as experiments
from syncline.cli.rl.experiment import Experiment, parsed_json, parsed_settings
from syncline.cli.rl.progress import Snapshot, TrainingDisplay, after
from syncline.cli.rl.stopping import ITERATIONS, RETURN, SECONDS, STEPS, StopCriteria
from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.envs.env_errors import EnvError
from syncline.rl.records.recorder import run_name
from syncline.runs import Run
from syncline.storage.run_names import checked_run_name
from syncline.tune.config import CheckpointConfig, RunConfig, TuneConfig
from syncline.tune.tuner import Tuner

INTERRUPTED = 130


@click.command(name="train")
@click.argument("file", nargs=-1, metavar="[[file] FILE]")
@click.option("--algo", "--run", "algo", help="Algorithm: PPO, DQN, …; `rl list` lists them.")
@click.option("--env", help="Environment: an id of gymnasium, or module:Id, or module.Class.")
@click.option("--config", callback=parsed_json, metavar="JSON", help="Options of the algorithm.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    callback=parsed_settings,
    metavar="NAME=VALUE",
    help="One option of the algorithm; repeatable.",
)
@click.option("--num-env-runners", type=click.IntRange(0), help="Processes that sample.")
@click.option("--seed", type=int, help="Seed of everything.")
@click.option("--stop", callback=parsed_json, metavar="JSON", help="Metrics and values that end.")
@click.option("--stop-reward", "--stop-return", type=float, help="Stop at this mean return.")
@click.option(
    "--stop-timesteps", type=click.IntRange(1), help="Stop after these environment steps."
)
@click.option("--stop-iters", type=click.IntRange(1), help="Stop after these iterations.")
@click.option("--stop-time", "--stop-time-s", type=float, help="Stop after these seconds.")
@click.option("--checkpoint-freq", type=click.IntRange(0), help="Iterations between checkpoints.")
@click.option(
    "--checkpoint-at-end/--no-checkpoint-at-end", default=True, help="Save one at the end, too."
)
@click.option("--name", help="Name of the run.")
@find_runs.storage_option
@click.option(
    "--resume",
    metavar="RUN",
    shell_complete=find_runs.complete_run,
    help="Continue a run from its latest checkpoint.",
)
@click.option("--num-samples", type=click.IntRange(1), help="Trials; several are a search.")
def train_command(
    file: Sequence[str],
    algo: str | None,
    env: str | None,
    config: dict[str, Any],
    changes: dict[str, Any],
    num_env_runners: int | None,
    seed: int | None,
    stop: dict[str, Any],
    stop_reward: float | None,
    stop_timesteps: int | None,
    stop_iters: int | None,
    stop_time: float | None,
    checkpoint_freq: int | None,
    checkpoint_at_end: bool,
    name: str | None,
    storage_path: str | None,
    resume: str | None,
    num_samples: int | None,
) -> None:
    """Train an algorithm on an environment until a stop criterion holds, or Ctrl-C.

    \b
    syncline rl train --algo PPO --env CartPole-v1 --stop-reward 475
    syncline rl train --algo DQN --env CartPole-v1 --set lr=0.001 --stop-timesteps 50000
    syncline rl train cartpole.yaml
    syncline rl train --resume PPO_CartPole-v1_…

    FILE is a YAML file of experiments in RLlib's format, or a Python file that defines `config`,
    and `stop` if needed. Progress is written to stderr, the path of the last checkpoint to stdout.
    """
    short = {RETURN: stop_reward, STEPS: stop_timesteps, ITERATIONS: stop_iters, SECONDS: stop_time}
    criteria = {**stop, **{key: value for key, value in short.items() if value is not None}}
    options = {**config, **changes}
    if num_env_runners is not None:
        options["num_env_runners"] = num_env_runners
    if seed is not None:
        options["seed"] = seed
    parent = storage_path or settings.storage_path()
    if resume is not None:
        if file or algo or env or options:
            raise click.UsageError("--resume takes stop criteria only: the run has the rest")
        _resume(resume, storage_path, criteria, checkpoint_freq, checkpoint_at_end)
        return
    for each in _experiments(file, algo, env, options):
        given = Experiment(
            config=each.config,
            stop={**each.stop, **criteria},
            name=name or each.name,
            checkpoint_freq=each.checkpoint_freq if checkpoint_freq is None else checkpoint_freq,
            checkpoint_at_end=checkpoint_at_end,
            num_samples=num_samples or each.num_samples,
        )
        if given.is_search:
            _search(given, parent)
        else:
            _train(given, parent)


def _experiments(
    file: Sequence[str], algo: str | None, env: str | None, options: Mapping[str, object]
) -> list[Experiment]:
    paths = list(file[1:] if file[:1] == ("file",) else file)
    if paths:
        if algo or env or options:
            raise click.UsageError("a FILE has algorithm, environment and options: give only one")
        return [each for path in paths for each in experiments.from_file(_existing(path))]
    if algo is None or env is None:
        raise click.UsageError("give --algo and --env, or a FILE: `rl list` lists the algorithms")
    return [experiments.from_options(algo, env, options)]


def _existing(path: str) -> str:
    if not os.path.isfile(path):
        raise click.UsageError(f"there is no file {path!r}")
    return path


def _train(given: Experiment, parent: str) -> None:
    config = given.config.copy(copy_frozen=False)
    env = config.env if isinstance(config.env, str) else getattr(config.env, "__name__", "env")
    name = given.name
    if name is None:
        name = run_name(given.algorithm, str(env).rpartition(":")[2])
    with command_errors():
        checked_run_name(name, f"the name {name!r} of the run")
    config.record = f"{parent.rstrip('/')}/{name}"
    if given.name is not None and _records(config.record):
        raise CommandError(
            f"There is a run {given.name!r} in {parent}: continue it with `--resume {given.name}`, "
            "or give another --name."
        )
    with command_errors():
        algorithm = config.build_algo()
    _loop(algorithm, given.stop, given.checkpoint_freq, given.checkpoint_at_end)


def _records(path: str) -> bool:
    return os.path.exists(os.path.join(os.path.expanduser(path), "run.json"))


def _resume(
    run_name: str,
    storage_path: str | None,
    criteria: Mapping[str, object],
    checkpoint_freq: int | None,
    checkpoint_at_end: bool,
) -> None:
    run = find_runs.open_run(run_name, find_runs.storage_directory(storage_path))
    path = latest_checkpoint(run)
    with command_errors():
        algorithm = Algorithm.from_checkpoint(path)
    click.echo(f"continuing from {path}", err=True)
    _loop(algorithm, criteria, checkpoint_freq or 0, checkpoint_at_end)


def latest_checkpoint(run: Run) -> str:
    """Return the path of the latest checkpoint in the directory of a run."""
    if run.kind != "rl":
        raise CommandError(f"{run.name} is a run of kind {run.kind}, not of `rl train`.")
    if not run.checkpoints:
        raise CommandError(
            f"{run.name} has no checkpoint in its directory, so it cannot continue: train with "
            "--checkpoint-freq."
        )
    latest = max(run.checkpoints, key=lambda each: each.get("index", -1))
    return f"{run.path}/{latest.get('name')}"


def _loop(
    algorithm: Algorithm, stop: Mapping[str, object], checkpoint_freq: int, checkpoint_at_end: bool
) -> None:
    config = algorithm.config
    try:
        criteria = StopCriteria(stop)
    except ValueError as error:
        raise CommandError(str(error)) from error
    display = TrainingDisplay()
    title = f"{type(algorithm).__name__} on {config.env}"
    snapshot = Snapshot(title=title, path=algorithm.run_path or "", runners=config.num_env_runners)
    display.print(f"training {title}; run directory {algorithm.run_path}")
    saved = reason = ""
    is_interrupted = False
    try:
        while not reason:
            result = algorithm.train()
            remaining = criteria.remaining(result, time.monotonic())
            snapshot = after(
                snapshot, result, remaining=remaining, num_envs=config.num_envs_per_env_runner
            )
            display.show(snapshot)
            reason, saved = criteria.reached(result), ""
            if checkpoint_freq and algorithm.training_iteration % checkpoint_freq == 0:
                saved = _save(algorithm)
    except KeyboardInterrupt:
        is_interrupted, reason = True, "interrupted"
    except ValueError as error:
        if not str(error).startswith("The stop criterion"):
            raise
        raise CommandError(str(error)) from error
    finally:
        display.close()
        if not reason:
            algorithm.stop()
    if checkpoint_at_end and not saved and algorithm.training_iteration:
        saved = _save(algorithm)
    algorithm.stop()
    click.echo(f"ended: {reason}", err=True)
    if snapshot.split is not None:
        click.echo(snapshot.split.advice, err=True)
    if saved:
        click.echo(saved)
    if is_interrupted:
        raise click.exceptions.Exit(INTERRUPTED)


def _save(algorithm: Algorithm) -> str:
    name = f"checkpoint_{algorithm.training_iteration:06d}"
    return algorithm.save_to_path(f"{algorithm.run_path}/{name}")


def _search(given: Experiment, parent: str) -> None:
    with command_errors():
        grid = Tuner(
            given.algorithm,
            param_space=cast("Mapping[str, object]", given.config),
            tune_config=TuneConfig(num_samples=given.num_samples),
            run_config=RunConfig(
                name=given.name,
                storage_path=parent,
                stop=dict(given.stop) or None,
                checkpoint_config=CheckpointConfig(
                    checkpoint_frequency=given.checkpoint_freq,
                    checkpoint_at_end=given.checkpoint_at_end,
                ),
            ),
        ).fit()
    for result in grid:
        if result.checkpoint is not None:
            click.echo(result.checkpoint.path)
    if grid.num_errors:
        raise CommandError(
            f"{grid.num_errors} of {len(grid)} trials failed: see their errors above"
        )


@contextmanager
def command_errors() -> Iterator[None]:
    """Turn errors about options and environments into errors of the command."""
    try:
        yield
    except (ValueError, TypeError, ImportError, FileNotFoundError, EnvError) as error:
        raise CommandError(str(error)) from error
