"""What several tests use: a cluster, and the command."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import HERE, Cluster


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers import the modules of the tests."""
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Let Ctrl-C raise. A shell starts its background jobs with SIGINT ignored, and Python keeps that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Start a cluster of two workers."""
    made = Cluster(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def command() -> str:
    """Return the path of the command `tidewire-lab`, which `cargo xtask py` builds."""
    path = os.environ.get("TIDEWIRE_TEST_COMMAND")
    if path is None:
        pytest.skip("SKIPPED: TIDEWIRE_TEST_COMMAND does not name the command")
    return path
