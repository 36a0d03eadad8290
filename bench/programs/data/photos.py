"""Photos of 500 x 375 pixels, decoded, resized, cropped at random and normalized into float batches
`(64, 3, 224, 224)`; with syncline, SPDL, and torch's DataLoader with PIL. Two threads or processes
each.

The shorter side is resized to 256 pixels. syncline's function decodes with simplejpeg and resizes
only the crop with PIL; SPDL decodes, resizes and crops with FFmpeg, whose libraries it needs
(`apt-get install libavfilter8 libavdevice59` on Debian 12).
"""

import io
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import simplejpeg
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from bench.programs import common
from bench.programs.data import pipelines

BATCH_ROWS = 64
THREADS = 2
SIDE, CROP = 256, 224
MEAN = torch.tensor([123.7, 116.3, 103.5]).view(3, 1, 1)
STD = torch.tensor([58.4, 57.1, 57.4]).view(3, 1, 1)


def photo(jpeg: bytes) -> np.ndarray:
    """Decode a JPEG, resize its shorter side, and crop at random: uint8 `(224, 224, 3)`."""
    pixels = simplejpeg.decode_jpeg(jpeg)
    height, width = pixels.shape[:2]
    side = CROP * min(height, width) / SIDE  # of the crop before it is resized
    left, top = random.uniform(0, width - side), random.uniform(0, height - side)
    crop = Image.fromarray(pixels).resize(
        (CROP, CROP), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side)
    )
    return np.asarray(crop)


def transform(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Decode the column `image` of a batch."""
    images = np.empty((len(batch["image"]), CROP, CROP, 3), np.uint8)
    for index, jpeg in enumerate(batch["image"]):
        images[index] = photo(jpeg)
    return {"image": images, "label": batch["label"]}


def normalized(images: torch.Tensor) -> torch.Tensor:
    """Return uint8 `(n, h, w, 3)` as normalized float32 `(n, 3, h, w)`."""
    return images.permute(0, 3, 1, 2).float().sub_(MEAN).div_(STD)


def collate(batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Return a numpy batch as tensors."""
    return {
        "image": normalized(torch.from_numpy(batch["image"])),
        "label": torch.from_numpy(batch["label"]),
    }


def stored_jpegs() -> list[bytes]:
    """Return the photos of this row's input."""
    table = pq.read_table(pipelines.input_folder() / "parquet", columns=["image"])
    jpegs: list[bytes] = table["image"].to_pylist()
    return jpegs


def syncline_batches(dataset: Any) -> Iterable[dict[str, torch.Tensor]]:
    """Return the batches of a dataset of JPEGs."""
    batches: Iterable[dict[str, torch.Tensor]] = dataset.map_batches(
        transform, batch_size=BATCH_ROWS
    ).iter_torch_batches(batch_size=BATCH_ROWS, collate_fn=collate)
    return batches


def spdl_decode(jpegs: Sequence[bytes]) -> torch.Tensor:
    """Decode a batch with SPDL: uint8 `(n, 224, 224, 3)`."""
    import spdl.io

    frames = []
    for jpeg in jpegs:
        packets = spdl.io.demux_image(jpeg)
        # The width of the resized photo is 341.
        left, top = random.randint(0, 341 - CROP), random.randint(0, SIDE - CROP)
        frames.append(
            spdl.io.decode_packets(
                packets,
                filter_desc=f"scale=341:{SIDE}:flags=bilinear,crop={CROP}:{CROP}:{left}:{top},"
                "format=pix_fmts=rgb24",
            )
        )
    images: torch.Tensor = spdl.io.to_torch(spdl.io.convert_frames(frames))
    return images


def spdl_batches(
    sources: Sequence[Any], fetch: Any = None, streams: int = THREADS
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield batches with SPDL's pipeline; `fetch` returns the JPEG of a source."""
    from spdl.pipeline import PipelineBuilder

    builder = PipelineBuilder().add_source(sources)
    if fetch is not None:
        builder = builder.pipe(fetch, concurrency=streams, output_order="input")
    pipeline = (
        builder.aggregate(BATCH_ROWS)
        .pipe(spdl_decode, concurrency=THREADS, output_order="input")
        .add_sink(2)
        .build(num_threads=THREADS + (streams if fetch is not None else 0))
    )
    with pipeline.auto_stop():
        for images in pipeline:
            yield {"image": normalized(images)}


class Photos(Dataset[torch.Tensor]):
    """Photos decoded by PIL on access."""

    def __init__(self) -> None:
        self.jpegs = stored_jpegs()

    def __len__(self) -> int:
        return len(self.jpegs)

    def __getitem__(self, index: int) -> torch.Tensor:
        image = Image.open(io.BytesIO(self.jpegs[index])).convert("RGB")
        scale = SIDE / min(image.size)
        image = image.resize(
            (round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR
        )
        left, top = random.randint(0, image.width - CROP), random.randint(0, image.height - CROP)
        image = image.crop((left, top, left + CROP, top + CROP))
        pixels = torch.from_numpy(np.asarray(image).copy())
        return pixels.permute(2, 0, 1).float().sub_(MEAN).div_(STD)


def stacked(images: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return images as a batch."""
    return {"image": torch.stack(images)}


def measure_syncline() -> common.Values:
    core, data = pipelines.start("syncline")
    dataset = data.read_parquet(str(pipelines.input_folder() / "parquet"))
    values = pipelines.two_epochs(lambda: syncline_batches(dataset), "image")
    core.shutdown()
    return values


def measure_spdl() -> common.Values:
    jpegs = stored_jpegs()
    return pipelines.two_epochs(lambda: spdl_batches(jpegs), "image")


def measure_loader() -> common.Values:
    loader = DataLoader(
        Photos(),
        batch_size=BATCH_ROWS,
        num_workers=THREADS,
        persistent_workers=True,
        collate_fn=stacked,
    )
    return pipelines.two_epochs(lambda: loader, "image")


if __name__ == "__main__":
    options = common.arguments()
    measures = {"syncline": measure_syncline, "spdl": measure_spdl, "loader": measure_loader}
    common.write(options.out, measures[options.library]())
