"""Figures: those of `papers/` are the committed files, and each of the others has what its data have.

`data/probe.jsonl` and `data/replay.jsonl` are what `tidewire probe LINK -t 6s --json` and `tidewire replay
FILE --json` printed across `tidewire-lab link --rate 25mbit --rtt 60ms --loss gilbert:5%,2`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from tidewire import plots
from tidewire.errors import PlotError
from tidewire.plots.__main__ import main

HERE = Path(__file__).parent
PAPERS = HERE.parents[2] / "papers"
PROBE, REPLAY = HERE / "data/probe.jsonl", HERE / "data/replay.jsonl"
#: Each reader with a file that it reads.
READERS = [(plots.probe, PROBE), (plots.recording, REPLAY)]


def point(family: str, sent: float, p99: float | None, cell: str = "5 %") -> dict[str, Any]:
    """Return a line of the example `grid`."""
    figures = {"sent_per_byte": sent, "mean_ms": 1.0, "p99_ms": p99, "goodput_bps": 1e6}
    return {"cell": cell, "family": family, "number": 1.0, "steady": figures, "whole": figures}


GRID = [
    point("adaptive", 1.2, 30.0),
    point("block 16", 1.1, 90.0),
    point("block 16", 1.4, 20.0),
    point("streaming", 1.2, 40.0),
    point("streaming", 1.3, 50.0),
]


def lines(figure: Figure) -> dict[str, list[tuple[float, float]]]:
    """Return the points of each curve with a label."""
    found = {}
    for line in figure.axes[0].get_lines():
        across, up = (np.asarray(side, float).tolist() for side in line.get_data())
        found[str(line.get_label())] = list(zip(across, up, strict=True))
    return found


@pytest.mark.parametrize(
    "name", ["compare", "fairness", "rcdp", "sphinx", "streaming-code-5g", "variable-bucket"]
)
def test_the_figures_of_a_paper_are_the_committed_ones(name: str, tmp_path: Path) -> None:
    assert main([str(PAPERS / name), str(tmp_path)]) == 0
    committed = sorted((PAPERS / name / "plots").glob("*.svg"))
    assert [path.name for path in committed] == sorted(path.name for path in tmp_path.iterdir())
    for path in committed:
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path


def test_a_probe_has_a_curve_for_each_quantile_and_the_choice() -> None:
    events = [json.loads(line) for line in PROBE.read_text("utf-8").splitlines()]
    predicted = [event for event in events if event["event"] == "prediction"]
    drawn = lines(plots.probe(PROBE))
    assert list(drawn) == ["p50", "p95", "p99", "asking, p99", "chosen, p99"]
    assert drawn["p95"] == [(100 * p["overhead"], p["p95_ms"]) for p in predicted if p["name"] == "code"]
    chosen = next(p for p in predicted if p["name"] == "chosen")
    assert drawn["chosen, p99"] == [(100 * chosen["overhead"], chosen["p99_ms"])]


def test_a_recording_has_each_run_at_its_overhead() -> None:
    runs = [json.loads(line) for line in REPLAY.read_text("utf-8").splitlines()]
    drawn = lines(plots.recording(REPLAY))
    for run in runs:
        assert drawn[run["name"]] == [(100 * run["overhead"], run["delay_ms"]["p99"])]
    runs[1]["done"] = False
    assert any("not all bytes arrived" in label for label in lines(plots.recording(runs)))


def test_the_envelope_is_the_least_delay_of_what_sends_no_more() -> None:
    drawn = lines(plots.envelope(GRID))
    near = {name: [(round(x, 6), y) for x, y in points] for name, points in drawn.items()}
    assert near["block 16"] == [(10, 90), (40, 20)]
    # Ours is not part of what it is compared with.
    assert near["envelope"] == [(10, 90), (20, 40), (40, 20)]
    rows = [{"family": "a", "sent_per_byte": 1.5, "delay_p99_ms": 3.0}]
    assert lines(plots.envelope(rows, delay="delay_p99_ms"))["a"] == [(50, 3)]


def test_several_cells_need_a_name() -> None:
    both = [*GRID, point("arq", 1.1, 7.0, "10 %"), point("none", 1.0, None, "10 %")]
    with pytest.raises(PlotError, match="name one of 5 %, 10 %"):
        plots.envelope(both)
    with pytest.raises(PlotError, match="name one of"):
        plots.envelope(both, "6 %")
    assert set(lines(plots.envelope(both, "10 %"))) == {"arq", "envelope"}


@pytest.mark.parametrize(("reader", "own"), READERS)
def test_data_of_another_kind_are_refused(reader: Any, own: Path, tmp_path: Path) -> None:
    other = PROBE if own == REPLAY else REPLAY
    with pytest.raises(PlotError, match="no event"):
        reader(other)
    for text, where in (("{}\nno JSON\n", "line 2: no JSON"), ("7\n", "line 1: no JSON object")):
        (tmp_path / "wrong").write_text(text, "utf-8")
        with pytest.raises(PlotError, match=where):
            reader(tmp_path / "wrong")


def test_the_command_draws_a_file_by_what_it_has(tmp_path: Path) -> None:
    grid = tmp_path / "grid.jsonl"
    grid.write_text("".join(json.dumps(line) + "\n" for line in GRID), "utf-8")
    for source, label in ((PROBE, "chosen, p99"), (REPLAY, "--redundancy every:5"), (grid, "envelope")):
        target = tmp_path / f"{source.stem}.svg"
        assert main([str(source), str(target)]) == 0
        svg = target.read_text("utf-8")
        # matplotlib writes each text as a comment beside its glyphs, where two hyphens may not stand.
        assert label.replace("--", "-") in svg.replace("--", "-").replace("- -", "-")
        assert "<dc:date>" not in svg


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rcdp").mkdir()
    wrong = [
        ([str(tmp_path)], "is not the folder of a paper"),
        ([str(tmp_path / "rcdp")], "run `tidewire-lab papers rcdp`"),
        ([str(tmp_path / "absent")], "absent"),
        ([str(PROBE), str(tmp_path / "picture.tif2")], "tif2"),
    ]
    for arguments, text in wrong:
        assert main(arguments) == 1
        assert text in capsys.readouterr().err
