"""Reading images: a row for each file, in the column `image` as an array `(height, width)` or
`(height, width, channels)`.

JPEG goes through simplejpeg straight into the block where its colours allow, everything else
through pillow; both decode without the GIL.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource
from syncline.data.io.sources.file_listing import FileInfo
from syncline.optional import load

if TYPE_CHECKING:
    from PIL.Image import Image

# Blocks of decoded images: large enough to be worth their price, small enough that the first one is
# there soon.
_BLOCK_BYTES = 16 * 1024**2
_FIRST_BLOCK_FILES = 64
# What an image file takes in memory compared with the disk, where nothing better is known.
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
    """Reads images.

    Args:
        paths: As `FileBasedDatasource` takes them. size: Height and width that every image is
        resized to, bilinearly; None leaves them, so that the column may be ragged. mode: Pillow's
        mode that every image is converted to ("RGB", "L", …); None leaves them.
        file_based_datasource_kwargs: As `FileBasedDatasource` takes them.

    Raises:
        ImportError: pillow is not installed.
        ValueError: `size` is not two positive numbers.
    """

    _COLUMN_NAME = "image"
    _FILE_EXTENSIONS = ["png", "jpg", "jpeg", "tif", "tiff", "bmp", "gif", "webp"]

    def __init__(
        self,
        paths: Any,
        size: tuple[int, int] | None = None,
        mode: str | None = None,
        **file_based_datasource_kwargs: Any,
    ) -> None:
        load("PIL.Image", purpose="read_images", install="syncline[images]")
        if size is not None and (len(size) != 2 or min(size) <= 0):
            raise ValueError(
                f"size={size}: it is the height and the width of the images, both above 0"
            )
        super().__init__(paths, **file_based_datasource_kwargs)
        self.size = None if size is None else (int(size[0]), int(size[1]))
        self.mode = mode

    def _read_files(self, files: Sequence[FileInfo]) -> Iterator[pa.Table]:
        decoder = ImageDecoder(self.size, self.mode)
        start, count = 0, _FIRST_BLOCK_FILES
        while start < len(files):
            run = files[start : start + count]
            array = decoder.decode_all(
                ((self._file_bytes(file), file.path) for file in run), len(run)
            )
            yield self._decorated_rows(blocks.from_batch({"image": array}), run)
            start += len(run)
            image_bytes = max(1, sum(image.nbytes for image in array) // len(run))
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
        mode: Pillow's mode to convert to, or None.
    """

    def __init__(self, size: tuple[int, int] | None = None, mode: str | None = None) -> None:
        self._size = size
        self._mode = mode
        self._pillow = load("PIL.Image", purpose="decoding images", install="syncline[images]")
        self._jpeg = _simplejpeg() if mode in (None, "RGB", "L") else None

    def decode(self, content: bytes, name: str, room: np.ndarray | None = None) -> np.ndarray:
        """One image, uint8 for most modes. ValueError names the file if it is none.

        Args:
            content: Of the file. name: Its name, for the error. room: Where to put the image if its
            shape fits; whether that was done shows in `room` being returned.
        """
        try:
            jpeg = self._decode_jpeg(content, room if self._size is None else None)
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
                f"{name} cannot be read as an image: it is none, or of a format that pillow does not know"
            ) from error
        except (OSError, ValueError, SyntaxError) as error:
            raise ValueError(f"{name} cannot be read as an image: {error}") from error

    def decode_all(self, contents: Iterator[tuple[bytes, str]], count: int) -> np.ndarray:
        """Images `(count, height, width[, channels])`, or an array of objects where their shapes
        differ.

        Args:
            contents: Content and name of each file.
            count: How many there are.
        """
        images: np.ndarray | None = None
        for index, (content, name) in enumerate(contents):
            room = None if images is None or images.dtype != np.uint8 else images[index]
            image = self.decode(content, name, room)
            if image is room:
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

    def _decode_jpeg(self, content: bytes, room: np.ndarray | None) -> np.ndarray | None:
        """The image, or None where pillow is asked: no JPEG, a damaged one, or colours that
        simplejpeg would turn into others.
        """
        if self._jpeg is None or not content.startswith(_JPEG):
            return None
        try:
            height, width, colours, _ = self._jpeg.decode_jpeg_header(content)
            if colours == "Gray" and self._mode in (None, "L"):
                gray: np.ndarray = self._jpeg.decode_jpeg(content, "GRAY")
                return gray[:, :, 0]
            if colours not in ("YCbCr", "Gray") or self._mode == "L":
                return None
            if room is not None and room.shape == (height, width, 3):
                self._jpeg.decode_jpeg(content, "RGB", buffer=room)
                return room
            rgb: np.ndarray = self._jpeg.decode_jpeg(content, "RGB")
        except ValueError:
            return None  # pillow knows what can be forgiven
        return rgb

    def _resized(self, image: Image) -> Image:
        if self._size is None or image.size == (self._size[1], self._size[0]):
            return image
        return image.resize(
            (self._size[1], self._size[0]), resample=self._pillow.Resampling.BILINEAR
        )


def _simplejpeg() -> Any:
    try:
        return load("simplejpeg", purpose="fast JPEG", install="syncline[images]")
    except ImportError:
        return None  # pillow decodes JPEG as well, at half the speed


def _as_objects(images: np.ndarray, filled: int) -> np.ndarray:
    objects = np.empty(len(images), dtype=object)
    for index in range(filled):
        objects[index] = images[index]
    return objects
