"""Two strings, one model: which heads look elsewhere when the symbols change, and what stays as it is.

How far two rows of weights are apart is their total variation, half of the sum over keys of |a - b|: 0 = the same
row, 1 = nothing in common.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookback.alignment import NOWHERE
from lookback.models.base import Seq2Seq
from lookback.probes import Look, kind
from lookback.symbols import join

BY_PLACE = 0.1  # a head below this distance looks by place, not by symbol
BY_SYMBOL = 0.5  # a head above it looks elsewhere when the symbols are others
FEW = 4  # so many heads are named in a sentence
ROUNDING = 1e-4  # so far may a row's sum be from 1, and a map from the same map worked out again


@dataclass(frozen=True)
class HeadContrast:
    """How far one head's maps of the two strings are apart.

    Attributes:
        place: of its map, such as `cross/layer0`.
        head: its number there.
        distance: mean over rows of the total variation. Rows that can look at one key only are counted too: the
            first of decoder self-attention is always 0.
        largest: the largest of a row.
        row: which row that is, from 0.
    """

    place: str
    head: int
    distance: float
    largest: float
    row: int

    @property
    def name(self) -> str:
        """As in the tags of the board: `cross/layer0/head1`."""
        return f"{self.place}/head{self.head}"


@dataclass(frozen=True, eq=False)
class Contrast:
    """What one model does with two strings.

    Attributes:
        one: the first look.
        other: the second.
        heads: the least changed first; at equal distance in the model's order.
        same: what holds for both, checked on their maps.
        not_same: what was checked and does not hold for both.
    """

    one: Look
    other: Look
    heads: list[HeadContrast]
    same: list[str]
    not_same: list[str]


def contrast(one: Look, other: Look, model: Seq2Seq | None = None) -> Contrast:
    """Compare where a model looks for two strings of equal length, in the rows that both looks have.

    Args:
        one: from `look`.
        other: from `look`, of the same model.
        model: that model, if it is at hand: it is then watched once more, to see whether both maps are its own.

    Raises:
        ValueError: if the sources have different lengths, or the maps are of different heads.
    """
    texts = [_text(look) for look in (one, other)]
    lengths = [len(look.example.source) for look in (one, other)]
    if lengths[0] != lengths[1]:
        raise ValueError(
            "sources must have the same length to be compared, "
            f"but {texts[0]!r} has {lengths[0]} symbols and {texts[1]!r} has {lengths[1]}"
        )
    owned = [{place: len(weights) for place, weights in look.maps.items()} for look in (one, other)]
    if owned[0] != owned[1]:
        raise ValueError(
            f"looks must be of one model to be compared, but their heads are {owned[0]} and {owned[1]}"
        )
    heads = [head for place in one.maps for head in _heads(place, one.maps[place], other.maps[place])]
    facts = [*_facts(one, other), *([_watched_again(one, other, model)] if model and one.maps else [])]
    return Contrast(
        one,
        other,
        sorted(heads, key=lambda head: head.distance),
        [text for holds, text in facts if holds],
        [text for holds, text in facts if not holds],
    )


def total_variation(one: NDArray[np.floating], other: NDArray[np.floating]) -> NDArray[np.float64]:
    """How far each row of two maps is apart, in the rows that both have.

    Args:
        one: (heads, query, key); keys that one map lacks have weight 0 there.
        other: (heads, query, key), with as many heads.

    Returns:
        (heads, query), the smaller number of queries.
    """
    rows, keys = min(one.shape[1], other.shape[1]), max(one.shape[2], other.shape[2])
    first, second = (
        np.pad(weights[:, :rows].astype(np.float64), ((0, 0), (0, 0), (0, keys - weights.shape[2])))
        for weights in (one, other)
    )
    return np.abs(first - second).sum(axis=-1) / 2  # type: ignore[no-any-return]


def _heads(place: str, one: NDArray[np.float32], other: NDArray[np.float32]) -> list[HeadContrast]:
    return [
        HeadContrast(place, head, float(rows.mean()), float(rows.max()), int(rows.argmax()))
        for head, rows in enumerate(total_variation(one, other))
    ]


def _facts(one: Look, other: Look) -> list[tuple[bool, str]]:
    """What is checked on the maps of both: whether it holds, and the words for it."""
    facts = [_steps(one, other)]
    if not one.maps:
        return facts
    maps = [(place, weights) for look in (one, other) for place, weights in look.maps.items()]
    for what in dict.fromkeys(kind(place) for place in one.maps):
        found = dict.fromkeys(weights.shape for place, weights in maps if kind(place) == what)
        shapes = " and ".join(" x ".join(map(str, shape)) for shape in found)
        facts.append((len(found) == 1, f"shape of {what} maps (heads x queries x keys): {shapes}"))
    off = max(float(np.abs(weights.sum(axis=-1, dtype=np.float64) - 1).max()) for _, weights in maps)
    facts.append((off <= ROUNDING, f"each row sums to 1 (at most {off:.1e} off)"))
    written = [weights for place, weights in maps if kind(place) == "decoder_self"]
    if written:
        future = max(float(np.triu(np.abs(weights), 1).max()) for weights in written)
        what = "no weight on what is still to be written, in decoder self-attention"
        facts.append((future == 0, f"{what} (largest above the diagonal: {future:g})"))
    return facts


def _steps(one: Look, other: Look) -> tuple[bool, str]:
    same = one.step == other.step
    return same, f"updates done when the model looked: {one.step if same else f'{one.step} and {other.step}'}"


def _watched_again(one: Look, other: Look, model: Seq2Seq) -> tuple[bool, str]:
    """Whether the model, as it is now, makes the maps of both: then their weights are the same."""
    off = 0.0
    for look in (one, other):
        again = look.probe.watch(model)
        shapes = [{place: weights.shape for place, weights in maps.items()} for maps in (again, look.maps)]
        if shapes[0] != shapes[1]:
            return False, "weights of the model: it has other maps than these"
        off = max([off, *(float(np.abs(again[place] - look.maps[place]).max()) for place in again)])
    return off <= ROUNDING, f"weights of the model: watched again, it makes both maps (at most {off:.1e} off)"


def says(found: Contrast) -> list[str]:
    """What changed and what did not, in words, from the numbers.

    Returns:
        one sentence or two an item.
    """
    one, other = found.one, found.other
    texts = [_text(look) for look in (one, other)]
    length = len(one.example.source)
    changed = sum(a != b for a, b in zip(one.example.source, other.example.source, strict=True))
    if not changed:
        return [f"{texts[0]} was given twice, so no distance here says anything about symbols."]
    lines = [f"{texts[0]} and {texts[1]} have different symbols at {changed} of {length} places."]
    if changed < length:
        lines.append("The other places have the same symbol in both, so a small distance says less there.")
    if not found.heads:
        return [*lines[:1], "This model has no attention, so there are no maps to compare."]
    rows = [len(look.probe.written) for look in (one, other)]
    if rows[0] != rows[1]:
        lines.append(
            f"{rows[0]} and {rows[1]} symbols were written (EOS counts); "
            f"only the first {min(rows)} rows of the decoder's maps are compared."
        )
    lines += _cells(found, min(rows))
    return [*lines, *_by(found.heads), *(f"Does not hold for both: {fact}." for fact in found.not_same)]


def _cells(found: Contrast, rows: int) -> list[str]:
    one, other = (look.probe.right[:rows] for look in (found.one, found.other))
    known = int(((one != NOWHERE) | (other != NOWHERE)).sum())
    moved = int((one != other).sum())
    if not known:
        return []
    if not moved:
        return [
            "The right cells are the same for both, so a cross-attention head that looks there need not change."
        ]
    return [
        f"The right cell is another one in {moved} of {known} rows, "
        "and a cross-attention head that looks there has to change in these."
    ]


def _by(heads: Sequence[HeadContrast]) -> list[str]:
    place = [head for head in heads if head.distance < BY_PLACE]
    symbol = [head for head in heads if head.distance > BY_SYMBOL]
    between = [head for head in heads if BY_PLACE <= head.distance <= BY_SYMBOL]
    most = max(heads, key=lambda head: head.largest)
    return [
        f"By place, or at all keys alike (distance below {BY_PLACE:g}; the pattern did not change "
        f"although the symbols did): {_names(place)}.",
        f"By symbol (distance above {BY_SYMBOL:g}; the pattern follows the symbols): {_names(symbol)}.",
        f"Between the two: {_names(between)}.",
        f"The row that changed most: row {most.row + 1} of {most.name} ({most.largest:.3f}).",
    ]


def _names(heads: Sequence[HeadContrast]) -> str:
    """How many heads there are, and which, if they are few."""
    if not heads:
        return "none"
    count = f"{len(heads)} head{'s' if len(heads) > 1 else ''}"
    few = ", ".join(f"{head.name} ({head.distance:.3f})" for head in heads)
    return f"{count}, {few}" if len(heads) <= FEW else count


def _text(look: Look) -> str:
    return join(look.example.source, look.example.source_unit)
