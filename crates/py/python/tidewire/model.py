"""Models of delay, redundancy and fairness, over arrays.

All functions broadcast their arguments as numpy does, and return an array of float64 of the common shape,
or a float if all arguments are scalars. A number without a model raises
:class:`tidewire.errors.ModelError`, with the index of the element; a value that a model does not reach (a
delay beyond 1,048,576 groups) is NaN. Work is done without the GIL, and Ctrl-C ends it within half a second.

*Time is in slots*: one packet, source or repair. Multiply by the time of a packet: 1,280 bytes at 20 Mbit/s
take 0.512 ms. A *spacing* of l means one repair in l packets, so the overhead is 1/(l - 1) repairs for each
source symbol. Sources: docs/coding.md section 3, docs/sphinx.md and docs/fairness.md, which name the papers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tidewire import _native

__all__ = [
    "Asking",
    "Gilbert",
    "SphinxBlock",
    "Streaming",
    "fair_throughput",
    "jain_index",
    "least_redundancy",
    "modified_index",
    "spacing_of_overhead",
]

Floats: TypeAlias = npt.NDArray[np.float64]


def _over(call: Callable[[list[Floats], Floats], None], *arguments: npt.ArrayLike) -> Any:
    """Call a native function over the broadcast arguments."""
    columns = np.broadcast_arrays(*(np.asarray(argument, dtype=np.float64) for argument in arguments))
    out = np.empty(columns[0].shape)
    call([np.ascontiguousarray(column).reshape(-1) for column in columns], out.reshape(-1))
    return out[()]


def spacing_of_overhead(overhead: npt.ArrayLike) -> Any:
    """The spacing l at which repairs are this fraction of the source symbols: ``1 + 1/overhead``."""
    return 1 + 1 / np.asarray(overhead, dtype=np.float64)


class Streaming:
    """The streaming code under independent losses: a repair after every ``spacing - 1`` source symbols.

    Karzand, Leith, Cloud, Médard: "Design of FEC for Low Delay in 5G"; exact, without feedback.

    Args:
        loss: loss rate of packets, at least 0 and below 1.
        spacing: one repair in this many packets, above 1 and at most 4,096; ``loss * spacing`` is below 1.

    Raises:
        ModelError: a number is out of range, or repairs are fewer than losses.
    """

    def __init__(self, loss: npt.ArrayLike, spacing: npt.ArrayLike) -> None:
        self._numbers = (loss, spacing)
        self._of("check")

    def _of(self, quantity: str, argument: npt.ArrayLike = 0.0) -> Any:
        return _over(lambda inputs, out: _native.streaming(quantity, inputs, out), *self._numbers, argument)

    def rate(self) -> Any:
        """Source symbols divided by all packets, ``1 - 1/l``."""
        return self._of("rate")

    def mean_delay(self) -> Any:
        """Mean in-order delay of a source symbol, in slots."""
        return self._of("mean_delay")

    def no_delay(self) -> Any:
        """Fraction of source symbols without delay."""
        return self._of("no_delay")

    def delay(self, slots: npt.ArrayLike) -> Any:
        """Probability that the delay is exactly this many slots; NaN if the spacing is not whole."""
        return self._of("delay", slots)

    def late(self, slots: npt.ArrayLike) -> Any:
        """Probability that the delay exceeds this many slots, with an absolute error below 1e-13."""
        return self._of("late", slots)

    def quantile(self, q: npt.ArrayLike) -> Any:
        """The delay in slots that a fraction q of source symbols does not exceed; q in [0, 1)."""
        return self._of("quantile", q)

    def failure(self, groups: npt.ArrayLike) -> Any:
        """Probability that a loss is not repaired within this many groups."""
        return self._of("failure", groups)

    def mean_busy(self) -> Any:
        """Mean busy period in groups, those without a lost source symbol included."""
        return self._of("mean_busy")

    def second_moment(self) -> Any:
        """Second moment of the busy period in groups."""
        return self._of("second_moment")

    def third_moment(self) -> Any:
        """Third moment of the busy period in groups."""
        return self._of("third_moment")

    def mean_cycle(self) -> Any:
        """Mean number of groups from one moment without deficit to the next."""
        return self._of("mean_cycle")

    def tail_ratio(self) -> Any:
        """The factor by which the tail of the busy period falls with each group."""
        return self._of("tail_ratio")

    def operations(self) -> Any:
        """Operations of the decoder for each symbol, as the paper counts them."""
        return self._of("operations")


class Gilbert:
    """The streaming code under losses in bursts (a Gilbert channel), exactly, by generating functions.

    Args:
        loss: loss rate of packets, at least 0 and below 1.
        burst: mean length of a run of losses, in packets; ``1/(1 - loss)`` for independent losses.
        spacing: one repair in this many packets, whole, 2 to 4,096.

    Raises:
        ModelError: a number is out of range, or no channel has such bursts.
    """

    def __init__(self, loss: npt.ArrayLike, burst: npt.ArrayLike, spacing: npt.ArrayLike) -> None:
        self._numbers = (loss, burst, spacing)
        self._of("check")

    def _of(self, quantity: str, argument: npt.ArrayLike = 0.0) -> Any:
        return _over(lambda inputs, out: _native.gilbert(quantity, inputs, out), *self._numbers, argument)

    def mean_delay(self) -> Any:
        """Mean in-order delay of a source symbol, in slots."""
        return self._of("mean_delay")

    def no_delay(self) -> Any:
        """Fraction of source symbols without delay."""
        return self._of("no_delay")

    def mean_cycle(self) -> Any:
        """Mean number of groups from one moment without deficit to the next."""
        return self._of("mean_cycle")

    def late(self, slots: npt.ArrayLike) -> Any:
        """Probability that the delay exceeds this many slots, with an absolute error below 1e-9."""
        return self._of("late", slots)

    def quantile(self, q: npt.ArrayLike) -> Any:
        """The delay in slots that a fraction q does not exceed; NaN for q above 1 - 1e-7. Some 3 ms each."""
        return self._of("quantile", q)


class Asking:
    """Plain retransmission under losses in bursts: each lost packet is sent again after some slots.

    Args:
        loss: loss rate of packets, at least 0 and below 1.
        burst: mean length of a run of losses, in packets.
        answer: slots from a transmission to the retransmission: the round trip.

    Raises:
        ModelError: a number is out of range.
    """

    def __init__(self, loss: npt.ArrayLike, burst: npt.ArrayLike, answer: npt.ArrayLike) -> None:
        self._numbers = (loss, burst, answer)
        self._of("check")

    def _of(self, quantity: str, argument: npt.ArrayLike = 0.0) -> Any:
        return _over(lambda inputs, out: _native.asking(quantity, inputs, out), *self._numbers, argument)

    def late(self, slots: npt.ArrayLike) -> Any:
        """Probability that the in-order delay exceeds this many slots."""
        return self._of("late", slots)

    def quantile(self, q: npt.ArrayLike) -> Any:
        """The delay that a fraction q does not exceed, to a hundredth of a slot; NaN for q above 1 - 1e-9."""
        return self._of("quantile", q)


class SphinxBlock:
    """A block of the Sphinx protocol (Li et al., 2019, section III-B, equations (1) to (5)).

    Args:
        symbols: source symbols of the block, 1 to 4,096.
        loss: mean loss rate, 0 to 0.99.
        deviation: standard deviation of the loss rate.
        form: ``"printed"`` reproduces the paper, ``"corrected"`` limits the degree to half of the block.
        rounding: how the degree becomes whole: ``"up"`` as printed, ``"down"`` as the paper's text asks.

    Raises:
        ModelError: a number is out of range.
    """

    def __init__(
        self,
        symbols: npt.ArrayLike,
        loss: npt.ArrayLike,
        deviation: npt.ArrayLike = 0.0,
        *,
        form: Literal["printed", "corrected"] = "printed",
        rounding: Literal["up", "down"] = "up",
    ) -> None:
        self._numbers = (symbols, loss, deviation)
        self._choices = (form == "printed", rounding == "up")
        self.lost()

    def _of(self, quantity: str, argument: npt.ArrayLike = 0.0, second: npt.ArrayLike = 1.0) -> Any:
        def call(inputs: list[Floats], out: Floats) -> None:
            _native.sphinx(quantity, *self._choices, inputs, out)

        return _over(call, *self._numbers, argument, second)

    def lost(self) -> Any:
        """Source symbols that are lost on average, q, rounded up."""
        return self._of("lost")

    def degree(self) -> Any:
        """Equation (1): source symbols that each repair mixes."""
        return self._of("degree")

    def among_lost(self, samples: npt.ArrayLike, among: npt.ArrayLike) -> Any:
        """Equation (2): the probability that exactly `among` of `samples` draws are lost symbols."""
        return self._of("among_lost", samples, among)

    def all_chosen(self, among: npt.ArrayLike) -> Any:
        """Equation (3): the probability that `among` draws from the lost symbols choose each of them."""
        return self._of("all_chosen", among)

    def coverage(self, samples: npt.ArrayLike) -> Any:
        """Equation (4): the probability that `samples` draws choose every lost symbol."""
        return self._of("coverage", samples)

    def samples(self, threshold: npt.ArrayLike) -> Any:
        """The least number of draws whose coverage exceeds the threshold, 1e-3 to 1 - 1e-9."""
        return self._of("samples", threshold)

    def repairs(self, threshold: npt.ArrayLike) -> Any:
        """Equation (5): repairs to send for this threshold of coverage."""
        return self._of("repairs", threshold)

    def decoded(self, repairs: npt.ArrayLike, burst: npt.ArrayLike = 1.0) -> Any:
        """The probability that elimination decodes the block with this many repairs of half the block."""
        return self._of("decoded", repairs, burst)

    def repairs_for_elimination(self, target: npt.ArrayLike, burst: npt.ArrayLike = 1.0) -> Any:
        """The fewest repairs with which elimination decodes the block with probability `target`."""
        return self._of("repairs_for_elimination", target, burst)


def _shares(quantity: str, throughputs: npt.ArrayLike, coded: npt.ArrayLike, alone: npt.ArrayLike) -> Any:
    """Call the native function over the last axis of the throughputs."""
    table = np.asarray(throughputs, dtype=np.float64)
    if table.ndim == 0:
        table = table.reshape(1)
    numbers = np.broadcast_arrays(np.asarray(coded, np.float64), np.asarray(alone, np.float64))
    shape = np.broadcast_shapes(table.shape[:-1], numbers[0].shape)
    table = np.ascontiguousarray(np.broadcast_to(table, (*shape, table.shape[-1])))
    columns: Sequence[Floats] = [np.ascontiguousarray(np.broadcast_to(n, shape)).reshape(-1) for n in numbers]
    out = np.empty(shape)
    _native.fairness(quantity, table.reshape(-1, table.shape[-1]), columns, out.reshape(-1))
    return out[()]


def jain_index(throughputs: npt.ArrayLike) -> Any:
    """Jain's index J of the throughputs along the last axis: 1 if all are equal, 1/n if one has all.

    NaN without a throughput above 0.
    """
    return _shares("jain_alone", throughputs, 1, 1)


def modified_index(throughputs: npt.ArrayLike, coded: npt.ArrayLike, alone: npt.ArrayLike) -> Any:
    """The modified index J' of Ageneau, Boukhatem and Gerla: 1 if each flow has its fair throughput.

    Args:
        throughputs: flows along the last axis, the coded ones first; any unit.
        coded: how many of them are coded, at least 1.
        alone: mean throughput of a flow in a run in which none is coded, in the same unit.

    Raises:
        ModelError: a number is out of range, or the flows carry less than without code.
    """
    return _shares("index", throughputs, coded, alone)


def fair_throughput(throughputs: npt.ArrayLike, coded: npt.ArrayLike, alone: npt.ArrayLike) -> Any:
    """The fair throughput of a coded flow, in the unit of the throughputs; the others' is `alone`."""
    return _shares("fair_coded", throughputs, coded, alone)


def least_redundancy(loss: npt.ArrayLike) -> Any:
    """Packets sent for each source packet that replace the losses on average, ``1/(1 - loss)``."""
    return _over(_native.least_redundancy, loss)
