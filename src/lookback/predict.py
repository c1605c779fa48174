"""The command `python scripts/predict.py RUN < in.txt > out.txt`: an output line for every input line."""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from lookback import album
from lookback.files import writable
from lookback.predictor import Predictor, Rules, Written
from lookback.probes import Probe, make_probe
from lookback.terminal import guarded

WATCHED = 100  # lines whose maps are kept
LONGEST = 300  # symbols of such a line
BOM = b"\xef\xbb\xbf"
MOST = 1_000_000
MOST_PENALTY = 10
EPILOG = """\
examples:
  predict.py RUN < words.txt > sounds.txt          the likeliest symbol at each step
  predict.py RUN --beam 5 < words.txt              beam search
  predict.py RUN --beam 5 --nbest 3 < words.txt    three targets a line, each with its score, between tabs
  predict.py RUN_A RUN_B RUN_C < words.txt         runs together: their probabilities are averaged
A line that has nothing to read gets an empty line. Input and output are UTF-8, whatever the terminal's language.
"""


def parser() -> argparse.ArgumentParser:
    """What can be typed."""
    made = argparse.ArgumentParser(
        prog="predict.py",
        description="Let trained runs write a target for each line of standard input.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_rules(made)
    made.add_argument(
        "--nbest",
        type=positive,
        default=1,
        metavar="N",
        help="targets a line, with their scores; --beam N if not given",
    )
    made.add_argument(
        "--attention",
        type=Path,
        metavar="FILE",
        help=f"save the maps of what is written for the first {WATCHED} lines as FILE, .npz",
    )
    return made


def add_rules(made: argparse.ArgumentParser) -> None:
    """What predict.py and evaluate.py have in common."""
    made.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run folder; several work together")
    made.add_argument("--beam", type=positive, metavar="K", help="hypotheses kept at each step (default 1: greedy)")
    made.add_argument(
        "--length-penalty",
        type=float,
        default=1.0,
        metavar="P",
        help="with --beam: scores are log-probabilities divided by length ** P (default 1: the mean a symbol)",
    )
    made.add_argument("--batch-size", type=positive, default=256, metavar="N", help="lines decoded together")
    made.add_argument("--max-symbols", type=positive, metavar="N", help="cut outputs off after so many symbols")
    made.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")


def positive(text: str) -> int:
    """A whole number above 0."""
    if not re.fullmatch("[0-9]{1,9}", text) or not 0 < int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MOST:,}, but is {text}")
    return int(text)


def rules(typed: argparse.Namespace, count: int) -> Rules:
    """How targets are searched for, as it was typed."""
    if not 0 <= typed.length_penalty <= MOST_PENALTY:
        raise ValueError(f"--length-penalty must be 0 to {MOST_PENALTY}, but is {typed.length_penalty}")
    beam = count if typed.beam is None else typed.beam
    if typed.length_penalty != 1.0 and beam == 1:
        raise ValueError(f"--length-penalty does nothing without --beam, but is {typed.length_penalty}")
    return Rules(beam, count, typed.length_penalty, typed.batch_size, typed.max_symbols)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: without the program's name; those of the process when left out.

    Returns:
        the exit code, as in `guarded`.
    """
    return guarded(lambda: _run(parser().parse_args(arguments)))


def _run(typed: argparse.Namespace) -> None:
    """Answer every line."""
    if sys.stdin is None or sys.stdout is None:  # what Python makes of a closed one
        raise ValueError("standard input and output must be open, but one of them is closed")
    for path in typed.runs:
        if path.expanduser().is_file():
            raise ValueError(f"{path} is a file, not a run folder; lines are read from standard input: < {path}")
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    if typed.attention is not None and len(typed.runs) > 1:
        raise ValueError(f"--attention takes one run, but there are {len(typed.runs)}")
    searched = rules(typed, typed.nbest)
    maps = None if typed.attention is None else npz(typed.attention.expanduser())
    if sys.stdin.isatty():
        searched = replace(searched, batch_size=1)  # an answer after each line that is typed
    predictor = Predictor([folder.expanduser() for folder in typed.runs], typed.device)
    watched: list[Probe | None] = []  # by line
    with _progress() as progress:
        bar = progress.add_task("", total=None)
        for written in predictor.write(lines(stdin), searched):
            if maps and len(watched) < WATCHED:
                watched.append(_probe(predictor, written))
            stdout.write(_line(written, typed.nbest > 1).encode() + b"\n")
            if sys.stdin.isatty():
                stdout.flush()
            progress.update(bar, advance=1)
        stdout.flush()
    if maps is not None:
        _save_maps(predictor, watched, maps)
    for warning in predictor.counts.warnings():
        sys.stderr.write(f"lookback: {warning}\n")


def _progress() -> Progress:
    """On stderr, if it is a terminal."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.completed:,} lines"), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)


def lines(stream: BinaryIO) -> Iterator[str]:
    """The lines of a stream: LF and CRLF end one, a BOM is dropped, bytes that are no UTF-8 read as U+FFFD."""
    for number, line in enumerate(stream):
        plain = line.removesuffix(b"\n").removesuffix(b"\r")
        yield (plain.removeprefix(BOM) if number == 0 else plain).decode(errors="replace")


def npz(path: Path) -> Path:
    """A file for maps, with the ending that numpy knows.

    Raises:
        ValueError: if it is a folder, or in none.
    """
    return writable("--attention", path if path.suffix == ".npz" else path.with_name(f"{path.name}.npz"))


def _line(written: Sequence[Written], scored: bool) -> str:
    if not scored:
        return written[0].text if written else ""
    return "\t".join(f"{one.text}\t{one.score:.4f}" for one in written)


def _probe(predictor: Predictor, written: Sequence[Written]) -> Probe | None:
    """The first output of a line as what a decoder is given, if there is one that is not too long."""
    if not written or len(written[0].source) > LONGEST:
        return None
    best = written[0]
    return make_probe(predictor.task, best.source, np.array(best.ids, dtype=np.int64), ended=best.ended)


def _save_maps(predictor: Predictor, probes: Sequence[Probe | None], path: Path) -> None:
    """Maps of what was written, under `line1/...`."""
    named: dict[str, Any] = {}
    for number, probe in enumerate(probes, start=1):
        if probe is not None:
            named |= album.arrays(f"line{number}", probe, probe.watch(predictor.model))
    album.save_arrays(path, named)
