"""`RunActor`: a run's controller in a process of its own, which lives on when the program that
started it has gone.

The program's side is in `apart`. The actor is detached and named after the run directory, so
whoever knows the run finds it; it ends itself when the run is over and the result has been fetched,
or some time later: the run directory has everything that is needed then.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import cloudpickle

from syncline.core import api
from syncline.core.context import get_runtime_context
from syncline.core.error_frames import pack_error
from syncline.core.tracebacks import user_traceback
from syncline.train.controller.driver import TrainController
from syncline.train.controller.live import LiveError
from syncline.train.controller.story import Attached, Ended, Story, StoryDisplay, Told
from syncline.train.storage import StorageContext
from syncline.train.workers.shipped import Shipped
from syncline.train.workers.spec import RunSpec

NAMESPACE = "syncline"
"""Where the actors of runs have their names, whatever the programs' own namespaces are."""
CONCURRENCY = 24
"""Calls at a time: the streams of all readers, and the short calls beside them."""
FETCH_LIMIT_S = 60.0
"""How long the end of a run waits to be fetched."""
OTHERS_LIMIT_S = 2.0
"""How long it waits for the other readers when one has it."""
LAST_MOMENT_S = 0.1
"""So long the actor lives on after its last answer, so that the answer arrives."""


def run_actor_name(storage: StorageContext) -> str:
    """The name of a run's actor: the run's own, and what tells runs of one name in different places
    apart.
    """
    return f"train:{place_of(storage)}:{storage.experiment_dir_name}"


def place_of(storage: StorageContext) -> str:
    """What stands for the run directory in the name."""
    place = f"{storage.storage_filesystem.type_name}:{storage.experiment_fs_path}"
    return hashlib.blake2b(place.encode(), digest_size=8).hexdigest()


class RunActor:
    """The controller of one run, in a thread; the methods are for programs that are attached."""

    def __init__(self, spec: Shipped, starter: str, path: str) -> None:
        self._starter = starter
        self._path = path
        self._story = Story()
        self._controller: TrainController | None = None
        self._aborted = False
        self._lock = threading.Lock()
        self._self = get_runtime_context().current_actor
        threading.Thread(
            target=self._live, args=(spec,), name="syncline-controller", daemon=True
        ).start()

    def follow(self, reader: str, after: int, pictures: bool) -> Iterator[tuple[Told, ...]]:
        """What the run tells, from line `after` on, to its end; `pictures`: for readers that
        draw.
        """
        yield (Attached(starter=self._starter, path=self._path, fetched=self._story.fetched),)
        yield from self._story.read(reader, after, pictures=pictures)

    def confirm(self, reader: str) -> None:
        """This reader has the end of the run."""
        self._story.confirm(reader)

    def abort(self) -> None:
        """End the run, as Ctrl-C does."""
        with self._lock:
            self._aborted = True
            controller = self._controller
        if controller is not None:
            controller.interrupt()

    def ask(self, action: str, arguments: Mapping[str, Any]) -> Any:
        """What the run answers, as `LiveActions.answer` does. LiveError before it has begun,
        too.
        """
        with self._lock:
            controller = self._controller
        if controller is None:
            raise LiveError(
                "the run is only just starting, so it has no workers yet: ask again in a moment"
            )
        return controller.live.answer(action, arguments)

    def wait_until_ended(self, timeout_s: float) -> bool:
        """Whether the run has ended when this returns, after at most so long."""
        return self._story.wait_until_ended(timeout_s)

    def _live(self, spec: Shipped) -> None:
        """The controller's thread."""
        logging.getLogger("syncline").addHandler(_TellingHandler(self._story))
        try:
            self._story.end(self._run(spec.load()))
        except KeyboardInterrupt:
            self._story.end(Ended(aborted=True))
        except BaseException as error:
            self._story.end(
                Ended(error=pack_error(error, traceback_text=user_traceback(error).rstrip()))
            )
        self._story.wait_until_fetched(FETCH_LIMIT_S, OTHERS_LIMIT_S)
        threading.Event().wait(LAST_MOMENT_S)
        api.kill(self._self)

    def _run(self, spec: RunSpec) -> Ended:
        controller = TrainController(spec, display=StoryDisplay(self._story))
        with self._lock:
            self._controller = controller
            aborted = self._aborted
        if aborted:
            controller.interrupt()
        result, value = controller.run_unloaded()
        return Ended(result=cloudpickle.dumps(result), return_value=value)


class _TellingHandler(logging.Handler):
    """Warnings of the controller, told to those who are attached."""

    def __init__(self, story: Story) -> None:
        super().__init__(logging.INFO)
        self._story = story

    def emit(self, record: logging.LogRecord) -> None:
        self._story.tell(f"syncline: {record.getMessage()}")
