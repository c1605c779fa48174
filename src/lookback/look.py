"""The command `python scripts/attention.py RUN`: where a trained model looks, and what if it looked elsewhere."""

import argparse
import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from rich.markup import escape

from lookback import album, explorer, heatmap, questions, results, subjects, terminal
from lookback.console import SteadyConsole, printable
from lookback.figures import MapPicture
from lookback.files import write_whole
from lookback.interventions import Intervention, layers, parse_head
from lookback.pair_file import counted
from lookback.predict import positive
from lookback.probes import Look, Story, heads_panels
from lookback.subjects import Subject
from lookback.terminal import guarded, shown_path
from lookback.tokens import UNK

LONGEST = 300  # symbols
LONGEST_ASKED = 10_000  # symbols of a string that --ablate and --force are tested at
STRINGS = 50
PAGE_CELLS = 1_500_000  # of all maps on a page; beyond that earlier steps are left out, and then self-attention
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
    made.add_argument("--strings", type=positive, help=f"strings of each length (default {STRINGS})")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: without the program's name; those of the process when left out.

    Returns:
        the exit code, as in `guarded`.
    """
    return guarded(lambda: _run(parser().parse_args(arguments)))


def _run(typed: argparse.Namespace) -> None:
    """Do what was typed."""
    if typed.output is not None:
        typed.output = typed.output.expanduser()
    console = SteadyConsole(highlight=False, emoji=False)
    found = subjects.subjects([folder.expanduser() for folder in typed.runs])
    if len(found) > 1 and (typed.beside is not None or typed.ablate or typed.force):
        raise ValueError(f"--beside, --ablate and --force take one run, but there are {len(found)}")
    _check_together(typed)
    if typed.ablate or typed.force:
        _ask(typed, found[0], console)
    else:
        _show(typed, found, console)


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
    if typed.beside is not None and typed.source is None:
        raise ValueError(f"--beside needs --source, but is {typed.beside!r}")


def _show(typed: argparse.Namespace, found: Sequence[Subject], console: SteadyConsole) -> None:
    """Show where the runs look for a string, or one run for two."""
    texts = [subjects.common_string(found) if typed.source is None else typed.source]
    texts += [] if typed.beside is None else [typed.beside]
    sources = []
    for one in found:
        with _refusing(one, found):
            sources += [(one, one.task.spell(text), text) for text in texts]
            _check_lengths(one, [len(ids) for _, ids, _ in sources[-len(texts) :]])
    for one in [] if typed.head is None else [one for one in found if layers(one.model)] or found[:1]:
        with _refusing(one, found):
            parse_head(one.model, typed.head)
    for text, (_, ids, _) in zip(texts, sources, strict=False):
        if unknown := int((ids == UNK).sum()):
            console.print(
                f"{printable(text)}: {counted(unknown, 'symbol')} read as unknown", markup=False, soft_wrap=True
            )
    folder = _folder(typed, found, texts)
    told = []
    for one, source, text in sources:
        reads = escape(printable(f"{one.name} reads {text[:20]}"))
        with console.status(f"{reads}, at each step whose weights were kept"):
            looks = subjects.follow(one, source, partial(console.print, markup=False, soft_wrap=True))
        name = one.name if len(texts) == 1 else text
        heading = f"{name}, step {one.step}" if len(texts) == 1 else name
        console.print(f"\n{heading}", markup=False, soft_wrap=True)
        story, notes = subjects.page_story(one, looks, name, PAGE_CELLS // len(sources))
        for note in notes:
            console.print(note, markup=False, soft_wrap=True)
        told.append((one, looks, story))
        _tell(console, one, looks, typed.head)
    written = _save(folder, told)
    if typed.beside is not None:
        first, second = (one.shown(looks) for one, looks, _ in told)
        written += questions.show_contrast(console, first, second, found[0].model, folder)
    title = ", ".join(dict.fromkeys(one.name for one in found)) + f": {' and '.join(texts)}"
    page = explorer.page([story for _, _, story in told], title)
    write_whole(folder / "explorer.html", page.encode(errors="replace"))
    if not any(layers(one.model) for one in found):
        return  # said already: there is nothing to show
    console.print(f"\npictures   {shown_path(folder)}  ({written} PNG, maps.npz)", markup=False, soft_wrap=True)
    console.print(
        f"explorer   {shown_path(folder / 'explorer.html')}  (open it in a browser)", markup=False, soft_wrap=True
    )


def _check_lengths(one: Subject, lengths: Sequence[int]) -> None:
    """Check those of one string, or two, as a run reads them."""
    if len(set(lengths)) > 1:
        rule = "--beside must have as many symbols as --source"
        raise ValueError(f"{rule}, but it has {lengths[1]}, and --source {lengths[0]}")
    if lengths[0] > LONGEST:
        raise ValueError(f"source must have at most {LONGEST} symbols to be drawn, but has {lengths[0]}")
    one.model.check_length("source", lengths[0] + 2)


@contextmanager
def _refusing(one: Subject, found: Sequence[Subject]) -> Iterator[None]:
    """Of several runs, the one that refuses is named."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{one.name}: {error}" if len(found) > 1 else str(error)) from error


