"""Names of runs that are taken: by another kind, a live owner, a finished run."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import train, tune
from syncline.runs.environment import process_identity
from syncline.testing import run_program
from syncline.train.controller import name_conflicts


@pytest.fixture
def inline_engine() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def loop(config: dict[str, Any]) -> str:
    for step in range(config.get("steps", 1)):
        with tempfile.TemporaryDirectory() as directory:
            saves = config.get("saves", True)
            checkpoint = train.Checkpoint.from_directory(directory) if saves else None
            train.report({"step": step}, checkpoint=checkpoint)
    return "trained"


def fit(storage: Path, config: dict[str, Any] | None = None, **options: Any) -> train.Result:
    run_config = train.RunConfig(name="run", storage_path=str(storage), **options)
    return train.DataParallelTrainer(loop, train_loop_config=config, run_config=run_config).fit()


def rewrite_environment(storage: Path, **changes: Any) -> None:
    """Let another process have started the run, which has no outcome."""
    file = storage / "run" / "run.json"
    described = json.loads(file.read_text())
    described["environment"].update(changes)
    file.write_text(json.dumps(described))
    (storage / "run" / "outcome.json").unlink(missing_ok=True)


@pytest.mark.usefixtures("inline_engine")
def test_a_finished_run_returns_its_result_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(tmp_path).return_value == "trained"
    again = fit(tmp_path)
    assert again.return_value is None
    assert [report["iteration"] for report in again.reports] == [0]
    assert f"{tmp_path / 'run'} has finished, and this is its result" in capsys.readouterr().err


@pytest.mark.usefixtures("inline_engine")
def test_a_finished_run_continues_with_another_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(tmp_path, {"steps": 1})
    assert fit(tmp_path, {"steps": 2}).return_value == "trained"
    assert "continues from" in capsys.readouterr().err


@pytest.mark.usefixtures("inline_engine")
def test_a_finished_run_without_a_checkpoint_cannot_continue_with_another_configuration(
    tmp_path: Path,
) -> None:
    fit(tmp_path, {"saves": False})
    with pytest.raises(ValueError, match="no checkpoint to continue from"):
        fit(tmp_path, {"saves": False, "steps": 2})
    assert fit(tmp_path, {"saves": False, "steps": 2}, on_conflict="takeover").return_value


@pytest.mark.usefixtures("inline_engine")
def test_a_new_run_gets_the_next_free_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [fit(tmp_path, on_conflict="new").path for _ in range(3)]
    assert paths == [str(tmp_path / name) for name in ("run", "run-2", "run-3")]
    assert "the name 'run' is taken: this run is 'run-3'" in capsys.readouterr().err


@pytest.mark.usefixtures("inline_engine")
def test_a_training_and_a_search_cannot_share_a_name(tmp_path: Path) -> None:
    def search(**options: Any) -> Any:
        run_config = tune.RunConfig(name="run", storage_path=str(tmp_path), verbose=0, **options)
        return tune.Tuner(lambda config: {"loss": 1.0}, run_config=run_config).fit()

    fit(tmp_path)
    with pytest.raises(ValueError, match=r"holds a training run, which a search cannot continue"):
        search()
    results = search(on_conflict="new")
    assert results.experiment_path == str(tmp_path / "run-2")
    with pytest.raises(ValueError, match=r"holds a search, which a training run cannot continue"):
        train.DataParallelTrainer(
            loop, run_config=train.RunConfig(name="run-2", storage_path=str(tmp_path))
        ).fit()


@pytest.mark.usefixtures("inline_engine")
def test_a_live_owner_is_named(tmp_path: Path) -> None:
    fit(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as owner:
        rewrite_environment(tmp_path, pid=owner.pid, process=process_identity(owner.pid))
        with pytest.raises(ValueError, match=rf"process {owner.pid} on .* runs a training run in"):
            fit(tmp_path)
        owner.kill()
    assert fit(tmp_path).return_value == "trained"  # the owner was killed


@pytest.mark.usefixtures("inline_engine")
def test_a_run_that_this_process_left_without_an_outcome_continues(tmp_path: Path) -> None:
    fit(tmp_path)
    rewrite_environment(tmp_path)
    assert fit(tmp_path).return_value == "trained"


@pytest.mark.usefixtures("inline_engine")
def test_an_owner_on_another_host_is_alive_while_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_conflicts, "OBSERVED_S", 2.0)
    fit(tmp_path)
    rewrite_environment(tmp_path, hostname="elsewhere")
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(0.05):
            with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
                file.write("")
            (tmp_path / "run" / "metrics.jsonl").touch()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with pytest.raises(ValueError, match="on elsewhere runs a training run"):
            fit(tmp_path)
    finally:
        ended.set()
        writer.join()
    assert fit(tmp_path).return_value == "trained"


@pytest.mark.parametrize("name", ["a/b", "/a", "..", ".hidden"])
def test_a_name_is_one_directory(name: str) -> None:
    with pytest.raises(ValueError, match="one directory directly below `storage_path`"):
        train.RunConfig(name=name)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="'error', 'takeover' or 'new'"):
        train.RunConfig(on_conflict="replace")


PROGRAM = """
import sys, time
from pathlib import Path
from syncline import train

def loop(config):
    train.report({})
    print("running", flush=True)
    while not Path(config["end"]).exists():
        time.sleep(0.05)
        train.report({})

storage, policy = sys.argv[1:]
train.DataParallelTrainer(
    loop,
    train_loop_config={"end": f"{storage}/end"},
    run_config=train.RunConfig(name="run", storage_path=storage, on_conflict=policy),
).fit()
print("ended well")
"""


@pytest.mark.processes
def test_a_second_start_leaves_the_first_alone_unless_it_takes_over(tmp_path: Path) -> None:
    storage = str(tmp_path)
    with run_program(PROGRAM, storage, "error") as first:
        first.wait_for("running")
        with run_program(PROGRAM, storage, "error") as second:
            assert f"process {first.pid} on" in second.wait().stderr
        with run_program(PROGRAM, storage, "takeover") as third:
            third.wait_for("running")
            assert "Another controller" in first.wait().stderr
            (tmp_path / "end").touch()
            assert "ended well" in third.wait().check().stdout
