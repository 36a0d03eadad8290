"""Checkpoints of components: layout, atomicity, components by path, classes that moved."""

import json
import os
import pickle
import sys
import types

import cloudpickle
import numpy as np
import pyarrow.fs
import pytest

from syncline.rl import array_msgpack
from syncline.rl.checkpointable import Checkpointable
from syncline.train.checkpoint import Checkpoint


class Leaf(Checkpointable):
    STATE_FILE_NAME = "leaf_state"

    def __init__(self, size=2, *, scale=1.0):
        self.size, self.scale = size, scale
        self.values = np.zeros(size)

    def get_state(self, components=None, *, not_components=None, **kwargs):
        return {"values": self.values}

    def set_state(self, state):
        self.values = np.asarray(state["values"])

    def get_ctor_args_and_kwargs(self):
        return (self.size,), {"scale": self.scale}


class Tree(Checkpointable):
    METADATA_FILE_NAME = "rllib_checkpoint.json"

    def __init__(self, names=("a", "b/c")):
        self.leaves = {name: Leaf() for name in names}
        self.count = 0

    def get_checkpointable_components(self):
        return list(self.leaves.items())

    def get_state(self, components=None, *, not_components=None, **kwargs):
        state = {"count": self.count, "names": list(self.leaves)}
        for name, leaf in self.leaves.items():
            if self._check_component(name, components, not_components):
                state[name] = leaf.get_state()
        return state

    def set_state(self, state):
        self.count = state["count"]
        for name in state["names"]:
            self.leaves.setdefault(name, Leaf())

    def get_ctor_args_and_kwargs(self):
        return (), {"names": ("a", "b/c")}


def filled_tree():
    tree = Tree()
    tree.count = 7
    tree.leaves["a"].values = np.array([1.0, 2.0])
    tree.leaves["b/c"].values = np.array([3.0, 4.0])
    return tree


@pytest.mark.parametrize("use_msgpack", [False, True])
def test_saved_state_comes_back_with_its_components(tmp_path, use_msgpack):
    if use_msgpack:
        pytest.importorskip("msgpack")
    path = filled_tree().save_to_path(tmp_path / "point", use_msgpack=use_msgpack)
    restored = Checkpointable.from_checkpoint(path)
    assert isinstance(restored, Tree)
    assert restored.count == 7
    np.testing.assert_array_equal(restored.leaves["b/c"].values, [3.0, 4.0])


def test_layout_is_that_of_rllib(tmp_path):
    path = filled_tree().save_to_path(tmp_path)
    assert path == str(tmp_path)
    assert sorted(os.listdir(path)) == [
        "a", "b", "class_and_ctor_args.pkl", "rllib_checkpoint.json", "state.pkl",
    ]  # fmt: skip
    leaf = tmp_path / "b" / "c"
    assert sorted(os.listdir(leaf)) == [
        "class_and_ctor_args.pkl",
        "leaf_state.pkl",
        "metadata.json",
    ]
    constructor = pickle.loads((leaf / "class_and_ctor_args.pkl").read_bytes())
    assert constructor == {"class": Leaf, "ctor_args_and_kwargs": ((2,), {"scale": 1.0})}
    metadata = json.loads((leaf / "metadata.json").read_text())
    assert metadata["checkpoint_version"] == "2.1"
    assert metadata["state_file"] == "leaf_state"


def test_path_defaults_to_a_new_directory():
    first, second = filled_tree().save_to_path(), filled_tree().save_to_path()
    assert first != second
    assert Tree.from_checkpoint(first).count == 7


def test_given_state_is_saved_instead_and_its_missing_components_are_left_out(tmp_path):
    filled_tree().save_to_path(
        tmp_path, state={"count": 9, "names": [], "a": {"values": np.array([8.0, 8.0])}}
    )
    restored = Tree.from_checkpoint(tmp_path)
    assert restored.count == 9
    np.testing.assert_array_equal(restored.leaves["a"].values, [8.0, 8.0])
    assert not (tmp_path / "b").exists()


def test_failed_save_leaves_the_previous_checkpoint(tmp_path):
    tree = filled_tree()
    path = tree.save_to_path(tmp_path / "point")
    tree.count = 8
    tree.leaves["b/c"].get_state = lambda **kwargs: 1 / 0
    with pytest.raises(ZeroDivisionError):
        tree.save_to_path(path)
    assert Tree.from_checkpoint(path).count == 7
    assert os.listdir(tmp_path) == ["point"]


