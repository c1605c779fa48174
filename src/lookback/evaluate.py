"""Free-running evaluation by length, on strings that training never saw, the same for every model and seed."""

import time
from dataclasses import dataclass, field
from typing import Literal

import torch

from lookback.data import Batch, collate, has_room, held_out
from lookback.decode import evaluating, greedy
from lookback.metrics import Score, joined, score, sequence_loss
from lookback.models.base import Seq2Seq
from lookback.rules import Lengths, NonNegativeInt, PositiveInt
from lookback.tasks.base import Task
from lookback.tokens import EOS, PAD

CHUNK_TOKENS = 16_384


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings:
    """What is evaluated when training ends.

    Attributes:
        lengths: source lengths, in and beyond the trained range.
        strings: held-out strings of each length.
        extra_tokens: decoding is cut off this many tokens after the right length.
        split: `test`; `validation` while tuning, so that test strings are looked at once.
    """

    lengths: Lengths
    strings: PositiveInt
    extra_tokens: NonNegativeInt
    split: Literal["validation", "test"]


@dataclass(frozen=True)
class Example:
    """One decoded string: symbols read, to be written, and written; `ended` = it wrote EOS."""

    source: list[str]
    wanted: list[str]
    wrote: list[str]
    ended: bool

    @property
    def right(self) -> bool:
        """Whether exactly what was wanted was written, the end included."""
        return self.ended and self.wrote == self.wanted

    def marked(self) -> list[tuple[str, bool]]:
        """Each written symbol, and whether it is wrong at its place."""
        return [
            (symbol, place >= len(self.wanted) or symbol != self.wanted[place])
            for place, symbol in enumerate(self.wrote)
        ]

    def verdict(self) -> str:
        """What is wrong, in a few words."""
        wrong = sum(flag for _, flag in self.marked())
        late = len(self.wrote) - len(self.wanted)
        notes = [f"{wrong} wrong"] if wrong else []
        if not self.ended:
            notes.append("did not end by itself")
        elif late:
            notes.append(f"ended {abs(late)} too {'late' if late > 0 else 'early'}")
        return ", ".join(notes) or "right"


@dataclass(frozen=True)
class LengthScore:
    """Results at one source length.

    Attributes:
        length: of the sources, marks not counted.
        strings: how many were decoded.
        held_out: False where the length is too short to hold strings out of training.
        exact_match: share of strings right up to and including EOS, free-running.
        token_accuracy: share of real tokens right at their place, free-running.
        teacher_forced: the same share when the decoder is given the right past.
        cut_off: share of outputs that did not end by themselves.
        tokens_per_second: real target tokens of these strings by the seconds that decoding them took.
        example: the first wrong output; the first output if none is wrong.
        failures: every wrong output, in the order of the strings.
    """

    length: int
    strings: int
    held_out: bool
    exact_match: float
    token_accuracy: float
    teacher_forced: float
    cut_off: float
    tokens_per_second: float
    example: Example
    failures: list[Example] = field(default_factory=list)


def evaluate(model: Seq2Seq, task: Task, settings: EvaluateSettings) -> list[LengthScore]:
    """Decode and score held-out strings of each length.

    Args:
        model: any model, on any device.
        task: gives strings and answers.
        settings: which strings, of which lengths, how many.
    """
    return [evaluate_length(model, task, settings, length) for length in settings.lengths]


