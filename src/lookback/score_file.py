"""The command `python scripts/evaluate.py RUN FILE`: what trained runs get right in a file of pairs."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from lookback.by_length import few
from lookback.console import SteadyConsole, printable
from lookback.error_rates import ErrorRates, Scored, by_length, error_rates, worst
from lookback.files import writable, write_whole
from lookback.pair_file import PairFile, Reading, counted, read_pairs
from lookback.predict import add_rules, positive, rules
from lookback.predictor import Predictor, Rules
from lookback.symbols import Unit, join, split
from lookback.tasks.base import Task
from lookback.terminal import guarded, shown_path

LONGEST = 100_000  # symbols of a side
EPILOG = """\
examples:
  evaluate.py RUN test.tsv                           error rates, by length, and the worst outputs
  evaluate.py RUN test.tsv --beam 5 --json out.json
  evaluate.py RUN_A RUN_B RUN_C test.tsv             runs together: their probabilities are averaged
FILE has a source, a tab and a target a line, as for task=pairs; its symbols are those of the run's own files.
"""


def parser() -> argparse.ArgumentParser:
    """What can be typed."""
    made = argparse.ArgumentParser(
        prog="evaluate.py",
        description="Let trained runs write the targets of a file of pairs, and count what is wrong.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_rules(made)
    made.add_argument("file", type=Path, metavar="FILE", help="pairs to test on")
    made.add_argument("--worst", type=_count, default=10, metavar="N", help="outputs shown that are farthest off")
    made.add_argument("--json", type=Path, metavar="PATH", help="write all numbers and all outputs there")
    made.add_argument("--skip", action="store_true", help="leave out lines that are no pairs")
    return made


def _count(text: str) -> int:
    """A whole number, 0 or more."""
    return 0 if text == "0" else positive(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: without the program's name; those of the process when left out.

    Returns:
        the exit code, as in `guarded`.
    """
    return guarded(lambda: _run(parser().parse_args(arguments)))


def _run(typed: argparse.Namespace) -> None:
    """Predict, compare, show."""
    searched = rules(typed, 1)
    target = None if typed.json is None else writable("--json", typed.json.expanduser(), typed.file.expanduser())
    predictor = Predictor([folder.expanduser() for folder in typed.runs], typed.device)
    file = read_pairs(typed.file.expanduser(), reading(predictor.task, skip=typed.skip))
    console = SteadyConsole(highlight=False, emoji=False)
    outputs = list(scored(predictor, file, searched))
    show(console, outputs, typed.worst, predictor.task.target_unit)
    for number, what in file.skipped:
        sys.stderr.write(f"lookback: {file.path}, line {number} is left out: {what}\n")
    for warning in [*predictor.counts.warnings(), *unwritable(predictor.task, outputs)]:
        sys.stderr.write(f"lookback: {warning}\n")
    if target is not None:
        text = json.dumps(record(outputs), indent=1, ensure_ascii=False)
        write_whole(target, f"{text}\n".encode())
        console.print(f"all numbers   {shown_path(target)}", markup=False, soft_wrap=True)


def reading(task: Task, *, skip: bool) -> Reading:
    """How a file of this task's pairs is read."""
    return Reading(
        source_unit=task.source_unit,
        target_unit=task.target_unit,
        normalise=task.normalise,
        max_length=LONGEST,
        on_error="skip" if skip else "stop",
    )


def scored(predictor: Predictor, file: PairFile, searched: Rules) -> Iterator[Scored]:
    """What is written for each source of a file, beside its target; texts are compared, not ids.

    So an output with a symbol that the run does not know is wrong, whatever it is.
    """
    task = predictor.task
    for number, written in enumerate(predictor.write(file.sources, searched)):
        source, target = file.sources[number], file.targets[number]
        wanted, wrote = split(target, task.target_unit), written[0].symbols if written else []
        ended = bool(written) and written[0].ended
        yield Scored(source, wanted, wrote, ended, len(task.symbols(source)))


def unwritable(task: Task, outputs: Sequence[Scored]) -> list[str]:
    """A line if references have symbols that the run cannot write, whatever it has learned."""
    known = set(task.target_vocabulary.symbols)
    strange = Counter(symbol for one in outputs for symbol in one.wanted if symbol not in known)
    if not strange:
        return []
    wrong = sum(not known.issuperset(one.wanted) for one in outputs)
    shown = " ".join(repr(symbol) for symbol, _ in strange.most_common(Predictor.SHOWN))
    symbols, targets = counted(strange.total(), "symbol"), counted(wrong, "target")
    return [f"{symbols} in {targets} that the run never writes, such as {shown}"]


def show(console: SteadyConsole, outputs: Sequence[Scored], count: int, unit: Unit) -> None:
    """The rates of all pairs and by length, and the outputs that are farthest off."""
    table = Table(title="Decoded freely", box=SIMPLE, title_justify="left")
    for heading in ("length", "pairs", "exact\nmatch", "word\nerror rate", "token\nerror rate"):
        table.add_column(heading, justify="right", no_wrap=True)
    lengths = by_length(outputs)
    shown = few(list(lengths))
    for name, rates in [*((str(length), lengths[length]) for length in shown), ("all", error_rates(outputs))]:
        table.add_row(name, f"{rates.pairs:,}", *_shares(rates))
    console.print(table)
    if len(shown) < len(lengths):
        console.print(f"{len(shown)} of {len(lengths)} lengths are shown; all count in the last line")
    farthest = worst(outputs, count)
    if farthest:
        console.print("\nfarthest off")
        console.print(_examples(farthest, unit))


def _shares(rates: ErrorRates) -> list[str]:
    return [f"{share:.4f}" for share in (rates.exact_match, rates.word_error_rate, rates.token_error_rate)]


def _examples(outputs: Sequence[Scored], unit: Unit) -> Table:
    table = Table(box=SIMPLE)
    for heading in ("edits", "source", "wanted", "wrote"):
        table.add_column(heading, justify="right" if heading == "edits" else "left", overflow="fold")
    for one in outputs:
        cut = "" if one.ended else " (cut off)"
        sides = (one.source, join(one.wanted, unit), join(one.wrote, unit) + cut)
        table.add_row(str(one.distance), *(escape(printable(side)) for side in sides))
    return table


def record(outputs: Sequence[Scored]) -> dict[str, Any]:
    """All that was found, for a json file."""
    return {
        **asdict(error_rates(outputs)),
        "by_length": {str(length): asdict(rates) for length, rates in by_length(outputs).items()},
        "outputs": [asdict(one) | {"right": one.right, "distance": one.distance} for one in outputs],
    }
