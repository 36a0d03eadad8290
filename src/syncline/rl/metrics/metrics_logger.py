"""`MetricsLogger`: a nested dict of stats, to which components and programs log values.

Covered: logging under keys and paths of keys, merging the metrics of components into those of the
root, results with throughputs, exact state. Not covered: the reductions (`stats`), the names that
the library logs (`names`), files (`syncline.rl.record`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeAlias

from syncline.rl.metrics.other_stats import EmaStats, ItemSeriesStats, ItemStats, PercentilesStats
from syncline.rl.metrics.series_stats import (
    LifetimeSumStats,
    MaxStats,
    MeanStats,
    MinStats,
    SumStats,
)
from syncline.rl.metrics.stats import Clock, MetricValue, StatsBase
from syncline.rl.value_types import Options, StateDict
from syncline.suggestions import did_you_mean

Key = Hashable
"""A name, or a tuple of names: the path in the nested dict."""
NestedMetrics: TypeAlias = dict[Any, Any]
"""Values, or their `Stats`, in nested dicts: one level for each part of a key."""

Path = tuple[Hashable, ...]

DEFAULT_STATS_CLS_LOOKUP: dict[str, type[StatsBase]] = {
    cls.stats_cls_identifier: cls
    for cls in (
        MeanStats,
        EmaStats,
        MinStats,
        MaxStats,
        SumStats,
        LifetimeSumStats,
        PercentilesStats,
        ItemStats,
        ItemSeriesStats,
    )
}
"""Classes by the value of `reduce`. Loggers may use an extended table."""

_THROUGHPUT_SUFFIX = "_throughput"


class Timer:
    """Context manager that logs the duration of its block in seconds."""

    __slots__ = ("_clock", "_start", "_stats")

    def __init__(self, stats: StatsBase, clock: Clock) -> None:
        self._stats = stats
        self._clock = clock
        self._start = 0.0

    def __enter__(self) -> Timer:
        self._start = self._clock()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stats.push(self._clock() - self._start)


class MetricsLogger:
    """Collects values under keys, each with its reduction.

    The root logger of an algorithm merges the results of `reduce(compile=False)` of its components
    (env runners, learners). Not thread-safe, except that several threads may run timers
    concurrently.
    """

    def __init__(
        self,
        root: bool = False,
        stats_cls_lookup: dict[str, type[StatsBase]] | None = None,
        *,
        clock: Clock = time.perf_counter,
    ) -> None:
        """`root` loggers keep lifetime sums. `stats_cls_lookup` maps values of `reduce` to classes,
        which may be user-defined.
        """
        self._is_root = root
        self.stats_cls_lookup = stats_cls_lookup or DEFAULT_STATS_CLS_LOOKUP
        self._clock = clock
        self._paths: dict[Path, StatsBase] = {}
        self._push: dict[Key, Callable[[Any], None]] = {}  # by the key as passed by the caller

    # ---- logging ----

    def log_value(
        self,
        key: Key,
        value: object,
        *,
        reduce: str | None = None,
        window: float | None = None,
        ema_coeff: float | None = None,
        percentiles: Sequence[float] | bool | None = None,
        clear_on_reduce: bool | None = None,
        with_throughput: bool | None = None,
        throughput_ema_coeff: float | None = None,
        reduce_per_index_on_aggregate: bool | None = None,
    ) -> None:
        """Log a value under a key.

        The first call for a key determines its reduction; later calls ignore the settings. A
        tensor is read when the value is needed: pass a copy if you change it in place.

        Args:
            key: A name, or a tuple of names for a nested entry.
            value: A number or a tensor with one element; anything for "item" and "item_series".
            reduce: "mean", "sum", "min", "max", "lifetime_sum", "ema", "item" (the latest value),
                "item_series" (list of values), "percentiles", or a name in `stats_cls_lookup`. None
                means "mean" with a window, "percentiles" with percentiles, else "ema".
            window: Number of latest values to reduce. None for all since the last reduce.
            ema_coeff: Weight of a new value in the average; 0.01 if None.
            percentiles: Numbers between 0 and 100; True or None for the default ones.
            clear_on_reduce: Drop the values on reduce. By default windows are kept and other
                values dropped. `reduce="sum", clear_on_reduce=False` is a lifetime sum.
            with_throughput: Add the growth of the sum per second to results.
            throughput_ema_coeff: Ignored.
            reduce_per_index_on_aggregate: Ignored.

        Raises:
            ValueError: Unknown or contradictory settings, or a key that is a group of other keys.
        """
        push = self._push.get(key)
        if push is None:
            settings = {
                "window": window,
                "ema_coeff": ema_coeff,
                "percentiles": percentiles,
                "clear_on_reduce": clear_on_reduce,
                "with_throughput": with_throughput,
            }
            push = self._add(key, reduce, settings).push
            self._push[key] = push
        push(value)

    def log_dict(
        self,
        value_dict: NestedMetrics,
        *,
        key: Key | None = None,
        reduce: str | None = "mean",
        **settings: Any,
    ) -> None:
        """Log all values of a nested dict, under `key` if given; `settings` as for `log_value`."""
        if not isinstance(value_dict, dict):
            raise TypeError(
                f"log_dict() takes a dict of values, but got {type(value_dict).__name__}. Use "
                "log_value() for a single value."
            )
        for path, value in _leaves(value_dict, _as_path(key)):
            self.log_value(path, value, reduce=reduce, **settings)

    def log_time(
        self,
        key: Key,
        *,
        reduce: str | None = "ema",
        window: float | None = None,
        ema_coeff: float | None = None,
        percentiles: Sequence[float] | bool | None = None,
        clear_on_reduce: bool | None = None,
        with_throughput: bool | None = None,
        throughput_ema_coeff: float | None = None,
        reduce_per_index_on_aggregate: bool | None = None,
    ) -> Timer:
        """Return a context manager that logs the duration of its block in seconds; arguments as for
        `log_value`.
        """
        stats = self._paths.get(_as_path(key))
        if stats is None:
            settings = {
                "window": window,
                "ema_coeff": ema_coeff,
                "percentiles": percentiles,
                "clear_on_reduce": clear_on_reduce,
                "with_throughput": with_throughput,
            }
            stats = self._add(key, "mean" if reduce == "ema" and window else reduce, settings)
        return Timer(stats, self._clock)

    def aggregate(self, stats_dicts: Sequence[NestedMetrics], *, key: Key | None = None) -> None:
        """Merge the results of `reduce(compile=False)` of several components in order, under `key`
        if given.

        Raises:
            TypeError: A value is not a stats object.
            ValueError: The reduction of a key differs from the one in this logger.
        """
        prefix = _as_path(key)
        incoming: dict[Path, list[StatsBase]] = {}
        for stats_dict in stats_dicts:
            for path, stats in _leaves(stats_dict, prefix):
                if not isinstance(stats, StatsBase):
                    raise TypeError(
                        f"aggregate() got {stats!r} for {_name(path)}. Pass the results of "
                        "`reduce(compile=False)` of other loggers, or log values with log_value()."
                    )
                incoming.setdefault(path, []).append(stats)
        for path, parts in incoming.items():
            own = self._paths.get(path)
            if own is None:
                own = self._insert(path, parts[0].clone(is_root=self._is_root, clock=self._clock))
            wrong = next((part for part in parts if type(part) is not type(own)), None)
            if wrong is not None:
                raise ValueError(
                    f"{_name(path)} has the reduction {own.stats_cls_identifier!r} here, but a "
                    f"component logged it with {wrong.stats_cls_identifier!r}. Use one reduction "
                    "for a key everywhere."
                )
            own.merge(parts)

    merge_and_log_n_dicts = aggregate

    # ---- reading ----

    def peek(
        self,
        key: Key | None = None,
        default: object = None,
        compile: bool = True,
        throughput: bool = False,
        latest_merged_only: bool = False,
    ) -> MetricValue:
        """Return the reduced value of a key, or a nested dict for a group of keys or None; do not
        change the values.

        Args:
            key: A name or a tuple of names; None for everything.
            default: Value for a key that does not exist.
            compile: If False, values are lists.
            throughput: Return growth per second instead of values.
            latest_merged_only: Use only the values of the latest `aggregate`.

        Raises:
            KeyError: The key does not exist and `default` is None.
        """
        path = _as_path(key)
        stats = self._paths.get(path)
        if stats is not None:
            if not throughput:
                return stats.peek(compile=compile, latest_merged_only=latest_merged_only)
            if not stats.has_throughputs:
                raise ValueError(f"{_name(path)} was logged without `with_throughput=True`.")
            return stats.throughputs
        group = self._group(path)
        if throughput:
            return _nested(_throughputs(group, len(path))) or default
        if group or key is None:
            return _nested(
                (inner[len(path) :], _peek(inner, stats, compile, latest_merged_only))
                for inner, stats in group
            )
        if default is None:
            raise KeyError(f"{_name(path)} was never logged.{self._nearest(path)}")
        return default

    @staticmethod
    def peek_results(results: object, compile: bool = True) -> MetricValue:
        """Replace every stats object in a nested structure with its value."""
        if isinstance(results, StatsBase):
            return results.peek(compile=compile)
        if isinstance(results, dict):
            return {
                name: MetricsLogger.peek_results(value, compile) for name, value in results.items()
            }
        return results

    def reduce(self, compile: bool = False) -> NestedMetrics:
        """Return the results of this period as a nested dict, and start a new period.

        The values are stats objects for the root's `aggregate`, or numbers if `compile` is set.
        """
        results = []
        for path, stats in self._paths.items():
            try:
                results.append((path, stats.reduce(compile=compile)))
            except TypeError as error:
                raise TypeError(f"{_name(path)}: {error}") from error
        return _nested(results)

    def compile(self) -> NestedMetrics:
        """Return the results of this period with throughputs, and start a new period.

        The throughput of `a` is stored as `a_throughput`.
        """
        rates = list(_throughputs(self._paths.items()))
        results = self.reduce(compile=True)
        return _nested(rates, into=results)

    @property
    def stats(self) -> NestedMetrics:
        """The stats objects as a nested dict; a copy."""
        return _nested(self._paths.items())

    def __contains__(self, key: Key) -> bool:
        path = _as_path(key)
        return path in self._paths or bool(self._group(path))

    # ---- state ----

    def reset(self) -> None:
        """Delete all keys."""
        self._paths.clear()
        self._push.clear()

    def delete(self, *key: object, key_error: bool = True) -> None:
        """Delete one key or group of keys, given by its names.

        Raises:
            KeyError: The key does not exist and `key_error` is True.
        """
        path = key[0] if len(key) == 1 and isinstance(key[0], tuple) else key
        doomed = [other for other, _ in self._group(path)]
        if not doomed and key_error:
            raise KeyError(f"{_name(path)} was never logged.{self._nearest(path)}")
        for other in doomed:
            del self._paths[other]
        self._push.clear()

    def get_state(self) -> StateDict:
        """Return all values, including windows, as plain data."""
        return {
            "stats": [
                {"key": list(path), **stats.get_state()} for path, stats in self._paths.items()
            ]
        }

    def set_state(self, state: StateDict) -> None:
        """Replace all values with the state that `get_state` returned."""
        self.reset()
        for saved in state["stats"]:
            cls = self._stats_cls(saved["stats_cls_identifier"])
            self._paths[tuple(saved["key"])] = cls.from_state(saved, self._clock)

    # ---- keys ----

    def _add(self, key: Key, reduce: str | None, settings: Options) -> StatsBase:
        path = _as_path(key)
        stats = self._paths.get(path)
        if stats is None:
            given = {name: value for name, value in settings.items() if _is_given(name, value)}
            reduce = _choose_reduction(reduce, given)
            cls = self._stats_cls(reduce)
            try:
                stats = cls(is_root=self._is_root, clock=self._clock, **given)
            except TypeError as error:
                raise ValueError(
                    f"{_name(path)}: reduce={reduce!r} does not take these settings: {given}."
                ) from error
            self._insert(path, stats)
        return stats

    def _insert(self, path: Path, stats: StatsBase) -> StatsBase:
        leaf = next((path[:n] for n in range(1, len(path)) if path[:n] in self._paths), None)
        group = self._group(path)
        if leaf is not None or group:
            inner, outer = (path, leaf) if leaf is not None else (group[0][0], path)
            raise ValueError(
                f"{_name(outer)} cannot have a value and also contain {_name(inner)}. Choose "
                "another key for one of them."
            )
        self._paths[path] = stats
        return stats

    def _stats_cls(self, reduce: str) -> type[StatsBase]:
        cls = self.stats_cls_lookup.get(reduce)
        if cls is None:
            raise ValueError(
                f"Unknown reduction {reduce!r}.{did_you_mean(str(reduce), self.stats_cls_lookup)} "
                f"Reductions: {', '.join(self.stats_cls_lookup)}."
            )
        return cls

    def _group(self, path: Path) -> list[tuple[Path, StatsBase]]:
        size = len(path)
        return [(other, stats) for other, stats in self._paths.items() if other[:size] == path]

    def _nearest(self, path: Path) -> str:
        return did_you_mean(_joined(path), map(_joined, self._paths))


def _choose_reduction(reduce: str | None, given: Options) -> str:
    """Return the reduction for the settings of the first `log_value`."""
    if reduce is None:
        if "percentiles" in given:
            return "percentiles"
        reduce = "mean" if "window" in given else "ema"
    if reduce == "mean" and "ema_coeff" in given:
        reduce = "ema"
    if reduce == "ema" and "window" in given:
        raise ValueError(
            "An exponential moving average has no window. Use reduce='mean' with `window`, or "
            "reduce='ema' with `ema_coeff`."
        )
    if reduce == "sum" and given.get("clear_on_reduce") is False and "window" not in given:
        reduce = "lifetime_sum"
    return reduce


def _is_given(name: str, value: object) -> bool:
    return value is not None and not (value is False and name != "clear_on_reduce")


def _as_path(key: Key | None) -> Path:
    if key is None:
        return ()
    return key if isinstance(key, tuple) else (key,)


def _joined(path: Path) -> str:
    return "/".join(map(str, path))


def _name(path: Path) -> str:
    return f"The metric {_joined(path)!r}"


def _leaves(nested: NestedMetrics, prefix: Path) -> Iterator[tuple[Path, object]]:
    for name, value in nested.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*prefix, name))
        else:
            yield (*prefix, name), value


def _nested(
    items: Iterable[tuple[Path, object]], into: NestedMetrics | None = None
) -> NestedMetrics:
    root: NestedMetrics = {} if into is None else into
    for path, value in items:
        place = root
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = value
    return root


def _peek(path: Path, stats: StatsBase, compile: bool, latest_merged_only: bool) -> MetricValue:
    try:
        return stats.peek(compile=compile, latest_merged_only=latest_merged_only)
    except TypeError as error:
        raise TypeError(f"{_name(path)}: {error}") from error


def _throughputs(
    items: Iterable[tuple[Path, StatsBase]], skip: int = 0
) -> Iterator[tuple[Path, object]]:
    """Yield the throughputs with their paths without the first `skip` names."""
    for path, stats in items:
        if stats.has_throughputs:
            yield (*path[skip:-1], f"{path[-1]}{_THROUGHPUT_SUFFIX}"), stats.throughputs
