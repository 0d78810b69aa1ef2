"""The codec over buffers: what decodes, what is refused, and that nothing is copied or held."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tidewire.codec import Decoder, Encoder, Generation, Recoder
from tidewire.errors import ArrayError, CodecError, DeficitError

BLOCK_CODES = ["rlc", "rlc8681", "cauchy", "rlc16", "raptorq", "rs-fft"]


def data(count: int, size: int = 1280) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(count).integers(0, 256, (count, size), dtype=np.uint8)


@pytest.mark.parametrize("code", BLOCK_CODES)
def test_any_losses_are_decoded(code: str) -> None:
    sources = data(20)
    block = Generation(code, 20)
    repairs = block.encode(sources, 6)
    plan = block.plan([1, 5, 19], [0, 2, 3, 5])
    known = sources.copy()
    known[[1, 5, 19]] = 0
    offered = repairs[[0, 2, 3, 5]]
    assert (plan.decode(known, offered) == sources[[1, 5, 19]]).all()
    plan.restore(known, offered)
    assert (known == sources).all()
    assert plan.lost == [1, 5, 19]
    assert len(plan.used) == 3


def test_symbols_may_be_rows_or_any_buffers() -> None:
    sources = data(8, 64)
    block = Generation("cauchy", 8)
    expected = block.encode(sources, 3)
    lists = [bytes(sources[0]), bytearray(sources[1]), memoryview(sources[2]), *sources[3:]]
    assert (block.encode(lists, 3) == expected).all()
    out = [bytearray(64) for _ in range(3)]
    assert block.encode(tuple(lists), out=out) is out
    assert [bytes(one) for one in out] == [bytes(row) for row in expected]


def test_results_are_written_into_the_given_array() -> None:
    sources, out = data(8), np.zeros((4, 1280), np.uint8)
    assert Generation("rlc", 8).encode(sources, out=out) is out
    assert (out == Generation("rlc", 8).encode(sources, 4)).all()


@pytest.mark.parametrize(
    ("sources", "text"),
    [
        (data(8).astype(np.uint16), 'sources has elements of type "H" instead of uint8'),
        (np.zeros((8, 4), ">u2"), "instead of uint8"),
        (data(8)[:, ::2], "sources is not C-contiguous"),
        (np.asfortranarray(data(8)), "sources is not C-contiguous"),
        (data(8)[0], "sources has 1 dimensions, give one row for each symbol"),
        (data(8).tobytes(), "sources has 1 dimensions"),
        ("text", "sources is a str, give bytes or an array of uint8"),
        (None, "sources is a NoneType"),
        ([b"a", 1], r"sources\[1\] is a int"),
        (np.empty((8, 4), object), "instead of uint8"),
    ],
)
def test_wrong_arrays_are_refused(sources: Any, text: str) -> None:
    with pytest.raises(ArrayError, match=text) as refused:
        Generation("rlc", 8).encode(sources, 2)
    assert isinstance(refused.value, TypeError)


def test_outputs_are_writable_and_lie_apart() -> None:
    sources, block = data(8), Generation("rlc", 8)
    out = np.zeros((2, 1280), np.uint8)
    out.flags.writeable = False
    with pytest.raises(ArrayError, match="out is read-only"):
        block.encode(sources, out=out)
    with pytest.raises(ArrayError, match="out is read-only"):
        block.encode(sources, out=bytes(10))
    with pytest.raises(ArrayError, match="shares memory"):
        block.encode(sources, out=sources[:2])
    one = bytearray(1280)
    with pytest.raises(ArrayError, match="shares memory"):
        block.encode(sources, out=[one, one])
    with pytest.raises(ArrayError, match="read-only"):
        block.plan([0], [0]).restore(sources.tobytes(), out)


def test_the_codec_names_what_is_wrong() -> None:
    with pytest.raises(CodecError, match='did you mean "cauchy"'):
        Generation("cauchi", 4)
    with pytest.raises(CodecError):
        Generation("cauchy", 256)
    with pytest.raises(OverflowError):
        Generation("rlc", 70_000)
    block = Generation("rlc", 8)
    with pytest.raises(CodecError, match="7 source symbols for a generation of 8"):
        block.encode(data(7), 2)
    with pytest.raises(CodecError, match="one of the two"):
        block.encode(data(8))  # type: ignore[call-overload]
    with pytest.raises(CodecError, match="empty"):
        block.encode(np.zeros((8, 0), np.uint8), 2)
    with pytest.raises(DeficitError, match="find 1 more") as short:
        block.plan([0, 1], [0])
    assert short.value.deficit == 1


def test_a_stream_repairs_its_losses() -> None:
    encoder, decoder = Encoder(1280, 64), Decoder(1280, 64)
    for symbol in data(20):
        encoder.push(symbol)
    for id_ in range(20):
        if id_ not in (3, 7):
            assert decoder.receive_source(id_, encoder.symbol(id_) or b"") == "innovative"
    assert decoder.missing == [(3, 4), (7, 8)]
    assert decoder.deficit == 2
    for key, repair in enumerate(encoder.repair("rlc", 0, 20, 0, 2)):
        assert decoder.receive_repair("rlc", 0, 20, key, repair) == "innovative"
    decoded = [decoder.poll_decoded() for _ in range(20)]
    assert decoded == [(id_, id_ in (3, 7)) for id_ in range(20)]
    assert decoder.poll_decoded() is None
    assert decoder.symbol(7) == bytes(data(20)[7])
    assert (decoder.edge, decoder.end, decoder.limit) == (20, 20, 84)
    encoder.release_before(20)
    assert encoder.window == (20, 20)
    assert encoder.symbol(7) is None


def test_a_window_refuses_what_it_cannot_hold() -> None:
    encoder = Encoder(64, 2)
    for _ in range(2):
        encoder.push(b"x")
    with pytest.raises(CodecError):
        encoder.push(b"x")
    with pytest.raises(CodecError):
        encoder.push(b"")
    with pytest.raises(CodecError, match="generations only"):
        encoder.repair("rlc16", 0, 2, 0)
    for wrong in [(0, 4), (4, 0), (1 << 40, 1 << 40), (64, 1 << 63)]:
        with pytest.raises(CodecError, match="at most 4 GiB"):
            Encoder(*wrong)
        with pytest.raises(CodecError, match="at most 4 GiB"):
            Decoder(*wrong)
    decoder = Decoder(64, 4)
    with pytest.raises(CodecError):
        decoder.receive_source(100, b"x")
    decoder.receive_source(0, b"x")
    with pytest.raises(CodecError):
        decoder.receive_source(0, b"y")


def test_a_relay_mixes_without_decoding() -> None:
    sources = data(8)
    relay, decoder = Recoder(1280, 8), Decoder(1280, 16)
    with pytest.raises(CodecError):
        relay.recode(0)
    relay.begin(0, 8)
    for id_ in range(6):
        relay.receive_source(id_, sources[id_])
    repairs = Generation("rlc", 8).encode(sources, 2)
    for key in range(2):
        assert relay.receive_repair("rlc", 0, 8, key, repairs[key]) == "innovative"
    assert relay.rank == 8
    key = 0
    while decoder.edge < 8:
        coefficients, symbol = relay.recode(key)
        decoder.receive_recoded(0, coefficients, symbol)
        key += 1
    assert key < 12
    assert all(decoder.symbol(id_) == bytes(sources[id_]) for id_ in range(8))


def test_buffers_are_given_back() -> None:
    block, array = Generation("rlc", 4), bytearray(256)
    for _ in range(3):
        block.encode([array] * 4, 2)
        with pytest.raises(ArrayError):
            block.encode([array, array, array, 1], 2)  # type: ignore[list-item]
    # A bytearray whose buffer is held cannot be resized.
    array.extend(b"more")


def test_other_threads_run_while_it_encodes() -> None:
    # A call takes several times as long as a turn of the other thread.
    sources, out = data(250, 1 << 17), np.empty((64, 1 << 17), np.uint8)
    block, ticks, done, free = Generation("rlc", 250), [0], threading.Event(), threading.Event()

    def encode() -> None:
        # A call that held the GIL would let the other thread run once. A busy machine needs more calls.
        for calls in range(1, 1_000):
            block.encode(sources, out=out)
            if ticks[0] > 2 * calls + 10:
                free.set()
                break
        done.set()

    worker = threading.Thread(target=encode)
    worker.start()
    while not done.is_set():
        ticks[0] += 1
        done.wait(0.001)
    worker.join()
    assert free.is_set()
