"""The S3 server of the benchmarks: listing, ranges, missing keys, and its latency."""

import time
from pathlib import Path

import pytest
from pyarrow import fs

from bench.programs.data import object_store
from bench.programs.link import Link


@pytest.mark.processes
def test_pyarrow_reads_files_and_ranges_with_the_latency_of_each_request(tmp_path: Path) -> None:
    content = bytes(range(256)) * 1000
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a b.bin").write_bytes(content)
    with object_store.serving(tmp_path) as endpoint:
        server = fs.S3FileSystem(
            endpoint_override=endpoint,
            scheme="http",
            region="us-east-1",
            access_key="key",
            secret_key="secret",
        )
        found = server.get_file_info(fs.FileSelector(f"{object_store.BUCKET}/folder"))
        assert [(info.path, info.size) for info in found] == [("bench/folder/a b.bin", 256_000)]
        with server.open_input_file("bench/folder/a b.bin") as file:
            began = time.monotonic()
            assert file.read_at(1000, 5000) == content[5000:6000]
            assert time.monotonic() - began >= object_store.REQUEST_S
            assert file.read_at(1000, 255_500) == content[255_500:]
        assert server.get_file_info("bench/missing").type == fs.FileType.NotFound


def test_a_link_sends_no_faster_than_its_throughput() -> None:
    link = Link(1_000_000.0)
    began = time.monotonic()
    for _ in range(3):
        link.send(10_000)
    assert time.monotonic() - began >= 0.029
