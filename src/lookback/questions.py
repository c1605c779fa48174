"""Questions to a trained model, answered in the terminal and in files: two strings side by side, and "what if"."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lookback import contrast, interventions
from lookback.contrast import Contrast
from lookback.evaluate import EvaluateSettings
from lookback.figures import MapPicture, Panel, Picture
from lookback.files import write_whole
from lookback.interventions import MEANING, Intervention, each_head, parse_head
from lookback.models.base import Seq2Seq
from lookback.probes import Look
from lookback.subjects import Subject, heads
from lookback.symbols import join

AS_TRAINED = "as trained"
FALL = 0.05  # a change of exact match that is shown in colour


def asked_heads(model: Seq2Seq, text: str, how: str) -> list[tuple[tuple[str, int], ...]]:
    """The heads of one or more interventions.

    Args:
        model: whose heads they are.
        text: a head such as `cross/layer1/head0`; a place such as `cross/layer1`, for all its heads; several of
            these joined by +, where a number is another head of the same place; or `each`, for every head in turn.
        how: the kind of intervention; only heads of cross-attention can be forced.

    Raises:
        ValueError: if the model has no such head or place.
    """
    every = each_head(model)
    if text == "each" and every:
        return [(head,) for head in every if how != "force" or head[0].startswith("cross/")]
    heads: list[tuple[str, int]] = []
    for part in text.split("+"):
        name = f"{heads[-1][0]}/head{part}" if part.isdecimal() and heads else part
        heads += [head for head in every if head[0] == name] or [parse_head(model, name)]
    return [tuple(dict.fromkeys(heads))]


def answer(
    console: Console, one: Subject, asked: Sequence[Intervention], settings: EvaluateSettings, folder: Path
) -> Path:
    """Test a run as it is and with each intervention; show a table, and write all numbers.

    Args:
        console: where to.
        one: the run.
        asked: what is done to it, each on its own.
        settings: on which strings.
        folder: where the json file goes, made if it is not there.

    Returns:
        the json file: a new `what_if.json`, or `what_if_2.json` and so on.
    """
    what = f"{one.name}: exact match by length, up to {settings.strings} {settings.split} strings each"
    table = Table(box=SIMPLE, padding=(0, 1), show_edge=False)
    table.add_column("", overflow="fold")
    for length in settings.lengths or ():
        table.add_column(f"{length}", justify="right", no_wrap=True)
    before = interventions.exact_match_by_length(one.model, one.task, settings, None)
    table.add_row(AS_TRAINED, *(f"{value:.2f}" for value in before.values()))
    rows: list[dict[str, Any]] = []
    path = _new_file(folder)  # each answer is there at once, and a folder that cannot be written is told
    try:
        _write(path, one, settings, before, rows)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    with console.status("") as status:
        for number, intervention in enumerate(asked, 1):
            status.update(f"{number}/{len(asked)}  {intervention.name}")
            after = interventions.exact_match_by_length(one.model, one.task, settings, intervention)
            cells = [_cell(value, before[length]) for length, value in after.items()]
            kind, _, name = intervention.name.partition(" ")
            if not rows or rows[-1]["kind"] != kind:
                table.add_row(f"[bold]{kind}[/]")
            table.add_row(f"  {escape(name)}", *cells)
            rows.append({"name": intervention.name, **asdict(intervention), "exact_match": after})
            _write(path, one, settings, before, rows)
    console.print(f"{what}\n", markup=False, soft_wrap=True)
    console.print(table)
    console.print(f"\n{MEANING}", markup=False, soft_wrap=True)
    return path


def _new_file(folder: Path) -> Path:
    """An empty file of the next free name, which no other process has taken, even at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in chain(["what_if"], (f"what_if_{number}" for number in count(2))):
        path = folder / f"{name}.json"
        with suppress(FileExistsError):
            path.open("x").close()
            break
    return path


def _write(
    path: Path, one: Subject, settings: EvaluateSettings, before: dict[int, float], rows: list[dict[str, Any]]
) -> None:
    """Write all numbers so far."""
    whole = {
        "run": str(one.folder),
        "step": one.step,
        "strings": settings.strings,
        "split": settings.split,
        AS_TRAINED.replace(" ", "_"): before,
        "interventions": rows,
    }
    write_whole(path, (json.dumps(whole, indent=2) + "\n").encode())


