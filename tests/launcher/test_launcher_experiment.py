"""`syncline run --metric`: verdicts, the ledger, restored files, and kills at any moment."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from syncline.launcher import experiment, launch, options
from syncline.launcher.run_deletion import delete_run
from syncline.runs import run_list
from syncline.runs.experiments import Ledger, Revert, Verdict, best_of, read_experiment
from syncline.runs.run_directory import RunDirectory
from syncline.runs.run_storage import LocalDirectory
from syncline.testing.programs import is_alive
from syncline.testing.waiting import eventually
from tests.launcher.test_launcher_working_tree import git

PRINT = "import os, sys; print('loss=' + sys.argv[1])"


def arguments(*program: str, **given: str | bool) -> list[str]:
    found = []
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        found += [option] if value is True else [option, str(value)]
    return [*found, "--", *program]


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SYNCLINE_STORAGE_PATH", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)  # of the test runner
    return tmp_path / "runs"


@pytest.fixture
def repository(storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    (root / "loss.txt").write_text("loss=5\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    monkeypatch.chdir(root)
    return root


def run(words: Sequence[str]) -> int:
    return launch.main(words)


def compare(value: str, **given: str | bool) -> int:
    return run(arguments(sys.executable, "-c", PRINT, value, metric="loss", **given))


def cat(**given: str | bool) -> int:
    """Run an experiment whose value is in a file of the repository."""
    return run(arguments("cat", "loss.txt", metric="loss", keep_best=True, **given))


def verdicts(storage: Path) -> list[str]:
    return [one.verdict.value if one.verdict else "" for one in Ledger(str(storage)).all()]


def test_values_are_compared_with_the_best_one_before(storage: Path) -> None:
    codes = [compare(value) for value in ("3", "2", "2", "2.5", "nan", "-1")]
    assert codes == [0] * 6
    assert verdicts(storage) == ["better", "better", "worse", "worse", "worse", "better"]
    best = best_of(Ledger(str(storage)).all())
    assert best is not None
    assert best.value == -1
    assert [one.number for one in Ledger(str(storage)).all()] == [1, 2, 3, 4, 5, 6]


def test_the_largest_value_is_the_best_one_with_mode_max(storage: Path) -> None:
    for value in ("3", "2", "4"):
        compare(value, mode="max")
    assert verdicts(storage) == ["better", "worse", "better"]


def test_groups_and_metrics_are_compared_separately(storage: Path) -> None:
    compare("1", group="a")
    compare("2", group="b")
    run(arguments("echo", "other=3", metric="other", group="a"))
    assert verdicts(storage) == ["better"] * 3


def test_json_is_all_that_is_printed_to_stdout(
    storage: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert compare("3", json=True, budget="1m", name="first") == 0
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert (found["verdict"], found["value"], found["best"]) == ("better", 3.0, None)
    assert (found["budget_s"], found["exit_code"], found["run"]) == (60.0, 0, "first")
    assert found["path"] == str(storage / "first")
    assert "loss=3" in err


def test_without_json_the_output_is_shown_and_the_verdict_after_it(
    storage: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    compare("3", name="first")
    compare("4")
    out, err = capfd.readouterr()
    assert out == "loss=3\nloss=4\n"
    assert "worse: loss 4; the best so far is 3 of first" in err


def test_a_program_that_fails_or_prints_no_value_has_failed(storage: Path) -> None:
    failing = "print('loss=1'); raise SystemExit(7)"
    assert run(arguments(sys.executable, "-c", failing, metric="loss")) == 7
    assert run(arguments("echo", "nothing", metric="loss")) == 1
    assert run(arguments("/no/such/program", metric="loss")) == 1
    assert verdicts(storage) == ["failed"] * 3
    first, second, third = Ledger(str(storage)).all()
    assert (first.value, first.exit_code) == (1.0, 7)
    assert "no value of 'loss'" in second.error
    assert "cannot be started" in third.error
    assert best_of([first, second, third]) is None


@pytest.mark.parametrize(
    ("number", "cause"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGRTMIN + 1, "signal ")]
)
def test_a_program_that_a_signal_ended_has_failed(number: int, cause: str, storage: Path) -> None:
    script = f"import os; os.kill(os.getpid(), {int(number)})"
    assert run(arguments(sys.executable, "-c", script, metric="loss")) == 1
    (found,) = Ledger(str(storage)).all()
    assert found.verdict is Verdict.FAILED
    assert f"the program was killed by {cause}" in found.error


def test_the_end_of_the_budget_ends_the_program_and_what_it_started(
    storage: Path, tmp_path: Path
) -> None:
    script = (
        "import subprocess, time; print('loss=1', flush=True);"
        "child = subprocess.Popen(['sleep', '600']); open('pid', 'w').write(str(child.pid));"
        "time.sleep(600)"
    )
    began = time.monotonic()
    assert run(arguments(sys.executable, "-c", script, metric="loss", budget="2s")) == 124
    assert time.monotonic() - began < 60
    (found,) = Ledger(str(storage)).all()
    assert found.verdict is Verdict.OVER_BUDGET
    assert found.value == 1.0
    pid = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text()


def test_the_end_of_the_program_ends_what_it_started(storage: Path, tmp_path: Path) -> None:
    script = "sleep 600 > /dev/null 2>&1 & echo $! > pid; echo loss=1"
    assert run(arguments("sh", "-c", script, metric="loss")) == 0
    eventually(lambda: not is_alive(int((tmp_path / "pid").read_text())))


def test_the_record_lists_the_experiment_with_its_metrics_and_log(storage: Path) -> None:
    run(arguments("echo", '{"loss": 2, "acc": 0.5}', metric="loss", name="one"))
    (summary,) = run_list.list_runs(LocalDirectory(str(storage)))
    assert summary.state == "finished"
    assert summary.metrics == {"loss": 2.0, "acc": 0.5}
    assert summary.experiment is not None
    assert summary.experiment["verdict"] == "better"
    assert json.loads(json.dumps(summary.as_json()))["experiment"]["value"] == 2.0
    assert '{"loss": 2' in (storage / "one" / "logs" / "rank-0.log").read_text()
    assert (storage / "one" / "environment.json").exists()


def test_output_is_read_on_if_its_metrics_cannot_be_recorded(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **given: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(RunDirectory, "report", refuse)
    run(arguments("seq", "-f", "loss=%g", "20000", metric="loss", budget="60s"))
    (found,) = Ledger(str(storage)).all()
    assert (found.verdict, found.value) == (Verdict.BETTER, 20000.0)


def test_the_files_of_the_best_experiment_are_restored(storage: Path, repository: Path) -> None:
    file = repository / "loss.txt"
    cat()  # 5
    file.write_text("loss=3\n")
    cat()
    assert file.read_text() == "loss=3\n"  # better: kept
    file.write_text("loss=4\n")
    (repository / "new.txt").write_text("new\n")
    cat(name="worse")
    assert file.read_text() == "loss=3\n"
    assert not (repository / "new.txt").exists()
    file.write_text("no value\n")
    cat()
    assert file.read_text() == "loss=3\n"
    assert [one.revert for one in Ledger(str(storage)).all()] == [
        *(None, None),
        *(Revert.DONE, Revert.DONE),
    ]
    diff = (storage / "worse" / "working_tree.diff").read_text()
    assert "+loss=4" in diff
    assert "+new" in diff
    assert git(repository, "show", "refs/syncline/worse:loss.txt") == "loss=4"


def test_the_reference_to_the_files_is_deleted_with_the_record(
    storage: Path, repository: Path
) -> None:
    assert (cat(name="one"), cat(name="two")) == (0, 0)
    one = LocalDirectory(storage / "one")
    lock = repository / ".git" / "refs" / "syncline" / "one.lock"
    lock.write_text("")  # as another git would
    with pytest.raises(ValueError, match=r"refs/syncline/one.*Repair the repository"):
        delete_run(one)
    assert (storage / "one").exists()
    lock.unlink()
    delete_run(one)
    assert not (storage / "one").exists()
    kept = git(repository, "for-each-ref", "--format=%(refname)", "refs/syncline")
    assert kept == "refs/syncline/two"
    shutil.rmtree(repository / ".git")
    delete_run(LocalDirectory(storage / "two"))
    assert not (storage / "two").exists()


def test_without_a_best_experiment_the_commit_is_restored(repository: Path) -> None:
    (repository / "loss.txt").write_text("broken\n")
    cat()
    assert (repository / "loss.txt").read_text() == "loss=5\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--budget", "5m", "--", "true"], "--metric val_loss"),
        (["--metric", "x", "--no-record", "--", "true"], "--no-record has no effect"),
        (["--metric", "x", "--storage-path", "s3://b/r", "--", "true"], "local directories only"),
        (["--metric", "x", "--keep-best", "--", "true"], "git init"),
        (["--metric", "", "--", "true"], "--metric val_loss"),
        (["--metric", "x", "--storage-path", "/dev/null/x", "--", "true"], "in /dev/null/x: Not a"),
        (["--metric", "x", "--name", "a..b", "--", "true"], "--name 'a..b' names a directory"),
        (["--metric", "x", "--name", "my run", "--", "true"], "--name 'my run' names a directory"),
    ],
)
def test_invalid_options_are_refused_before_anything_runs(
    storage: Path, words: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 1
    assert message in capfd.readouterr().err
    assert verdicts(storage) == [] if storage.exists() else True


def test_a_name_is_used_once(storage: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert compare("1", name="one") == 0
    assert compare("0", name="one") == 1
    assert "there is a run 'one'" in capfd.readouterr().err
    assert verdicts(storage) == ["better"]


def test_options_of_the_launcher_are_passed_on_to_its_job() -> None:
    words = ["--metric", "x", "-n", "2", "--budget=5m", "--json", "--name", "a", "t.py", "--metric"]
    command = experiment.program(options.parse(words), words)
    assert command[1:] == ["-m", "syncline", "run", "--no-record", "-n", "2", "t.py", "--metric"]
    given = ("--metri", "x", "--budg", "5m", "--max-r", "3", "-n2", "-m", "--keep")
    words = [*given, "a", "--json"]
    command = experiment.program(options.parse(words), words)
    assert command[5:] == ["--max-r", "3", "-n2", "-m", "a", "--json"]
    words = ["--metric", "x", "--", "python", "t.py", "--", "y"]
    assert experiment.program(options.parse(words), words) == ["python", "t.py", "--", "y"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("300s", 300.0), ("5m", 300.0), ("1.5h", 5400.0)]
)
def test_budgets(text: str, seconds: float) -> None:
    assert options.parse(["--budget", text, "--metric", "x", "t.py"]).budget == seconds


@pytest.mark.parametrize("text", ["0", "-1s", "5 minutes", "inf", "nan", ""])
def test_budgets_that_are_no_time(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parse([f"--budget={text}", "--metric", "x", "t.py"])
    assert "no time above zero" in capfd.readouterr().err


def test_a_damaged_record_is_left_out(storage: Path) -> None:
    compare("1", name="one")
    (storage / "one" / "experiment.json").write_text('{"run": "one"}')
    assert read_experiment(str(storage / "one")) is None
    assert compare("2") == 0
    assert verdicts(storage) == ["better"]


# -- kills


def forked(words: Sequence[str], faults: str = "") -> int:
    """Run an experiment in a forked process, which the caller may kill; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        if faults:
            from syncline import faults as injected

            injected.configure(faults)
        os._exit(run(words))
    finally:
        os._exit(70)


