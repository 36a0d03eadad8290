"""Requests about a running job, without processes."""

import pytest

from syncline.launcher.live_actions import LiveActions, LiveError
from syncline.train.workers.profiling import cpu_profile


class RemoteFiles:
    """A directory on remote storage."""

    local_path = None

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        return self.content.get(name)

    def write(self, name: str, data: bytes) -> None:
        self.content[name] = data


@pytest.fixture
def actions(monkeypatch) -> LiveActions:
    def record(seconds, afterwards_s, target, pid) -> None:
        target.write_text(f"profile of {pid}")

    monkeypatch.setattr(cpu_profile, "record", record)
    actions = LiveActions(lambda: None)
    actions.workers = {0: {"rank": 0, "pid": 4}, 1: {"rank": 1, "pid": 5}}
    return actions


def test_profiles_are_written_to_remote_storage(actions):
    actions.files = RemoteFiles()
    name = actions.answer("profile", {"rank": 1, "kind": "cpu"})["file"]
    assert name.startswith("profiles/")
    assert "-rank-1-" in name
    assert actions.files.content == {name: b"profile of 5"}


def test_a_run_without_a_record_has_no_place_for_profiles(actions):
    with pytest.raises(LiveError, match="no record"):
        actions.answer("profile", {"rank": 1, "kind": "cpu"})


def test_the_diagnosis_is_known_before_the_workers_start(actions):
    actions.workers = {}
    actions.diagnosis = lambda: {"verdict": None}
    assert actions.answer("diagnosis", {}) == {"verdict": None}
    with pytest.raises(LiveError, match="not started"):
        actions.answer("stacks", {})


def test_unknown_actions_and_ranks_are_refused(actions):
    with pytest.raises(ValueError, match="workers, stacks, profile, diagnosis, stop"):
        actions.answer("dance", {})
    with pytest.raises(LiveError, match="only ranks 0-1"):
        actions.answer("stacks", {"ranks": [7]})
