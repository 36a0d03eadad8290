"""Notebooks: cells form one module, IPython's lines and all other bytes of the file stay."""

import json
from pathlib import Path

import pytest

from syncline.cli.migration import files
from syncline.cli.migration.files import Migration


@pytest.fixture
def migrate(tmp_path: Path):
    def run(raw: str) -> Migration:
        path = tmp_path / "notebook.ipynb"
        path.write_text(raw)
        return files.migrate(path)

    return run


def notebook(*cells: str | tuple[str, str], **style: object) -> str:
    made = []
    for cell in cells:
        kind, source = cell if isinstance(cell, tuple) else ("code", cell)
        made.append(
            {
                "cell_type": kind,
                "metadata": {"ray": "import ray"},
                "source": source.splitlines(keepends=True),
            }
        )
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4}, **style)


def sources(raw: str | bytes) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(raw)["cells"]]


@pytest.mark.parametrize("style", [{"indent": 1}, {"indent": 1, "ensure_ascii": False}, {}])
def test_names_pass_from_cell_to_cell_and_all_other_bytes_stay(
    migrate, style: dict[str, object]
) -> None:
    raw = notebook(
        ("markdown", "import ray"),
        "import ray  # ä",
        'ray.init()\nprint("é", ray.nodes())',
        **style,
    )
    after = migrate(raw).content.decode()
    assert sources(after) == [
        "import ray",
        "import syncline  # ä",
        'syncline.init()\nprint("é", syncline.nodes())',
    ]
    assert after == raw.replace('["import ray  #', '["import syncline  #').replace(
        '"import ray  #', '"import syncline  #'
    ).replace("ray.init", "syncline.init").replace("ray.nodes", "syncline.nodes")
    assert migrate(after).changes == []


def test_source_may_be_one_string(migrate) -> None:
    raw = '{"nbformat": 4, "cells": [{"source": "import ray\\nray.init()", "cell_type": "code"}]}'
    expected = raw.replace("import ray", "import syncline").replace("ray.init", "syncline.init")
    assert migrate(raw).content.decode() == expected


def test_lines_for_ipython_stay_and_shell_commands_are_noted(migrate) -> None:
    source = (
        "%load_ext x\n!pip install ray \\\n  torch\nimport ray\nif 1:\n    !ray start\n"
        "files = !ls\nray.get?\nray.init()\n"
    )
    migration = migrate(
        notebook(
            "%%bash\nray status\n",
            source,
            "%%time\nimport ray.data\n",
            "%%writefile a.py\nimport ray\n",
        )
    )
    after = sources(migration.content)
    assert after[1] == source.replace("import ray", "import syncline").replace(
        "ray.init", "syncline.init"
    )
    assert after[2] == "%%time\nimport syncline.data\n"
    assert (after[0], after[3]) == ("%%bash\nray status\n", "%%writefile a.py\nimport ray\n")
    assert [(note.cell, note.line, note.name) for note in migration.notes] == [
        (1, 2, "ray status"),
        (2, 2, "pip install ray"),
        (2, 6, "ray start"),
    ]


def test_cell_that_does_not_parse_is_reported_and_the_others_are_converted(migrate) -> None:
    migration = migrate(notebook("import ray", "print 'x'", "ray.init()"))
    assert sources(migration.content) == ["import syncline", "print 'x'", "syncline.init()"]
    assert [change.cell for change in migration.changes] == [1, 3]
    (error,) = migration.errors
    assert error.startswith("cell 2: line 1: ")


def test_notes_give_the_cell_and_the_line_in_it(migrate) -> None:
    migration = migrate(notebook("import os", ("markdown", "text"), "import ray\n\nray.workflow"))
    assert [(note.name, note.cell, note.line) for note in migration.notes] == [
        ("ray.workflow", 3, 3)
    ]


def test_marks_stand_once_in_their_cells(migrate) -> None:
    migration = migrate(notebook("import ray\nray.nonsense\nx = 1", "%time x\nray.other()"))
    mark = "# TODO(syncline migrate): syncline has no `syncline."
    assert sources(migration.content) == [
        f"import syncline\n{mark}nonsense`\nsyncline.nonsense\nx = 1",
        f"%time x\n{mark}other`\nsyncline.other()",
    ]


@pytest.mark.parametrize("raw", ["import ray", '{"ray": 1}', '{"worksheets": "ray"}', '["ray"]'])
def test_other_json_is_an_error(migrate, raw: str) -> None:
    (error,) = migrate(raw).errors
    assert "not a notebook" in error
