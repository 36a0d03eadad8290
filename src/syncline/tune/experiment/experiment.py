"""`Experiment`: the older way to state a search, for `tune.run` and `tune.run_experiments`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

_OLDER = {"run": None, "upload_dir": None}


class Experiment:
    """A search that is stated apart from its being run.

    Args:
        name: The experiment directory's name. run: What to train. arguments: The arguments of
        `tune.run` that say what to search and what to keep: `config`, `stop`, `num_samples`,
            `resources_per_trial`, `storage_path`, `checkpoint_config`, `max_failures`, …
    """

    def __init__(self, name: str, run: str | Callable[..., Any] | type, **arguments: Any) -> None:
        self.name = name
        self.trainable = run
        self.arguments = arguments

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> Experiment:
        """One stated as a dictionary, `{"run": trainable, …}`. ValueError without `run`."""
        if "run" not in spec:
            raise ValueError(
                f"the experiment {name!r} does not say what to train: add `'run': trainable` to {sorted(spec)}."
            )
        return cls(
            name, spec["run"], **{key: value for key, value in spec.items() if key not in _OLDER}
        )

    @classmethod
    def several(cls, given: Any) -> list[Experiment]:
        """Experiments in any of the forms that `run_experiments` takes. TypeError for others."""
        if isinstance(given, Experiment):
            return [given]
        if isinstance(given, Mapping):
            return [cls.from_json(name, spec) for name, spec in given.items()]
        if isinstance(given, Sequence) and not isinstance(given, str):
            return [experiment for item in given for experiment in cls.several(item)]
        raise TypeError(
            f"experiments are Experiment objects, or {{name: {{'run': …}}}}, not a {type(given).__name__}: {given!r:.80}"
        )
