"""Read images: a row for each file, in the column `image`, as an array `(height, width)` or
`(height, width, channels)`.

simplejpeg decodes JPEG directly into the block if the color space allows it; pillow decodes all
other images. Both release the interpreter lock.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource
from syncline.data.io.sources.file_listing import FileInfo
from syncline.optional import load

if TYPE_CHECKING:
    from types import ModuleType

    from PIL.Image import Image

# Size of blocks of decoded images. Larger blocks cost less; the first block is small, so that it is
# available early.
_BLOCK_BYTES = 16 * 1024**2
_FIRST_BLOCK_FILES = 64
# Default ratio of an image's size in memory to its file size.
_DECODED_RATIO = 6
_CHANNELS = {
    "1": 1,
    "L": 1,
    "P": 1,
    "RGB": 3,
    "YCbCr": 3,
    "LAB": 3,
    "HSV": 3,
    "RGBA": 4,
    "CMYK": 4,
    "I": 4,
    "F": 4,
}
_JPEG = b"\xff\xd8\xff"


class ImageDatasource(FileBasedDatasource):
    """Reads images; arguments as in `read_images`, options as in `FileBasedDatasource`."""

    _COLUMN_NAME = "image"
    _FILE_EXTENSIONS = ["png", "jpg", "jpeg", "tif", "tiff", "bmp", "gif", "webp"]

    def __init__(
        self,
        paths: filesystems.Paths,
        size: tuple[int, int] | None = None,
        mode: str | None = None,
        **options: Any,
    ) -> None:
        load("PIL.Image", purpose="read_images", install="syncline[images]")
        if size is not None and (len(size) != 2 or min(size) <= 0):
            raise ValueError(f"size={size}: pass a height and a width of at least 1")
        super().__init__(paths, **options)
        self.size = None if size is None else (int(size[0]), int(size[1]))
        self.mode = mode

    def _read_files(self, files: Sequence[FileInfo]) -> Iterator[pa.Table]:
        decoder = ImageDecoder(self.size, self.mode)
        start, count = 0, _FIRST_BLOCK_FILES
        while start < len(files):
            group = files[start : start + count]
            array = decoder.decode_all(
                ((self._file_bytes(file), file.path) for file in group), len(group)
            )
            yield self._with_path_columns_by_row(blocks.from_batch({"image": array}), group)
            start += len(group)
            image_bytes = max(1, sum(image.nbytes for image in array) // len(group))
            count = max(1, min(_BLOCK_BYTES // image_bytes, 4 * count))

    def _rows_per_file(self) -> int:
        return 1

    def _decoded_bytes(self, files: Sequence[FileInfo]) -> int | None:
        if self.size is not None and self.mode is not None:
            return len(files) * self.size[0] * self.size[1] * _CHANNELS.get(self.mode, 4)
        encoded = super()._decoded_bytes(files)
        return None if encoded is None else encoded * _DECODED_RATIO

    def _options(self) -> object:
        return (self._open_stream_args, self.size, self.mode)


class ImageDecoder:
    """Decodes the content of image files.

    Args:
        size: Height and width to resize to, or None.
        mode: Pillow mode to convert to, or None.
    """

    def __init__(self, size: tuple[int, int] | None = None, mode: str | None = None) -> None:
        self._size = size
        self._mode = mode
        self._pillow = load("PIL.Image", purpose="decoding images", install="syncline[images]")
        self._jpeg = _simplejpeg() if mode in (None, "RGB", "L") else None

    def decode(self, content: bytes, name: str, buffer: np.ndarray | None = None) -> np.ndarray:
        """Decode one image, to uint8 for most modes. Raises ValueError if it is not an image.

        Args:
            content: Content of the file.
            name: Name of the file, for errors.
            buffer: Array to decode into if its shape matches; it is the return value then.
        """
        try:
            jpeg = self._decode_jpeg(content, buffer if self._size is None else None)
            if jpeg is not None:
                return (
                    jpeg
                    if self._size in (None, jpeg.shape[:2])
                    else np.asarray(self._resized(self._pillow.fromarray(jpeg)))
                )
            image = self._resized(self._pillow.open(io.BytesIO(content)))
            return np.asarray(
                image if self._mode in (None, image.mode) else image.convert(self._mode)
            )
        except self._pillow.UnidentifiedImageError as error:
            raise ValueError(
                f"{name} cannot be read as an image: pillow does not recognize its format"
            ) from error
        except (OSError, ValueError, SyntaxError) as error:
            raise ValueError(f"{name} cannot be read as an image: {error}") from error

    def decode_all(self, contents: Iterator[tuple[bytes, str]], count: int) -> np.ndarray:
        """Decode `count` images to `(count, height, width[, channels])`, or to an array of objects
        if their shapes differ.

        Args:
            contents: Content and name of each file.
            count: Number of files.
        """
        images: np.ndarray | None = None
        for index, (content, name) in enumerate(contents):
            buffer = None if images is None or images.dtype != np.uint8 else images[index]
            image = self.decode(content, name, buffer)
            if image is buffer:
                continue
            if images is None:
                images = np.empty((count, *image.shape), image.dtype)
            elif images.dtype != object and (
                image.shape != images.shape[1:] or image.dtype != images.dtype
            ):
                images = _as_objects(images, index)
            images[index] = image
        assert images is not None
        return images

    def _decode_jpeg(self, content: bytes, buffer: np.ndarray | None) -> np.ndarray | None:
        """Decode with simplejpeg; None for other formats, damaged images, and color spaces that
        simplejpeg converts differently.
        """
        if self._jpeg is None or not content.startswith(_JPEG):
            return None
        try:
            height, width, color_space, _ = self._jpeg.decode_jpeg_header(content)
            if color_space == "Gray" and self._mode in (None, "L"):
                gray: np.ndarray = self._jpeg.decode_jpeg(content, "GRAY")
                return gray[:, :, 0]
            if color_space not in ("YCbCr", "Gray") or self._mode == "L":
                return None
            if buffer is not None and buffer.shape == (height, width, 3):
                self._jpeg.decode_jpeg(content, "RGB", buffer=buffer)
                return buffer
            rgb: np.ndarray = self._jpeg.decode_jpeg(content, "RGB")
        except ValueError:
            return None  # pillow tolerates some damage
        return rgb

    def _resized(self, image: Image) -> Image:
        if self._size is None or image.size == (self._size[1], self._size[0]):
            return image
        return image.resize(
            (self._size[1], self._size[0]), resample=self._pillow.Resampling.BILINEAR
        )


def _simplejpeg() -> ModuleType | None:
    try:
        module: ModuleType = load("simplejpeg", purpose="fast JPEG", install="syncline[images]")
    except ImportError:
        return None  # pillow decodes JPEG at half the speed
    return module


def _as_objects(images: np.ndarray, filled: int) -> np.ndarray:
    objects = np.empty(len(images), dtype=object)
    for index in range(filled):
        objects[index] = images[index]
    return objects
