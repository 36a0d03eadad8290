"""Storage directories: no name leads out, and only regular files are read."""

import os

import pytest

from syncline.runs import run_storage
from syncline.runs.run_list import list_run_names
from syncline.runs.run_storage import (
    LocalDirectory,
    RemoteDirectory,
    checked_file_name,
    open_directory,
)


@pytest.fixture(params=["local", "arrow"])
def made(request, tmp_path):
    (tmp_path / "run" / "logs").mkdir(parents=True)
    (tmp_path / "run" / "run.json").write_text("{}")
    (tmp_path / "run" / "logs" / "rank-0.log").write_text("0123456789")
    (tmp_path / "outside").write_text("secret")
    return (
        LocalDirectory(tmp_path / "run")
        if request.param == "local"
        else RemoteDirectory(f"file://{tmp_path}/run")
    )


def test_files_are_listed_and_read_in_parts(made) -> None:
    assert made.directory_names() == ["logs"]
    assert made.file_names("") == ["run.json"]
    assert made.file_names("logs") == ["rank-0.log"]
    assert made.file_names("nothing") == []
    assert made.read_range("logs/rank-0.log", 4, 3) == b"456"
    assert made.read_range("logs/rank-0.log", 40) == b""
    assert made.read("run.json") == b"{}"
    assert made.read("nothing") is None
    assert made.size("logs/rank-0.log") == 10
    assert made.modified("nothing") is None
    assert made.subdirectory("logs").read("rank-0.log") == b"0123456789"


@pytest.mark.parametrize(
    "name",
    ["../outside", "logs/../../outside", "/etc/passwd", "logs//x", "..", "a\0b", "./run.json"],
)
def test_no_name_leads_out(made, name: str) -> None:
    for use in (
        made.file_info,
        made.subdirectory,
        made.file_names,
        made.read,
        lambda each: made.read_range(each, 0),
    ):
        with pytest.raises(ValueError, match="leads out of"):
            use(name)


def test_links_are_not_followed_and_not_listed(tmp_path) -> None:
    run = tmp_path / "run"
    (run / "real").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "passwd").write_text("secret")
    os.symlink(tmp_path / "outside" / "passwd", run / "metrics.jsonl")
    os.symlink(tmp_path / "outside", run / "logs")
    made = LocalDirectory(run)
    assert made.read_range("metrics.jsonl", 0) == b""
    assert made.file_info("metrics.jsonl") is None
    assert made.file_names("") == []
    assert made.directory_names() == ["real"]
    assert made.file_names("logs") == []
    with pytest.raises(ValueError, match="symbolic link"):
        made.read_range("logs/passwd", 0)


def test_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path) -> None:
    os.mkfifo(tmp_path / "events.jsonl")
    assert LocalDirectory(tmp_path).read_range("events.jsonl", 0) == b""
    assert LocalDirectory(tmp_path).size("events.jsonl") == 0


def test_one_call_reads_no_more_than_its_limit(tmp_path, monkeypatch) -> None:
    (tmp_path / "large").write_bytes(b"x" * 100)
    assert len(LocalDirectory(tmp_path).read_range("large", 0, 10)) == 10
    assert run_storage.MAX_READ_BYTES <= 128 * 1024**2


def test_writing_and_removing(made) -> None:
    made.write("new/file", b"text")
    assert made.read("new/file") == b"text"
    made.remove("new/file")
    assert made.read("new/file") is None


def test_options_of_a_uri_stay_behind_names_below_it(tmp_path) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "run.json").write_text("{}")
    storage = RemoteDirectory(f"file://{tmp_path}/runs/?option=1")
    assert storage.path == f"file://{tmp_path}/runs?option=1"
    run = storage.subdirectory("a")
    assert run.path == f"file://{tmp_path}/runs/a?option=1"
    assert (run.name, run.read("run.json")) == ("a", b"{}")
    assert list(storage.subdirectory("a").file_infos("")) == ["run.json"]
    assert list_run_names(storage) == [
        ("a", pytest.approx((tmp_path / "runs" / "a" / "run.json").stat().st_mtime))
    ]
    assert LocalDirectory(tmp_path / "what?").name == "what?"


def test_keys_in_a_uri_are_not_shown() -> None:
    made = RemoteDirectory(
        "s3://key:secret@bucket/runs?region=us-east-1&scheme=http&endpoint_override=127.0.0.1%3A9"
    )
    assert "secret" not in made.path + made.subdirectory("a").path


def test_facts_of_a_directory(made) -> None:
    facts = made.file_infos("logs")
    assert {name: each.size for name, each in facts.items()} == {"rank-0.log": 10}
    assert made.file_infos("nothing") == {}


def test_places_of_paths_and_uris(tmp_path) -> None:
    assert isinstance(open_directory(str(tmp_path)), LocalDirectory)
    assert open_directory(f"file://{tmp_path}").path == str(tmp_path)
    with pytest.raises(ValueError, match="pyarrow finds no filesystem"):
        open_directory("nonsense://x")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\0"])
def test_one_name_and_no_more(name: str) -> None:
    with pytest.raises(ValueError, match="not a file name"):
        checked_file_name(name)
    assert checked_file_name("a b") == "a b"
