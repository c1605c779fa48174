"""What reading takes when there is much to read: many runs, long logs, large files of outputs."""

import json
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from lookback import board, compare, results
from lookback.error_rates import Scored, by_length, worst
from lookback.timing import Row, Work, alternate, beside

RUNS = 200
LINES = 1_000_000
OUTPUTS = 50_000
SHARE = 10  # against a tenth of each
ROUNDS = 3  # at most


def load(work: Work) -> list[Row]:
    """Seconds that much takes, against a tenth of it: a ratio of 10 is time in proportion."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        many, few = (write_runs(folder / str(count), work, count) for count in (RUNS, RUNS // SHARE))
        long, short = (write_log(folder / f"log{count}", count) for count in (LINES, LINES // SHARE))
        told: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
            (f"reading {RUNS} runs", partial(_read, many), partial(_read, few)),
            (f"looking for earlier runs among {RUNS}", partial(_earlier, many), partial(_earlier, few)),
            (f"reading {LINES:,} lines of a log", partial(_history, long), partial(_history, short)),
            (
                f"resuming after {LINES:,} lines",
                partial(_resume, long, LINES),
                partial(_resume, short, LINES // SHARE),
            ),
            (
                f"scoring {OUTPUTS:,} outputs",
                partial(_score, outputs_of(OUTPUTS)),
                partial(_score, outputs_of(OUTPUTS // SHARE)),
            ),
        ]
        return [
            Row.of(
                name, "s", "a tenth of that", beside(alternate(ours, theirs, rounds=min(ROUNDS, work.rounds)), 1)
            )
            for name, ours, theirs in told
        ]


def write_runs(folder: Path, work: Work, count: int) -> Path:
    """Leave so many folders of finished runs, without weights."""
    for seed in range(count):
        run = folder / f"seed{seed}"
        run.mkdir(parents=True)
        raw = {**work.config.raw, "seed": seed}
        (run / "config.yaml").write_text(json.dumps(raw), encoding="utf-8")  # JSON is yaml
        summary = {
            "status": "finished",
            "model": "transformer",
            "seed": seed,
            "exact_match": {str(length): 1.0 for length in range(1, 31)},
            "code_version": "",
        }
        (run / "summary.json").write_text(json.dumps(summary, indent=2), encoding="utf-8")
        write_log(run, 500)
    return folder


def write_log(folder: Path, lines: int) -> Path:
    """Leave a log of so many steps, with a validation at every hundredth."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for step in range(1, lines + 1):
            values = {
                "step": step,
                "train/loss": 1 / step,
                "train/token_accuracy": 0.5,
                "train/learning_rate": 1e-3,
            }
            file.write(json.dumps(values) + "\n")
            if step % 100 == 0:
                file.write(json.dumps({"step": step, "val/exact_match": 0.5, "train/seconds": 1.0}) + "\n")
    return folder


def _read(folder: Path) -> None:
    found, unreadable = results.read_all(results.run_folders([folder]))
    assert found
    assert not unreadable


def _earlier(folder: Path) -> None:
    compare.earlier_runs(folder)


def _history(folder: Path) -> None:
    assert results.history(folder)


def _resume(folder: Path, step: int) -> None:
    board.drop_later_lines(folder / "metrics.jsonl", step)


def _score(outputs: Sequence[Scored]) -> None:
    assert by_length(outputs)
    assert worst(outputs, 10)


def outputs_of(count: int) -> list[Scored]:
    """So many outputs, one in five of them right."""
    words = ["attention", "alignment", "decoder", "encoder", "context"]
    pairs = [(words[at % 5], words[at // 5 % 5]) for at in range(count)]
    return [Scored(wanted, list(wanted), list(wrote), True, len(wanted)) for wanted, wrote in pairs]
