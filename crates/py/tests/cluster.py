"""A Dask cluster of processes, for the tests of sweeps."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import distributed

HERE = Path(__file__).parent
#: Longer than a cluster takes to start on a busy machine.
PATIENCE = 60


class Cluster:
    """A scheduler and two worker processes, which talk over TCP on loopback."""

    def __init__(self, folder: Path) -> None:
        self.programs: list[subprocess.Popen[bytes]] = []
        self._folder = folder
        try:
            self._start()
        except BaseException:
            self.close()
            print((folder / "log").read_text())
            raise

    def _start(self) -> None:
        scheduler_file = self._folder / "scheduler.json"
        scheduler = self._run(
            "distributed.cli.dask_scheduler",
            *("--host", "127.0.0.1", "--port", "0", "--no-dashboard"),
            *("--scheduler-file", str(scheduler_file)),
        )
        address = self._address(scheduler, scheduler_file)
        self.workers = [
            self._run(
                *("distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"),
                *("--host", "127.0.0.1", "--local-directory", str(self._folder)),
            )
            for _ in range(2)
        ]
        # Without types of its own.
        make: Any = distributed.Client
        self.client = make(address, timeout=PATIENCE)
        self.client.wait_for_workers(2, timeout=PATIENCE)
        #: As an executor.
        self.address = address.replace("tcp://", "dask://")

    def _run(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            program = subprocess.Popen(
                [sys.executable, "-m", *arguments], cwd=self._folder, stdout=log, stderr=log
            )
        self.programs.append(program)
        return program

    @staticmethod
    def _address(scheduler: subprocess.Popen[bytes], file: Path) -> str:
        """Wait for the address. Dask's own reader gives a file that is half written 0.1 s."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and scheduler.poll() is None:
            try:
                return str(json.loads(file.read_text())["address"])
            except (OSError, ValueError, KeyError):
                time.sleep(0.01)
        raise TimeoutError("the scheduler has not written its address")

    def close(self) -> None:
        if hasattr(self, "client"):
            self.client.close()
        for program in self.programs:
            program.kill()
            program.wait()
