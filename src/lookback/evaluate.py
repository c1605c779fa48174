"""What is evaluated, how one output reads, and validation while training. Evaluation itself is `by_length.py`."""

from dataclasses import dataclass
from typing import Literal

import torch

from lookback.data import Batch, batch_of
from lookback.decode import evaluating, greedy
from lookback.metrics import score, sequence_loss
from lookback.models.base import Seq2Seq
from lookback.rules import Lengths, NonNegativeInt, PositiveInt
from lookback.symbols import Unit
from lookback.tasks.base import Task
from lookback.tokens import EOS, PAD

LEAST_STRINGS = 8


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings:
    """What is evaluated when training ends.

    Attributes:
        lengths: source lengths, in and beyond the trained range; None = all that a list of pairs has.
        strings: held-out strings of each length; None = all that a list of pairs has.
        symbols: if given, strings of a length are at most so many symbols together, but never fewer than
            LEAST_STRINGS for that.
        extra_tokens: decoding is cut off this many tokens after the right length.
        exact_only: each output is left at its first wrong token, and nothing but exact match is measured.
        split: `test`; `validation` while tuning, so that test strings are looked at once.
    """

    lengths: Lengths | None
    strings: PositiveInt | None
    symbols: PositiveInt | None
    extra_tokens: NonNegativeInt
    exact_only: bool
    split: Literal["validation", "test"]

    def count(self, length: int) -> int | None:
        """How many strings of this length are asked for; None = all that there are."""
        most = None if self.symbols is None else max(LEAST_STRINGS, self.symbols // length)
        return min((number for number in (self.strings, most) if number is not None), default=None)


@dataclass(frozen=True)
class Example:
    """One decoded string: symbols read, to be written, and written.

    Attributes:
        source: symbols.
        wanted: symbols; none where no answer is known.
        wrote: symbols.
        ended: it wrote EOS.
        left: decoding was left at its last symbol, which is its first wrong one.
        known: an answer is known to compare it with.
        source_unit: what a symbol of the source is in a text.
        target_unit: the same of the target.
    """

    source: list[str]
    wanted: list[str]
    wrote: list[str]
    ended: bool
    left: bool = False
    known: bool = True
    source_unit: Unit = "character"
    target_unit: Unit = "character"

    @property
    def right(self) -> bool:
        """Whether exactly what was wanted was written, the end included."""
        return self.known and self.ended and self.wrote == self.wanted

    def marked(self) -> list[tuple[str, bool]]:
        """Each written symbol, and whether it is wrong at its place."""
        return [
            (symbol, self.known and (place >= len(self.wanted) or symbol != self.wanted[place]))
            for place, symbol in enumerate(self.wrote)
        ]

    def verdict(self) -> str:
        """What is wrong, in a few words."""
        if self.left:
            return f"left at its first wrong symbol, number {len(self.wrote)}"
        if not self.known:
            return "no answer is known" if self.ended else "no answer is known; did not end by itself"
        wrong = sum(flag for _, flag in self.marked())
        late = len(self.wrote) - len(self.wanted)
        notes = [f"{wrong} wrong"] if wrong else []
        if not self.ended:
            notes.append("did not end by itself")
        elif late:
            notes.append(f"ended {abs(late)} too {'late' if late > 0 else 'early'}")
        return ", ".join(notes) or "right"


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
        source_unit=task.source_unit,
        target_unit=task.target_unit,
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
    return batch_of(task.probe_pairs(lengths))


def exact_match(model: Seq2Seq, batch: Batch, extra_tokens: int) -> float:
    """Share of rows written exactly, decoded freely."""
    right = [score(_written(model, part, batch, extra_tokens), part.labels).exact_match for part in batch.parts()]
    return float(torch.cat(right).double().mean())


def _written(model: Seq2Seq, part: Batch, whole: Batch, extra_tokens: int) -> torch.Tensor:
    """What is written for some rows of a batch, (rows, steps), cut off where the longest row of all would be."""
    return greedy(model, part.source, part.source_lengths, whole.labels.shape[1] + extra_tokens).tokens


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
    tokens = int((batch.labels != PAD).sum())
    chosen = range(0, len(batch.source), max(1, len(batch.source) // examples))[:examples]
    loss, hits, right, done, shown = 0.0, 0, 0, 0, list[Example]()
    for part in batch.parts():
        with evaluating(model):
            logits = model(part.source, part.source_lengths, part.decoder_input)
        found = score(logits.argmax(dim=-1), part.labels)
        loss += float(sequence_loss(logits, part.labels)) * (int(found.tokens.sum()) / tokens)
        hits += int(found.hits.sum())
        wrote = _written(model, part, batch, extra_tokens)
        right += int(score(wrote, part.labels).exact_match.sum())
        shown += [example(task, part, wrote, row - done) for row in chosen if 0 <= row - done < len(part.source)]
        done += len(part.source)
    return Validation(loss, hits / tokens, right / len(batch.source)), shown
