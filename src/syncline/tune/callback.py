"""`Callback`: hooks for programs to watch a search; `CallbackList`: calls the hooks of several
callbacks.

All calls come from the thread of the search, in this order:

    setup                                   once, before the first trial; also after a restore
    on_step_begin … on_step_end             around each step of the controller, which may call:
      on_trial_start                        a trial starts, also after a pause, failure or restore
      on_trial_restore                      … from a checkpoint
      on_trial_result                       a trial reported
      on_checkpoint, on_trial_save          a checkpoint was registered
      on_trial_recover                      a trial failed and will restart
      on_trial_complete | on_trial_error    a trial terminated or failed
    on_experiment_end                       once, however the search ends

Searcher and scheduler see a result, or an end, before the callbacks. Callbacks observe: an
exception in a hook is logged and the search continues; only `setup` may abort it.
"""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from syncline.train.checkpoint import Checkpoint
    from syncline.tune.experiment.trial import Trial
    from syncline.tune.stopper import Stopper

_T = TypeVar("_T")

logger = logging.getLogger("syncline")


class Callback:
    """Base class with empty hooks.

    `iteration` is the number of results so far. `trials` is the controller's own list of all
    trials; do not modify it. Later versions may pass more keyword arguments, so overriding methods
    take `**info`. A slow hook delays the search.
    """

    def setup(
        self,
        stop: Stopper | None = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: object,
    ) -> None:
        """Called once, before the first trial.

        Args:
            stop: The stopper of trials and search.
            num_samples: Number of samples of the search space; -1 for no limit.
            total_num_samples: Number of trials, including the points of grids.
            info: Arguments of later versions.
        """

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: object) -> None:
        """Called before a step of the controller."""

    def on_step_end(self, iteration: int, trials: list[Trial], **info: object) -> None:
        """Called after a step of the controller; `iteration` includes it."""

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: object
    ) -> None:
        """Called when a trial starts, from iteration `trial.restored_iteration`."""

    def on_trial_restore(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: object
    ) -> None:
        """Called when a trial starts from a checkpoint."""

    def on_trial_save(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: object
    ) -> None:
        """Called after a checkpoint was registered as `trial.checkpoint`."""

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: object,
    ) -> None:
        """Called after a trial reported. Do not modify `result`."""

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: object
    ) -> None:
        """Called after a trial terminated."""

    def on_trial_recover(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: object
    ) -> None:
        """Called after a trial failed, before it restarts; schedulers get no notice."""

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: object
    ) -> None:
        """Called after the final failure of a trial."""

    def on_checkpoint(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        checkpoint: Checkpoint,
        **info: object,
    ) -> None:
        """Called after a checkpoint of a trial was registered."""

    def on_experiment_end(self, trials: list[Trial], **info: object) -> None:
        """Called at the end of the search."""

    def get_state(self) -> dict[str, Any] | None:
        """Return picklable state for a restore of the search; None if there is none."""
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the value of `get_state`; called when the search is restored."""


_HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class CallbackList:
    """Calls the hooks of several callbacks in order. Hooks take keyword arguments only.

    The first exception of each hook is logged with its traceback. The search continues, and later
    calls call the hook again.

    Args:
        callbacks: The callbacks.

    Raises:
        TypeError: One of them is not a callback, for example a class.
    """

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        for callback in callbacks:
            if not isinstance(callback, Callback):
                raise TypeError(_not_a_callback(callback))
        self._callbacks = list(callbacks)
        self._failed: set[tuple[int, str]] = set()
        # A search calls thousands of hooks per second; most are not overridden.
        self._overriding = {
            hook: [one for one in enumerate(self._callbacks) if _overrides(one[1], hook)]
            for hook in _HOOKS
        }

    def setup(self, **info: object) -> None:
        """Set up all callbacks. Exceptions propagate."""
        for callback in self._callbacks:
            # Older callbacks have a `setup` without parameters.
            parameters = inspect.signature(callback.setup).parameters
            callback.setup(**(info if parameters else {}))  # type: ignore[arg-type]

    def call(self, hook: str, **info: object) -> None:
        """Call a hook of all callbacks that override it."""
        for position, callback in self._overriding[hook]:
            try:
                getattr(callback, hook)(**info)
            except Exception:
                self._log_failure(position, hook)

    def __getattr__(self, hook: str) -> Callable[..., None]:
        """Return a function that calls a hook: `callbacks.on_step_end(…)`."""
        if hook not in _HOOKS:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {hook!r}")
        return partial(self.call, hook)

    def get_state(self) -> dict[str, Any] | None:
        """Return the states of the callbacks, None without any. The key is the class and the
        position among callbacks of that class, so that the list may change before a restore.
        """
        states: dict[str, Any] = {}
        for position, (name, callback) in enumerate(self._named()):
            state = self._attempt(position, "get_state", callback.get_state)
            if state:
                states[name] = state
        return states or None

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the value of `get_state`. Callbacks without an entry keep their state."""
        for position, (name, callback) in enumerate(self._named()):
            if name in state:
                self._attempt(position, "set_state", partial(callback.set_state, state[name]))

    def _named(self) -> Iterator[tuple[str, Callback]]:
        seen: Counter[str] = Counter()
        for callback in self._callbacks:
            kind = type(callback).__qualname__
            yield f"{kind}-{seen[kind]}", callback
            seen[kind] += 1

    def _attempt(self, position: int, method: str, call: Callable[[], _T]) -> _T | None:
        try:
            return call()
        except Exception:
            self._log_failure(position, method)
            return None

    def _log_failure(self, position: int, method: str) -> None:
        """Log the current exception if it is the first one of this method."""
        if (position, method) in self._failed:
            return
        self._failed.add((position, method))
        name = f"{type(self._callbacks[position]).__name__}.{method}"
        logger.exception(
            "The callback %s failed. The search continues; further failures of it are not logged.",
            name,
        )


def _overrides(callback: Callback, hook: str) -> bool:
    return getattr(type(callback), hook) is not getattr(Callback, hook) or hook in vars(callback)


def _not_a_callback(given: object) -> str:
    kind = "a class, not an instance" if isinstance(given, type) else f"a {type(given).__name__}"
    return f"callbacks=[…, {given!r}] contains {kind}: pass instances of syncline.tune.Callback."