def _cell(value: float, before: float) -> str:
    """A score, red where it fell and green where it rose."""
    colour = "red" if value < before - FALL else "green" if value > before + FALL else "default"
    return f"[{colour}]{value:.2f}[/]"


def heads_table(one: Subject, looks: Sequence[Look]) -> Table:
    """How each head of cross-attention looks on a string; where it is narrow, names are folded and no number is."""
    table = Table(box=SIMPLE, padding=0, show_edge=False)
    table.add_column("head", overflow="fold")
    found = heads(one, looks)
    known = any(head.score.weight is not None for head, _ in found)  # where the answer stands
    headings = ("weight\non\nright\ncell", "largest\nthere", "entropy\n(nats)", "90%\nthere\nsince\nstep")
    for heading in headings if known else headings[2:3]:
        table.add_column(heading, justify="right", no_wrap=True)
    for head, since in found:
        values = (head.score.weight, head.score.largest, head.score.entropy)
        cells = ["-" if value is None else f"{value:z.2f}" for value in values]  # z: no "-0.00"
        cells.append("-" if since is None else f"{since}")
        table.add_row(escape(head.name), *(cells if known else cells[2:3]))
    return table


def show_contrast(console: Console, one: Look, other: Look, model: Seq2Seq, folder: Path) -> int:
    """Show what changes in a model's maps from one string to another, and what does not.

    Args:
        console: where to.
        one: the model on the first string.
        other: on the second.
        model: the model.
        folder: where a picture a place goes: a row a head; first string, second, difference.

    Returns:
        the number of pictures.
    """
    found = contrast.contrast(one, other, model)
    console.print(f"\n{_text(one)} beside {_text(other)}\n", markup=False)
    if found.heads:
        console.print(_distances(found))
        console.print("0 = the head looks alike for both, 1 = its maps have nothing in common\n", markup=False)
    for line in contrast.says(found):
        console.print(line, markup=False, soft_wrap=True)
    console.print("\nThe same for both:", markup=False)
    for fact in found.same:
        console.print(f"- {fact}", markup=False, soft_wrap=True)
    for place in one.maps:
        _picture(found, place).save(folder / f"contrast_{place.replace('/', '_')}.png")
    return len(one.maps)


def _distances(found: Contrast) -> Table:
    """How far each head's maps of the two strings are apart: a row a place, a column a head."""
    table = Table(title="distance of the two maps", box=SIMPLE, title_justify="left", show_edge=False)
    table.add_column("", no_wrap=True)
    across = max((head.head + 1 for head in found.heads), default=0)
    for number in range(across):
        table.add_column(f"head {number}", justify="right", no_wrap=True)
    for place in found.one.maps:
        row = sorted((head for head in found.heads if head.place == place), key=lambda head: head.head)
        table.add_row(escape(place), *(f"{head.distance:.2f}" for head in row))
    return table


def _picture(found: Contrast, place: str) -> Picture:
    panels: list[Panel] = []
    maps: list[NDArray[np.floating]] = []
    one, other = found.one.maps[place], found.other.maps[place]
    rows, columns = (min(one.shape[axis], other.shape[axis]) for axis in (1, 2))
    for head in range(len(one)):
        first, second = (
            look.probe.panel(place, f"head {head} on {_text(look)}") for look in (found.one, found.other)
        )
        numbers = [str(at + 1) for at in range(max(rows, columns))]
        third = replace(
            first,
            title=f"head {head}: |difference|",
            rows=numbers[:rows],
            columns=numbers[:columns],
            outlined=(),
            row_axis="row",
            column_axis="place looked at",
        )
        panels += [first, second, third]
        difference = one[head, :rows, :columns] - other[head, :rows, :columns]
        maps += [one[head], other[head], np.abs(difference)]
    return MapPicture(panels, 3, note=place).draw(maps)


def _text(look: Look) -> str:
    return join(look.example.source, look.example.source_unit)
