"""`syncline migrate`: its output, the files that it finds, and the files that it changes."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest

PROGRAM = "# ray\nimport ray\n\nray.init()\nray.nonsense.run(1)\n"
AFTER = (
    "# ray\nimport syncline\n\nsyncline.init()\n"
    "# TODO(syncline migrate): syncline has no `syncline.nonsense`\nsyncline.nonsense.run(1)\n"
)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_default_is_to_print_a_diff_and_write_nothing(syncline_command, program):
    done = syncline_command("migrate", str(program))
    assert done.exit_code == 0
    assert "-import ray\n+import syncline\n" in done.output
    assert f"{program}:5: ray.nonsense: syncline has no `syncline.nonsense`" in done.output
    assert "1 file examined, 1 to change" in done.output
    assert program.read_text() == PROGRAM


def test_diff_is_colored_on_a_terminal(syncline_command, program):
    done = syncline_command("migrate", str(program), color=True)
    assert "\x1b[32m+import syncline\x1b" in done.output
    assert "\x1b[31m-import ray\x1b" in done.output


def test_write_replaces_the_file_and_keeps_its_mode_and_links(syncline_command, program, tmp_path):
    program.chmod(0o750)
    link = tmp_path / "link"
    link.symlink_to(program)
    assert syncline_command("migrate", "--write", str(link)).exit_code == 0
    assert program.read_text() == AFTER
    assert stat.S_IMODE(program.stat().st_mode) == 0o750
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "program.py"]
    again = syncline_command("migrate", "--check", str(program))
    assert (again.exit_code, program.read_text()) == (0, AFTER)


def test_check_exits_with_1_if_a_file_would_change(syncline_command, program):
    assert syncline_command("migrate", "--check", str(program)).exit_code == 1
    assert program.read_text() == PROGRAM
    assert syncline_command("migrate", "--check", "--write", str(program)).exit_code == 2


def test_directories_are_searched_without_environments_and_caches(syncline_command, tmp_path):
    chosen = ["a.py", "sub/b.py", "sub/c.ipynb"]
    others = [
        ".venv/x.py",
        "env/pyvenv.cfg",
        "env/lib/y.py",
        ".git/z.py",
        "a.txt",
        "node_modules/n.py",
    ]
    notebook = {"cells": [{"cell_type": "code", "source": [PROGRAM]}], "nbformat": 4}
    for name in [*chosen, *others]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(notebook) if name.endswith("ipynb") else PROGRAM)
    done = syncline_command("migrate", "--json", str(tmp_path), str(tmp_path / "a.py"))
    found = json.loads(done.stdout)["files"]
    assert [os.path.relpath(file["path"], tmp_path) for file in found] == chosen
    assert found[2]["notes"][0]["cell"] == 1
    assert ", cell 1\n" in found[2]["diff"]
    assert set(found[0]) == {"path", "changed", "written", "diff", "notes", "errors"}
    assert set(found[0]["notes"][0]) == {"line", "cell", "kind", "name", "message"}


def test_named_file_may_have_any_suffix(syncline_command, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/env python\n" + PROGRAM)
    syncline_command("migrate", "--write", str(script))
    assert "import syncline" in script.read_text()


def test_files_that_do_not_parse_are_reported_and_the_others_are_converted(
    syncline_command, program, tmp_path
):
    broken = tmp_path / "broken.py"
    broken.write_text("import ray\ndef f(:\n")
    latin = tmp_path / "latin.py"
    latin.write_bytes(b"import ray  # \xe4\n")
    done = syncline_command("migrate", "--write", str(tmp_path))
    assert done.exit_code == 1
    assert f"{broken} is unchanged, or partly unchanged: line 2" in done.stderr
    assert str(latin) in done.stderr
    assert program.read_text() == AFTER
    assert broken.read_text() == "import ray\ndef f(:\n"


def test_encoding_and_byte_order_mark_stay(syncline_command, tmp_path):
    latin, marked = tmp_path / "latin.py", tmp_path / "marked.py"
    latin.write_bytes(b"# -*- coding: latin-1 -*-\r\nimport ray  # \xe4\r\n")
    marked.write_bytes(b"\xef\xbb\xbfimport ray\n")
    syncline_command("migrate", "--write", str(tmp_path))
    assert latin.read_bytes() == b"# -*- coding: latin-1 -*-\r\nimport syncline  # \xe4\r\n"
    assert marked.read_bytes() == b"\xef\xbb\xbfimport syncline\n"


def test_files_without_ray_are_not_touched(syncline_command, tmp_path):
    path = tmp_path / "other.py"
    path.write_text("def f(:\n")
    before = path.stat()
    done = syncline_command("migrate", "--write", str(path))
    assert done.exit_code == 0
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_path_that_does_not_exist_is_an_error(syncline_command, tmp_path):
    done = syncline_command("migrate", str(tmp_path / "nothing"))
    assert done.exit_code == 1
    assert "there is no" in done.stderr


def test_error_without_libcst_names_the_extra(syncline_command, program, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("syncline.cli.migrat")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "libcst", None)
    done = syncline_command("migrate", str(program))
    assert done.exit_code == 1
    assert 'pip install "syncline[cli]"' in done.stderr
