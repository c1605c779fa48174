"""What one head does on a string, told in Markdown: the numbers for `outputs/prompt-attention-explainer.md`.

Any symbol may stand in a string, so each is written as a code span that breaks neither the text nor a table.
"""

import inspect
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lookback.alignment import NOWHERE
from lookback.attention import AttentionLayer, MultiHeadAttention
from lookback.figures import Panel
from lookback.interventions import head_name, layers
from lookback.lookups import Lookups, Scored
from lookback.models.recurrent import LookBack
from lookback.probes import Look, kind
from lookback.run_folder import class_name
from lookback.subjects import Subject
from lookback.symbols import join, plain
from lookback.tokens import CONTROL_NAMES, EOS

MOST, HALF = 0.9, 0.5  # weights from which on a row is said to hand on almost only one value, or mostly one


@dataclass(frozen=True, eq=False)
class Explained:
    """One head of a run on one string.

    Attributes:
        one: the run.
        shown: what it wrote, and where it looked.
        place: of the head's map.
        head: its number there.
        why: it was chosen; the end of a sentence.
        found: what it asked and found.
    """

    one: Subject
    shown: Look
    place: str
    head: int
    why: str
    found: Lookups

    @property
    def layer(self) -> AttentionLayer:
        """Where the head is."""
        return layers(self.one.model)[self.place]

    @property
    def panel(self) -> Panel:
        """What its rows and columns are called."""
        return self.shown.probe.panel(self.place)

    def right_place(self, row: int) -> int:
        """Where the answer of a row stands; NOWHERE if it stands nowhere, or nobody knows."""
        return int(self.shown.probe.right[row]) if kind(self.place) == "cross" else NOWHERE

    def wrong(self, row: int) -> str:
        """What should have been written in a row; empty if it was, or nobody knows, or the row writes nothing."""
        if kind(self.place) == "encoder_self" or not self.shown.example.known:
            return ""
        wanted = [*self.shown.example.wanted, CONTROL_NAMES[EOS]]
        right = wanted[row] if row < len(wanted) else "nothing"
        return "" if right == self.panel.rows[row] else right


def code(text: str, *, in_table: bool = False) -> str:
    """A text as a code span that shows exactly it, on one line.

    Args:
        text: anything but the empty text.
        in_table: whether the span stands in a table, where a bar would begin a new cell.
    """
    text = plain(text)
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    ends = {text[:1], text[-1:]}
    room = " " if "`" in ends or (" " in ends and text.strip()) else ""
    span = f"{fence}{room}{text}{room}{fence}"
    return span.replace("|", "\\|") if in_table else span


def table(header: Sequence[str], rows: Iterable[Sequence[str]], names: int) -> list[str]:
    """The lines of a table whose first columns are names, and the others numbers."""
    rule = ["---"] * names + ["--:"] * (len(header) - names)
    return [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]


def numbers(it: Explained) -> str:
    """What stands in the prompt in the place of its worked example."""
    blocks = [_about(it), _weights(it), *(_row(it, row) for row in chosen_rows(it))]
    rounding = "All numbers are rounded: sums and softmaxes of them may be off by one or two in the last digit."
    return "\n\n".join("\n".join(block) for block in [*blocks, [rounding]])


