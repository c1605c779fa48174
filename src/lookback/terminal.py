"""What a person sees in the terminal: progress, tables, examples, a map."""

import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from rich.box import SIMPLE
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from lookback.board import board_arguments
from lookback.by_length import LengthScore, few, overall
from lookback.checkpoint import CheckpointError
from lookback.console import printable, safe
from lookback.evaluate import Example, Validation
from lookback.schema import ConfigError
from lookback.symbols import Unit, join
from lookback.train import StepRecord

EXAMPLES = 4
LINE_SYMBOLS = 30
HERE = Path.cwd()  # where the command was typed; Hydra may go elsewhere
LINES_WITHOUT_TERMINAL = 20


def guarded(act: Callable[[], object]) -> int:
    """Do what a command about trained runs is for; what goes wrong is one line on stderr.

    Returns:
        the exit code: 0, 1 for what cannot be read or written, 2 for a wrong command line, 130 for Ctrl-C, 141 if
        nobody reads the output any more, as for other filters.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        act()
    except BrokenPipeError:  # nobody reads any more, as after `| head`
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (CheckpointError, ConfigError, OSError) as error:
        return _told(error, 1)
    except ValueError as error:
        return _told(error, 2)
    except (MemoryError, RuntimeError) as error:  # torch has no kind of its own on a CPU
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        return _told("this machine has too little memory for so long strings", 1)
    except KeyboardInterrupt:
        return 130
    return 0


def _told(what: object, exit_code: int) -> int:
    sys.stderr.write(f"lookback: {what}\n")
    return exit_code


class TrainingProgress:
    """A live bar on a terminal; elsewhere some twenty plain lines. Use as a context.

    Args:
        console: where to.
        steps: of the whole run.
        done: steps done before.
    """

    def __init__(self, console: Console, steps: int, done: int) -> None:
        self._console = console
        self._steps = steps
        self._every = max(1, steps // LINES_WITHOUT_TERMINAL)
        self._printed = done // self._every
        self._bar: Progress | None = None
        if console.is_terminal:
            self._bar = Progress(
                MofNCompleteColumn(),
                BarColumn(bar_width=8),
                TextColumn("{task.fields[text]}"),
                TimeRemainingColumn(compact=True),
                console=console,
            )
            self._task = self._bar.add_task("train", total=steps, completed=done, text="")

    def update(self, record: StepRecord) -> None:
        """Show the newest update."""
        text = (
            f"loss {record.loss:.4f}  token accuracy {record.token_accuracy:.3f}  "
            f"{record.tokens_per_second:,.0f} tokens/s"
        )
        if self._bar:
            self._bar.update(self._task, completed=record.step, text=text)
        elif record.step // self._every > self._printed or record.step == self._steps:
            self._printed = record.step // self._every
            self._console.print(f"step {record.step}/{self._steps}  {text}")

    def validated(self, step: int, result: Validation, best: bool) -> None:
        """Show a validation."""
        self._console.print(
            f"step {step}: validation loss {result.loss:.4f}, "
            f"exact match {result.exact_match:.3f}{' (best so far)' if best else ''}"
        )

    def __enter__(self) -> "TrainingProgress":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()


TITLES = {
    None: "Held-out strings",
    "test": "Pairs of the test file",
    "validation": "Validation pairs, which chose the weights",
}


def score_table(scores: Sequence[LengthScore], trained: range, listed: str | None = None) -> Table:
    """What was measured at each length, or at some of many; lengths beyond the trained ones are marked.

    Args:
        scores: by length.
        trained: the lengths that were trained on.
        listed: which split of pairs from files the scores are of; their last line has all, each counting alike.
    """
    table = Table(title=f"{TITLES[listed]}, decoded freely", box=SIMPLE, title_justify="left")
    whole = scores[0].token_accuracy is not None
    measured = ("token\naccuracy", "teacher\nforced", "gap") if whole else ()
    for heading in ("length", "range", "strings", "exact\nmatch", *measured):
        table.add_column(heading, justify="left" if heading == "range" else "right", no_wrap=True)
    for row in _few(scores):
        where = place(row.length, trained)
        table.add_row(
            f"{row.length}",
            where if where == "trained" else f"[yellow]{where}[/]",
            f"{row.strings}" if row.held_out else f"{row.strings}*",
            f"[{'green' if row.exact_match == 1 else 'default'}]{row.exact_match:.3f}[/]",
            *_token_cells(row.token_accuracy, row.teacher_forced),
        )
    if listed:
        found = overall(scores)
        tokens = _token_cells(found.get("token_accuracy"), found.get("teacher_forced_token_accuracy"))
        table.add_row("all", "", f"{found['strings']}", f"{found['exact_match']:.3f}", *tokens)
    return table


def _few(scores: Sequence[LengthScore]) -> list[LengthScore]:
    return [scores[number] for number in few(range(len(scores)))]


def _token_cells(free: float | None, forced: float | None) -> list[str]:
    """Token accuracy, that of teacher forcing, and the gap, where they were measured."""
    if free is None or forced is None:
        return []
    difference = round(forced, 3) - round(free, 3)
    return [f"{free:.3f}", f"{forced:.3f}", f"{difference:+.3f}"]


def place(length: int, trained: range) -> str:
    """Where a length lies: below, in or beyond the trained range."""
    return "trained" if length in trained else "below" if length < trained.start else "beyond"


def score_notes(scores: Sequence[LengthScore]) -> list[str]:
    """What the marks of `score_table` mean, and what it leaves out."""
    whole = scores[0].token_accuracy is not None
    notes = ["beyond = longer than any training string"]
    notes[0] += (
        "; gap = teacher forced - token accuracy" if whole else "; outputs were left at their first wrong token"
    )
    shown = _few(scores)
    if len(shown) < len(scores):
        notes.append(f"{len(shown)} of {len(scores)} lengths; all are in summary.json")
    if not all(row.held_out for row in shown):
        notes.append("* too few strings of this length exist to hold any out: seen in training")
    return notes


def example_lines(example: Example) -> list[str]:
    """One decoded string as three or four lines of markup, with ^ under each wrong symbol; long ones are cut."""
    pairs = example.marked()[:LINE_SYMBOLS]
    unit = example.target_unit
    shown = join([f"[bold red]{safe(symbol)}[/]" if wrong else safe(symbol) for symbol, wrong in pairs], unit)
    marks = join([("^" if wrong else " ") * cell_len(printable(symbol)) for symbol, wrong in pairs], unit).rstrip()
    more = "..." if len(example.wrote) > LINE_SYMBOLS else ""
    lines = [
        f"source  {_cut(example.source, example.source_unit)}",
        *([f"wanted  {_cut(example.wanted, unit)}"] if example.known else []),
        f"wrote   {shown}{more}   ({example.verdict()})",
    ]
    return [*lines, f"        {marks}"] if marks else lines


def _cut(symbols: Sequence[str], unit: Unit) -> str:
    return safe(join(symbols[:LINE_SYMBOLS], unit)) + ("..." if len(symbols) > LINE_SYMBOLS else "")


def shown_path(path: Path) -> str:
    """A path as a person would type it from here, quoted for the shell."""
    return shlex.quote(str(path.relative_to(HERE) if path.is_relative_to(HERE) else path))


def call(program: str, arguments: str) -> str:
    """How to call a program of this Python environment from here."""
    return f"{shown_path(Path(sys.executable).parent / program)} {arguments}"


def sibling(name: str) -> str:
    """How to call another of our programs: the script beside the one that runs, or the installed command."""
    script = Path(sys.argv[0]).absolute().with_name(f"{name}.py")
    return call("python", shown_path(script)) if script.is_file() else call(f"lookback-{name}", "").strip()


def announce(console: Console, folder: Path, headline: str) -> None:
    """What a run begins with."""
    console.print(headline, markup=False, soft_wrap=True)
    console.print(f"run folder   {shown_path(folder)}", soft_wrap=True, markup=False)
    console.print(
        f"board        {call('tensorboard', board_arguments(shown_path(folder)))}", soft_wrap=True, markup=False
    )
    console.print("Ctrl-C saves and stops")


def report(
    console: Console, scores: Sequence[LengthScore], trained: range, folder: Path, listed: str | None = None
) -> None:
    """What a run ends with: results by length, and examples.

    Args:
        console: where to.
        scores: by length.
        trained: the lengths that were trained on.
        folder: of the run.
        listed: as in `score_table`.
    """
    console.print()
    console.print(score_table(scores, trained, listed))
    for note in score_notes(scores):
        console.print(note, soft_wrap=True)
    shown = [row for row in scores if row.length > 1][::-1]
    for row in shown[:: -(-len(shown) // EXAMPLES) or 1][::-1]:
        where = place(row.length, trained)
        console.print(f"\nlength {row.length}" + ("" if where == "trained" else f", {where} training"))
        for line in example_lines(row.example):
            console.print("  " + line, soft_wrap=True)
    if any(row.failures for row in scores):
        path = shown_path(folder / "failures" / "failures.md")
        console.print(f"\nwrong outputs, by kind   {path}", soft_wrap=True, markup=False)


def report_folder(console: Console, folder: Path) -> None:
    """Where to look further."""
    path = shown_path(folder)
    board = call("tensorboard", board_arguments(path))
    for what, where in (
        ("run folder", path),
        ("board", board),
        ("explorer", f"{sibling('attention')} {path}"),
    ):
        console.print(f"{what:<12} {where}", soft_wrap=True, markup=False)


def report_stop(console: Console, step: int, folder: Path) -> None:
    """What an interrupted run ends with."""
    console.print(f"stopped at step {step}; all is saved. Go on with")
    again = call("python", f"{shlex.quote(sys.argv[0])} resume={shown_path(folder)}")
    console.print(f"  {again}", soft_wrap=True, markup=False)
