"""A Dask cluster of processes, for the tests of sweeps."""

from __future__ import annotations

import subprocess
import sys
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
        address = folder / "scheduler.json"

        def start(*arguments: str) -> subprocess.Popen[bytes]:
            with (folder / "log").open("ab") as log:
                program = subprocess.Popen(
                    [sys.executable, "-m", *arguments], cwd=folder, stdout=log, stderr=log
                )
            self.programs.append(program)
            return program

        start(
            "distributed.cli.dask_scheduler",
            *("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(address)),
        )
        self.workers = [
            start(
                "distributed.cli.dask_worker",
                *("--scheduler-file", str(address), "--nthreads", "1", "--no-nanny", "--no-dashboard"),
                *("--host", "127.0.0.1", "--local-directory", str(folder)),
            )
            for _ in range(2)
        ]
        # Without types of its own.
        make: Any = distributed.Client
        self.client = make(scheduler_file=str(address), timeout=PATIENCE)
        self.client.wait_for_workers(2, timeout=PATIENCE)
        #: As an executor.
        self.address = str(self.client.scheduler.address).replace("tcp://", "dask://")

    def close(self) -> None:
        self.client.close()
        for program in self.programs:
            program.kill()
            program.wait()