def evaluate_length(model: Seq2Seq, task: Task, settings: EvaluateSettings, length: int) -> LengthScore:
    """Decode and score held-out strings of one length, in batches of at most CHUNK_TOKENS source tokens."""
    device = next(model.parameters()).device
    sources = held_out(task, length, settings.strings, settings.split)
    size = max(1, CHUNK_TOKENS // (length + 2))
    free: list[Score] = []
    forced: list[Score] = []
    failures: list[Example] = []
    cut_off, seconds, first = 0, 0.0, None
    for start in range(0, len(sources), size):
        batch = collate(task, sources[start : start + size]).to(device)
        started = time.perf_counter()
        decoded = greedy(model, batch.source, batch.source_lengths, batch.labels.shape[1] + settings.extra_tokens)
        seconds += time.perf_counter() - started
        with evaluating(model):
            logits = model(batch.source, batch.source_lengths, batch.decoder_input)
        free.append(score(decoded.tokens, batch.labels))
        forced.append(score(logits.argmax(dim=-1), batch.labels))
        cut_off += int((~decoded.ended).sum())
        batch, tokens = batch.to(torch.device("cpu")), decoded.tokens.cpu()  # once, not for each row
        wrong = (~free[-1].exact_match).nonzero().flatten().tolist()
        failures += [example(task, batch, tokens, row) for row in wrong]
        first = first or example(task, batch, tokens, 0)
    assert first is not None
    return LengthScore(
        length=length,
        strings=len(sources),
        held_out=has_room(task, length),
        exact_match=joined(free).exact_match.double().mean().item(),
        token_accuracy=joined(free).token_accuracy,
        teacher_forced=joined(forced).token_accuracy,
        cut_off=cut_off / len(sources),
        tokens_per_second=int(joined(free).tokens.sum()) / max(seconds, 1e-9),
        example=failures[0] if failures else first,
        failures=failures,
    )


def example(task: Task, batch: Batch, tokens: torch.Tensor, row: int) -> Example:
    """One row of a batch and of its decoded tokens as text."""
    wrote = tokens[row].tolist()
    ended = EOS in wrote
    length = int(batch.source_lengths[row])
    wanted = [token for token in batch.labels[row].tolist() if token not in (PAD, EOS)]
    return Example(
        source=task.source_vocabulary.decode(batch.source[row, 1 : length - 1].tolist()),
        wanted=task.target_vocabulary.decode(wanted),
        wrote=task.target_vocabulary.decode(wrote[: wrote.index(EOS)] if ended else wrote),
        ended=ended,
    )


@dataclass(frozen=True)
class Validation:
    """Results on the validation strings: teacher-forced loss and token accuracy, free-running exact match."""

    loss: float
    token_accuracy: float
    exact_match: float

    def better_than(self, other: "Validation | None") -> bool:
        """Higher exact match wins; at equal exact match, the lower loss."""
        return other is None or (self.exact_match, -self.loss) > (other.exact_match, -other.loss)


def validation_batch(task: Task, lengths: list[int]) -> Batch:
    """One validation string for each of these lengths, the same for every model and seed."""
    rows = {length: held_out(task, length, lengths.count(length), "validation") for length in set(lengths)}
    return collate(task, [source for length in sorted(rows) for source in rows[length]])


def exact_match(model: Seq2Seq, batch: Batch, extra_tokens: int) -> tuple[float, torch.Tensor]:
    """Share of rows written exactly, decoded freely; and what was written, (batch, steps)."""
    decoded = greedy(model, batch.source, batch.source_lengths, batch.labels.shape[1] + extra_tokens)
    return float(score(decoded.tokens, batch.labels).exact_match.double().mean()), decoded.tokens


def validate(
    model: Seq2Seq, task: Task, batch: Batch, extra_tokens: int, examples: int
) -> tuple[Validation, list[Example]]:
    """Score a model on a validation batch, and show some outputs, spread over the batch.

    Args:
        model: any model.
        task: names the symbols.
        batch: from `validation_batch`, on the model's device.
        extra_tokens: as in `EvaluateSettings`.
        examples: how many outputs.
    """
    with evaluating(model):
        logits = model(batch.source, batch.source_lengths, batch.decoder_input)
    share, tokens = exact_match(model, batch, extra_tokens)
    result = Validation(
        loss=float(sequence_loss(logits, batch.labels)),
        token_accuracy=score(logits.argmax(dim=-1), batch.labels).token_accuracy,
        exact_match=share,
    )
    rows = range(0, len(batch.source), max(1, len(batch.source) // examples))
    return result, [example(task, batch, tokens, row) for row in rows[:examples]]
