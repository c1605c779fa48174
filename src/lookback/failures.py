"""What wrong outputs have in common: each gets the kind of its first fault, and the place where that fault is.

All symbols before the first wrong place are right. What stands there decides, by the first rule that fits:

- stopped early: the output ends there, though more is wanted.
- ran on: the output has all that is wanted, and does not end there.
- swapped: two neighbouring symbols are exchanged; or two others are, and nothing else is wrong.
- repeated: symbols are put in that say once more what was written just before them.
- wrong symbol: another symbol stands in the place of the one that is wanted.
- skipped: one or more symbols of what is wanted are left out.
- wrong symbol: symbols are put in that repeat nothing.

From `swapped` on, a rule fits if a shortest sequence of edits from wanted to wrote can begin so. An edit puts in,
leaves out or replaces one symbol, or exchanges two neighbours (the optimal string alignment distance). So a symbol
counts as left out only if that explains the output in fewer edits than a wrong symbol does.
"""

import html
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rapidfuzz.distance import OSA, Levenshtein

from lookback.by_length import LengthScore, few
from lookback.evaluate import Example
from lookback.files import write_whole
from lookback.symbols import BETWEEN
from lookback.tokens import CONTROL_NAMES, EOS

KINDS = ("stopped early", "ran on", "repeated", "skipped", "swapped", "wrong symbol")
EXAMPLES = 5  # of each kind in failures.md
LONGEST = 60  # symbols; longer strings are cut
AROUND = 20  # symbols shown on each side of a cut string's first wrong place
MARKUP = {ord(sign): f"&#{ord(sign)};" for sign in "\\`*_[]|~:@#$"}  # what GitHub or TensorBoard may read as such
NOTE = (
    "first wrong = place, counted from 1, of the first symbol that is not as wanted; it is bold. "
    "(cut off) = the output did not end by itself."
)
MEANINGS = (
    "- **stopped early**: all is right up to the end, which comes too soon; **ran on**: all is there, and more",
    "- **repeated**: symbols that were just written come once more; **skipped**: symbols are left out",
    "- **swapped**: two symbols are exchanged; **wrong symbol**: another one stands there, or is put in",
)
HEADINGS = ("kind", "length", "first wrong", "source", "wanted", "wrote")


@dataclass(frozen=True)
class Failure:
    """A wrong output.

    Attributes:
        kind: of its first fault, one of KINDS.
        length: of the source, marks not counted.
        first_wrong: place in the output, counted from 1, of the first symbol, or end, that is not as wanted.
        distance: symbols to put in, leave out or replace to get from wanted to wrote (Levenshtein); the end is
            not counted, so it is 0 if only the end is missing.
        example: the output itself.
    """

    kind: str
    length: int
    first_wrong: int
    distance: int
    example: Example


def classify(example: Example) -> Failure:
    """Find the first fault of a wrong output, and its kind.

    Raises:
        ValueError: if the output is right.
    """
    if example.right:
        raise ValueError(f"example must be a wrong output, but is right: {''.join(example.wrote)!r}")
    pairs = zip(example.wanted, example.wrote, strict=False)
    shorter = min(len(example.wanted), len(example.wrote))
    place = next((number for number, (wanted, wrote) in enumerate(pairs) if wanted != wrote), shorter)
    if place == len(example.wanted):
        kind = "ran on"
    elif place == len(example.wrote):
        kind = "stopped early"
    elif _only_two_exchanged(example, place):
        kind = "swapped"
    else:
        kind = _first_edit(example.wrote[:place], example.wanted[place:], example.wrote[place:])
    distance = Levenshtein.distance(example.wanted, example.wrote)
    return Failure(kind, len(example.source), place + 1, distance, example)


def _only_two_exchanged(example: Example, place: int) -> bool:
    """Whether the symbol at a place has changed places with a later one, near or far, and all others are right."""
    wanted, wrote = example.wanted, example.wrote
    if len(wanted) != len(wrote):
        return False
    other = next((later for later in range(place + 1, len(wanted)) if wanted[later] != wrote[later]), None)
    if other is None or (wanted[place], wanted[other]) != (wrote[other], wrote[place]):
        return False
    return wanted[other + 1 :] == wrote[other + 1 :]


def _first_edit(before: list[str], wanted: list[str], wrote: list[str]) -> str:
    """The kind of fault with which a shortest sequence of edits begins.

    Args:
        before: what was written before, all right.
        wanted: what should follow.
        wrote: what follows, its first symbol another one.
    """
    edits = OSA.distance(wanted, wrote)

    def can_begin(left_out: int, put_in: int, cost: int = 1) -> bool:
        rest = edits - cost
        return rest >= 0 and OSA.distance(wanted[left_out:], wrote[put_in:], score_cutoff=rest) <= rest

    if wanted[:2] == wrote[1::-1] and can_begin(2, 2):
        return "swapped"
    sizes = range(1, min(len(before), len(wrote)) + 1)
    again = (size for size in sizes if before[-size] == wrote[0] and before[-size:] == wrote[:size])
    repeat = next(again, None)  # if the shortest repeat is no such edit, then no longer one is
    if repeat is not None and can_begin(0, repeat, cost=repeat):
        return "repeated"
    return "skipped" if can_begin(1, 0) and not can_begin(1, 1) else "wrong symbol"


def gallery(scores: Sequence[LengthScore]) -> list[Failure]:
    """All wrong outputs of an evaluation, sorted by kind (in the order of KINDS), then by length, then as decoded.

    An output that reads right is left out: only a control token can differ from a symbol of the same name.
    """
    found = [
        replace(classify(example), length=score.length)  # which may count less than all symbols of the source
        for score in scores
        for example in score.failures
        if not example.right
    ]
    return sorted(found, key=lambda failure: (KINDS.index(failure.kind), failure.length))


