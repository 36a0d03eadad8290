"""Directories as readers see them: nothing leads out of them, nothing that is no regular file is
read.
"""

import os

import pytest

from syncline.runs import places
from syncline.runs.finding import run_names
from syncline.runs.places import LocalPlace, checked_part, place
from syncline.runs.remote import ArrowPlace


@pytest.fixture(params=["local", "arrow"])
def made(request, tmp_path):
    (tmp_path / "run" / "logs").mkdir(parents=True)
    (tmp_path / "run" / "run.json").write_text("{}")
    (tmp_path / "run" / "logs" / "rank-0.log").write_text("0123456789")
    (tmp_path / "outside").write_text("secret")
    return (
        LocalPlace(tmp_path / "run")
        if request.param == "local"
        else ArrowPlace(f"file://{tmp_path}/run")
    )


def test_files_are_listed_and_read_in_parts(made) -> None:
    assert made.directory_names() == ["logs"]
    assert made.file_names("") == ["run.json"]
    assert made.file_names("logs") == ["rank-0.log"]
    assert made.file_names("nothing") == []
    assert made.read_from("logs/rank-0.log", 4, 3) == b"456"
    assert made.read_from("logs/rank-0.log", 40) == b""
    assert made.read("run.json") == b"{}"
    assert made.read("nothing") is None
    assert made.size("logs/rank-0.log") == 10
    assert made.modified("nothing") is None
    assert made.below("logs").read("rank-0.log") == b"0123456789"


@pytest.mark.parametrize(
    "name",
    ["../outside", "logs/../../outside", "/etc/passwd", "logs//x", "..", "a\0b", "./run.json"],
)
def test_no_name_leads_out(made, name: str) -> None:
    for use in (
        made.facts,
        made.below,
        made.file_names,
        made.read,
        lambda each: made.read_from(each, 0),
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
    made = LocalPlace(run)
    assert made.read_from("metrics.jsonl", 0) == b""
    assert made.facts("metrics.jsonl") is None
    assert made.file_names("") == []
    assert made.directory_names() == ["real"]
    assert made.file_names("logs") == []
    with pytest.raises(ValueError, match="symbolic link"):
        made.read_from("logs/passwd", 0)


def test_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path) -> None:
    os.mkfifo(tmp_path / "events.jsonl")
    assert LocalPlace(tmp_path).read_from("events.jsonl", 0) == b""
    assert LocalPlace(tmp_path).size("events.jsonl") == 0


def test_one_call_reads_no_more_than_its_limit(tmp_path, monkeypatch) -> None:
    (tmp_path / "large").write_bytes(b"x" * 100)
    assert len(LocalPlace(tmp_path).read_from("large", 0, 10)) == 10
    assert places.LARGEST_READ <= 128 * 1024**2


def test_writing_and_removing(made) -> None:
    made.write("new/file", b"text")
    assert made.read("new/file") == b"text"
    made.remove("new/file")
    assert made.read("new/file") is None


def test_options_of_a_uri_stay_behind_names_below_it(tmp_path) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "run.json").write_text("{}")
    storage = ArrowPlace(f"file://{tmp_path}/runs/?option=1")
    assert storage.path == f"file://{tmp_path}/runs?option=1"
    run = storage.below("a")
    assert run.path == f"file://{tmp_path}/runs/a?option=1"
    assert (run.name, run.read("run.json")) == ("a", b"{}")
    assert list(storage.below("a").facts_in("")) == ["run.json"]
    assert run_names(storage) == [
        ("a", pytest.approx((tmp_path / "runs" / "a" / "run.json").stat().st_mtime))
    ]
    assert LocalPlace(tmp_path / "what?").name == "what?"


def test_keys_in_a_uri_are_not_shown() -> None:
    made = ArrowPlace(
        "s3://key:secret@bucket/runs?region=us-east-1&scheme=http&endpoint_override=127.0.0.1%3A9"
    )
    assert "secret" not in made.path + made.below("a").path


def test_facts_of_a_directory(made) -> None:
    facts = made.facts_in("logs")
    assert {name: each.size for name, each in facts.items()} == {"rank-0.log": 10}
    assert made.facts_in("nothing") == {}


def test_places_of_paths_and_uris(tmp_path) -> None:
    assert isinstance(place(str(tmp_path)), LocalPlace)
    assert place(f"file://{tmp_path}").path == str(tmp_path)
    with pytest.raises(ValueError, match="pyarrow finds no filesystem"):
        place("nonsense://x")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\0"])
def test_one_name_and_no_more(name: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        checked_part(name)
    assert checked_part("a b") == "a b"
