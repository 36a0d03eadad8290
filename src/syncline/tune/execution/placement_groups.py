"""Resources of a trial: bundles that are reserved as a whole.

Covered: `PlacementGroupFactory`, the argument of programs, and `Gang`, for trials that are
trainers. Not covered: the reservation (`workers/reservations.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from syncline.core.placement import PlacementStrategy
from syncline.suggestions import check_resource_names

_RENAMED = {"cpu": "CPU", "gpu": "GPU"}


class PlacementGroupFactory:
    """Resources of a trial in bundles, which are reserved as a whole.

    The trainable runs in the first bundle; its tasks and actors run in the others. An empty first
    bundle, `{}`, means that the trainable itself needs no resources.

    Args:
        bundles: Amounts by resource name, such as `[{"CPU": 1}, {"CPU": 2, "GPU": 1}]`.
        strategy: PACK and STRICT_PACK place bundles on one machine (if possible, always), SPREAD
            and STRICT_SPREAD on different ones.

    Raises:
        ValueError: No bundles, only empty ones, a negative amount, or an unknown strategy.
        TypeError: `bundles` is not a list of dictionaries.
    """

    def __init__(
        self,
        bundles: Sequence[Mapping[str, float]],
        strategy: PlacementStrategy = "PACK",
        **_ignored: object,
    ) -> None:
        if (
            isinstance(bundles, Mapping)
            or not isinstance(bundles, Sequence)
            or not all(isinstance(item, Mapping) for item in bundles)
        ):
            raise TypeError(
                f"PlacementGroupFactory({bundles!r}): pass a list of dictionaries such as "
                "[{'CPU': 1}]."
            )
        if strategy not in get_args(PlacementStrategy):
            raise ValueError(
                f"PlacementGroupFactory(strategy={strategy!r}): use one of "
                f"{', '.join(get_args(PlacementStrategy))}."
            )
        self._bundles = [_checked(bundle) for bundle in bundles]
        self._strategy: PlacementStrategy = strategy
        if not any(self._bundles) and not self._may_be_empty:
            raise ValueError(
                f"PlacementGroupFactory({list(bundles)!r}) reserves nothing: pass a bundle with an "
                "amount, such as [{'CPU': 1}]."
            )

    _may_be_empty = False

    @property
    def bundles(self) -> list[dict[str, float]]:
        """All bundles, without zero amounts."""
        return [dict(bundle) for bundle in self._bundles]

    @property
    def strategy(self) -> PlacementStrategy:
        """Placement of the bundles on machines."""
        return self._strategy

    @property
    def head_bundle_is_empty(self) -> bool:
        """True if the trainable itself needs no resources."""
        return not self._bundles or not self._bundles[0]

    @property
    def head_bundle(self) -> dict[str, float]:
        """Resources of the trainable itself."""
        return dict(self._bundles[0]) if self._bundles else {}

    @property
    def head_cpus(self) -> float:
        """CPUs of the trainable itself."""
        return self.head_bundle.get("CPU", 0.0)

    @property
    def required_resources(self) -> dict[str, float]:
        """Sum of all bundles."""
        total: dict[str, float] = {}
        for bundle in self._bundles:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0.0) + amount
        return total

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlacementGroupFactory):
            return NotImplemented
        return (
            type(self) is type(other)
            and self._bundles == other._bundles
            and self._strategy == other._strategy
        )

    def __hash__(self) -> int:
        return hash(
            (self._strategy, tuple(tuple(sorted(bundle.items())) for bundle in self._bundles))
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(bundles={self._bundles!r}, strategy={self._strategy!r})"


class Gang(PlacementGroupFactory):
    """Resources of a trial that is a trainer, one bundle per worker; empty if the number of workers
    is unknown.

    Reserved like those of other trials, and lent to the trainer when it reserves its worker group.
    The trial itself needs no resources, so such trials cannot deadlock on each other.
    """

    _may_be_empty = True


def resource_dict_to_pg_factory(
    resources: Mapping[str, Any] | None = None,
) -> PlacementGroupFactory:
    """Return a single bundle for `resources_per_trial={"cpu": 1, "gpu": 0.5}`; one CPU for an empty
    dictionary. `custom_resources` holds further resources of the bundle.
    """
    given = dict(resources or {})
    given |= given.pop("custom_resources", None) or {}
    extra = [name for name in given if name.startswith("extra_")]
    if extra:
        raise ValueError(
            f"resources {given!r}: {extra[0]!r} is no longer supported: use one bundle per "
            "process, as in PlacementGroupFactory([{'CPU': 1}, {'CPU': 2}])."
        )
    bundle = _checked(given)
    return PlacementGroupFactory([bundle if bundle else {"CPU": 1.0}])


def _checked(bundle: Mapping[str, float]) -> dict[str, float]:
    check_resource_names("resources", (name for name in bundle if name not in _RENAMED))
    checked: dict[str, float] = {}
    for name, amount in bundle.items():
        is_number = isinstance(amount, (int, float)) and not isinstance(amount, bool)
        if not isinstance(name, str) or not is_number or not 0 <= amount < math.inf:
            raise ValueError(
                f"resources {dict(bundle)!r}: {name!r} must be a name with a finite amount from 0 "
                f"up, not {amount!r}."
            )
        if amount:
            checked[_RENAMED.get(name, name)] = float(amount)
    return checked