def test_a_kill_ends_the_program_and_what_it_started(storage: Path, tmp_path: Path) -> None:
    script = "sleep 600 & echo $! $$ > started; kill -s KILL $PPID; wait; true"  # at once
    pid = forked(arguments("sh", "-c", script, metric="loss", name="killed"))
    assert ended(pid) == -signal.SIGKILL
    pids = [int(pid) for pid in (tmp_path / "started").read_text().split()]
    eventually(lambda: not any(map(is_alive, pids)))
    assert run_list.summarize_run(LocalDirectory(str(storage / "killed"))).state == "killed"


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("point", ["begun", "trained", "decided", "restored"])
def test_a_kill_loses_no_experiment_and_the_next_one_restores_the_files(
    point: str, storage: Path, repository: Path
) -> None:
    file = repository / "loss.txt"
    cat(name="best")
    file.write_text("loss=9\n")
    words = arguments("cat", "loss.txt", metric="loss", keep_best=True, name="killed")
    assert ended(forked(words, f"experiment.{point}=kill:1")) == -signal.SIGKILL
    killed = read_experiment(str(storage / "killed"))
    assert killed is not None
    assert "loss=9" in (storage / "killed" / "working_tree.diff").read_text()
    assert (killed.verdict is Verdict.WORSE) == (point in ("decided", "restored"))
    summary = run_list.summarize_run(LocalDirectory(str(storage / "killed")))
    assert summary.state == "killed"
    words = arguments("true", metric="loss", keep_best=True, name="next")
    run(words)  # a failure without changes of its own
    if point in ("decided", "restored"):
        assert file.read_text() == "loss=5\n"
        again = read_experiment(str(storage / "killed"))
        assert again is not None
        assert again.revert is Revert.DONE


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_fifty_kills_in_a_thousand_experiments_lose_no_record(
    storage: Path, repository: Path
) -> None:
    """Each program writes a file with its name first, so it is known which ones have started."""
    chosen = random.Random(1)
    killed = set(chosen.sample(range(1000), 50))
    values: dict[str, float] = {}
    started = storage.parent / "started"
    started.mkdir()
    took = 0.05
    for number in range(1000):
        name, value = f"run-{number:04d}", round(chosen.uniform(0, 100), 3)
        (repository / "loss.txt").write_text(f"loss={value}\n")
        script = f"touch {started / name}; cat loss.txt"
        words = arguments("sh", "-c", script, metric="loss", keep_best=True, name=name)
        began = time.monotonic()
        pid = forked(words)
        if number in killed:
            time.sleep(chosen.uniform(0, 1.1 * took))
            os.kill(pid, signal.SIGKILL)
        code = ended(pid)
        if code == 0:
            values[name] = value
            if number not in killed:
                took = time.monotonic() - began
        else:
            assert number in killed, (name, code)
    found: dict[str, Any] = {one.run: one for one in Ledger(str(storage)).all()}
    ends = {name: found[name].value for name in values}
    assert ends == values
    assert {path.name for path in started.iterdir()} <= found.keys()
    best = best_of(list(found.values()))
    assert best is not None
    decided = [
        one.value for one in found.values() if one.verdict in (Verdict.BETTER, Verdict.WORSE)
    ]
    assert best.value == min(decided)
    for name, one in found.items():
        if one.verdict is not None:
            earlier = [other for other in found.values() if other.number < one.number]
            assert (one.verdict is Verdict.BETTER) == (
                one.value < min((o.value for o in earlier if o.verdict), default=101)
            ), name
    (repository / "loss.txt").write_text("broken\n")
    cat(name="last")
    assert (repository / "loss.txt").read_text() == f"loss={best.value}\n"
    listed = subprocess.run(
        [sys.executable, "-m", "syncline", "runs", str(storage), "--json"],
        capture_output=True,
        check=True,
    )
    summaries = json.loads(listed.stdout)["runs"]
    assert {one["name"] for one in summaries if one["experiment"]} == {*found, "last"}
    assert all(one["state"] != "unreadable" for one in summaries)
