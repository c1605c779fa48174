"""The command `python scripts/attention.py RUN`: where a trained model looks, and what if it looked elsewhere."""

import argparse
import hashlib
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from lookback import album, data, explorer, heatmap, questions, results, subjects, terminal
from lookback.checkpoint import CheckpointError, write_whole
from lookback.figures import MapPicture
from lookback.interventions import Intervention, layers, parse_head
from lookback.probes import Look, Story, heads_panels, spell
from lookback.schema import ConfigError
from lookback.subjects import Subject
from lookback.tasks.base import Ids
from lookback.terminal import SteadyConsole, shown_path

DEFAULT_LENGTH = 10
LONGEST = 300  # symbols
STRINGS = 50
PAGE_CELLS = 1_500_000  # of all maps of a run on a page; earlier steps are left out beyond that
EPILOG = """\
examples:
  attention.py RUN --source hello                      maps in the terminal, as PNG, .npz, and explorer.html
  attention.py RUN_A RUN_B --source hello              several runs on one page
  attention.py RUN --source hello --beside world       two strings of equal length: what changes, what does not
  attention.py RUN --ablate cross/layer1/head0         exact match by length without that head
  attention.py RUN --ablate each --by zero             without each head in turn
  attention.py RUN --force cross/layer1/head0          with that head forced to look where the answer stands
"""


