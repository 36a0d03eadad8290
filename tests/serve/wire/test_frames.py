"""Frames as bytes, and their payloads."""

import random

import pytest

from syncline.serve.wire.frames import (
    FrameReader,
    Kind,
    RequestHead,
    decode_request,
    encode,
    encode_request,
)


def read(pieces):
    frames = []
    reader = FrameReader()
    for piece in pieces:
        reader.feed(piece, lambda *frame: frames.append(frame))
    return frames


@pytest.mark.parametrize("seed", range(20))
def test_frames_arrive_whole_however_the_bytes_are_cut(seed):
    generator = random.Random(seed)
    frames = [
        (generator.choice(list(Kind)), generator.getrandbits(64), generator.randbytes(size))
        for size in (0, 1, 5, 100, 70_000, generator.randrange(200))
    ]
    data = b"".join(encode(*frame) for frame in frames)
    cuts = sorted(generator.randrange(len(data)) for _ in range(generator.randrange(40)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert read(pieces) == frames


def test_frames_arrive_byte_by_byte():
    data = encode(Kind.CALL, 7, b"abc", b"def") + encode(Kind.CANCEL, 7)
    assert read(data[i : i + 1] for i in range(len(data))) == [
        (Kind.CALL, 7, b"abcdef"),
        (Kind.CANCEL, 7, b""),
    ]


def test_the_reader_knows_how_many_bytes_the_frame_lacks():
    reader = FrameReader()
    data = encode(Kind.CALL, 7, bytes(1000))
    received = b""
    while len(received) < len(data):
        piece = data[len(received) : len(received) + reader.missing]
        received += piece
        reader.feed(piece, lambda *frame: None)
    assert received == data


def test_a_request_keeps_its_head_and_body():
    head = RequestHead(
        method="POST",
        target=b"/a%20b?x=\xff",
        headers=[(b"host", b"x"), (b"x", b"1"), (b"x", b"2")],
        http_version="1.1",
        scheme="http",
        client=("127.0.0.1", 5),
        server=("127.0.0.1", 8000),
        root_path="/a",
        request_id="id",
        timeout_s=None,
        keep_alive=True,
        more_body=False,
        multiplexed_model_id="",
        route="/a",
    )
    assert decode_request(b"".join(encode_request(head, b"body"))) == (head, b"body")
