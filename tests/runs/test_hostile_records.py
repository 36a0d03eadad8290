"""Records written to attack readers: too large, too deep, of invalid forms, or with links."""

import json
import math
import os
from pathlib import Path

import pytest

from syncline import runs
from syncline.runs import json_values, run_list, run_storage, tailing
from syncline.runs.experiments import Best, Experiment, Ledger
from syncline.runs.metric_series import MAX_MEMBERS, MAX_NAME_LENGTH, MAX_NAMES, Series
from syncline.runs.run import MAX_OBJECT_BYTES
from syncline.runs.run_list import list_run_names, summarize_run
from syncline.runs.run_storage import FileInfo, LocalDirectory, open_directory
from syncline.runs.secrets import MASK, masked, masked_code, masked_text
from syncline.runs.tailing import LineReader, LogReader, log_files

HUGE = "1" + "0" * 400
DESCRIBED = (
    '{"format": 1, "kind": "train", "name": "a", "started": 1.0, "config": {}, "environment": '
    '{"hostname": "another"}}'
)


def made(directory: Path, described: str = DESCRIBED, **files: str) -> Path:
    """Write a run directory; `metrics` is the content of `metrics.jsonl`, and so on."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "run.json").write_text(described)
    for name, text in files.items():
        (
            directory
            / (
                f"{name}.json"
                if name in ("outcome", "checkpoints", "trials", "latest")
                else f"{name}.jsonl"
            )
        ).write_text(text)
    return directory


# -- parsing


def test_numbers_that_no_float_holds_become_infinite_and_large_ones_floats() -> None:
    assert json_values.parse_json(f"[{HUGE}, -{HUGE}, 1e400, {2**64}, {2**53}]".encode()) == [
        math.inf,
        -math.inf,
        math.inf,
        float(2**64),
        2**53,
    ]


def test_halves_of_characters_are_replaced_in_names_and_values() -> None:
    assert json_values.parse_json(b'{"\\ud800a": ["\\uDFFF", "\\ud83d\\ude00"]}') == {
        "?a": ["?", "\U0001f600"]
    }


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10_000,
        "[" * (json_values.MAX_DEPTH + 1) + "]" * (json_values.MAX_DEPTH + 1),
        '{"a":' * (json_values.MAX_DEPTH + 1) + "1" + "}" * (json_values.MAX_DEPTH + 1),
        "[" + "0," * json_values.MAX_VALUES + "0]",
        "[" + "{}," * json_values.MAX_VALUES + "0]",
        "1" * 10_000,
        "",
    ],
    ids=len,
)
def test_what_is_too_deep_or_too_much_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        json_values.parse_json(text.encode())


def test_usual_values_stay_as_they_are() -> None:
    value = {"a": [1, -2.5, 0.00012345678901234567, None, True, "ü"], "b": {"c": "\\"}}
    assert json_values.parse_json(json.dumps(value).encode()) == value
    assert json_values.needs_no_repair(json.dumps(value).encode())


# -- lines


def test_a_line_that_looks_like_two_records_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1},{"b": 2}\n{"c": 3}\n')
    reader = LineReader(LocalDirectory(tmp_path), "x.jsonl")
    assert (reader.read(), reader.unreadable) == ([{"c": 3}], 1)


def test_lines_are_read_up_to_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailing, "MAX_LINES", 10)
    (tmp_path / "lines.jsonl").write_text("{}\n" * 11)
    reader = LineReader(LocalDirectory(tmp_path), "lines.jsonl")
    reader.read()
    with (tmp_path / "lines.jsonl").open("a") as file:
        file.write("{}\n" * 100)
    assert (reader.read(), reader.is_full) == ([], True)
    monkeypatch.setattr(tailing, "MAX_VALUES", 5)
    (tmp_path / "values.jsonl").write_text('{"a": [1, 2, 3, 4, 5, 6]}\n')
    reader = LineReader(LocalDirectory(tmp_path), "values.jsonl")
    reader.read()
    assert (reader.is_full, reader.values) == (True, 7)


def test_nothing_is_read_behind_a_line_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailing, "BATCH_BYTES", 10)
    monkeypatch.setattr(tailing, "MAX_LINE_LENGTH", 100)
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n{"b": "' + "x" * 1_000)
    reader = LineReader(LocalDirectory(tmp_path), "x.jsonl")
    assert (reader.read(), reader.is_full) == ([{"a": 1}], True)
    run = runs.open(made(tmp_path, events='{"event": "' + "x" * 1_000))
    assert run.problems == ["the part of events.jsonl beyond the size limit"]


def test_a_line_of_a_log_that_never_ends_comes_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailing, "MAX_BEGUN_LENGTH", 10)
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "rank-0.log"
    log.write_text("progress 10 %\rprogress 2")
    reader = LogReader(LocalDirectory(tmp_path), "rank-0")
    assert reader.lines() == []
    log.write_text("progress 10 %\rprogress 20 % and so on")
    assert reader.lines() == ["progress 20 % and so on"]


def test_logs_with_odd_names_are_listed(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in (b"rank-10.log", b"rank-2.log", "²".encode() + b".log", b"rank-\xff.log"):
        (tmp_path / "logs" / os.fsdecode(name)).touch()
    assert [file.member for file in log_files(LocalDirectory(tmp_path))] == [
        "²",
        "rank-2",
        "rank-10",
    ]


# -- runs


@pytest.mark.parametrize(
    ("described", "files"),
    [
        (
            DESCRIBED,
            {"metrics": f'{{"iteration": {HUGE}, "time": 1, "rank": 0, "metrics": {{"a": 1}}}}\n'},
        ),
        (
            DESCRIBED,
            {"metrics": '{"iteration": 1e400, "time": 1, "rank": 0, "metrics": {"a": 1}}\n'},
        ),
        (
            DESCRIBED,
            {
                "metrics": f'{{"iteration": 1, "time": {HUGE}, "rank": "²",'
                f' "metrics": {{"a": {HUGE}}}}}\n'
            },
        ),
        (
            DESCRIBED,
            {
                "metrics": f'{{"iteration": 1, "time": 1, "rank": "{"1" * 9_000}",'
                ' "metrics": {"a": 1}}\n'
            },
        ),
        (
            DESCRIBED,
            {
                "events": f'{{"event": "attempt", "time": {HUGE},'
                ' "workers": [1, {"rank": {}}]}\n'
            },
        ),
        (DESCRIBED, {"outcome": f'{{"status": ["x"], "time": {HUGE}, "error": {{}}}}'}),
        (
            DESCRIBED,
            {
                "checkpoints": '{"checkpoints": "abc"}',
                "events": '{"event": "checkpoint", "time": 1}\n',
            },
        ),
        (DESCRIBED, {"workers": f'{{"rank": 0, "time": {HUGE}, "usage": {{"gpus": 5}}}}\n'}),
        (DESCRIBED.replace("1.0", HUGE), {}),
        (DESCRIBED.replace("1.0", "NaN"), {}),
        (DESCRIBED.replace('"another"', f'"{"h"}", "pid": {HUGE}'), {}),
        (
            DESCRIBED.replace('"train"', '"tune"'),
            {
                "trials": f'{{"trials": {{"RUNNING": {HUGE}}},'
                f' "expected": {HUGE}, "results": {HUGE}}}'
            },
        ),
        (DESCRIBED.replace('"train"', '["train"]').replace('"a"', "[5]"), {}),
    ],
)
def test_values_of_any_form_are_summed_up_and_opened(
    tmp_path: Path, described: str, files: dict[str, str]
) -> None:
    directory = made(tmp_path / "a", described, **files)
    assert isinstance(summarize_run(open_directory(directory)).state, str)
    run = runs.open(directory)
    run.refresh()
    assert (run.summary.path, len(run.series.members) <= 1, len(run.attempts) <= 1) == (
        str(directory),
        True,
        True,
    )


def test_a_record_that_nests_too_deeply_cannot_be_read(tmp_path: Path) -> None:
    directory = made(
        tmp_path / "a", DESCRIBED.replace('"config": {}', '"config": ' + "[" * 900 + "]" * 900)
    )
    with pytest.raises(ValueError, match=r"no readable run\.json"):
        runs.open(directory)


def test_a_start_that_is_no_number_does_not_have_everything_read_again(tmp_path: Path) -> None:
    run = runs.open(
        made(tmp_path / "a", DESCRIBED.replace("1.0", "NaN"), events='{"event": "x", "time": 1}\n')
    )
    run.refresh()
    assert len(run.events) == 1


def test_a_summary_is_small_whatever_is_in_the_record(tmp_path: Path) -> None:
    long = "x" * 1_000_000
    described = json.dumps(
        {"name": long, "kind": long, "started": 1.0, "environment": {"hostname": long}}
    )
    metrics = json.dumps(
        {
            "iteration": 0,
            "time": 1,
            "rank": 0,
            "metrics": {f"m{number}": number for number in range(2_000)},
        }
    )
    outcome = json.dumps({"status": long, "time": 2.0, "error": long})
    summary = summarize_run(
        open_directory(made(tmp_path / "a", described, metrics=metrics + "\n", outcome=outcome))
    )
    assert (
        max(len(text or "") for text in (summary.name, summary.kind, summary.host, summary.state))
        <= 300
    )
    assert len(summary.error or "") <= 100_000
    assert len(summary.metrics) <= 1_000


def test_a_record_that_is_larger_than_any_is_not_read_for_a_summary(tmp_path: Path) -> None:
    directory = made(tmp_path / "a")
    with (directory / "events.jsonl").open("wb") as file:
        file.truncate(10 * 1024**3)  # sparse file: takes no disk space
    with (directory / "environment.json").open("wb") as file:
        file.truncate(MAX_OBJECT_BYTES + 1)
    summary = summarize_run(open_directory(directory))
    assert summary.state == "unreadable"
    assert "larger than records of syncline can be" in (summary.error or "")
    assert runs.open(directory).environment == {"hostname": "another"}


def test_a_directory_that_is_closed_hides_no_other_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "closed"):
        made(tmp_path / name)
    facts = LocalDirectory.file_info

    def refused(self: LocalDirectory, name: str) -> FileInfo | None:
        if name.startswith("closed/"):
            raise PermissionError(13, "Permission denied")
        return facts(self, name)

    monkeypatch.setattr(LocalDirectory, "file_info", refused)
    assert [name for name, _ in list_run_names(LocalDirectory(tmp_path))] == ["a"]
    monkeypatch.setattr(
        LocalDirectory,
        "file_info",
        lambda self, name: (_ for _ in ()).throw(PermissionError(13, "Permission denied")),
    )
    assert run_list.summarize_run(open_directory(tmp_path / "closed")).state == "unreadable"


EXPERIMENT = Experiment(
    run="run",
    group="g",
    number=1,
    command=("a",),
    metric="loss",
    mode="min",
    started=1.0,
    directory="/",
    best=Best(run="b", value=2.0),
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        *(
            json.dumps({**EXPERIMENT.as_json(), **changed})
            for changed in (
                {"error": 5},
                {"metrics": 5},
                {"value": "abc"},
                {"started": "abc"},
                {"best": {"run": "b", "value": []}},
            )
        ),
    ],
)
def test_a_damaged_experiment_is_none(tmp_path: Path, text: str) -> None:
    directory = made(tmp_path / "run")
    (directory / "experiment.json").write_text(json.dumps(EXPERIMENT.as_json()))
    assert runs.open(directory).summary.experiment == EXPERIMENT.as_json()
    (directory / "experiment.json").write_text(text)
    assert summarize_run(open_directory(str(directory))).experiment is None
    assert runs.open(directory).summary.experiment is None
    assert Ledger(str(tmp_path)).all() == []


def test_an_experiment_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(made(tmp_path / "run") / "experiment.json")
    assert runs.open(tmp_path / "run").summary.experiment is None


# -- series


def test_names_and_members_have_limits() -> None:
    series = Series()
    series.extend(
        {"iteration": 0, "time": 1.0, "rank": rank, "metrics": {"a": 1.0}}
        for rank in range(MAX_MEMBERS + 10)
    )
    assert len(series.members) == MAX_MEMBERS
    series = Series()
    for number in range(6):  # enough for a block of lines
        series.extend(
            [
                {
                    "iteration": number,
                    "time": 1.0,
                    "rank": 0,
                    "metrics": {"x" * (MAX_NAME_LENGTH + 1): 1.0, "a": 1.0},
                }
            ]
            * 6
        )
    series.extend(
        [
            {
                "iteration": 9,
                "time": 1.0,
                "rank": 0,
                "metrics": {f"m{number}": 1.0 for number in range(50_000)},
            }
        ]
    )
    assert series.names[0] == "a"
    assert len(series.names) == MAX_NAMES


# -- storage


def test_a_place_that_becomes_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "storage" / "run" / "logs").mkdir(parents=True)
    (tmp_path / "secret" / "logs").mkdir(parents=True)
    for name in ("storage/run", "secret"):
        (tmp_path / name / "logs" / "rank-0.log").write_text(name)
    run = LocalDirectory(tmp_path / "storage").subdirectory("run")
    assert run.read_range("logs/rank-0.log", 0) == b"storage/run"
    (tmp_path / "storage" / "run").rename(tmp_path / "before")
    (tmp_path / "storage" / "run").symlink_to(tmp_path / "secret")
    for use in (run.file_info, run.read, lambda name: run.read_range(name, 0)):
        with pytest.raises(ValueError, match="symbolic link"):
            use("logs/rank-0.log")
    assert run.file_names("logs") == []
    assert run.file_infos("logs") == {}
    assert (
        LocalDirectory(tmp_path / "storage" / "run").read("logs/rank-0.log") == b"secret"
    )  # a link in the path given by the user


def test_only_so_many_names_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_storage, "MAX_ENTRIES", 5)
    for number in range(20):
        (tmp_path / f"{number}.log").touch()
    assert (
        len(LocalDirectory(tmp_path).file_names(""))
        == len(LocalDirectory(tmp_path).file_infos(""))
        == 5
    )


# -- secrets


@pytest.mark.parametrize(
    "text",
    [
        "A" * 300_000,
        "a-" * 150_000,
        "eyJ" * 100_000,
        "--a" * 100_000,
        "a://" * 75_000,
        "-----BEGIN A " * 23_000,
        '="' * 150_000,
        "a" + " " * 300_000,
    ],
    ids=lambda text: text[:8],
)
def test_any_text_is_masked_in_a_time_in_proportion_to_its_length(text: str) -> None:
    """Patterns must not backtrack from each letter of a word: this would not end."""
    assert masked_text(text) == text
    masked_code(text)


def test_command_lines_and_headers_in_values_lose_their_secrets() -> None:
    value = {
        "command": "train.py --token abc --epochs 3",
        "headers": ["Authorization: xyz"],
        "diff": "-API_KEY = 'abc'\n+api_key = 'abd'",
    }
    assert masked(value) == {
        "command": f"train.py --token {MASK} --epochs 3",
        "headers": [f"Authorization: {MASK}"],
        "diff": f"-API_KEY = {MASK}\n+api_key = {MASK}",
    }