def test_save_replaces_a_checkpoint_and_keeps_other_files(tmp_path):
    tree = filled_tree()
    tree.save_to_path(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("keep")
    del tree.leaves["a"]
    tree.count = 8
    tree.save_to_path(tmp_path)
    assert (tmp_path / "notes" / "mine.txt").read_text() == "keep"
    assert not (tmp_path / "a").exists()
    assert Tree.from_checkpoint(tmp_path).count == 8


def test_one_component_is_restored_from_its_own_directory(tmp_path):
    path = filled_tree().save_to_path(tmp_path)
    other = Tree()
    other.restore_from_path(os.path.join(path, "b", "c"), component="b/c")
    assert other.count == 0
    np.testing.assert_array_equal(other.leaves["a"].values, [0.0, 0.0])
    np.testing.assert_array_equal(other.leaves["b/c"].values, [3.0, 4.0])


def test_unknown_component_names_the_nearest(tmp_path):
    path = filled_tree().save_to_path(tmp_path)
    with pytest.raises(ValueError, match=r"`component='b/x'`: Tree has no such .* It has a, b/c"):
        Tree().restore_from_path(path, component="b/x")


def test_components_that_the_state_adds_are_restored_too(tmp_path):
    tree = filled_tree()
    tree.leaves["late"] = Leaf()
    tree.leaves["late"].values = np.array([5.0, 6.0])
    restored = Tree.from_checkpoint(tree.save_to_path(tmp_path))
    np.testing.assert_array_equal(restored.leaves["late"].values, [5.0, 6.0])


def test_given_arguments_replace_the_saved_ones(tmp_path):
    path = Leaf(3, scale=2.0).save_to_path(tmp_path)
    restored = Leaf.from_checkpoint(path, size=4, scale=0.5)
    assert (restored.size, restored.scale) == (4, 0.5)
    assert restored.values.shape == (3,)


def test_checkpoint_objects_and_uris_are_paths(tmp_path):
    path = filled_tree().save_to_path(f"file://{tmp_path}/point")
    assert path == str(tmp_path / "point")
    assert Tree.from_checkpoint(Checkpoint(path)).count == 7
    assert Tree.from_checkpoint(f"file://{path}").count == 7


def test_remote_filesystems_are_written_file_by_file(tmp_path):
    pytest.importorskip("fsspec")
    remote = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    path = filled_tree().save_to_path("bucket/point", filesystem=remote)
    assert Tree.from_checkpoint(path, filesystem=remote).count == 7


def test_missing_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match="class_and_ctor_args.pkl is missing"):
        Tree.from_checkpoint(tmp_path)
    with pytest.raises(FileNotFoundError, match="checkpoint directory .*none"):
        Tree().restore_from_path(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"neither state.pkl nor state.msgpack"):
        Tree().restore_from_path(tmp_path)


def test_wrong_class_is_named(tmp_path):
    path = filled_tree().save_to_path(tmp_path)
    with pytest.raises(ValueError, match="contains a Tree, which is not a Leaf"):
        Leaf.from_checkpoint(path)


@pytest.fixture
def moved(monkeypatch, tmp_path):
    """Return the path of a checkpoint whose class exists no longer."""
    module = types.ModuleType("models_of_last_year")
    cls = type("OldLeaf", (Leaf,), {"__module__": module.__name__})
    module.OldLeaf = cls
    monkeypatch.setitem(sys.modules, module.__name__, module)
    path = cls(3).save_to_path(tmp_path)
    monkeypatch.delitem(sys.modules, module.__name__)
    return path


def test_class_that_moved_is_named_with_the_remedy(moved):
    with pytest.raises(
        ImportError, match=r"(?s)`OldLeaf` of the module `models_of_last_year`.*from_checkpoint"
    ):
        Checkpointable.from_checkpoint(moved)


def test_class_that_moved_is_restored_into_the_new_one_with_its_arguments(moved):
    restored = Leaf.from_checkpoint(moved, size=3, scale=1.0)
    assert type(restored) is Leaf
    assert restored.values.shape == (3,)


def test_classes_of_rllib_are_found_here(monkeypatch, tmp_path):
    ray_name, own_name = "ray.rllib.made_up", "syncline.rllib.made_up"
    for name in ("ray", "ray.rllib", ray_name):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    theirs = type("RllibLeaf", (Leaf,), {"__module__": ray_name})
    sys.modules[ray_name].RllibLeaf = theirs
    path = theirs(2).save_to_path(tmp_path)
    for name in ("syncline.rllib", own_name):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    ours = type("RllibLeaf", (Leaf,), {"__module__": own_name})
    sys.modules[own_name].RllibLeaf = ours
    assert type(Checkpointable.from_checkpoint(path)) is ours


def test_classes_of_main_travel_by_value(tmp_path):
    program = types.ModuleType("__main__")
    cls = type("Mine", (Leaf,), {"__module__": program.__name__})
    path = cls(2).save_to_path(tmp_path)
    content = cloudpickle.loads((tmp_path / "class_and_ctor_args.pkl").read_bytes())
    assert content["class"].__name__ == "Mine"
    assert type(Leaf.from_checkpoint(path)).__name__ == "Mine"


def test_msgpack_keeps_arrays_and_scalars():
    pytest.importorskip("msgpack")
    value = {
        "image": np.arange(6, dtype=np.uint8).reshape(2, 3),
        "step": np.int64(5),
        1: [1.5, "text", b"bytes", None, 2 + 3j],
        "rows": np.array([(1, 2.0)], dtype=[("a", "<i4"), ("b", "<f8")]),
    }
    back = array_msgpack.unpack(array_msgpack.pack(value))
    np.testing.assert_array_equal(back["image"], value["image"])
    assert back["image"].dtype == np.uint8
    assert back["image"].flags.writeable
    assert back["step"] == 5
    assert isinstance(back["step"], np.int64)
    assert back[1] == value[1]
    np.testing.assert_array_equal(back["rows"], value["rows"])


def test_msgpack_refuses_objects():
    pytest.importorskip("msgpack")
    with pytest.raises(TypeError, match="array of Python objects"):
        array_msgpack.pack(np.array([object()]))
    with pytest.raises(TypeError, match="of type set"):
        array_msgpack.pack({1, 2})
