"""gRPC calls in a replica: what its callers see in frames."""

import asyncio
import pickle
import threading

import grpc

from syncline.serve.wire.frames import Kind, encode_window
from syncline.serve.wire.grpc_frames import (
    END_OF_MESSAGES,
    MESSAGE,
    Code,
    GrpcHead,
    decode_status,
    encode_head,
)
from tests.serve.grpc_services.words_pb2 import Count, Text
from tests.serve.replica.harness import run, staged


class Words:
    def __init__(self):
        self.gone = threading.Event()

    async def Upper(self, message):
        return Text(text=message.text.upper())

    def Threaded(self, message):
        return Text(text=threading.current_thread().name)

    async def Letters(self, message):
        for letter in message.text:
            yield Text(text=letter)

    async def Total(self, messages):
        return Count(count=sum([len(each.text) async for each in messages]))

    async def Endless(self, messages):
        async for _ in messages:
            pass
        await asyncio.sleep(60)

    async def Context(self, message, grpc_context):
        grpc_context.set_code(grpc.StatusCode.ALREADY_EXISTS)
        grpc_context.set_details("seen " + dict(grpc_context.invocation_metadata())["key"])
        grpc_context.set_trailing_metadata([("tail", "end")])
        if message.text == "raise":
            raise RuntimeError("after the code")
        return Text(text=grpc_context.peer())

    async def Fails(self, message):
        raise ValueError("bad word")

    async def Late(self, message):
        raise TimeoutError("too slow")

    async def Number(self, message):
        return 3


def head(method, *, streams_request=False, streams_response=False, timeout_s=None):
    return GrpcHead(
        method=method,
        request_id="id-1",
        timeout_s=timeout_s,
        multiplexed_model_id="",
        session_id="",
        app="app",
        service_method=f"/syncline.tests.Words/{method}",
        streams_request=streams_request,
        streams_response=streams_response,
        deserializer=pickle.dumps(Text.FromString),
        metadata=[("key", "value")],
        peer="ipv4:127.0.0.1:5",
        auth_context={},
    )


def call(caller, method, text="", **options):
    message = Text(text=text).SerializeToString()
    return caller._send(Kind.GRPC, *encode_head(head(method, **options), message))


async def last(pending):
    """Return kind, status and message of the last frame."""
    kind, payload = (await pending.end())[-1]
    return (kind, *decode_status(payload))


def test_a_message_is_answered_by_a_message(tmp_path):
    async def scenario():
        async with staged(tmp_path, Words) as stage:
            caller = await stage.connect()
            kind, status, message = await last(call(caller, "Upper", "abc"))
            assert (kind, status.code) == (Kind.VALUE, None)
            assert Text.FromString(message).text == "ABC"
            assert ("request_id", "id-1") in status.trailing_metadata

    run(scenario)


def test_sync_methods_run_in_threads(tmp_path):
    async def scenario():
        async with staged(tmp_path, Words) as stage:
            _, _, message = await last(call(await stage.connect(), "Threaded"))
            assert Text.FromString(message).text != threading.main_thread().name

    run(scenario)


def test_messages_of_a_stream_are_chunks(tmp_path):
    async def scenario():
        async with staged(tmp_path, Words) as stage:
            pending = call(await stage.connect(), "Letters", "ab", streams_response=True)
            frames = await pending.end()
            texts = [Text.FromString(data).text for kind, data in frames if kind == Kind.CHUNK]
            assert texts == ["a", "b"]
            assert frames[-1][0] == Kind.END

    run(scenario)


def test_a_client_streams_messages_after_the_first_window(tmp_path):
    async def scenario():
        async with staged(tmp_path, Words) as stage:
            pending = call(await stage.connect(), "Total", streams_request=True)
            kind, _ = await pending.next()
            assert kind == Kind.WINDOW
            for text in ("ab", "", "c"):
                pending.send(Kind.BODY, MESSAGE, Text(text=text).SerializeToString())
            pending.send(Kind.BODY, END_OF_MESSAGES)
            _, _, message = await last(pending)
            assert Count.FromString(message).count == 3

    run(scenario)


