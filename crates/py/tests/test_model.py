"""The models over arrays: the values of the Rust documentation, shapes, and what has no model."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

from tidewire import model
from tidewire.errors import ModelError


def test_values_are_those_of_the_library() -> None:
    code = model.Streaming(0.1, 5)
    assert code.mean_delay() == pytest.approx(2.603948, abs=1e-6)
    assert code.quantile(0.99) == 36.0
    assert model.Gilbert(0.1, 4.0, 5).mean_delay() == pytest.approx(25.6, abs=0.5)
    assert model.Asking(0.1, 4.0, 100.0).quantile(0.5) > 80.0
    block = model.SphinxBlock(100, 0.06)
    assert (block.degree(), block.samples(0.5), block.repairs(0.5)) == (17, 222, 14)
    assert model.jain_index([7.0, 3.0]) == 25 / 29
    assert model.modified_index([7.0, 3.0], 1, 4.0) == 529 / 554
    assert model.fair_throughput([7.0, 3.0], 1, 4.0) == 6.0
    assert model.least_redundancy(0.5) == 2.0


def test_arguments_broadcast() -> None:
    loss, spacing = np.array([0.01, 0.05, 0.1])[:, None], np.array([4, 5, 6, 8])
    code = model.Streaming(loss, spacing)
    delays = code.mean_delay()
    assert delays.shape == (3, 4)
    assert delays[2, 1] == model.Streaming(0.1, 5).mean_delay()
    assert code.late(np.arange(10)[:, None, None]).shape == (10, 3, 4)
    assert (np.diff(delays, axis=0) > 0).all()
    assert isinstance(model.Streaming(0.1, 5).mean_delay(), float)


def test_probabilities_sum_to_what_is_late() -> None:
    code = model.Streaming(0.05, 6)
    slots = np.arange(200)
    assert 1 - np.cumsum(code.delay(slots)) == pytest.approx(code.late(slots), abs=1e-12)


def test_spacing_and_overhead() -> None:
    assert model.spacing_of_overhead(0.25) == 5.0
    assert model.Streaming(0.1, model.spacing_of_overhead([0.25, 0.5])).rate() == pytest.approx([0.8, 2 / 3])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: model.Streaming(1.5, 4), "loss rate 1.5 is not at least 0 and below 1"),
        (lambda: model.Streaming([0.1, 0.1, -1], 4), "element 2: loss rate -1"),
        (lambda: model.Streaming(0.5, 4), "send more repairs"),
        (lambda: model.Streaming(np.nan, 4), "loss rate NaN"),
        (lambda: model.Gilbert(0.1, 0.5, 4), "mean burst 0.5"),
        (lambda: model.Gilbert(0.1, 4, 4.5), "spacing is 4.5, give a whole number"),
        (lambda: model.Streaming(0.1, 5).quantile(2), "quantile 2"),
        (lambda: model.Streaming(0.1, 5).delay(-1), "slots is -1"),
        (lambda: model.SphinxBlock(0, 0.1), "a block of 0 source symbols"),
        (lambda: model.SphinxBlock(100, 0.1).samples(2), "coverage 2"),
        (lambda: model.modified_index([1.0, 1.0], 3, 1.0), "3"),
        (lambda: model.least_redundancy(1.0), "loss rate 1"),
    ],
)
def test_numbers_without_a_model_are_named(call: Any, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        call()


def test_what_a_model_does_not_reach_is_nan() -> None:
    assert np.isnan(model.Gilbert(0.1, 4, 5).quantile(1 - 1e-9))
    assert np.isnan(model.Streaming(0.1, 5.5).delay(3))
    assert np.isnan(model.jain_index([0.0, 0.0]))


def test_empty_arrays_give_empty_arrays() -> None:
    assert model.Streaming(np.zeros(0), 4).mean_delay().shape == (0,)


def test_ctrl_c_ends_long_work() -> None:
    code = model.Gilbert(np.full(100_000, 0.1), 4.0, 5)
    pressed = [0.0]

    def press() -> None:
        time.sleep(0.2)
        pressed[0] = time.monotonic()
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt):
        code.quantile(0.999)
    assert time.monotonic() - pressed[0] < 0.5
