"""Images and histograms in reports."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncline.runs import LocalFiles
from syncline.runs.media import MediaValue, is_media
from syncline.runs.media_events import MediaEventWriter
from syncline.runs.metric_series import Series, numbers
from syncline.train import Histogram, Image, media
from syncline.train.media import MAX_PIXELS, MediaStore, png
from syncline.train.metric_values import clean, flatten
from tests.event_files import events


@pytest.fixture
def store(tmp_path: Path) -> Any:
    media.set_store(lambda: MediaStore(LocalFiles(tmp_path), rank=3))
    yield tmp_path
    media.set_store(lambda: None)


def pixels_of(data: bytes) -> np.ndarray[Any, Any]:
    """Decode what `png` writes."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height, _, color = struct.unpack(">IIBB", data[16:26])
    length = struct.unpack(">I", data[33:37])[0]
    channels = {0: 1, 2: 3, 6: 4}[color]
    rows = np.frombuffer(zlib.decompress(data[41 : 41 + length]), np.uint8)
    return rows.reshape(height, 1 + width * channels)[:, 1:].reshape(height, width, channels)


def stored(data: Any, store: Path) -> np.ndarray[Any, Any]:
    report = clean({"samples/first": Image(data, caption="a cat")})["samples/first"]
    value = MediaValue.of(report)
    assert value is not None
    assert value.file.startswith("media/samples_first-")
    assert value.file.endswith("-rank-3.png")
    found = pixels_of((store / value.file).read_bytes())
    assert (value.height, value.width, value.caption) == (*found.shape[:2], "a cat")
    return found


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_arrays_of_every_form_become_the_same_image(store: Path, channels: int) -> None:
    expected = np.random.default_rng(channels).integers(0, 256, (5, 7, channels), np.uint8)
    forms: list[Any] = [expected, expected.transpose(2, 0, 1), expected.astype(np.int64)]
    forms.append(expected / 255)
    if channels == 1:
        forms.append(expected[:, :, 0])
    for form in forms:
        assert (stored(form, store) == expected).all()


def test_tensors_pictures_and_figures_are_images(store: Path) -> None:
    torch = pytest.importorskip("torch")
    pil = pytest.importorskip("PIL.Image")
    expected = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    tensor = torch.tensor(expected.transpose(2, 0, 1).copy(), requires_grad=False)
    assert (stored(tensor, store) == expected).all()
    assert (stored(pil.fromarray(expected), store) == expected).all()
    assert stored((tensor / 255).bfloat16(), store).shape == (4, 5, 3)

    class Figure:
        """A figure of matplotlib, as far as images need it."""

        canvas = type("Canvas", (), {"get_width_height": staticmethod(lambda: (5, 4))})

        def savefig(self, file: io.BytesIO, format: str) -> None:
            assert format == "rgba"
            file.write(np.dstack([expected, np.full((4, 5), 255, np.uint8)]).tobytes())

    assert (stored(Figure(), store)[:, :, :3] == expected).all()


def test_large_images_are_reduced(store: Path) -> None:
    assert stored(np.zeros((10, 3 * MAX_PIXELS)), store).shape == (4, MAX_PIXELS, 1)


@pytest.mark.parametrize("shape", [(3,), (2, 5, 7), (8, 3, 5, 5), (0, 5)])
def test_other_arrays_are_refused_at_once(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="is not an image"):
        Image(np.zeros(shape))


def test_other_values_are_refused_at_once() -> None:
    for kind in (Image, Histogram):
        with pytest.raises(TypeError, match="cannot be reported"):
            kind("picture.png")
    with pytest.raises(ValueError, match="no finite values"):
        Histogram([float("nan")])
    with pytest.raises(ValueError, match="bins=0"):
        Histogram([1], bins=0)


def test_a_histogram_is_stored_in_the_report() -> None:
    value = clean({"weights": Histogram([0, 1, 1, 2, float("nan")], bins=2)})["weights"]
    assert value == {"_type": "histogram", "counts": [1, 3], "edges": [0.0, 1.0, 2.0]}


def test_without_a_run_directory_an_image_is_only_described() -> None:
    value = clean({"a": Image(np.zeros((2, 3)))})["a"]
    assert (value["width"], value["height"]) == (3, 2)
    assert "file" not in value


def test_all_images_of_a_rank_stay_below_a_limit(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media, "FIRST_BYTES", 20_000)
    media.set_store(lambda: MediaStore(LocalFiles(store), rank=0))
    noise = np.random.default_rng(0).integers(0, 256, (20, 20, 3), np.uint8)
    values = [clean({"noise": Image(noise)})["noise"] for _ in range(500)]
    sizes = [path.stat().st_size for path in (store / "media").iterdir()]
    assert 20_000 < sum(sizes) < 40_000
    assert sum(value is None for value in values) == 500 - len(sizes)


def test_images_and_histograms_are_no_numbers_and_are_listed(store: Path) -> None:
    series = Series()
    for number in (0, 1, 1):
        metrics = clean({"loss": 1.0, "h": Histogram([number, 2]), "i": Image(np.zeros((2, 2)))})
        series.add({"iteration": number, "time": 1.0, "rank": 0, "metrics": metrics})
    assert [name for name, _ in numbers(metrics)] == ["loss"]
    assert list(flatten(metrics)) == ["loss", "h", "i"]
    assert [each.iteration for each in series.media["i"]] == [0, 1]
    assert [each.media.edges[0] for each in series.media["h"]] == [0.0, 1.0]


@pytest.mark.parametrize(
    "value",
    [
        {"_type": "image", "file": "media/../../etc/passwd"},
        {"_type": "image", "file": "media/a/b.png"},
        {"_type": "image", "file": 3},
        {"_type": "histogram", "counts": [1], "edges": [1]},
        {"_type": "histogram", "counts": ["x"], "edges": [1, 2]},
        {"_type": "histogram", "counts": [1] * 10_000, "edges": [1] * 10_001},
        {"_type": "video"},
        7,
    ],
)
def test_values_of_other_hands_are_not_shown(value: Any) -> None:
    assert MediaValue.of(value) is None


def test_tensorboard_gets_both(store: Path) -> None:
    writer = MediaEventWriter(LocalFiles(store))
    metrics = clean({"h": Histogram([1, 2, 3], bins=3), "i": Image(np.zeros((2, 3))), "loss": 1.0})
    writer.add(4, metrics, 10.0)
    writer.add(5, {"loss": 1.0}, 11.0)
    writer.close()
    (file,) = (store / "media").glob("events.out.tfevents.*")
    assert is_media(metrics["i"])
    data = file.read_bytes()
    assert png(np.zeros((2, 3, 1), np.uint8)) in data
    _, event = events(data)
    found = {value.tag: value for value in event.summary.value}
    assert (event.step, found["i"].image.width, found["i"].image.height) == (4, 3, 2)
    assert list(found["h"].histo.bucket) == [1, 1, 1]
    assert (found["h"].histo.num, found["h"].histo.max) == (3, 3)