def test_a_sender_gets_more_window_as_its_messages_are_read(tmp_path):
    async def scenario():
        async with staged(tmp_path, Words) as stage:
            pending = call(await stage.connect(), "Total", streams_request=True)
            await pending.next()
            pending.send(Kind.BODY, MESSAGE, Text(text="x" * 70_000).SerializeToString())
            kind, payload = await pending.next()
            assert kind == Kind.WINDOW
            assert payload == encode_window(len(Text(text="x" * 70_000).SerializeToString()) + 1)
            pending.send(Kind.BODY, END_OF_MESSAGES)
            await pending.end()

    run(scenario)


def test_user_code_sets_code_details_and_metadata(tmp_path):
    async def scenario():
        async with staged(tmp_path, Words) as stage:
            caller = await stage.connect()
            for text, expected in (("", Kind.VALUE), ("raise", Kind.ERROR)):
                kind, status, message = await last(call(caller, "Context", text))
                assert kind == expected
                assert status.code == grpc.StatusCode.ALREADY_EXISTS.value[0]
                assert status.details == "seen value"
                assert status.trailing_metadata == [("request_id", "id-1"), ("tail", "end")]
            assert not message

    run(scenario)


def test_an_exception_is_an_internal_error_with_its_text(tmp_path):
    async def scenario():
        async with staged(tmp_path, Words) as stage:
            caller = await stage.connect()
            kind, status, _ = await last(call(caller, "Fails"))
            assert (kind, status.code) == (Kind.ERROR, Code.INTERNAL)
            assert status.details == "ValueError: bad word"
            assert (await last(call(caller, "Late")))[1].code == Code.DEADLINE_EXCEEDED

    run(scenario)


def test_a_result_that_is_no_message_is_an_error_that_names_its_type(tmp_path):
    async def scenario():
        async with staged(tmp_path, Words) as stage:
            _, status, _ = await last(call(await stage.connect(), "Number"))
            assert "answered /syncline.tests.Words/Number with a int" in status.details

    run(scenario)


def test_an_unknown_method_is_an_error_that_names_the_others(tmp_path):
    async def scenario():
        async with staged(tmp_path, Words) as stage:
            _, status, _ = await last(call(await stage.connect(), "Uper"))
            assert "has no method 'Uper'" in status.details
            assert "Upper" in status.details

    run(scenario)


def test_the_kind_of_a_method_must_be_that_of_the_service(tmp_path):
    async def scenario():
        async with staged(tmp_path, Words) as stage:
            caller = await stage.connect()
            _, status, _ = await last(call(caller, "Letters", "ab"))
            assert "has one reply" in status.details
            _, status, _ = await last(call(caller, "Upper", "ab", streams_response=True))
            assert "is a stream" in status.details

    run(scenario)


def test_a_malformed_message_is_an_error(tmp_path):
    async def scenario():
        async with staged(tmp_path, Words) as stage:
            caller = await stage.connect()
            pending = caller._send(Kind.GRPC, *encode_head(head("Upper"), b"\xff\xff"))
            assert (await last(pending))[1].code == Code.INTERNAL

    run(scenario)


def test_a_call_ends_at_its_deadline_and_when_its_client_is_gone(tmp_path):
    async def scenario():
        async with staged(tmp_path, Words) as stage:
            caller = await stage.connect()
            late = call(caller, "Endless", streams_request=True, timeout_s=0.1)
            assert (await last(late))[1].code == Code.DEADLINE_EXCEEDED
            pending = call(caller, "Endless", streams_request=True)
            await pending.next()
            pending.send(Kind.CANCEL)
            assert (await last(pending))[1].code == Code.CANCELLED

    run(scenario)
