"""Upper limits for calls between two processes: a pipe, raw frames on a Unix socket, and raw frames
with an I/O thread.

A frame is four bytes of length and a payload of 16 bytes. Frames in flight are sent in batches, one
system call per batch.
"""

import multiprocessing
import multiprocessing.connection
import os
import queue
import socket
import struct
import threading
from collections.abc import Iterator

from bench.programs import common

PAYLOAD = b"0123456789abcdef"
LENGTH = struct.Struct(">I")
FRAME = LENGTH.pack(len(PAYLOAD)) + PAYLOAD
BATCH_FRAMES = 256


def echo_pipe(connection: multiprocessing.connection.Connection) -> None:
    while (value := connection.recv()) is not None:
        connection.send(value)


def measure_pipe() -> common.Values:
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(
        target=echo_pipe, args=(theirs,), daemon=True
    )
    child.start()

    def one_at_a_time(count: int) -> None:
        for index in range(count):
            ours.send(index)
            assert ours.recv() == index

    one_at_a_time(500)
    values = {"one_per_s": common.rate(one_at_a_time, 5000)}
    ours.send(None)
    child.join()
    return values


def frames(connection: socket.socket) -> Iterator[list[bytes]]:
    """Yield the payloads that each read of the socket completes, until the connection closes."""
    pending = b""
    while received := connection.recv(65536):
        pending += received
        payloads, offset = [], 0
        while len(pending) - offset >= LENGTH.size:
            (size,) = LENGTH.unpack_from(pending, offset)
            if len(pending) - offset - LENGTH.size < size:
                break
            payloads.append(pending[offset + LENGTH.size : offset + LENGTH.size + size])
            offset += LENGTH.size + size
        pending = pending[offset:]
        yield payloads


def fork_echo() -> socket.socket:
    """Return a socket to a child that echoes every frame and exits with the connection."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.fork() == 0:
        ours.close()
        for payloads in frames(theirs):
            theirs.sendall(b"".join(LENGTH.pack(len(payload)) + payload for payload in payloads))
        os._exit(0)
    theirs.close()
    return ours


def measure_socket() -> common.Values:
    connection = fork_echo()
    answers = frames(connection)

    def exchange(count: int) -> None:
        connection.sendall(FRAME * count)
        answered = 0
        while answered < count:
            answered += len(next(answers))

    def one_at_a_time(count: int) -> None:
        for _ in range(count):
            exchange(1)

    def many_in_flight(count: int) -> None:
        for begin in range(0, count, BATCH_FRAMES):
            exchange(min(BATCH_FRAMES, count - begin))

    one_at_a_time(500)
    return {
        "one_per_s": common.rate(one_at_a_time, 5000),
        "many_per_s": common.rate(many_in_flight, 100_000),
    }


def measure_threaded() -> common.Values:
    connection = fork_echo()
    answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for payloads in frames(connection):
            for payload in payloads:
                answers.put(payload)

    threading.Thread(target=read, daemon=True).start()

    def one_at_a_time(count: int) -> None:
        for _ in range(count):
            connection.sendall(FRAME)
            answers.get()

    one_at_a_time(500)
    return {"one_per_s": common.rate(one_at_a_time, 5000)}


if __name__ == "__main__":
    options = common.arguments()
    common.write(
        options.out,
        {"pipe": measure_pipe, "socket": measure_socket, "threaded": measure_threaded}[
            options.library
        ](),
    )
