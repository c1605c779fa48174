"""Much to read: the benchmark's section does the work that it names, and long logs are cut as short ones are."""

import json
from pathlib import Path

import pytest

from lookback import board, load, results
from lookback.timing import Work


def test_the_section_measures_what_it_names_in_small_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (("RUNS", 20), ("LINES", 2_000), ("OUTPUTS", 90)):
        monkeypatch.setattr(load, name, few)
    rows = load.load(Work.of(1, 1, ()))
    assert [row.name for row in rows] == [
        "reading 20 runs",
        "looking for earlier runs among 20",
        "reading 2,000 lines of a log",
        "resuming after 2,000 lines",
        "scoring 90 outputs",
    ]
    assert all(row.ours and row.theirs for row in rows)


def test_runs_and_logs_of_the_section_are_read_as_those_of_trainings(tmp_path: Path) -> None:
    found, unreadable = results.read_all(results.run_folders([load.write_runs(tmp_path, Work.of(1, 1, ()), 3)]))
    assert unreadable == []
    assert sorted(run.seed for run in found) == [0, 1, 2]
    assert [line["step"] for line in found[0].history] == [100, 200, 300, 400, 500]


LINES = [
    '{"step": 1, "train/loss": 2.5}\n',
    '{"step": 2, "train/loss": NaN}\n',
    '{"step": 2, "val/loss": 1.5, "val/exact_match": 0.25}\n',
    "\n",
    '{"step": 3, "tra{"step": 3, "train/loss": 1.0}\n',
    '{"train/loss": 1.0, "step": 3}\n',
    '{"step": "3", "train/loss": 1.0}\n',
    '{"step": 3, "odd": {"deep": 1}}\n',
    "[3]\n",
    '{"step": 3, "train/loss": 0.5}\n',
    '{"step": 4, "train/loss": 0.4}\n',
    '{"step": 5, "train/lo',
]


@pytest.mark.parametrize("start", range(6))
def test_a_log_is_cut_at_a_step_as_if_every_line_were_read(tmp_path: Path, start: int) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(LINES), encoding="utf-8")
    kept, logged = [], set()
    for line in LINES:
        try:
            values = json.loads(line)
            if line.endswith("\n") and values["step"] <= start:
                kept.append(line)
                logged |= {(start, tag) for tag in values if values["step"] == start}
        except (ValueError, KeyError, TypeError):
            continue
    assert board.drop_later_lines(path, start) == logged
    assert path.read_text(encoding="utf-8") == "".join(kept)
