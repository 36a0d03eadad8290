"""`Places`: what trials hold, reserved together or not at all, and given back the moment that a
trial ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from syncline.core import api
from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import PlacementGroup
from syncline.tune.execution.placement_groups import PlacementGroupFactory


class Places:
    """A placement group for each trial that has a process, or is about to. Used from one thread.

    Args:
        held: Called with a trial's id and its place when that is reserved, on any thread; the place
        may have been given back meanwhile.
    """

    def __init__(self, held: Callable[[str, PlacementGroup | None], None]) -> None:
        self._held = held
        self._groups: dict[str, PlacementGroup] = {}
        self._in_use: dict[str, float] = {}
        self._counted: set[PlacementGroup] = set()
        self._inner: dict[str, list[PlacementGroup]] = {}

    def reserve(self, trial_id: str, factory: PlacementGroupFactory) -> None:
        """Begin to reserve a trial's place. ValueError, with the numbers, where it can never be
        had.
        """
        bundles = [bundle for bundle in factory.bundles if bundle]
        if not bundles:
            self._held(trial_id, None)
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
            lambda value, error: self._held(trial_id, group) if error is None else None,
        )

    def of(self, trial_id: str) -> PlacementGroup | None:
        """A trial's place; None if it holds nothing."""
        return self._groups.get(trial_id)

    def has_come(self, trial_id: str) -> None:
        """A trial's place is reserved now."""
        group = self._groups.get(trial_id)
        if group is not None:
            self._counted.add(group)
            self._count(group, +1)

    def lend(self, trial_id: str) -> None:
        """A trial's place is free for the trainer inside it."""
        self._remove(self._groups.pop(trial_id, None))

    def adopt(self, trial_id: str, group: PlacementGroup) -> None:
        """A trainer inside the trial reserves this group. It is given back with the trial's place,
        should the trainer not do so.
        """
        inner = self._inner.setdefault(trial_id, [])
        for earlier in inner:  # a trainer that starts its workers again has given that back
            self._uncount(earlier)
        inner.append(group)
        self._counted.add(group)
        self._count(group, +1)

    def set_apart(self, trial_id: str, name: str) -> None:
        """A trial's place is that of `name` from now on: its process cleans up, and meanwhile the
        trial may reserve another place.
        """
        group = self._groups.pop(trial_id, None)
        if group is not None:
            self._groups[name] = group
        if trial_id in self._inner:
            self._inner[name] = self._inner.pop(trial_id)

    def give_back(self, trial_id: str) -> None:
        """A trial holds nothing any more, and what trainers inside it have reserved is free, too:
        their workers end.
        """
        for group in (self._groups.pop(trial_id, None), *self._inner.pop(trial_id, ())):
            self._remove(group)

    def close(self) -> None:
        """Nothing is held any more, nor waited for."""
        for trial_id in {*self._groups, *self._inner}:
            self.give_back(trial_id)

    @property
    def in_use(self) -> Mapping[str, float]:
        """What all trials hold, by resource."""
        return {name: amount for name, amount in self._in_use.items() if amount > 1e-9}

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
    """ValueError where nodes with these resources can never hold the bundles, each on one node."""
    names = {name for bundle in bundles for name in bundle}
    for name in sorted(names):
        amounts = [bundle.get(name, 0.0) for bundle in bundles]
        there = [node.get(name, 0.0) for node in nodes]
        together, largest = sum(amounts), max(amounts)
        if together > sum(there) + 1e-9:
            _refuse(name, f"{together:g} {name}", f"there are {sum(there):g}")
        if largest > max(there, default=0.0) + 1e-9:
            at_once = f"{largest:g} {name} in one bundle, which lies on one machine,"
            _refuse(name, at_once, f"the largest machine has {max(there, default=0.0):g}")


def _refuse(name: str, asked: str, there: str) -> None:
    lower = {"CPU": "'cpu'", "GPU": "'gpu'"}.get(name, repr(name))
    declare = {"CPU": "num_cpus=…", "GPU": "num_gpus=…"}.get(name, f"resources={{{name!r}: …}}")
    raise ValueError(
        f"a trial needs {asked} but {there}, so it can never run: ask for less with `tune.with_resources(trainable, {{{lower}: …}})`"
        f" (`resources_per_trial` of `tune.run`), or say how much there is with `syncline.init({declare})`."
    )
