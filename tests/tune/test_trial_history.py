"""Results read from a trial's directory."""

import math

from pyarrow.fs import LocalFileSystem

from syncline.tune.trial_history import read_history

LOCAL = LocalFileSystem()


def test_json_comes_first(tmp_path) -> None:
    (tmp_path / "result.json").write_text('{"loss": 1.0, "val": {"f1": NaN}}\n{"loss": 2.0}\n')
    (tmp_path / "progress.csv").write_text("loss\n7\n")
    rows = read_history(LOCAL, str(tmp_path))
    assert rows is not None
    assert rows[1] == {"loss": 2.0}
    assert math.isnan(rows[0]["val"]["f1"])
    assert read_history(LOCAL, str(tmp_path), "csv") == [{"loss": 7}]


def test_torn_last_line_is_left_out(tmp_path) -> None:
    (tmp_path / "result.json").write_text('{"loss": 1.0}\n{"loss": 2')
    assert read_history(LOCAL, str(tmp_path)) == [{"loss": 1.0}]
    (tmp_path / "progress.csv").write_text("loss,done,name\n1.5,True,x\n2")
    assert read_history(LOCAL, str(tmp_path), "csv") == [{"loss": 1.5, "done": True, "name": "x"}]


def test_table_where_there_is_no_json(tmp_path) -> None:
    (tmp_path / "progress.csv").write_text("trial_id,loss,step,done,note\n00012,0.5,3,False,\n")
    assert read_history(LOCAL, str(tmp_path)) == [
        {"trial_id": "00012", "loss": 0.5, "step": 3, "done": False, "note": None}
    ]


def test_empty_files_and_none(tmp_path) -> None:
    assert read_history(LOCAL, str(tmp_path)) is None
    (tmp_path / "progress.csv").write_text("")
    assert read_history(LOCAL, str(tmp_path)) == []
    (tmp_path / "result.json").write_text("")
    assert read_history(LOCAL, str(tmp_path)) == []
