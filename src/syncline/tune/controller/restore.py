"""A search as bytes, and back: the machine with its trials and scheduler, the searcher, the
callbacks; then what the journal adds.
"""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
from pyarrow import fs as pyarrow_fs

from syncline.train.checkpoint import Checkpoint
from syncline.train.storage import StorageContext
from syncline.tune.callback import CallbackList
from syncline.tune.controller import events
from syncline.tune.controller.events import Instruction
from syncline.tune.controller.journal import POINTER_FILE, SearchStore
from syncline.tune.controller.state import TuneMachine
from syncline.tune.experiment.trial import Trial
from syncline.tune.search.search_algorithm import SearchAlgorithm


def snapshot(machine: TuneMachine, search: SearchAlgorithm, callbacks: CallbackList) -> bytes:
    """Everything that a search knows."""
    state = {"machine": machine, "search": search.get_state(), "callbacks": callbacks.get_state()}
    return bytes(cloudpickle.dumps(state))


def restore(
    store: SearchStore, search: SearchAlgorithm, callbacks: CallbackList
) -> tuple[TuneMachine, list[Instruction]]:
    """The machine as it was after the last event that was written down; `search` and `callbacks`
    are made as they were, too.

    Also what follows from that event: a kill may have come before it was carried out. All that came
    before was.

    Raises:
        FileNotFoundError: No search has been kept there.
    """
    data, journal = store.load()
    state: dict[str, Any] = pickle.loads(data)
    machine: TuneMachine = state["machine"]
    search.set_state(state["search"])
    if state["callbacks"]:
        callbacks.set_state(state["callbacks"])
    machine.search_alg = search
    instructions: list[Instruction] = []
    for event in journal:
        if isinstance(event, (events.Suggested, events.NothingSuggested)):
            _ask_again(search, event)
        instructions = machine.handle(event)
        for instruction in instructions:
            if isinstance(instruction, events.TellResult):
                search.on_trial_result(instruction.trial_id, dict(instruction.result))
            elif isinstance(instruction, events.TellComplete):
                result = dict(instruction.result) if instruction.result is not None else None
                search.on_trial_complete(instruction.trial_id, result, instruction.error)
    return machine, instructions


def load_trials(path: str, filesystem: pyarrow_fs.FileSystem | None = None) -> list[Trial]:
    """The trials of the search that was kept in a directory, wherever that lies by now; nothing is
    written.

    Raises:
        FileNotFoundError: No search has been kept there.
    """
    storage = storage_at(path, filesystem)
    store = SearchStore(storage.files)
    if not store.exists():
        raise FileNotFoundError(
            f"{path!r} holds no {POINTER_FILE}, so no search was kept there: give the experiment directory itself, that is "
            "`storage_path`/`name` of its RunConfig, or `results.experiment_path`."
        )
    data, journal = store.load()
    machine: TuneMachine = pickle.loads(data)["machine"]
    for event in journal:
        machine.handle(event)
    move(machine, storage)
    return list(machine.trials)


def storage_at(path: str, filesystem: pyarrow_fs.FileSystem | None) -> StorageContext:
    """The experiment directory at a path."""
    parent, _, name = path.rstrip("/").rpartition("/")
    return StorageContext(parent or ".", name, filesystem)


def move(machine: TuneMachine, storage: StorageContext) -> None:
    """The experiment directory lies at `storage` now."""
    old = machine.rules.storage
    if old == storage:
        return
    machine.move_to(storage)
    before = old.experiment_fs_path.rstrip("/") + "/"
    after = storage.experiment_fs_path.rstrip("/") + "/"

    def moved(checkpoint: Checkpoint) -> Checkpoint:
        if not checkpoint.path.startswith(before):
            return checkpoint
        return Checkpoint(after + checkpoint.path[len(before) :], storage.storage_filesystem)

    for trial in machine.trials:
        trial.move_to(
            StorageContext(
                storage.experiment_fs_path, trial.relative_logdir, storage.storage_filesystem
            ),
            moved,
        )


def _ask_again(search: SearchAlgorithm, event: events.Suggested | events.NothingSuggested) -> None:
    """Have the searcher go through the same steps. What counts is what it said then, should it say
    something else now.
    """
    if isinstance(event, events.Suggested):
        search.next_trial(event.trial_id)
    elif not search.is_finished():
        search.next_trial("")
