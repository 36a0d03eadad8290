"""Arguments of pools that are refused before an engine starts."""

import pytest

from syncline.util.multiprocessing import Pool


@pytest.mark.parametrize(
    ("processes", "error", "text"),
    [("two", TypeError, "`processes='two'` is not an integer"), (0, ValueError, "is below 1")],
)
def test_number_of_processes_is_checked(processes, error, text):
    with pytest.raises(error, match=text):
        Pool(processes)
