"""Photos of 500 x 375 pixels, decoded, resized, cropped at random and normalized into float batches
`(64, 3, 224, 224)`; with syncline, SPDL, and torch's DataLoader. Two threads or processes each.

The shorter side is resized to 256 pixels. The function of syncline decodes with simplejpeg and
resizes only the crop, with torch; the DataLoader uses it as well (`loader-same`), or PIL for all
steps (`loader`). SPDL decodes, resizes and crops with FFmpeg, whose libraries it needs
(`apt-get install libavfilter8 libavdevice59` on Debian 12).
"""

import io
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
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
# One value for each byte of a line of pixels.
MEAN = np.tile(np.array([123.7, 116.3, 103.5], np.float32), CROP)
STD = np.tile(np.array([58.4, 57.1, 57.4], np.float32), CROP)


def photo(jpeg: bytes) -> torch.Tensor:
    """Decode a JPEG, resize its shorter side, and crop at random: uint8 `(224, 224, 3)`."""
    pixels = torch.from_numpy(simplejpeg.decode_jpeg(jpeg))
    height, width = pixels.shape[:2]
    side = CROP * min(height, width) // SIDE  # of the crop before it is resized
    top, left = random.randint(0, height - side), random.randint(0, width - side)
    crop = pixels[top : top + side, left : left + side].permute(2, 0, 1)
    resized = torch.nn.functional.interpolate(
        crop[None], (CROP, CROP), mode="bilinear", antialias=True
    )
    return resized[0].permute(1, 2, 0)


def transform(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Decode the column `image` of a batch."""
    images = np.empty((len(batch["image"]), CROP, CROP, 3), np.uint8)
    for image, jpeg in zip(torch.from_numpy(images), batch["image"], strict=True):
        image.copy_(photo(jpeg))
    return {"image": images, "label": batch["label"]}


def normalized(images: np.ndarray) -> torch.Tensor:
    """Return uint8 `(n, 224, 224, 3)` as normalized float32 `(n, 3, 224, 224)`."""
    floats = np.empty(images.shape, np.float32)
    lines = zip(floats.reshape(-1, CROP, 3 * CROP), images.reshape(-1, CROP, 3 * CROP), strict=True)
    for target, pixels in lines:  # one photo at a time fits into the cache
        target[:] = pixels
        target -= MEAN
        target /= STD
    return torch.from_numpy(floats).permute(0, 3, 1, 2)


def collate(batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Return a numpy batch as tensors."""
    return {"image": normalized(batch["image"]), "label": torch.from_numpy(batch["label"])}


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


def spdl_decode(jpegs: Sequence[bytes]) -> np.ndarray:
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
    images: np.ndarray = spdl.io.to_numpy(spdl.io.convert_frames(frames))
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


def pillow_photo(jpeg: bytes) -> torch.Tensor:
    """Return the same as `photo` with PIL."""
    image = Image.open(io.BytesIO(jpeg)).convert("RGB")
    scale = SIDE / min(image.size)
    image = image.resize(
        (round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR
    )
    left, top = random.randint(0, image.width - CROP), random.randint(0, image.height - CROP)
    return torch.from_numpy(np.array(image.crop((left, top, left + CROP, top + CROP))))


class Photos(Dataset[torch.Tensor]):
    """Photos decoded and normalized on access: float32 `(3, 224, 224)`."""

    def __init__(self, decode: Callable[[bytes], torch.Tensor]) -> None:
        self.jpegs = stored_jpegs()
        self.decode = decode

    def __len__(self) -> int:
        return len(self.jpegs)

    def __getitem__(self, index: int) -> torch.Tensor:
        return normalized(self.decode(self.jpegs[index]).numpy()[None])[0]


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


def loader_of(decode: Callable[[bytes], torch.Tensor]) -> Iterable[dict[str, torch.Tensor]]:
    """Return a DataLoader with two workers."""
    return DataLoader(
        Photos(decode),
        batch_size=BATCH_ROWS,
        num_workers=THREADS,
        persistent_workers=True,
        collate_fn=stacked,
    )


def measure_loader(decode: Callable[[bytes], torch.Tensor]) -> common.Values:
    loader = loader_of(decode)
    return pipelines.two_epochs(lambda: loader, "image")


if __name__ == "__main__":
    options = common.arguments()
    measures = {
        "syncline": measure_syncline,
        "spdl": measure_spdl,
        "loader": lambda: measure_loader(pillow_photo),
        "loader-same": lambda: measure_loader(photo),
    }
    common.write(options.out, measures[options.library]())