def parser() -> argparse.ArgumentParser:
    """What can be typed."""
    made = argparse.ArgumentParser(
        prog="attention.py",
        description="Let trained runs write a string, and see where every head looks.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run folder")
    made.add_argument("--source", metavar="TEXT", help="the string to read (default: a held-out one)")
    made.add_argument(
        "--head", metavar="HEAD", help="the head to draw here, as cross/layer0/head1 (default: the clearest)"
    )
    made.add_argument("--output", type=Path, metavar="FOLDER", help="where files go (default: in RUN/attention)")
    made.add_argument("--beside", metavar="TEXT", help="a second string, as long, for the same run")
    made.add_argument(
        "--ablate",
        action="append",
        default=[],
        metavar="HEAD",
        help="to do without: a head, cross/layer1 = all of a layer, A+B = both; each = every head in turn",
    )
    made.add_argument("--by", choices=("uniform", "zero"), help="how: weights alike (the default), or output zero")
    made.add_argument(
        "--force",
        action="append",
        default=[],
        metavar="HEAD",
        help="to force to the right cell: a head, cross/layer1, A+B; each = in turn",
    )
    made.add_argument("--lengths", type=_lengths, metavar="N,N", help="what --ablate and --force are tested at")
    made.add_argument("--strings", type=_positive, help=f"strings of each length (default {STRINGS})")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: without the program's name; those of the process when left out.

    Returns:
        the exit code: 0, 1 for a run that cannot be read, 2 for a wrong command line, 130 for Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    typed = parser().parse_args(arguments)
    if typed.output is not None:
        typed.output = typed.output.expanduser()
    console = SteadyConsole(highlight=False, emoji=False)
    try:
        found = subjects.subjects([folder.expanduser() for folder in typed.runs])
        if len(found) > 1 and (typed.beside is not None or typed.ablate or typed.force):
            raise ValueError(f"--beside, --ablate and --force take one run, but there are {len(found)}")
        _check_together(typed)
        if typed.ablate or typed.force:
            _ask(typed, found[0], console)
        else:
            _show(typed, found, console)
    except (CheckpointError, ConfigError, OSError) as error:
        print(f"lookback: {error}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"lookback: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _check_together(typed: argparse.Namespace) -> None:
    """Refuse what would do nothing beside what else was typed."""
    asks = typed.ablate or typed.force
    idle = ("source", "beside", "head") if asks else ("by", "lengths", "strings")
    for name in idle:
        if getattr(typed, name) is not None:
            rule = "does nothing with --ablate and --force" if asks else "needs --ablate or --force"
            raise ValueError(f"--{name} {rule}, but is {getattr(typed, name)!r}")
    if typed.by and not typed.ablate:
        raise ValueError(f"--by needs --ablate, but is {typed.by!r}")


def _show(typed: argparse.Namespace, found: Sequence[Subject], console: SteadyConsole) -> None:
    """Show where the runs look for a string, or one run for two."""
    texts = [_source(typed, found[0]), *([] if typed.beside is None else [typed.beside])]
    if len({len(text) for text in texts}) > 1:
        rule = "--beside must be as long as --source"
        raise ValueError(f"{rule}, but they have {len(texts[1])} and {len(texts[0])} symbols")
    sources = [(one, spell(one.task, text), text) for one in found for text in texts]
    if len(texts[0]) > LONGEST:
        raise ValueError(f"source must have at most {LONGEST} symbols to be drawn, but has {len(texts[0])}")
    for one, source, _ in sources:
        one.model.check_length("source", len(source) + 2)
        if typed.head is not None and layers(one.model):
            parse_head(one.model, typed.head)
    folder = _folder(typed, found, texts)
    told = []
    for one, source, text in sources:
        with console.status(f"{one.name} reads {text[:20]}, at each step whose weights were kept"):
            looks = subjects.follow(one, source, partial(console.print, markup=False, soft_wrap=True))
        console.print(f"\n{one.name}, step {one.step}" if len(texts) == 1 else f"\n{text}", markup=False)
        kept = subjects.thinned(one, looks, PAGE_CELLS)
        name = one.name if len(texts) == 1 else text
        story = Story(f"{name}, step {one.step}", kept, kept.index(one.shown(looks)))
        if len(kept) < len(looks):
            console.print(f"the page has {len(kept)} of {len(looks)} steps: the maps are large", markup=False)
        told.append((one, looks, story))
        _tell(console, one, looks, typed.head)
    written = _save(folder, told)
    if typed.beside is not None:
        first, second = (one.shown(looks) for one, looks, _ in told)
        written += questions.show_contrast(console, first, second, found[0].model, folder)
    title = ", ".join(dict.fromkeys(one.name for one in found)) + f": {' and '.join(texts)}"
    write_whole(folder / "explorer.html", explorer.page([story for _, _, story in told], title).encode())
    console.print(f"\npictures   {shown_path(folder)}  ({written} PNG, maps.npz)", markup=False, soft_wrap=True)
    console.print(
        f"explorer   {shown_path(folder / 'explorer.html')}  (open it in a browser)", markup=False, soft_wrap=True
    )


def _source(typed: argparse.Namespace, one: Subject) -> str:
    """The string to be read: what was typed, or the first validation string of a middle length."""
    if typed.source is not None:
        return str(typed.source)
    held_out: Ids = data.held_out(one.task, min(DEFAULT_LENGTH, one.longest), 1, "validation")[0]
    return "".join(one.task.source_vocabulary.decode(held_out.tolist()))


def _folder(typed: argparse.Namespace, found: Sequence[Subject], texts: Sequence[str]) -> Path:
    """Where files go, made if it is not there."""
    names = [_file_name(text) for text in texts]
    name = "_".join([*names, *(f"and_{len(found) - 1}_more" for _ in found[1:2])])
    folder: Path = typed.output or found[0].folder / "attention" / "strings" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _file_name(text: str) -> str:
    """A name for a text's folder: the text itself, if every file system can tell it from others."""
    if re.fullmatch(r"[a-z0-9]{1,40}", text):
        return text
    digest = hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=4).hexdigest()
    return f"{re.sub(r'[^a-zA-Z0-9]', '_', text)[:40]}_{digest}"


