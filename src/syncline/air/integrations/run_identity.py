"""`RunIdentity`: the trial, or the worker of a trainer, that the calling code belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.train.session import current_session
from syncline.train.storage.context import StorageContext
from syncline.tune.trainable.session import TrialSession


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """Identity of the calling code; all None outside of trials and training functions."""

    trial_id: str | None = None
    trial_name: str | None = None
    """Name of the trial, or of the trainer's run."""
    experiment_name: str | None = None
    """Name of the search, or of the trainer's run."""
    rank: int | None = None
    """World rank of the trainer's worker; None in a trial."""
    storage: StorageContext | None = None
    """Storage of the trainer's run; None in a trial and in local mode."""

    @classmethod
    def current(cls) -> RunIdentity:
        """Return the identity of the caller."""
        session = current_session()
        if session is None:
            return cls()
        if isinstance(session, TrialSession):
            info = session.info
            return cls(
                trial_id=info.trial_id,
                trial_name=info.trial_name,
                experiment_name=info.experiment_name,
            )
        name = session.experiment_name
        return cls(
            trial_name=name,
            experiment_name=name,
            rank=session.world_rank,
            storage=None if session.local_mode else session.storage,
        )
