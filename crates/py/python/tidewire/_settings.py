"""The settings of listeners and connections, for type checkers."""

from __future__ import annotations

from typing import TypedDict


class Settings(TypedDict, total=False):
    """Texts as the command takes them (docs/config.md)."""

    latency: str
    deliver: str
    max_overhead: str
    max_rate: str
    profile: str
    code: str
    redundancy: str
    rate_control: str
    connect_timeout: str
    idle_timeout: str
    keep_alive: str
