"""Tidewire: coded transport over UDP, erasure codes, models of delay, and the simulator behind them.

- :mod:`tidewire.codec`: erasure codes over numpy arrays and other buffers, without a copy.
- :mod:`tidewire.model`: exact distributions of delay, fairness and Sphinx's equations, over arrays.
- :mod:`tidewire.errors`: all exceptions.
"""

from tidewire import codec, errors, model
from tidewire.errors import TidewireError

__all__ = ["TidewireError", "codec", "errors", "model"]
