"""Channels: messages arrive whole and in order, sending never blocks, the end comes last."""

import os
import select
import socket
import threading

import pytest

from syncline.core.embedded.channel import Channel, ChannelClosedError

LARGE_BYTES = 20_000_000


@pytest.fixture
def ends():
    left, right = (Channel(end) for end in socket.socketpair())
    yield left, right
    left.close()
    right.close()


def receive(channel, count):
    """The next `count` messages, however many pieces they come in."""
    messages = []
    while len(messages) < count:
        assert select.select([channel.fileno()], [], [], 60)[0]
        messages += channel.receive()
    return messages


def move(sender, receiver, count):
    """`count` messages, while the sender's backlog is written as the socket takes it."""
    messages = []
    while len(messages) < count:
        sender.write_backlog()
        messages += receiver.receive()
    return messages


def test_messages_arrive_whole_and_in_order(ends):
    left, right = ends
    sent = [(index, b"x" * index, ("name", None, 1.5)) for index in range(500)]
    for message in sent:
        left.send(message)
    assert receive(right, 500) == sent


def test_both_directions_are_independent(ends):
    left, right = ends
    left.send((1,))
    right.send((2,))
    assert receive(right, 1) == [(1,)]
    assert receive(left, 1) == [(2,)]


def test_queued_messages_are_sent_with_the_next_one_in_order(ends):
    left, right = ends
    left.enqueue((1,))
    left.enqueue((2,))
    assert right.receive() == []
    left.send((3,))
    assert receive(right, 3) == [(1,), (2,), (3,)]


def test_a_message_is_encoded_when_it_is_queued(ends):
    left, right = ends
    changes = [1]
    left.enqueue((changes,))
    changes.append(2)
    left.flush()
    assert receive(right, 1) == [([1],)]


def test_receive_without_input_is_empty(ends):
    assert ends[1].receive() == []


def test_split_frames_are_reassembled():
    plain, end = socket.socketpair()
    memory = Channel(end)
    spare, spare_end = (Channel(each) for each in socket.socketpair())
    for index in range(3):
        spare.enqueue((index, b"abc"))
    spare.flush()
    data = spare_end._socket.recv(1_000_000)
    messages = []
    for index in range(len(data)):
        plain.sendall(data[index : index + 1])
        messages += memory.receive()
    assert messages == [(0, b"abc"), (1, b"abc"), (2, b"abc")]
    for each in (plain, memory, spare, spare_end):
        each.close()


def test_sending_more_than_the_socket_takes_does_not_block(ends):
    left, right = ends
    body = os.urandom(LARGE_BYTES)
    left.send((1, body))
    left.send((2,))
    assert left.congested
    assert move(left, right, 2) == [(1, body), (2,)]
    assert not left.congested


def test_drain_waits_for_a_reader(ends):
    left, right = ends
    received = []
    left.send((b"x" * LARGE_BYTES,))
    thread = threading.Thread(target=lambda: received.extend(receive(right, 1)), daemon=True)
    thread.start()
    left.drain(0)
    thread.join(60)
    assert not left.congested
    assert len(received) == 1


def test_drain_ends_when_the_peer_closes(ends):
    left, right = ends
    left.send((b"x" * LARGE_BYTES,))
    right.close()
    left.drain(0)
    assert not left.congested


def test_last_messages_of_a_closed_peer_are_received(ends):
    left, right = ends
    right.send((0,))  # never read by the peer, so that its end is a reset
    left.send((1,))
    left.send((2,))
    left.close()
    assert receive(right, 2) == [(1,), (2,)]
    with pytest.raises(ChannelClosedError):
        right.receive()


def test_sending_to_a_closed_peer_raises_nothing(ends):
    left, right = ends
    right.close()
    for index in range(3):
        left.send((index,))
    assert not left.congested


def test_a_closed_channel_drops_messages(ends):
    left, _ = ends
    left.close()
    left.close()
    left.send((1,))
    assert left._outgoing == []
    assert left.fileno() == -1
    assert not left.congested
    with pytest.raises(ChannelClosedError):
        left.receive()
