"""Erasure codes over numpy arrays and every other object with the buffer protocol, without a copy.

A *source symbol* is a piece of data with an id 0, 1, 2, ...; a *repair symbol* is a linear combination of
the source symbols of a *span*, named by the span and a *key*. A receiver that has as many independent
repair symbols as it lost source symbols has all of them.

=====================  ==========================================================================
:class:`Generation`    a block in memory: encode it, and plan how to decode what was lost
:class:`Encoder`       the sliding window of a sender of packets
:class:`Decoder`       reorder buffer and decoder of a receiver of packets
:class:`Recoder`       a relay that mixes what it received without decoding it
=====================  ==========================================================================

Codes have the names of the command's ``--code``: ``rlc``, ``cauchy``, ``rlc16``, ``lt:0.1,0.5``,
``semi-random-lt:17``, ``raptorq`` (RFC 6330) and ``rs-fft``, and ``rlc8681`` (RFC 8681). Windows and relays
take ``rlc``, ``rlc8681`` and ``cauchy``; generations take all.

Symbols are the rows of a two-dimensional array of ``uint8``, or a list or tuple of bytes-like objects.
Arrays are C-contiguous. The functions release the GIL for work above 4 KiB: do not write to an argument
from another thread until the call returns. One encoder, decoder or recoder serves one thread at a time;
a second one gets a ``RuntimeError``. Wrong arrays raise :class:`tidewire.errors.ArrayError`, wrong numbers
:class:`tidewire.errors.CodecError`.
"""

from tidewire._native import DecodePlan, Decoder, Encoder, Generation, Recoder

__all__ = ["DecodePlan", "Decoder", "Encoder", "Generation", "Recoder"]
