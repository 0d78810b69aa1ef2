"""Tidewire: coded transport over UDP, erasure codes, models of delay, and the simulator behind them.

- :func:`listen` and :func:`connect`: streams and messages under asyncio (:mod:`tidewire.transport`).
- :func:`send_files` and :func:`receive_files`: files and folders, resumed (:mod:`tidewire.files`).
- :mod:`tidewire.codec`: erasure codes over numpy arrays and other buffers, without a copy.
- :mod:`tidewire.model`: exact distributions of delay, fairness and Sphinx's equations, over arrays.
- :func:`simulate`, :func:`simulate_network`: the protocol over links and networks in virtual time
  (:mod:`tidewire.simulator`).
- :func:`sweep`: experiments over many cells, on processes or a Dask cluster (:mod:`tidewire.sweeps`).
- :mod:`tidewire.plots`: figures of papers, probes, envelopes and recordings (imported by itself: it needs
  matplotlib).
- :mod:`tidewire.errors`: all exceptions.
"""

from tidewire import codec, errors, files, model, papers, simulator, sweeps, transport
from tidewire.errors import TidewireError
from tidewire.files import Destination, receive_files, send_files
from tidewire.simulator import simulate, simulate_network
from tidewire.sweeps import sweep
from tidewire.transport import Connection, Listener, Message, connect, listen

__all__ = [
    "Connection",
    "Destination",
    "Listener",
    "Message",
    "TidewireError",
    "codec",
    "connect",
    "errors",
    "files",
    "listen",
    "model",
    "papers",
    "receive_files",
    "send_files",
    "simulate",
    "simulate_network",
    "simulator",
    "sweep",
    "sweeps",
    "transport",
]
