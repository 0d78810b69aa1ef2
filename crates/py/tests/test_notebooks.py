"""The notebooks run as they are kept: from the first cell to the last, in less than a minute each."""

from __future__ import annotations

import json
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
#: Each notebook with the number of its figures.
FIGURES = {"autopilot": 2, "fairness": 1, "streaming-code": 2}
#: Seconds of a notebook on a quiet machine, and seconds after which a busy one gives up.
GOAL, PATIENCE = 60, 280


def test_every_notebook_is_tried() -> None:
    assert sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")) == sorted(FIGURES)


@pytest.mark.parametrize("name", FIGURES)
def test_a_notebook_is_kept_without_outputs(name: str) -> None:
    kept = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))
    for cell in kept["cells"]:
        assert not cell.get("outputs"), f"{name}: clear the outputs before you commit it"
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("name", FIGURES)
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(folder, str(tmp_path / folder))
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    began, processor = time.monotonic(), time.process_time()
    # A cell that raises, or an assertion in one, fails the test.
    NotebookClient(notebook, timeout=PATIENCE, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    said = [output for output in outputs if output.get("name") == "stderr"]
    assert not said, said
    assert sum("image/png" in output.get("data", {}) for output in outputs) == FIGURES[name]
    print(f"{name}: {time.monotonic() - began:.1f} s, {time.process_time() - processor:.1f} s of it here")
