"""Arguments of `read_*` and `from_*` with a wrong type: the error names the argument and value."""

import pytest

from syncline import data
from syncline.data.io import argument_types


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: data.read_kafka(5, bootstrap_servers="a:1"), "topics=5: pass a name or a list"),
        (lambda: data.read_kafka(("a", 5), bootstrap_servers="a:1"), "topics=5: pass a name"),
        (lambda: data.read_kafka("a", bootstrap_servers=5), "bootstrap_servers=5: pass"),
        (
            lambda: data.read_kafka("a", bootstrap_servers="a:1", timeout_ms="9"),
            "timeout_ms='9': pass a number, or None, not a value of type str",
        ),
        (lambda: data.read_mongo(5, "a", "b"), "uri=5: pass a connection string"),
        (lambda: data.read_mongo("mongodb://a", 5, "b"), "database=5: pass the name of a database"),
        (lambda: data.read_mongo("mongodb://a", "b", None), "collection=None: pass the name of"),
        (lambda: data.read_sql(5, print), "sql=5: pass the text of a query"),
        (lambda: data.read_sql("SELECT 1", "a.db"), "connection_factory='a.db': pass a function"),
        (lambda: data.read_zarr(5), "path=5: pass the path or URI of one store"),
        (lambda: data.read_iceberg(table_identifier=5), "table_identifier=5: pass the name of a"),
        (lambda: data.read_lance(5), "uri=5: pass a path or a list of paths"),
        (lambda: data.read_csv(5), "a path must be a str or a pathlib.Path, not int (5)"),
        (lambda: data.read_csv(b"a"), "a path must be a str or a pathlib.Path, not bytes (b'a')"),
        (lambda: data.range(None), "n=None: pass the number of rows"),
        (lambda: data.from_items(5), "items=5: pass a list of items, not a value of type int"),
        (lambda: data.from_numpy(5), "ndarrays=5: pass an array or a list of arrays"),
        (lambda: data.from_blocks(5), "blocks=5: pass a list of tables or DataFrames"),
        (lambda: data.from_arrow_refs(5), "refs=5: pass references"),
    ],
)
def test_a_wrong_type_is_named(call, text):
    with pytest.raises(TypeError) as caught:
        call()
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("given", "found"), [("a", ["a"]), (["a", "b"], ["a", "b"]), (("a",), ["a"]), ([], [])]
)
def test_texts_are_a_list(given, found):
    assert argument_types.texts("topics", given, "names") == found


def test_bytes_are_no_list_of_texts():
    with pytest.raises(TypeError, match="b'ab'.*bytes"):
        argument_types.texts("topics", b"ab", "names")
