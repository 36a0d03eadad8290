"""`TrialReservations`: the placement groups of trials. A group is reserved as a whole and released
when its trial ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from syncline.core import api
from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import PlacementGroup
from syncline.suggestions import did_you_mean
from syncline.tune.execution.placement_groups import PlacementGroupFactory


class TrialReservations:
    """One placement group per trial that runs or is about to. Not thread-safe.

    Args:
        on_ready: Called with a trial's id and its group when the group is ready, on any thread. The
            group may have been released meanwhile. It is None if the trial needs no resources.
    """

    def __init__(self, on_ready: Callable[[str, PlacementGroup | None], None]) -> None:
        self._on_ready = on_ready
        self._groups: dict[str, PlacementGroup] = {}
        self._in_use: dict[str, float] = {}
        self._counted: set[PlacementGroup] = set()
        self._inner: dict[str, list[PlacementGroup]] = {}

    def reserve(self, trial_id: str, factory: PlacementGroupFactory) -> None:
        """Start to reserve the resources of a trial.

        Raises:
            ValueError: The cluster can never hold them; the message has the numbers.
        """
        bundles = [bundle for bundle in factory.bundles if bundle]
        if not bundles:
            self._on_ready(trial_id, None)
            return
        engine = ensure_engine()
        if not engine.may_grow:
            check_possible(bundles, [node["Resources"] for node in api.nodes() if node["Alive"]])
        group_id = engine.create_placement_group(
            bundles, strategy=factory.strategy, name="", detached=False
        )
        group = self._groups[trial_id] = PlacementGroup(group_id, bundles)
        engine.on_value(
            group.ready(),
            lambda value, error: self._on_ready(trial_id, group) if error is None else None,
        )

    def group_of(self, trial_id: str) -> PlacementGroup | None:
        """Return the placement group of a trial; None without one."""
        return self._groups.get(trial_id)

    def count_ready(self, trial_id: str) -> None:
        """Count the ready group of a trial as in use."""
        group = self._groups.get(trial_id)
        if group is not None:
            self._counted.add(group)
            self._count(group, +1)

    def lend(self, trial_id: str) -> None:
        """Remove the group of a trial, so that the trainer inside it can reserve its workers."""
        self._remove(self._groups.pop(trial_id, None))

    def adopt(self, trial_id: str, group: PlacementGroup) -> None:
        """Add a group that a trainer inside the trial reserves. It is released with the trial if
        the trainer does not release it.
        """
        inner = self._inner.setdefault(trial_id, [])
        for earlier in inner:  # a trainer that restarts its workers has released it
            self._uncount(earlier)
        inner.append(group)
        self._counted.add(group)
        self._count(group, +1)

    def rename(self, trial_id: str, name: str) -> None:
        """Keep the groups of a trial under `name` while its process cleans up, so that the trial
        may reserve again.
        """
        group = self._groups.pop(trial_id, None)
        if group is not None:
            self._groups[name] = group
        if trial_id in self._inner:
            self._inner[name] = self._inner.pop(trial_id)

    def release(self, trial_id: str) -> None:
        """Remove all groups of a trial. Workers of trainers inside it end."""
        for group in (self._groups.pop(trial_id, None), *self._inner.pop(trial_id, ())):
            self._remove(group)

    def close(self) -> None:
        """Remove all groups, also the ones that are not ready."""
        for trial_id in {*self._groups, *self._inner}:
            self.release(trial_id)

    @property
    def in_use(self) -> Mapping[str, float]:
        """Reserved amounts of all trials, by resource."""
        return {name: amount for name, amount in self._in_use.items() if amount > 1e-9}

    def usage(self, total: Mapping[str, float]) -> str:
        """Return a line with the CPUs and GPUs in use of `total`."""
        parts = [
            f"{self.in_use.get(name, 0.0):g}/{amount:g} {name}s"
            for name, amount in total.items()
            if name in ("CPU", "GPU")
        ]
        return f"Logical resource usage: {', '.join(parts)}"

    def _remove(self, group: PlacementGroup | None) -> None:
        if group is not None:
            ensure_engine().remove_placement_group(group.id)
            self._uncount(group)

    def _uncount(self, group: PlacementGroup) -> None:
        if group in self._counted:
            self._counted.remove(group)
            self._count(group, -1)

    def _count(self, group: PlacementGroup, sign: int) -> None:
        for bundle in group.bundle_specs:
            for name, amount in bundle.items():
                self._in_use[name] = self._in_use.get(name, 0.0) + sign * amount


def check_possible(
    bundles: Sequence[Mapping[str, float]], nodes: Sequence[Mapping[str, float]]
) -> None:
    """Check that nodes with these resources can hold the bundles, each bundle on one node.

    Raises:
        ValueError: They cannot, even when idle.
    """
    for name in sorted({name for bundle in bundles for name in bundle}):
        amounts = [bundle.get(name, 0.0) for bundle in bundles]
        available = [node.get(name, 0.0) for node in nodes]
        if sum(amounts) > sum(available) + 1e-9:
            existing = {other for node in nodes for other, amount in node.items() if amount}
            _refuse(
                name,
                f"{sum(amounts):g} {name}",
                f"the cluster has {sum(available):g}",
                hint="" if name in existing else did_you_mean(name, existing),
            )
        largest = max(available, default=0.0)
        if max(amounts) > largest + 1e-9:
            _refuse(
                name,
                f"{max(amounts):g} {name} in one bundle, that is on one machine,",
                f"the largest machine has {largest:g}",
            )


def _refuse(name: str, needed: str, available: str, hint: str = "") -> None:
    key = {"CPU": "'cpu'", "GPU": "'gpu'"}.get(name, repr(name))
    declared = {"CPU": "num_cpus=…", "GPU": "num_gpus=…"}.get(name, f"resources={{{name!r}: …}}")
    raise ValueError(
        f"a trial needs {needed} but {available}, so it can never run: request less with "
        f"`tune.with_resources(trainable, {{{key}: …}})` or `resources_per_trial` of `tune.run`, "
        f"or declare the resources with `syncline.init({declared})`.{hint}"
    )
