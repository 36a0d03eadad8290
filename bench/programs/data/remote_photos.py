"""The photos from an S3 server with 20 ms per request and 200 MB/s, relative to the same photos on
the local disk; four streams. With syncline (Parquet and WebDataset), SPDL and LitData.

Passes over local and remote files alternate.
"""

import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.programs import common
from bench.programs.data import object_store, photos, pipelines

STREAMS = 4
ROUNDS = 3
KEYS = {"access_key": "bench", "secret_key": "bench"}
Batches = Callable[[], Iterable[Any]]


def compared(local: Batches, remote: Batches) -> common.Values:
    """Return the rate from the S3 server, and relative to that from the disk."""
    for batches in (local, remote):
        pipelines.timed(batches, "image")
    rates = [
        (pipelines.timed(local, "image").rows_per_s, pipelines.timed(remote, "image").rows_per_s)
        for _ in range(ROUNDS)
    ]
    on_disk, on_server = (statistics.median(column) for column in zip(*rates, strict=True))
    return {"share": on_server / on_disk, "rows_per_s": on_server, "local_rows_per_s": on_disk}


def measure_syncline(endpoint: str, layout: str) -> common.Values:
    from pyarrow import fs

    core, data = pipelines.start("syncline")
    server = fs.S3FileSystem(endpoint_override=endpoint, scheme="http", region="us-east-1", **KEYS)

    def read(folder: str, **options: Any) -> Any:
        if layout == "parquet":
            return data.read_parquet(f"{folder}/parquet", **options)
        rows = data.read_webdataset(f"{folder}/tar", decoder=None, **options)
        return rows.rename_columns({"jpg": "image", "cls": "label"}).map_batches(numbered)

    local = read(str(pipelines.input_folder()))
    remote = read(object_store.BUCKET, filesystem=server)
    values = compared(
        lambda: photos.syncline_batches(local), lambda: photos.syncline_batches(remote)
    )
    core.shutdown()
    return values


def numbered(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parse the labels of a WebDataset."""
    return {"image": batch["image"], "label": np.array([int(text) for text in batch["label"]])}


def measure_spdl(endpoint: str) -> common.Values:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=f"http://{endpoint}",
        region_name="us-east-1",
        aws_access_key_id=KEYS["access_key"],
        aws_secret_access_key=KEYS["secret_key"],
    )
    folder = pipelines.input_folder() / "files"
    files = sorted(folder.iterdir())

    def fetch(file: Path) -> bytes:
        answer = client.get_object(Bucket=object_store.BUCKET, Key=f"files/{file.name}")
        content: bytes = answer["Body"].read()
        return content

    return compared(
        lambda: photos.spdl_batches(files, Path.read_bytes, STREAMS),
        lambda: photos.spdl_batches(files, fetch, STREAMS),
    )


def decode_item(item: dict[str, Any]) -> torch.Tensor:
    """Decode a photo of a LitData dataset."""
    return photos.photo(item["image"])


def collate_images(images: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return normalized images of a list of pixels."""
    return {"image": photos.normalized(torch.stack(images).numpy())}


def as_item(jpeg: bytes) -> dict[str, bytes]:
    """Return an item of a LitData dataset."""
    return {"image": jpeg}


def measure_litdata(endpoint: str) -> common.Values:
    import litdata
    from litdata.streaming import downloader

    # Its client insists on TLS, and no public option changes that.
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"
    folder = pipelines.input_folder() / "litdata"
    if not folder.exists():
        litdata.optimize(
            fn=as_item,
            inputs=photos.stored_jpegs(),
            output_dir=str(folder),
            chunk_bytes="16MB",
            num_workers=1,
            verbose=False,
        )
    options = {
        "endpoint_url": f"http://{endpoint}",
        "aws_access_key_id": KEYS["access_key"],
        "aws_secret_access_key": KEYS["secret_key"],
        "region_name": "us-east-1",
    }

    def batches(source: str, **arguments: Any) -> Iterable[Any]:
        # Without a cache of an earlier pass.
        cache = tempfile.mkdtemp(dir=".")
        try:
            dataset = litdata.StreamingDataset(
                source,
                cache_dir=cache,
                transform=decode_item,
                max_pre_download=STREAMS,
                **arguments,
            )
            yield from litdata.StreamingDataLoader(
                dataset,
                batch_size=photos.BATCH_ROWS,
                num_workers=photos.THREADS,
                collate_fn=collate_images,
            )
        finally:
            shutil.rmtree(cache, ignore_errors=True)

    return compared(
        lambda: batches(str(folder)),
        lambda: batches(f"s3://{object_store.BUCKET}/litdata", storage_options=options),
    )


if __name__ == "__main__":
    options = common.arguments()
    library, _, layout = options.library.partition("-")
    with object_store.serving(pipelines.input_folder()) as endpoint:
        values = {
            "syncline": lambda: measure_syncline(endpoint, layout),
            "spdl": lambda: measure_spdl(endpoint),
            "litdata": lambda: measure_litdata(endpoint),
        }[library]()
    common.write(options.out, values)
