"""`Experiment`: what to train, from the command line, a YAML file or a Python file."""

from __future__ import annotations

import json
import runpy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from syncline.cli.output import CommandError
from syncline.cli.rl.listing import algorithm_class
from syncline.optional import load
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.suggestions import did_you_mean

_FIELDS = frozenset(
    {"run", "env", "stop", "config", "checkpoint_freq", "checkpoint_at_end", "num_samples"}
    | {"checkpoint_config", "local_dir", "storage_path", "pass_criteria", "restore"}
)
"""Keys of an experiment in a YAML file."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One training, or a search if `num_samples` or the configuration asks for one."""

    config: AlgorithmConfig
    stop: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None
    """Name of the run; None to derive it."""
    checkpoint_freq: int = 0
    """Iterations between two checkpoints; 0 for one at the end only."""
    checkpoint_at_end: bool = True
    num_samples: int = 1

    @property
    def algorithm(self) -> str:
        """Name of the algorithm."""
        return str(getattr(self.config.algo_class, "__name__", ""))

    @property
    def is_search(self) -> bool:
        """True if there are several trials."""
        return self.num_samples > 1 or _has_domains(self.config.to_dict())


def from_options(algo: str, env: str | None, options: Mapping[str, object]) -> Experiment:
    """Return the experiment of a command line.

    Raises:
        CommandError: An unknown algorithm or option.
    """
    return Experiment(config=_configured(algo, env, options))


def from_file(path: str) -> list[Experiment]:
    """Return the experiments in a file.

    A YAML file has the format of RLlib: by name, `run`, `env`, `stop` and `config`. A Python file
    defines `config`, an `AlgorithmConfig`, and may define `stop`.

    Raises:
        CommandError: The file has another content.
    """
    if path.endswith(".py"):
        return [_from_python(path)]
    yaml = load("yaml", purpose="A YAML file of experiments", install="pyyaml")
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise CommandError(f"{path} is no YAML: {error}") from error
    if not isinstance(content, Mapping) or not content:
        raise CommandError(
            f"{path} has no experiments. It maps names to experiments: `cartpole: {{run: PPO, env: "
            "CartPole-v1, stop: {…}, config: {…}}`."
        )
    return [_from_yaml(path, str(name), given) for name, given in content.items()]


def _from_yaml(path: str, name: str, given: object) -> Experiment:
    if not isinstance(given, Mapping) or "run" not in given:
        raise CommandError(f"{path}: the experiment {name!r} has no `run`, its algorithm.")
    for key in given:
        if key not in _FIELDS:
            raise CommandError(
                f"{path}: the experiment {name!r} has an unknown key {key!r}."
                f"{did_you_mean(key, _FIELDS)}"
            )
    options = dict(given.get("config") or {})
    env = given.get("env") or options.pop("env", None)
    checkpoints = dict(given.get("checkpoint_config") or {})
    frequency = given.get("checkpoint_freq") or checkpoints.get("checkpoint_frequency") or 0
    return Experiment(
        config=_configured(str(given["run"]), env, options),
        stop=dict(given.get("stop") or {}),
        name=name,
        checkpoint_freq=int(frequency),
        num_samples=int(given.get("num_samples") or 1),
    )


def _from_python(path: str) -> Experiment:
    found = runpy.run_path(path)
    config = found.get("config")
    if not isinstance(config, AlgorithmConfig):
        raise CommandError(
            f"{path} defines no `config`: assign one, such as `config = PPOConfig().environment("
            "'CartPole-v1')`; `stop = {…}` is optional."
        )
    if config.algo_class is None:
        raise CommandError(f"{path}: `config` belongs to no algorithm: use one such as PPOConfig.")
    return Experiment(config=config, stop=dict(found.get("stop") or {}))


def _configured(algo: str, env: str | None, options: Mapping[str, object]) -> AlgorithmConfig:
    config: AlgorithmConfig = algorithm_class(algo).get_default_config()  # type: ignore[attr-defined]
    known = list(config.keys())
    for name in options:
        if name not in known and not hasattr(config, name):
            raise CommandError(f"{algo} has no option {name!r}.{did_you_mean(name, known)}")
    config.update_from_dict(options)
    if env is not None:
        config.env = env
    return config


def parsed_json(ctx: click.Context, option: click.Parameter, text: str | None) -> dict[str, Any]:
    """Return the object in an option's JSON."""
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no JSON ({error})") from error
    if not isinstance(value, dict):
        raise click.BadParameter(f"{text!r} is no JSON object, such as '{{\"lr\": 0.001}}'")
    return value


def parsed_settings(
    ctx: click.Context, option: click.Parameter, texts: Sequence[str]
) -> dict[str, Any]:
    """Return the values of repeated NAME=VALUE options; a value is JSON or a plain text."""
    found: dict[str, Any] = {}
    for text in texts:
        name, is_set, value = text.partition("=")
        if not is_set:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _has_domains(value: object) -> bool:
    """Return True if a configuration contains a grid search or a distribution of `tune`."""
    if isinstance(value, Mapping):
        return "grid_search" in value or any(map(_has_domains, value.values()))
    return hasattr(value, "sample") and hasattr(value, "is_valid")
