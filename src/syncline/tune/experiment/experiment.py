"""`Experiment`: the older definition of a search, for `tune.run` and `tune.run_experiments`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

_OLDER = {"run": None, "upload_dir": None}


class Experiment:
    """Definition of a search.

    Args:
        name: Name of the experiment directory.
        run: The trainable.
        arguments: Other arguments of `tune.run`: `config`, `stop`, `num_samples`,
            `resources_per_trial`, `storage_path`, `checkpoint_config`, `max_failures`, …
    """

    def __init__(
        self, name: str, run: str | Callable[..., object] | type, **arguments: Any
    ) -> None:
        self.name = name
        self.trainable = run
        self.arguments = arguments

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> Experiment:
        """Return the experiment for a dictionary `{"run": trainable, …}`.

        Raises:
            ValueError: `spec` has no `run`.
        """
        if "run" not in spec:
            raise ValueError(
                f"the experiment {name!r} has no trainable: add `'run': trainable` to "
                f"{sorted(spec)}."
            )
        return cls(
            name, spec["run"], **{key: value for key, value in spec.items() if key not in _OLDER}
        )

    @classmethod
    def several(cls, given: object) -> list[Experiment]:
        """Return the experiments in an argument of `run_experiments`.

        Raises:
            TypeError: `given` has an unknown type.
        """
        if isinstance(given, Experiment):
            return [given]
        if isinstance(given, Mapping):
            return [cls.from_json(name, spec) for name, spec in given.items()]
        if isinstance(given, Sequence) and not isinstance(given, str):
            return [experiment for item in given for experiment in cls.several(item)]
        raise TypeError(
            f"a {type(given).__name__} is no experiment: {given!r:.80}. Pass Experiment objects or "
            "{name: {'run': …}}."
        )
