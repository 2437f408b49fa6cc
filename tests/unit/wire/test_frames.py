"""Frames: the reader gets exactly the sent bytes, in whatever pieces they arrive and however often it is paused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.errors import ProtocolError
from proxy.wire.frames import Decision, FrameReader

HEAD = 4
LIMIT = 1000


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


class Listener:
    """Makes planned decisions frame by frame, and keeps what it gets."""

    def __init__(self, plans=()):
        self.plans = [list(plan) for plan in plans]
        """Decisions for each frame, in order; HOLD if none is left."""
        self.frames: list[bytes] = []
        self.streaming: bytearray | None = None
        self.heads: list[bytes] = []
        self.reader = FrameReader(self, head_bytes=HEAD, max_frame_bytes=LIMIT)
        self.stop_after = set()

    def frame_begins(self, size, head):
        assert len(head) >= min(size, HEAD)
        assert len(head) <= size
        assert self.streaming is None
        self.heads.append(bytes(head))
        plan = self.plans[len(self.frames)] if len(self.frames) < len(self.plans) else []
        decision = plan.pop(0) if plan else Decision.HOLD
        if decision is Decision.NEED_MORE and len(head) == size:
            return Decision.HOLD
        if decision is Decision.STREAM:
            self.streaming = bytearray()
        return decision

    def frame_held(self, frame):
        assert self.streaming is None
        self._whole(bytes(frame))

    def frame_part(self, part, last):
        self.streaming += part
        if last:
            whole, self.streaming = bytes(self.streaming), None
            assert struct.unpack_from(">i", whole)[0] == len(whole) - 4
            self._whole(whole[4:])

    def _whole(self, body):
        self.frames.append(body)
        if len(self.frames) in self.stop_after:
            self.reader.stop()


@given(
    bodies=st.lists(st.binary(min_size=1, max_size=60), max_size=8),
    plans=st.lists(st.lists(st.sampled_from(Decision), max_size=4), max_size=8),
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    stop_after=st.sets(st.integers(1, 8)),
    resume_after=st.lists(st.booleans(), min_size=1, max_size=6),
)
def test_any_chunks_decisions_and_stops_give_every_frame_once(bodies, plans, cuts, stop_after, resume_after):
    listener = Listener(plans)
    listener.stop_after = stop_after
    data, at, turn = framed(*bodies), 0, 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        listener.reader.feed(data[at : at + size])
        at, turn = at + size, turn + 1
        assert listener.frames == bodies[: len(listener.frames)]
        if listener.reader.stopped and resume_after[turn % len(resume_after)]:
            listener.reader.resume()
    while listener.reader.stopped:
        listener.reader.resume()
    assert listener.frames == bodies
    assert not listener.reader.in_frame


def test_nothing_of_a_waiting_frame_is_delivered_until_the_reader_is_resumed():
    listener = Listener([[Decision.WAIT]])
    listener.reader.feed(framed(b"first", b"second"))
    assert listener.reader.stopped
    assert listener.frames == []
    listener.reader.resume()
    assert listener.frames == [b"first", b"second"]


def test_a_streamed_frame_is_given_on_as_it_comes():
    listener = Listener([[Decision.STREAM]])
    listener.reader.feed(framed(b"0123456789")[:9])
    assert listener.streaming == framed(b"0123456789")[:9]
    assert listener.reader.in_frame
    listener.reader.feed(framed(b"0123456789")[9:])
    assert listener.frames == [b"0123456789"]


def test_a_stopped_reader_ends_the_frame_that_it_is_in_and_no_other():
    listener = Listener([[Decision.STREAM]])
    data = framed(b"streamed", b"next")
    listener.reader.feed(data[:9])
    listener.reader.stop()
    listener.reader.feed(data[9:])
    assert listener.frames == [b"streamed"]


def test_a_listener_that_stops_and_resumes_within_a_frame_loses_nothing():
    listener = Listener()

    class Resuming(Listener):
        def _whole(self, body):
            super()._whole(body)
            self.reader.stop()
            self.reader.resume()

    listener = Resuming()
    listener.reader.feed(framed(b"one1", b"two2")[:5])
    listener.reader.feed(framed(b"one1", b"two2", b"three")[5:])
    assert listener.frames == [b"one1", b"two2", b"three"]


def test_more_is_asked_for_only_when_it_has_come():
    listener = Listener([[Decision.NEED_MORE, Decision.NEED_MORE]])
    for byte in framed(bytes(range(40))):
        listener.reader.feed(bytes([byte]))
    assert [len(head) for head in listener.heads] == [4, 8, 16]
    assert listener.frames == [bytes(range(40))]


@pytest.mark.parametrize(
    ("start", "cause"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (struct.pack(">i", -5) + b"....", "no Kafka client"),
        (struct.pack(">i", LIMIT + 1) + b"....", "max_frame_bytes"),
    ],
)
def test_an_invalid_frame_is_rejected_with_its_likely_cause(start, cause):
    with pytest.raises(ProtocolError, match=cause):
        Listener().reader.feed(start)


@given(st.lists(st.binary(max_size=30), max_size=10))
def test_foreign_bytes_raise_the_one_error_or_none(chunks):
    listener = Listener()
    try:
        for chunk in chunks:
            listener.reader.feed(chunk)
    except ProtocolError:
        pass


def test_a_frame_is_partial_from_its_first_byte_to_its_last():
    listener = Listener()
    assert not listener.reader.partial
    for byte in framed(b"frame"):
        listener.reader.feed(bytes([byte]))
        assert listener.reader.partial == (not listener.frames)
    assert listener.frames == [b"frame"]


def test_single_bytes_of_a_held_frame_are_joined():
    """Each of them costs fifty times its size as long as it is on its own."""
    listener, body = Listener(), bytes(range(250)) * 200
    listener.reader = FrameReader(listener, head_bytes=HEAD, max_frame_bytes=len(body))
    parts = 0
    for byte in framed(body):
        listener.reader.feed(bytes([byte]))
        parts = max(parts, len(listener.reader._held_parts))
    assert listener.frames == [body]
    assert parts < 5000


@given(
    st.lists(st.integers(0, 150_000), min_size=1, max_size=4),
    st.lists(st.integers(1_000, 150_000), min_size=1, max_size=20),
    st.integers(1_000, 70_000),
)
def test_large_frames_that_are_received_in_place_are_the_same(sizes, reads, scratch_bytes):
    """Feed bytes like a protocol with buffers: each read goes to `room`, or, if there is none, to `feed`."""
    bodies = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    listener = Listener()
    listener.reader = reader = FrameReader(listener, head_bytes=HEAD, max_frame_bytes=10**6)
    data, at = memoryview(framed(*bodies)), 0
    for number in range(10**6):
        if at == len(data):
            break
        room = reader.room()
        part = data[at : at + min(reads[number % len(reads)], scratch_bytes if room is None else len(room))]
        at += len(part)
        if room is None:
            reader.feed(bytes(part))
        else:
            room[: len(part)] = part
            reader.filled(len(part))
    assert listener.frames == bodies
    assert not reader.partial


def test_a_frame_received_in_place_ends_a_stopped_reader_as_any_other():
    listener = Listener()
    listener.reader = reader = FrameReader(listener, head_bytes=HEAD, max_frame_bytes=10**6)
    large, small = bytes(100_000), b"small"
    data = framed(large, small)
    reader.feed(data[:10])
    reader.stop()
    reader.resume()
    reader.stop()
    room = reader.room()
    assert room is not None
    room[:] = data[10 : 10 + len(room)]
    reader.filled(len(room))
    assert listener.frames == [large]
    assert reader.room() is None
    reader.feed(framed(small))
    assert listener.frames == [large]
    reader.resume()
    assert listener.frames == [large, small]


@pytest.mark.parametrize(("frames", "is_copied"), [(3, False), (100, True)])
def test_a_small_frame_that_is_held_keeps_no_large_buffer(frames: int, is_copied: bool) -> None:
    """Its bytes may wait for object storage when the frames around it are long gone."""
    kept: list[memoryview] = []

    class Keeping(Listener):
        def frame_held(self, frame):
            kept.append(frame)

    data = framed(*[bytes(100)] * frames)
    Keeping().reader.feed(data)
    assert [len(frame.obj) for frame in kept] == [100 if is_copied else len(data)] * frames
