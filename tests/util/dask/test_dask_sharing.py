"""Who may write to a value: its copy for the caller, the copy on write for a task, and the remedy
in NumPy's error.
"""

from collections import namedtuple

import pytest

pytest.importorskip("dask")

import numpy as np
import pandas as pd

from syncline.util.dask.sharing import READ_ONLY, copied_on_write, explain, owned

Pair = namedtuple("Pair", ["left", "right"])


def read_only(length: int) -> np.ndarray:
    array = np.zeros(length)
    array.flags.writeable = False
    return array


def test_only_what_cannot_be_written_to_is_copied() -> None:
    writable, pair, text = np.zeros(3), Pair(1, 2), "text"
    for value in (writable, pair, text, None, 5):
        assert owned(value) is value
    assert owned(read_only(3)).flags.writeable


def test_arrays_and_tables_inside_of_containers_are_copied_too() -> None:
    table = pd.DataFrame(read_only(4).reshape(2, 2), copy=False)
    first, (second, third) = owned([read_only(3), ({"k": read_only(3)}, table)])
    first[0] = second["k"][0] = third.iloc[0, 0] = 1
    assert table.iloc[0, 0] == 0


@pytest.mark.skipif(
    int(pd.__version__.partition(".")[0]) < 3, reason="pandas copies on write since 3"
)
def test_table_is_copied_when_it_is_written_to() -> None:
    shared = read_only(4).reshape(2, 2)
    table = pd.DataFrame(shared, copy=False)
    seen = copied_on_write(table)
    assert np.shares_memory(seen.to_numpy(), shared)
    seen.iloc[0, 0] = 1.0
    assert (seen.iloc[0, 0], shared[0, 0]) == (1.0, 0.0)


def test_error_of_a_read_only_array_gets_the_remedy_and_others_stay() -> None:
    with pytest.raises(ValueError) as caught:
        read_only(3)[0] = 1
    explain(caught.value)
    assert str(caught.value) == f"assignment destination is read-only. {READ_ONLY}"
    other = ValueError("the loss is not a number")
    explain(other)
    assert str(other) == "the loss is not a number"
