"""Videos: frames as rows, frames of a second, sizes, times."""

import av
import numpy as np
import pytest

from syncline.data.io.sources.videos import VideoDatasource


@pytest.fixture
def video(tmp_path):
    """Ten frames of growing brightness, five a second."""
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=5)
        stream.width, stream.height, stream.pix_fmt = 32, 16, "yuv420p"
        for index in range(10):
            frame = av.VideoFrame.from_ndarray(
                np.full((16, 32, 3), 20 * index, np.uint8), format="rgb24"
            )
            for packet in stream.encode(frame):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return str(path)


def test_frames_are_rows(video, read_all):
    table = read_all(VideoDatasource(video, include_timestamps=True))
    frames = table["frame"].combine_chunks().to_numpy_ndarray()
    assert (frames.shape, frames.dtype) == ((10, 16, 32, 3), np.uint8)
    assert table["frame_index"].to_pylist() == list(range(10))
    assert np.diff(frames.mean(axis=(1, 2, 3))).min() > 10
    times = table["frame_timestamp"].combine_chunks().to_numpy_ndarray()
    np.testing.assert_allclose(times, [[0.2 * i, 0.2 * (i + 1)] for i in range(10)], atol=1e-6)


def test_frames_of_a_second_and_sizes(video, read_all):
    table = read_all(VideoDatasource(video, fps=2, resize=(8, 4)))
    assert table["frame_index"].to_pylist() == [0, 2, 4, 6, 8]
    assert table["frame"].type.shape == [8, 4, 3]
    assert table.column_names == ["frame", "frame_index"]


def test_what_is_no_video_is_named(tmp_path, read_all):
    (tmp_path / "b.mp4").write_bytes(b"no video")
    with pytest.raises(ValueError, match=r"b\.mp4 cannot be read as a video"):
        read_all(VideoDatasource(str(tmp_path / "b.mp4")))
    with pytest.raises(ValueError, match="fps=0"):
        VideoDatasource(str(tmp_path), fps=0)
    with pytest.raises(ValueError, match="resize"):
        VideoDatasource(str(tmp_path), resize=(0, 3))
