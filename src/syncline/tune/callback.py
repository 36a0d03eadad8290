"""`Callback`: what a program overrides to watch a search; `CallbackList`: how the controller calls
several.

The order of the calls, all from the thread in which the search runs:

    setup                                   once, before anything starts; also after a restore
    on_step_begin … on_step_end             around each step of the controller, in which any of the following may come
      on_trial_start                        a trial begins, or begins again after a pause, a failure or a restore
      on_trial_restore                      … and goes on from a checkpoint
      on_trial_result                       it has reported
      on_checkpoint, on_trial_save          a checkpoint of it has been kept
      on_trial_recover                      it has failed, and will be started again
      on_trial_complete | on_trial_error    it has ended, well or not
    on_experiment_end                       once, however the search ends

Search algorithm and scheduler have seen a result, or an end, before the callbacks do. Callbacks
observe: an exception in one is logged and the search goes on; only `setup` may refuse to start it.
"""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncline.train.checkpoint import Checkpoint
    from syncline.tune.experiment.trial import Trial
    from syncline.tune.stopper import Stopper

logger = logging.getLogger("syncline")


class Callback:
    """Override what is of interest; every method does nothing by default.

    Common arguments: `iteration` is the number of the controller's step, `trials` the list of all
    trials, which is the controller's own and must not be changed. More keyword arguments may come
    in a later version, so overriding methods take `**info`. A slow method delays the search.
    """

    def setup(
        self,
        stop: Stopper | None = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Called once, before the first trial.

        Args:
            stop: When trials end; a time budget is part of it.
            num_samples: How often the search space is sampled; -1 for no limit.
            total_num_samples: How many trials that makes, with the points of grids counted.
            info: What later versions add.
        """

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """The controller begins a step."""

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """The controller has finished a step; `iteration` counts it already."""

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """A trial runs now; `trial.restored_iteration` says from which iteration it goes on."""

    def on_trial_restore(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """A trial has got its checkpoint back."""

    def on_trial_save(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """A checkpoint of a trial has been kept; it is `trial.checkpoint`."""

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """A trial has reported `result`, which must not be changed."""

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """A trial has ended without failure."""

    def on_trial_recover(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """A trial has failed and will be started again. Search algorithm and scheduler do not learn
        of it.
        """

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """A trial has failed for good."""

    def on_checkpoint(
        self, iteration: int, trials: list[Trial], trial: Trial, checkpoint: Checkpoint, **info: Any
    ) -> None:
        """A checkpoint of a trial has been kept."""

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """The search is over."""

    def get_state(self) -> dict[str, Any] | None:
        """What the callback needs to know when the search is restored, picklable; None if
        nothing.
        """
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` returned; called when the search is restored."""


_HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class CallbackList:
    """Calls the hooks of several callbacks, in their order. Hooks take keyword arguments only.

    A hook that raises is logged with its traceback the first time; the search goes on, and the hook
    is called again next time.

    Args:
        callbacks: Which ones.

    Raises:
        TypeError: One of them is no callback: its class, for example.
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

    def setup(self, **info: Any) -> None:
        """Set up all; what one raises goes to the caller."""
        for callback in self._callbacks:
            # Older callbacks have a `setup` without parameters.
            callback.setup(**(info if inspect.signature(callback.setup).parameters else {}))

    def on_step_begin(self, **info: Any) -> None:
        """As the method of `Callback`, for all of them; likewise the following."""
        self._call("on_step_begin", info)

    def on_step_end(self, **info: Any) -> None:
        """See `on_step_begin`."""
        self._call("on_step_end", info)

    def on_trial_start(self, **info: Any) -> None:
        """See `on_step_begin`."""
        self._call("on_trial_start", info)

    def on_trial_restore(self, **info: Any) -> None:
        """See `on_step_begin`."""
        self._call("on_trial_restore", info)

    def on_trial_save(self, **info: Any) -> None:
        """See `on_step_begin`."""
        self._call("on_trial_save", info)

    def on_trial_result(self, **info: Any) -> None:
        """See `on_step_begin`."""
        self._call("on_trial_result", info)

    def on_trial_complete(self, **info: Any) -> None:
        """See `on_step_begin`."""
        self._call("on_trial_complete", info)

    def on_trial_recover(self, **info: Any) -> None:
        """See `on_step_begin`."""
        self._call("on_trial_recover", info)

    def on_trial_error(self, **info: Any) -> None:
        """See `on_step_begin`."""
        self._call("on_trial_error", info)

    def on_checkpoint(self, **info: Any) -> None:
        """See `on_step_begin`."""
        self._call("on_checkpoint", info)

    def on_experiment_end(self, **info: Any) -> None:
        """See `on_step_begin`."""
        self._call("on_experiment_end", info)

    def get_state(self) -> dict[str, Any] | None:
        """The states of those that have one, by class and number among its equals, so that a
        changed list still finds its own; None if there are none.
        """
        states: dict[str, Any] = {}
        for position, (name, callback) in enumerate(self._named()):
            state = self._attempt(position, "get_state", callback.get_state)
            if state:
                states[name] = state
        return states or None

    def set_state(self, state: dict[str, Any]) -> None:
        """Give back what `get_state` returned; callbacks that are not in it keep what they have."""
        for position, (name, callback) in enumerate(self._named()):
            if name in state:
                self._attempt(position, "set_state", partial(callback.set_state, state[name]))

    def __len__(self) -> int:
        return len(self._callbacks)

    def __getitem__(self, position: int) -> Callback:
        return self._callbacks[position]

    def __iter__(self) -> Iterator[Callback]:
        return iter(self._callbacks)

    def _named(self) -> Iterator[tuple[str, Callback]]:
        seen: Counter[str] = Counter()
        for callback in self._callbacks:
            kind = type(callback).__qualname__
            yield f"{kind}-{seen[kind]}", callback
            seen[kind] += 1

    def _call(self, hook: str, info: dict[str, Any]) -> None:
        for position, callback in self._overriding[hook]:
            try:
                getattr(callback, hook)(**info)
            except Exception:
                self._tell(position, hook)

    def _attempt(self, position: int, method: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception:
            self._tell(position, method)
            return None

    def _tell(self, position: int, method: str) -> None:
        """Log the exception that is being handled, if it is the first of this method."""
        if (position, method) in self._failed:
            return
        self._failed.add((position, method))
        name = f"{type(self._callbacks[position]).__name__}.{method}"
        logger.exception(
            "The callback %s failed; the search goes on without what it would have done. Further failures of it are not shown.",
            name,
        )


def _overrides(callback: Callback, hook: str) -> bool:
    return getattr(type(callback), hook) is not getattr(Callback, hook) or hook in vars(callback)


def _not_a_callback(given: Any) -> str:
    kind = "a class, not an instance" if isinstance(given, type) else f"a {type(given).__name__}"
    return f"callbacks=[…, {given!r}] has {kind}, so the search could not call it: give instances of syncline.tune.Callback."
