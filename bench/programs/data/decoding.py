"""Image decoders, shared by the programs."""

import io
from collections.abc import Sequence

import numpy as np
import simplejpeg
from PIL import Image


def decode_python(jpeg: bytes) -> np.ndarray:
    """Decode a JPEG with PIL: float32 (3, 32, 32) in [-1, 1]."""
    pixels = np.asarray(Image.open(io.BytesIO(jpeg)))
    return pixels.transpose(2, 0, 1).astype(np.float32) / 127.5 - 1


def decode_native(jpeg: bytes) -> np.ndarray:
    """Decode a JPEG with simplejpeg: uint8 (32, 32, 3)."""
    pixels: np.ndarray = simplejpeg.decode_jpeg(jpeg)
    return pixels


def decode_native_batch(jpegs: Sequence[bytes]) -> np.ndarray:
    """Decode JPEGs with simplejpeg, without copies: uint8 (images, 32, 32, 3)."""
    pixels = np.empty((len(jpegs), 32, 32, 3), np.uint8)
    for jpeg, image in zip(jpegs, pixels, strict=True):
        simplejpeg.decode_jpeg(jpeg, buffer=image)
    return pixels
