"""Reading images: shapes, modes, sizes, and the same pixels from both decoders."""

import io
import sys

import numpy as np
import pytest

from syncline.data.columnar import block as blocks
from syncline.data.io.sources import images as images_source
from syncline.data.io.sources.images import ImageDatasource, ImageDecoder

pillow = pytest.importorskip("PIL.Image")


def encoded(array: np.ndarray, image_format: str, mode: str | None = None) -> bytes:
    image = pillow.fromarray(array)
    buffer = io.BytesIO()
    (image if mode is None else image.convert(mode)).save(buffer, format=image_format)
    return buffer.getvalue()


def picture(height: int = 12, width: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)


def test_images_of_one_shape_are_one_tensor_column(place, read_all):
    pictures = [picture(seed=seed) for seed in range(200)]
    for index, array in enumerate(pictures):
        place.write(f"{index:03}.png", encoded(array, "png"))
    source = ImageDatasource(place.path, filesystem=place.filesystem, include_paths=True)
    table = read_all(source)
    assert table.column_names == ["image", "path"]
    assert (blocks.to_batch(table)["image"] == np.stack(pictures)).all()
    assert table["path"].to_pylist()[7].endswith("007.png")
    assert source.num_rows() == 200


def test_images_of_different_shapes_are_ragged(place, read_all):
    arrays = [picture(3, 4), picture(5, 2), picture(5, 2)[:, :, 0]]
    for index, array in enumerate(arrays):
        place.write(f"{index}.png", encoded(array, "png"))
    rows = list(blocks.rows(read_all(ImageDatasource(place.path, filesystem=place.filesystem))))
    for row, array in zip(rows, arrays, strict=True):
        assert row["image"].shape == array.shape
        assert (row["image"] == array).all()


def test_size_and_mode_apply_to_every_image(place, read_all):
    place.write("a.png", encoded(picture(20, 30), "png"))
    place.write("b.jpg", encoded(picture(7, 5), "jpeg"))
    place.write("c.png", encoded(picture(7, 5)[:, :, 0], "png"))
    source = ImageDatasource(place.path, filesystem=place.filesystem, size=(6, 4), mode="RGB")
    assert blocks.to_batch(read_all(source))["image"].shape == (3, 6, 4, 3)
    assert source.estimate_inmemory_data_size() == 3 * 6 * 4 * 3


@pytest.mark.parametrize("stored", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("mode", [None, "RGB", "L"])
@pytest.mark.parametrize("size", [None, (9, 9)])
def test_both_jpeg_decoders_give_the_same_pixels(stored, mode, size):
    pytest.importorskip("simplejpeg")
    content = encoded(picture(17, 23), "jpeg", stored)
    fast = ImageDecoder(size, mode)
    slow = ImageDecoder(size, mode)
    slow._jpeg = None
    one, other = fast.decode(content, "a.jpg"), slow.decode(content, "a.jpg")
    assert one.shape == other.shape
    assert np.abs(one.astype(int) - other.astype(int)).max() <= 1


def test_files_that_are_no_images_are_rejected(place, read_all):
    place.write("a.png", encoded(picture(), "png"))
    place.write("b.jpg", b"\xff\xd8\xff nonsense")
    place.write("c.png", b"nonsense")
    for name in ("b.jpg", "c.png"):
        with pytest.raises(
            ValueError,
            match=rf"{name} cannot be read as an image: pillow does not recognize its format$",
        ):
            read_all(ImageDatasource(f"{place.path}/{name}", filesystem=place.filesystem))


def test_a_limit_decodes_no_more_images_than_it_needs(place, read_all, monkeypatch):
    for index in range(100):
        place.write(f"{index:03}.png", encoded(picture(), "png"))
    decoded = []
    decode = images_source.ImageDecoder.decode
    monkeypatch.setattr(
        images_source.ImageDecoder,
        "decode",
        lambda *arguments: decoded.append(1) or decode(*arguments),
    )
    (task,) = ImageDatasource(place.path, filesystem=place.filesystem).get_read_tasks(1, 5)
    assert sum(table.num_rows for table in task()) == 5
    assert len(decoded) == 5


def test_damaged_jpeg_is_an_error(place, read_all):
    place.write("a.jpg", encoded(picture(200, 200), "jpeg")[:8000])
    with pytest.raises(ValueError, match=r"a\.jpg cannot be read as an image.*truncated"):
        read_all(ImageDatasource(place.path, filesystem=place.filesystem))


def test_invalid_sizes_are_rejected(place):
    place.write("a.png", encoded(picture(), "png"))
    for size in ((0, 3), (3,)):
        with pytest.raises(ValueError, match="a height and a width"):
            ImageDatasource(place.path, filesystem=place.filesystem, size=size)


def test_missing_pillow_is_reported_with_the_package_to_install(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    place.write("a.png", b"x")
    with pytest.raises(ImportError, match=r"pip install 'syncline\[images\]'"):
        ImageDatasource(place.path, filesystem=place.filesystem)
