"""The axes of every figure of `papers/`, by paper and name.

`_curves` reads them. Their names are those of the data files; figures that are no curves (bars, panels) have
functions of their own there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Axes:
    """What is drawn over what, and how.

    Attributes:
        across: the column of the abscissa.
        below: the label of the abscissa.
        beside: the label of the ordinate.
        log: the axes that are logarithms.
        base: the base of the abscissa's logarithm.
        column: the column of the ordinate.
        prefix: how the names of the curves begin that are drawn.
        ending: how they end.
        is_loss: whether the abscissa is the loss rate under another name, which then tells no curves apart.
        longest: where the abscissa ends. What lies beyond is said in the legend: TCP has delays of seconds.
    """

    across: Literal["loss", "parameter", "rate"]
    below: str
    beside: str
    log: Literal["", "x", "y", "xy"] = ""
    base: int = 10
    column: Literal["value", "p99"] = "value"
    prefix: str = ""
    ending: str = ""
    is_loss: bool = False
    longest: float | None = None


FIGURES: dict[str, dict[str, Axes]] = {
    "streaming-code-5g": {
        "figure-1": Axes("parameter", "in-order delay [ms]", "fraction of symbols", longest=400),
        "figure-2": Axes("parameter", "block size k", "mean in-order delay [ms]", log="xy", base=2),
        "figure-5": Axes("rate", "code rate 1 - 1/l", "mean in-order delay [slots]", log="y"),
        "figure-6": Axes("rate", "code rate 1 - 1/l", "mean in-order delay [slots]", log="y"),
        "figure-7a": Axes("rate", "code rate", "mean in-order delay [slots]", log="y"),
        "figure-7b": Axes("rate", "code rate", "mean in-order delay [slots]", log="y"),
        "figure-8": Axes("rate", "effective rate", "mean in-order delay [ms]", log="y"),
        "figure-9": Axes("parameter", "block size k", "mean in-order delay [ms]", log="xy", base=2),
        "figure-10": Axes("rate", "effective rate", "mean in-order delay [ms]", log="y"),
    },
    "sphinx": {
        "figure-7": Axes("loss", "loss rate", "repairs per source symbol, or share of blocks"),
        "figure-9": Axes("loss", "loss rate", "packets of 1,000 bytes per second"),
        "figure-9-200": Axes("loss", "loss rate", "packets of 1,000 bytes per second"),
        "figure-10": Axes("loss", "loss rate", "time per block of 100 kB [ms]", log="y"),
        "figure-10-200": Axes("loss", "loss rate", "time per block of 100 kB [ms]", log="y"),
        "figure-11": Axes("parameter", "time [s]", "buffered video [s]"),
        "figure-9-lab": Axes(
            "loss", "loss rate, round trip 10 ms", "packets of 1,000 bytes per second", ending=" 10 ms"
        ),
        "figure-10-lab": Axes(
            "loss",
            "loss rate, round trip 10 ms",
            "time of an offered block of 100 kB, p99 [ms]",
            log="y",
            column="p99",
            ending=" 10 ms",
        ),
        "pairs": Axes("parameter", "pair", "share of what the link delivers"),
    },
    "rcdp": {
        "figure-4": Axes("parameter", "bandwidth [Mbit/s]", "throughput [Mbit/s]"),
        "figure-5": Axes("parameter", "loss rate [%]", "throughput [Mbit/s]", is_loss=True),
        "figure-6": Axes("parameter", "size of the content [MB]", "throughput [Mbit/s]", log="x"),
        "wire-rate": Axes("parameter", "time [s]", "rate on the wire [Mbit/s]"),
        "estimator": Axes(
            "parameter", "constant rate beside it, share of the link", "rate, share of the link"
        ),
    },
    "fairness": {
        "figure-2": Axes(
            "parameter", "time [s]", "window [segments], drops of the queue since 10 s", log="y"
        ),
        "figure-4": Axes("parameter", "redundancy R", "goodput [Mbit/s]"),
        "figure-5": Axes("parameter", "generation g [symbols]", "goodput [Mbit/s]"),
        "figure-6": Axes("loss", "loss rate p", "goodput [Mbit/s]"),
        "figure-8": Axes("parameter", "redundancy R", "index, or lambda"),
        "figure-9": Axes("loss", "loss rate p", "index, or lambda"),
        "four-flows": Axes("parameter", "redundancy R", "goodput [Mbit/s], or index"),
        "four-flows-loss": Axes("loss", "loss rate p", "goodput [Mbit/s], or index"),
        "batch-delay": Axes("parameter", "generation or batch g [symbols]", "mean delay [ms]"),
        "batch-goodput": Axes("parameter", "generation or batch g [symbols]", "goodput [Mbit/s]"),
        "links": Axes("parameter", "queue [packets]", "goodput without code, share of x'"),
        "rules": Axes("loss", "loss rate p", "J'", prefix="J' "),
        "cost": Axes("loss", "loss rate p", "goodput of NewReno, share of x'", prefix="kept"),
        "cost-cubic": Axes("loss", "loss rate p", "goodput of CUBIC, share of x'", prefix="kept"),
        "cost-wide": Axes("loss", "loss rate p", "goodput of TCP, share of x'", prefix="kept"),
    },
    "variable-bucket": {
        "figure-3": Axes("parameter", "time [s]", "largest latency of a second [ms], packets", log="y"),
        "figure-6": Axes("parameter", "time [s]", "zero-payload packets, window [segments]", log="y"),
        "figure-7": Axes("parameter", "time [s]", "zero-payload packets, window [segments]", log="y"),
        "figure-8": Axes("parameter", "time [s]", "largest latency of a second [ms]", log="y"),
        "figure-9": Axes("parameter", "time [s]", "largest latency of a second [ms]", log="y"),
        "figure-10": Axes("parameter", "time [s]", "largest jitter of a second [ms]", log="y"),
        "links": Axes("loss", "loss rate of a hop", "share saved of the 95th percentile"),
        "gamma": Axes("parameter", "Gamma", "95th percentile [ms]", log="y"),
        "cap": Axes("parameter", "cap of the bucket [segments]", "95th percentile [ms], or count", log="y"),
        "bound": Axes("parameter", "segments that wait", "best bucket [segments]"),
    },
}