def chosen_rows(it: Explained) -> list[int]:
    """The rows that are worked out: the first, the first wrong one or else one in the middle, and the last."""
    rows = len(it.found.weights)
    between = next((row for row in range(rows) if it.wrong(row)), (rows - 1) // 2)
    return sorted({0, between, rows - 1})


def _about(it: Explained) -> list[str]:
    """The run, the head and what was written."""
    one, example = it.one, it.shown.example
    task = (inspect.getdoc(type(one.task)) or "").partition("\n")[0]
    sides = (example.wrote, example.wanted)
    wrote, wanted = (code(join(side, example.target_unit)) if side else "nothing" for side in sides)
    verdict = f", which is {'right' if example.right else f'wrong ({example.verdict()})'}"
    if not example.known:
        wanted, verdict = "nobody knows it", "" if example.ended else ", which did not end by itself"
    return [
        "These numbers are of a trained model, on one string.",
        "",
        f"- Task: {code(class_name(one.raw['task']))}. {task}",
        f"- Model: {code(one.name)}, with its weights of step {one.step:,}; {_sizes(it)}",
        f"- Head: {code(head_name(it.place, it.head))}, because {it.why}.",
        f"- Source: {code(join(example.source, example.source_unit))}",
        f"- Right answer: {wanted}",
        f"- Output of the model: {wrote}{verdict}.",
    ]


def _sizes(it: Explained) -> str:
    """Widths and positions of the model, or how it differs from a Transformer."""
    raw, layer = it.one.raw["model"], it.layer
    if isinstance(layer, MultiHeadAttention):
        d_model = layer.num_heads * layer.head_width
        sizes = (
            f"d_model {d_model}, {layer.num_heads} heads, d_k = {d_model} / {layer.num_heads} = {layer.head_width}"
        )
        named = f", positions: {code(class_name(raw['positions']))}" if "positions" in raw else ""
        longer = (
            " Its queries and biases are multiplied by log10 of the number of keys." if layer.log_length else ""
        )
        plain = "" if layer.stretch == 1.0 else " Its queries are multiplied by sqrt(d_k), so nothing is scaled."
        return f"{sizes}{named}.{longer}{plain}"
    width = f"d_model {raw['d_model']}, " if "d_model" in raw else ""
    other = f"{width}{layer.num_heads} head{'s' if layer.num_heads > 1 else ''}."
    if not isinstance(layer, LookBack):
        return f"{other} Its scores are not q . k / sqrt(d_k), so only weights are given."
    return (
        f"{other} It is no Transformer: its score is not q . k / sqrt(d_k) but {code(layer.score.formula)}, "
        "where the query is a state of the decoder, and a state of the encoder is key and value in one. "
        "Only weights are given."
    )


def _weights(it: Explained) -> list[str]:
    """The map as a table."""
    panel, found = it.panel, it.found
    rows = []
    for row, symbol in enumerate(panel.rows):
        cells = [f"{weight:.3f}" for weight in found.weights[row]]
        if it.right_place(row) != NOWHERE:
            cells[it.right_place(row)] = f"**{cells[it.right_place(row)]}**"
        cells = [cell if seen else "-" for cell, seen in zip(cells, found.visible[row], strict=True)]
        rows.append([f"{row} {code(symbol, in_table=True)}", *cells])
    notes = [
        f"Rows: {panel.row_axis}; columns: {panel.column_axis}; places are counted from 0.",
        "A row sums to 1.",
    ]
    if panel.outlined:
        notes.append("Bold = where the answer stands.")
    if not found.visible.all():
        notes.append("- = hidden by the mask: the score is minus infinity, and the weight 0.")
    columns = [f"{at} {code(symbol, in_table=True)}" for at, symbol in enumerate(panel.columns)]
    return ["### All weights of this head", "", " ".join(notes), "", *table(["", *columns], rows, names=1)]


def _row(it: Explained, row: int) -> list[str]:
    """One query, worked out."""
    columns, found = it.panel.columns, it.found
    does = "looks" if kind(it.place) == "encoder_self" else "is being written"
    lines = [f"### Row {row}: {code(it.panel.rows[row])} {does}", ""]
    if it.wrong(row):
        right = it.wrong(row)
        lines.append(f"- This is wrong: right is {right if right == 'nothing' else code(right)}.")
    top = int(found.weights[row].argmax())
    weight = f"{found.weights[row, top]:.3f}"
    lines.append(f"- The largest weight is {weight}, on place {top}, {code(columns[top])}{_beside(it, row, top)}.")
    others = (
        f"{1 - float(weight):.3f} is shared by all others" if found.visible[row].sum() > 1 else "there is no other"
    )
    lines.append(
        f"- What comes back is {weight} times the value of place {top}; {others}. {_amount(float(weight))}"
    )
    if found.scored is not None:
        lines[2:2] = [*_scores(found.scored, it, row), ""]
        alike = _cosine(found.weights[row] @ found.scored.value, found.scored.value[top])
        lines.append(f"- The cosine between what comes back and the value of place {top} is {alike:z.3f}.")
    return lines


def _beside(it: Explained, row: int, top: int) -> str:
    """Whether the answer stands where the weight is largest."""
    right = it.right_place(row)
    if right == NOWHERE:
        return ""
    return (
        ", where the answer stands"
        if right == top
        else f"; the answer stands at place {right}, {code(it.panel.columns[right])}"
    )


def _amount(weight: float) -> str:
    """How much of a row's output is one value, in words."""
    if weight >= MOST:
        return "It is almost only that value."
    return (
        "It is mostly that value." if weight >= HALF else "It is a blend in which no value has half of the weight."
    )


def _scores(scored: Scored, it: Explained, row: int) -> list[str]:
    """From the products of one query with its keys to its weights."""
    parts = {"q . k": scored.products, f"q . k / sqrt({scored.head_width})": scored.scaled}
    note = (
        "The weights are the softmax of the column before them; the position encoding adds nothing to these scores."
    )
    if scored.bias is not None:
        parts |= {"bias": scored.bias, "score": scored.scores}
        note = "The position encoding adds a bias to q . k / sqrt(d_k), and the weights are the softmax of the sum."
    parts["weight"] = it.found.weights
    rows = [
        [
            str(key),
            code(it.panel.columns[key], in_table=True),
            *(f"{part[row, key]:z.3f}" for part in parts.values()),
        ]
        for key in np.flatnonzero(it.found.visible[row]).tolist()
    ]
    return [note, "", *table(["place", "key", *parts], rows, names=2)]


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    size = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / size if size else 0.0
