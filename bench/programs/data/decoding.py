"""One image, as each of the measured programs decodes it."""

import io

import numpy as np
import simplejpeg
from PIL import Image


def decode_python(jpeg: bytes) -> np.ndarray:
    """JPEG -> float32 (3, 32, 32) in [-1, 1], by PIL."""
    pixels = np.asarray(Image.open(io.BytesIO(jpeg)))
    return pixels.transpose(2, 0, 1).astype(np.float32) / 127.5 - 1


def decode_native(jpeg: bytes) -> np.ndarray:
    """JPEG -> uint8 (32, 32, 3), by simplejpeg."""
    pixels: np.ndarray = simplejpeg.decode_jpeg(jpeg)
    return pixels