def _tell(console: SteadyConsole, one: Subject, looks: Sequence[Look], wanted: str | None) -> None:
    """One run on one string, in the terminal: what it wrote, how its heads look, the map of one."""
    shown = one.shown(looks)
    for line in terminal.example_lines(shown.example):
        console.print(line, soft_wrap=True)
    if not shown.maps:
        console.print(f"{one.name} has no attention: there is nothing to show", markup=False)
        return
    console.print(_heads_table(one, looks))
    found = subjects.finding(one, looks)
    if found.head is not None and found.head.score.largest is not None:
        score = found.head.score
        where = (
            f"weight largest where the answer stands in {score.largest:.0%} of rows, {score.weight:.2f} on average"
        )
        console.print(f"on this string, {found.head.name} is clearest: {where}", markup=False, soft_wrap=True)
    summary = results.read_summary(one.folder)
    learned = summary.get("learned_by")
    if isinstance(learned, dict) and {"head", "since_step"} <= learned.keys():
        when = "" if learned["since_step"] is None else f", since step {learned['since_step']}"
        console.print(f"on validation strings, {learned['head']} has learned the task{when}", markup=False)
    elif learned == {} and summary.get("alignment"):
        console.print("on validation strings, no head has learned the task alone", markup=False)
    console.print()
    clear = found.head.name if found.head else f"{next(iter(shown.maps))}/head0"
    place, head = parse_head(one.model, wanted or clear)
    console.print(f"{place} head {head}", markup=False)
    heatmap.show(console, shown.probe.panel(place), shown.maps[place][head])


def _heads_table(one: Subject, looks: Sequence[Look]) -> Table:
    """How each head of cross-attention looks on this string."""
    table = Table(box=SIMPLE, padding=0, show_edge=False)
    for heading in ("head", "weight on\nright cell", "largest\nthere", "entropy\n(nats)", "90% there\nsince step"):
        table.add_column(heading, justify="left" if heading == "head" else "right", no_wrap=True)
    for head, since in subjects.heads(one, looks):
        values = (head.score.weight, head.score.largest, head.score.entropy)
        cells = ["-" if value is None else f"{value:z.2f}" for value in values]  # z: no "-0.00"
        table.add_row(escape(head.name), *cells, "-" if since is None else f"{since}")
    return table


def _save(folder: Path, told: Sequence[tuple[Subject, Sequence[Look], Story]]) -> int:
    """Leave the last maps as pictures and all arrays; returns how many pictures."""
    named: dict[str, object] = {}
    count = 0
    for number, (one, looks, story) in enumerate(told):
        shown = one.shown(looks)
        named |= {f"run{number}/name": story.name, f"run{number}/step": shown.step}
        named |= album.arrays(f"run{number}", shown.probe, shown.maps)
        for place, weights in shown.maps.items():
            panels = heads_panels(shown.probe, place, range(len(weights)))
            prefix = f"run{number}_" if len(told) > 1 else ""
            picture = MapPicture(panels, note=story.name).draw(list(weights))
            picture.save(folder / f"{prefix}{place.replace('/', '_')}.png")
            count += 1
    album.save_arrays(folder / "maps.npz", named)
    return count


def _ask(typed: argparse.Namespace, one: Subject, console: SteadyConsole) -> None:
    """Test a run with heads ablated or forced."""
    by: Literal["uniform", "zero"] = typed.by or "uniform"
    kinds: list[tuple[Literal["uniform", "zero", "force"], str]] = [(by, name) for name in typed.ablate]
    kinds += [("force", name) for name in typed.force]
    asked = [
        Intervention(kind, heads) for kind, name in kinds for heads in questions.asked_heads(one.model, name, kind)
    ]
    settings = replace(one.evaluate, split="validation", strings=typed.strings or STRINGS)
    if typed.lengths:
        settings = replace(settings, lengths=typed.lengths)
    path = questions.answer(console, one, asked, settings, typed.output or one.folder / "attention")
    console.print(f"all numbers   {shown_path(path)}", markup=False, soft_wrap=True)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, but is {text}")
    return int(text)


def _lengths(text: str) -> list[int]:
    return list(dict.fromkeys(_positive(part) for part in text.split(",")))