def markdown(failures: Sequence[Failure], strings: Mapping[int, int], examples: int) -> str:
    """Counts by length and kind, and some examples of each kind, as Markdown tables.

    Args:
        failures: from `gallery`.
        strings: length of the source -> how many were decoded.
        examples: how many of each kind are shown, spread over its failures.
    """
    if not failures:
        return f"no wrong outputs in {sum(strings.values())} decoded strings\n"
    lines = ["Wrong outputs by their first fault, and how many were decoded.", ""]
    lines += [*_count_lines(failures, strings), "", *MEANINGS, ""]
    groups = [[failure for failure in failures if failure.kind == kind] for kind in KINDS]
    rows = [_example_line(failure) for group in groups for failure in _spread(group, examples)]
    if rows:
        lines += [_line(HEADINGS), _line(["---"] * len(HEADINGS)), *rows, ""]
        lines += [NOTE]
    return "\n".join(lines) + "\n"


def save(folder: Path, failures: Sequence[Failure], strings: Mapping[int, int]) -> str:
    """Leave failures.jsonl (all of them, an object a line) and failures.md (see `markdown`) in a folder.

    Both are written even if nothing is wrong, so that no older results stay.

    Args:
        folder: made if it is missing.
        failures: from `gallery`.
        strings: as in `markdown`.

    Returns:
        what failures.md holds.
    """
    lines = [json.dumps(_record(failure)) + "\n" for failure in failures]
    write_whole(folder / "failures.jsonl", "".join(lines).encode())
    text = markdown(failures, strings, EXAMPLES)
    write_whole(folder / "failures.md", text.encode())
    return text


def leave(folder: Path, scores: Sequence[LengthScore]) -> str:
    """Sort the wrong outputs of an evaluation into a folder: see `save`. Outputs that were left cannot be sorted.

    Returns:
        what failures.md holds.
    """
    strings = {row.length: row.strings for row in scores}
    wrong = sum(round(row.strings * (1 - row.exact_match)) for row in scores)
    if not wrong or all(row.token_accuracy is not None for row in scores):
        return save(folder, gallery(scores), strings)
    text = f"{wrong} of {sum(strings.values())} outputs are wrong. Each was left at its first wrong token "
    text += "(evaluate.exact\\_only), so they are not sorted.\n"
    write_whole(folder / "failures.jsonl", b"")
    write_whole(folder / "failures.md", text.encode())
    return text


def _record(failure: Failure) -> dict[str, object]:
    example = {name: getattr(failure.example, name) for name in ("source", "wanted", "wrote", "ended")}
    return {name: value for name, value in vars(failure).items() if name != "example"} | example


def cell(symbols: Sequence[str], between: str = "") -> str:
    r"""Symbols as text in a cell of a Markdown table, whatever they are: nothing in it is read as markup.

    Args:
        symbols: a space is shown as ␣, and what cannot be printed as Python writes it, such as `\n`.
        between: what stands between two symbols.
    """
    return between.join(_escaped(symbol) for symbol in symbols)


def _escaped(symbol: str) -> str:
    seen = "".join("␣" if sign == " " else sign if sign.isprintable() else repr(sign)[1:-1] for sign in symbol)
    return html.escape(seen, quote=False).translate(MARKUP)


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _count_lines(failures: Sequence[Failure], strings: Mapping[int, int]) -> list[str]:
    """A table of counts: a line for each length, or for some if there are many, and one for all."""
    counts = Counter((failure.length, failure.kind) for failure in failures)
    lengths = sorted({*strings, *(failure.length for failure in failures)})
    rows = [(strings.get(length, 0), *(counts[length, kind] for kind in KINDS)) for length in lengths]
    total = tuple(map(sum, zip(*rows, strict=True)))
    headings = ("length", "strings", "wrong", *KINDS)
    lines = [_line(headings), _line(["--:"] * len(headings))]
    shown = few(range(len(lengths)))
    for name, (decoded, *kinds) in [*((lengths[number], rows[number]) for number in shown), ("all", total)]:
        lines.append(_line([name, decoded, sum(kinds), *kinds]))
    if len(shown) < len(lengths):
        lines += ["", f"{len(shown)} of {len(lengths)} lengths are shown; all are counted in the last line."]
    return lines


def _spread(group: Sequence[Failure], count: int) -> list[Failure]:
    count = min(count, len(group))
    return [group[number * len(group) // count] for number in range(count)]


def _example_line(failure: Failure) -> str:
    """A line of the table of examples. Long strings are cut around the first wrong place, sources in the middle."""
    example, place = failure.example, failure.first_wrong - 1
    between, apart = (BETWEEN[unit] for unit in (example.target_unit, example.source_unit))
    wanted, wrote = ([cell([symbol]) for symbol in side] for side in (example.wanted, example.wrote))
    if not example.ended:
        wrote.append(" (cut off)")
    elif place == len(wrote):
        wrote.append(cell([CONTROL_NAMES[EOS]]))
    wrote[place] = f"<strong>{wrote[place]}</strong>"  # ** would not be bold beside a sign such as &
    start, stop = 0, max(len(wanted), len(wrote))
    if stop > LONGEST:
        start, stop = max(0, place - AROUND), place + AROUND + 1
    sides = [
        ("..." if start else "") + between.join(side[start:stop]) + ("..." if stop < len(side) else "")
        for side in (wanted, wrote)
    ]
    source = cell(example.source, apart)
    if len(example.source) > LONGEST:
        source = f"{cell(example.source[:AROUND], apart)}...{cell(example.source[-AROUND:], apart)}"
    return _line([failure.kind, failure.length, failure.first_wrong, source, *sides])
