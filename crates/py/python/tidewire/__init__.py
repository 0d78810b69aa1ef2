"""Tidewire: coded transport over UDP, erasure codes, models of delay, and the simulator behind them.

- :func:`listen` and :func:`connect`: streams and messages under asyncio (:mod:`tidewire.transport`).
- :mod:`tidewire.codec`: erasure codes over numpy arrays and other buffers, without a copy.
- :mod:`tidewire.model`: exact distributions of delay, fairness and Sphinx's equations, over arrays.
- :func:`simulate`: the protocol over links in virtual time (:mod:`tidewire.simulator`).
- :func:`sweep`: experiments over many cells, on processes or a Dask cluster (:mod:`tidewire.sweeps`).
- :mod:`tidewire.errors`: all exceptions.
"""

from tidewire import codec, errors, model, simulator, sweeps, transport
from tidewire.errors import TidewireError
from tidewire.simulator import simulate
from tidewire.sweeps import sweep
from tidewire.transport import Connection, Listener, Message, connect, listen

__all__ = [
    "Connection",
    "Listener",
    "Message",
    "TidewireError",
    "codec",
    "connect",
    "errors",
    "listen",
    "model",
    "simulate",
    "simulator",
    "sweep",
    "sweeps",
    "transport",
]
