"""Downloads of files, requested by an attacker who also created the run directory."""

from pathlib import Path

import pytest

from syncline.dashboard.downloads import CHUNK_BYTES, FileNotServedError, find_file
from syncline.runs.run_storage import LocalDirectory


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    for folder in ("profiles", "logs", "data"):
        (run / folder).mkdir(parents=True)
    (run / "run.json").write_text("{}")
    (run / "profiles" / "cpu.svg").write_text("<svg/>")
    (run / "profiles" / "trace.json.gz").write_bytes(b"\x1f\x8b")
    (run / "profiles" / "page.php").write_text("")
    (run / "logs" / "rank-0.log").write_bytes(b"x" * (CHUNK_BYTES + 7))
    (run / "data" / "x.log").write_text("")
    (tmp_path / "secret.log").write_text("secret")
    (tmp_path / "secret.svg").write_text("secret")
    return run


def test_a_profile_opens_in_a_sandbox_of_its_own(run: Path):
    found = find_file(LocalDirectory(run), "profiles", "cpu.svg")
    policy = found.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'")
    assert "allow-same-origin" not in policy
    assert found.headers["content-type"] == "image/svg+xml"
    assert b"".join(found.chunks()) == b"<svg/>"


def test_images_of_reports_are_shown_and_nothing_else_of_their_directory(run: Path):
    (run / "media").mkdir()
    (run / "media" / "cat.png").write_bytes(b"\x89PNG")
    (run / "media" / "cat.svg").write_text("<svg/>")
    (run / "media" / "events.out.tfevents.1.host").write_bytes(b"")
    found = find_file(LocalDirectory(run), "media", "cat.png")
    assert found.headers["content-type"] == "image/png"
    assert found.headers["content-disposition"].startswith("inline")
    for name in ("cat.svg", "events.out.tfevents.1.host", "missing.png"):
        with pytest.raises(FileNotServedError):
            find_file(LocalDirectory(run), "media", name)


def test_logs_and_traces_are_downloaded(run: Path):
    log = find_file(LocalDirectory(run), "logs", "rank-0.log")
    assert log.headers["content-disposition"].startswith("attachment")
    assert log.headers["content-type"] == "text/plain; charset=utf-8"
    assert [len(chunk) for chunk in log.chunks()] == [CHUNK_BYTES, 7]
    assert (
        find_file(LocalDirectory(run), "profiles", "trace.json.gz")
        .headers["content-disposition"]
        .startswith("attachment")
    )


def test_a_log_that_grows_is_given_out_as_far_as_was_said(run: Path):
    found = find_file(LocalDirectory(run), "logs", "rank-0.log")
    with open(run / "logs" / "rank-0.log", "ab") as file:
        file.write(b"more")
    assert sum(map(len, found.chunks())) == found.size == int(found.headers["content-length"])


@pytest.mark.parametrize(
    ("folder", "file"),
    [
        ("profiles", "missing.svg"),
        ("profiles", "page.php"),
        ("profiles", "../../secret.svg"),
        ("profiles", "/etc/passwd.svg"),
        ("profiles", "a\0.svg"),
        ("profiles", "..\\..\\secret.svg"),
        ("profiles", ".svg/../../secret.svg"),
        ("logs", "../run.json"),
        ("logs", "cpu.svg"),
        ("data", "x.log"),
        (".", "run.json"),
        ("..", "secret.log"),
        ("", "run.json"),
    ],
)
def test_nothing_else_is_given_out(run: Path, folder: str, file: str):
    with pytest.raises(FileNotServedError):
        find_file(LocalDirectory(run), folder, file)


def test_links_are_not_followed(run: Path, tmp_path: Path):
    (run / "logs" / "rank-1.log").symlink_to(tmp_path / "secret.log")
    other = tmp_path / "other"
    other.mkdir()
    (other / "logs").symlink_to(run / "logs")
    for place, name in ((run, "rank-1.log"), (other, "rank-0.log")):
        with pytest.raises(FileNotServedError):
            find_file(LocalDirectory(place), "logs", name)


def test_a_file_that_became_a_link_meanwhile_is_not_read(run: Path, tmp_path: Path):
    found = find_file(LocalDirectory(run), "profiles", "cpu.svg")
    (run / "profiles" / "cpu.svg").unlink()
    (run / "profiles" / "cpu.svg").symlink_to(tmp_path / "secret.svg")
    assert b"".join(found.chunks()) == b""


def test_a_name_cannot_write_headers(run: Path):
    (run / "profiles" / 'a\r\nset-cookie: x=1".svg').write_text("")
    found = find_file(LocalDirectory(run), "profiles", 'a\r\nset-cookie: x=1".svg')
    assert (
        found.headers["content-disposition"]
        == "inline; filename*=UTF-8''a%0D%0Aset-cookie%3A%20x%3D1%22.svg"
    )