def _folder(typed: argparse.Namespace, found: Sequence[Subject], texts: Sequence[str]) -> Path:
    """Where files go, made if it is not there; beside other runs, the first run has another folder."""
    name = "_".join(_file_name(text) for text in texts)
    if len(found) > 1:
        others = "\0".join(str(one.folder.resolve()) for one in found[1:])
        name += f"_and_{len(found) - 1}_more_{_digest(others)}"
    folder: Path = typed.output or found[0].folder / "attention" / "strings" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=4).hexdigest()


def _file_name(text: str) -> str:
    """A name for a text's folder: the text itself, if every file system can tell it from others."""
    if re.fullmatch(r"[a-z0-9]{1,40}", text):
        return text
    return f"{re.sub(r'[^a-zA-Z0-9]', '_', text)[:40]}_{_digest(text)}"


def _tell(console: SteadyConsole, one: Subject, looks: Sequence[Look], wanted: str | None) -> None:
    """One run on one string, in the terminal: what it wrote, how its heads look, the map of one."""
    shown = one.shown(looks)
    for line in terminal.example_lines(shown.example):
        console.print(line, soft_wrap=True)
    if not shown.maps:
        console.print(f"{one.name} has no attention: there is nothing to show", markup=False)
        return
    console.print(questions.heads_table(one, looks))
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
    elif learned == {} and any("largest" in score for score in summary.get("alignment", {}).values()):
        console.print("on validation strings, no head has learned the task alone", markup=False)
    console.print()
    clear = found.head.name if found.head else f"{next(iter(shown.maps))}/head0"
    place, head = parse_head(one.model, wanted or clear)
    console.print(f"{place} head {head}", markup=False)
    heatmap.show(console, shown.probe.panel(place), shown.maps[place][head])


def _save(folder: Path, told: Sequence[tuple[Subject, Sequence[Look], Story]]) -> int:
    """Leave the last maps as pictures and all arrays, in the place of those of an earlier look.

    Returns:
        how many pictures.
    """
    album.remove_pictures(folder, "run[0-9]+_|contrast_|")
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
    listed = [] if settings.lengths else list(one.task.test_pairs(None, settings.count, "validation"))
    settings = replace(settings, lengths=typed.lengths or settings.lengths or listed)
    path = questions.answer(console, one, asked, settings, typed.output or one.folder / "attention")
    console.print(f"all numbers   {shown_path(path)}", markup=False, soft_wrap=True)


def _lengths(text: str) -> list[int]:
    lengths = list(dict.fromkeys(positive(part) for part in text.split(",")))
    if max(lengths) > LONGEST_ASKED:
        raise argparse.ArgumentTypeError(f"must be at most {LONGEST_ASKED} symbols, but is {max(lengths)}")
    return lengths
