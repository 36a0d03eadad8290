"""Names of runs: one directory directly below the storage path."""

import pytest

from syncline.storage.run_names import checked_run_name


@pytest.mark.parametrize("name", ["run", "my run", "a..b", "ü" * 127, "run-1.2_3"])
def test_a_name_of_one_directory_is_returned(name):
    assert checked_run_name(name, "`name`") == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../q", "one directory directly below"),
        ("/q", "one directory directly below"),
        ("a/b", "one directory directly below"),
        (".q", "one directory directly below"),
        ("a\0b", "one directory directly below"),
        ("", "non-empty string"),
        (3, "non-empty string"),
        ("ü" * 128, "256 bytes"),
    ],
)
def test_another_name_is_refused_with_the_argument(name, why):
    with pytest.raises(ValueError, match=why) as caught:
        checked_run_name(name, f"`name={name!r}`")
    assert str(caught.value).startswith(f"`name={name!r}`")
