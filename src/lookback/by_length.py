"""Free-running evaluation by length, on strings that training never saw, the same for every model and seed."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F

from lookback.data import CHUNK_ROWS, CHUNK_TOKENS, Batch, batch_of
from lookback.decode import evaluating, greedy
from lookback.evaluate import EvaluateSettings, Example, example
from lookback.metrics import score
from lookback.models.base import Seq2Seq
from lookback.processes import ALONE, Processes
from lookback.tasks.base import Ids, Pair, Task
from lookback.tokens import EOS, PAD

LEAST_ROWS = 8  # in a batch of which exact match alone is asked, if there are as many
NEAR = 1.25  # times the shortest row of a batch, its longest at most
SHOWN_LENGTHS = 12


@dataclass(frozen=True)
class LengthScore:
    """Results at one source length. What `exact_only` leaves unmeasured is None.

    Attributes:
        length: of the sources, marks not counted.
        strings: how many were decoded.
        tokens: real tokens of what was wanted of them.
        held_out: False where the length is too short to hold strings out of training.
        exact_match: share of strings right up to and including EOS, free-running.
        token_accuracy: share of real tokens right at their place, free-running.
        teacher_forced: the same share when the decoder is given the right past.
        cut_off: share of outputs that did not end by themselves.
        tokens_per_second: real target tokens of these strings, as far as they were decoded, by the seconds that it
            took; of the seconds of a batch each string has the share that it has of the tokens.
        example: the first wrong output; the first output if none is wrong.
        failures: every wrong output, in the order of the strings; none where outputs were left.
    """

    length: int
    strings: int
    tokens: int
    held_out: bool
    exact_match: float
    token_accuracy: float | None
    teacher_forced: float | None
    cut_off: float | None
    tokens_per_second: float
    example: Example
    failures: list[Example] = field(default_factory=list)


@dataclass(frozen=True)
class _Row:
    """What became of one string, in real target tokens.

    `hits` are right freely, `forced` with the right past; `seconds` went into `decoded`.
    """

    right: bool
    ended: bool
    tokens: int
    hits: int
    forced: int
    decoded: int
    seconds: float
    example: Example | None


def evaluate(
    model: Seq2Seq,
    task: Task,
    settings: EvaluateSettings,
    stop: Callable[[], bool] = lambda: False,
    processes: Processes = ALONE,
) -> list[LengthScore]:
    """Decode and score held-out strings of each length. Batches go across lengths, the shortest strings first.

    Args:
        model: any model, on any device.
        task: gives strings and answers.
        settings: which strings, of which lengths, how many.
        stop: asked before each batch; once it says so, lengths that are not done are left out.
        processes: that share the batches; each of them gets the scores of all.
    """
    strings = task.test_pairs(settings.lengths, settings.count, settings.split)
    listed = [(length, pair) for length, pairs in strings.items() for pair in pairs]
    least = LEAST_ROWS if settings.exact_only else 1
    found: dict[int, _Row] = {}  # by their places in the list
    for part in batches([source for _, (source, _) in listed], least)[processes.rank :: processes.count]:
        if stop():
            break
        numbers = range(len(listed))[part]
        firsts = [
            at for at, number in enumerate(numbers) if not number or listed[number - 1][0] != listed[number][0]
        ]
        batch = batch_of([pair for _, pair in listed[part]])
        found |= zip(numbers, _rows(model, task, settings, batch, firsts), strict=True)
    found = {number: row for some in processes.gather(found) for number, row in some.items()}
    rows: dict[int, list[_Row]] = {length: [] for length in strings}
    for number in sorted(found):
        rows[listed[number][0]].append(found[number])
    asked = list(strings) if settings.lengths is None else [at for at in settings.lengths if at in strings]
    done = [length for length in asked if len(rows[length]) == len(strings[length])]
    return [_length_score(length, task.holds_out(length), rows[length], settings.exact_only) for length in done]


def evaluate_length(model: Seq2Seq, task: Task, settings: EvaluateSettings, length: int) -> LengthScore:
    """The same for one length."""
    return evaluate(model, task, replace(settings, lengths=[length]))[0]


def pairs_of(task: Task, settings: EvaluateSettings, length: int) -> list[Pair]:
    """The held-out pairs of a length."""
    return task.test_pairs([length], settings.count, settings.split)[length]


def batches(sources: Sequence[Ids], least: int = 1) -> list[slice]:
    """Cut a list, the shortest first, into batches of at most CHUNK_ROWS rows and CHUNK_TOKENS tokens.

    Lengths in a batch are near one another: a few long rows would pad all others, and rows of one length need no
    masks.

    Args:
        sources: in the order of their lengths.
        least: so many rows go together whatever they hold. A step of decoding takes little longer for some rows
            than for one, and without a teacher-forced pass they take little memory.
    """
    found, start = [], 0
    for end in range(1, len(sources) + 1):
        rows = end + 1 - start  # with one more
        far = end < len(sources) and len(sources[end]) + 2 > NEAR * (len(sources[start]) + 2)
        if end == len(sources) or far or (rows > least and _full(rows, len(sources[end]) + 2)):
            found.append(slice(start, end))
            start = end
    return found


def _full(rows: int, width: int) -> bool:
    return rows > CHUNK_ROWS or rows * width > CHUNK_TOKENS


def _rows(
    model: Seq2Seq, task: Task, settings: EvaluateSettings, batch: Batch, shown: Collection[int]
) -> list[_Row]:
    """Decode and score a batch; an example is made of each wrong row, and of those that are to be shown anyway."""
    batch = batch.to(next(model.parameters()).device)
    labels, real = batch.labels, (batch.labels != PAD).sum(dim=1)
    cap, wanted = labels.shape[1] + settings.extra_tokens, labels if settings.exact_only else None
    started = time.perf_counter()
    tokens = greedy(model, batch.source, batch.source_lengths, cap, wanted).tokens
    seconds = time.perf_counter() - started
    free, decoded, forced = score(tokens, labels), real, real
    ends = real + settings.extra_tokens  # of each row, whatever stands beside it
    if settings.exact_only:
        wrong = (
            F.pad(tokens, (0, max(0, labels.shape[1] - tokens.shape[1])), value=PAD)[:, : labels.shape[1]] != labels
        )
        ends = torch.where(free.exact_match, real, wrong.int().argmax(dim=1) + 1)
        decoded = torch.minimum(real, ends)
    elif not bool(free.exact_match.all()):
        forced = torch.where(free.exact_match, real, _forced_hits(model, batch, ~free.exact_match))
    columns = torch.arange(tokens.shape[1], device=tokens.device)
    ended = ((tokens == EOS) & (columns < ends[:, None])).any(dim=1)
    batch, tokens = batch.to(torch.device("cpu")), tokens.cpu()  # once, not for each row
    share = seconds / int(decoded.sum())
    lists = [part.tolist() for part in (free.exact_match, ended, real, free.hits, forced, decoded, ends)]
    found = []
    for row, (right, closed, count, hits, taught, made, end) in enumerate(zip(*lists, strict=True)):
        text = example(task, batch, tokens[:, :end], row) if row in shown or not right else None
        if text and settings.exact_only:
            text = replace(text, left=not text.ended and len(text.wrote) == end)
        found.append(_Row(right, closed, count, hits, taught, made, made * share, text))
    return found


def _forced_hits(model: Seq2Seq, batch: Batch, chosen: torch.Tensor) -> torch.Tensor:
    """Right tokens of the chosen rows when the decoder is given the right past, and 0 for the others.

    A row that was written right needs no such pass: what it read of its own was the right past.
    """
    part = Batch(batch.source[chosen], batch.source_lengths[chosen], batch.target[chosen])
    with evaluating(model):
        logits = model(part.source, part.source_lengths, part.decoder_input)
    hits = torch.zeros_like(batch.source_lengths)
    hits[chosen] = score(logits.argmax(dim=-1), part.labels).hits
    return hits


def _length_score(length: int, room: bool, rows: Sequence[_Row], exact_only: bool) -> LengthScore:
    """The rows of one length together."""
    failures = [row.example for row in rows if row.example and not row.right]
    first = rows[0].example
    assert first is not None
    tokens = sum(row.tokens for row in rows)
    return LengthScore(
        length=length,
        strings=len(rows),
        tokens=tokens,
        held_out=room,
        exact_match=sum(row.right for row in rows) / len(rows),
        token_accuracy=None if exact_only else sum(row.hits for row in rows) / tokens,
        teacher_forced=None if exact_only else sum(row.forced for row in rows) / tokens,
        cut_off=None if exact_only else sum(not row.ended for row in rows) / len(rows),
        tokens_per_second=sum(row.decoded for row in rows) / max(sum(row.seconds for row in rows), 1e-9),
        example=failures[0] if failures else first,
        failures=[] if exact_only else failures,
    )


ENTRIES = {  # entry of summary.json -> attribute of LengthScore
    "exact_match": "exact_match",
    "token_accuracy": "token_accuracy",
    "teacher_forced_token_accuracy": "teacher_forced",
    "strings": "strings",
    "cut_off": "cut_off",
    "decoding_tokens_per_second": "tokens_per_second",
}


def entries(scores: Sequence[LengthScore]) -> dict[str, dict[str, float]]:
    """What summary.json says by length: entry -> length -> value, where it was measured."""
    values = {entry: {str(row.length): getattr(row, name) for row in scores} for entry, name in ENTRIES.items()}
    return {entry: {length: v for length, v in row.items() if v is not None} for entry, row in values.items()}


def overall(scores: Sequence[LengthScore]) -> dict[str, float]:
    """What summary.json says of all strings together, each counting alike, and of all tokens, where measured."""
    strings = sum(row.strings for row in scores)
    tokens = sum(row.tokens for row in scores)
    found = {"strings": strings, "exact_match": sum(row.exact_match * row.strings for row in scores) / strings}
    for entry, name in (("token_accuracy", "token_accuracy"), ("teacher_forced_token_accuracy", "teacher_forced")):
        shares = [(getattr(row, name), row.tokens) for row in scores]
        if all(share is not None for share, _ in shares):
            found[entry] = sum(share * count for share, count in shares) / tokens
    return found


def beyond(scores: Sequence[LengthScore], longest: int) -> dict[str, float] | None:
    """How many lengths are above the longest trained one, and the means over them; None if there are none."""
    rows = [row for row in scores if row.length > longest]
    found = {"lengths": len(rows), "exact_match": sum(row.exact_match for row in rows) / max(1, len(rows))}
    accuracies = [row.token_accuracy for row in rows if row.token_accuracy is not None]
    if accuracies:
        found["token_accuracy"] = sum(accuracies) / len(accuracies)
    return found if rows else None


def few(lengths: Sequence[int]) -> list[int]:
    """At most SHOWN_LENGTHS of these, in their order: the first, the last, and evenly spaced ones between."""
    step = max(1.0, (len(lengths) - 1) / (SHOWN_LENGTHS - 1))
    return [lengths[round(number * step)] for number in range(min(len(lengths), SHOWN_LENGTHS))]
