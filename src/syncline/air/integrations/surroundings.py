"""`Surroundings`: in which trial, or as which worker of a trainer, the code runs that asks."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.train.session import current_session
from syncline.train.storage import StorageContext
from syncline.tune.trainable.session import TrialSession


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """None for everything outside of trials and training functions."""

    trial_id: str | None = None
    trial_name: str | None = None
    """In a worker of a trainer, the name of its run."""
    experiment_name: str | None = None
    """The name of the search, or of the trainer's run."""
    rank: int | None = None
    """The number of the trainer's worker; None in a trial, which has no ranks."""
    storage: StorageContext | None = None
    """Where the trainer's run keeps its files; None in a trial, and where nothing is kept."""

    @classmethod
    def now(cls) -> Surroundings:
        """Those of the caller."""
        session = current_session()
        if session is None:
            return cls()
        if isinstance(session, TrialSession):
            facts = session.facts
            return cls(
                trial_id=facts.trial_id,
                trial_name=facts.trial_name,
                experiment_name=facts.experiment_name,
            )
        name = session.experiment_name
        return cls(
            trial_name=name,
            experiment_name=name,
            rank=session.world_rank,
            storage=None if session.local_mode else session.storage,
        )
