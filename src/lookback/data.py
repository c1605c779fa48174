"""Batches of a task. A batch is a pure function of (seed, step), so resuming needs no data state.

Held-out strings are those whose content hash falls in a fixed class: 1 in 32 for validation, 1 in 32 for test.
Training draws again when it meets one, so it never sees them, whatever the seed, the model and the task.
Where there are fewer than MIN_SOURCES strings of a length (with 26 letters: lengths 1 and 2) there is no room
to hold any out: training sees them all, and evaluation says so.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from lookback.rules import PositiveInt
from lookback.tasks.base import Ids, Task
from lookback.tokens import BOS, EOS, PAD

Split = Literal["train", "validation", "test"]
HASH_CLASSES = 32
MIN_SOURCES = 10_000
TRAIN_STREAM, HELD_OUT_STREAM = 0, 1
REPEATS = 1000  # so many strings in a row that were drawn before: there are no more


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """What training strings look like.

    Attributes:
        batch_size: strings in a training batch.
        min_length: shortest training source, marks not counted.
        max_length: longest training source; all lengths between are equally likely.
    """

    batch_size: PositiveInt
    min_length: PositiveInt
    max_length: PositiveInt

    @property
    def trained(self) -> range:
        """The lengths of training sources."""
        return range(self.min_length, self.max_length + 1)

    def __post_init__(self) -> None:
        """Check what no single value can show."""
        if self.min_length > self.max_length:
            raise ValueError(
                f"min_length must not be above max_length, but they are {self.min_length} and {self.max_length}"
            )


@dataclass(frozen=True, eq=False)
class Batch:
    """Sources and targets between BOS and EOS, filled up with PAD.

    Attributes:
        source: (batch, source), ids.
        source_lengths: (batch,), real symbols of each source, marks included.
        target: (batch, target), ids.
    """

    source: Tensor
    source_lengths: Tensor
    target: Tensor

    @property
    def decoder_input(self) -> Tensor:
        """(batch, target - 1): what the decoder reads under teacher forcing."""
        return self.target[:, :-1]

    @property
    def labels(self) -> Tensor:
        """(batch, target - 1): what it should predict there; PAD = nothing."""
        return self.target[:, 1:]

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return Batch(self.source.to(device), self.source_lengths.to(device), self.target.to(device))


def collate(task: Task, sources: Sequence[Ids]) -> Batch:
    """Make one batch of these sources and their targets."""
    targets = [task.target(source) for source in sources]
    return Batch(
        torch.from_numpy(_padded(sources)),
        torch.tensor([len(source) + 2 for source in sources]),
        torch.from_numpy(_padded(targets)),
    )


def _padded(rows: Sequence[Ids]) -> Ids:
    table = np.full((len(rows), max(map(len, rows)) + 2), PAD)
    table[:, 0] = BOS
    for line, row in zip(table, rows, strict=True):
        line[1 : len(row) + 1] = row
        line[len(row) + 1] = EOS
    return table


def split_of(source: Ids) -> Split:
    """The split that a source belongs to by its content."""
    digest = hashlib.blake2b(source.astype("<i4").tobytes(), digest_size=4).digest()
    match int.from_bytes(digest, "little") % HASH_CLASSES:
        case 0:
            return "validation"
        case 1:
            return "test"
        case _:
            return "train"


def has_room(task: Task, length: int) -> bool:
    """Whether strings of this length can be held out."""
    return task.num_sources(length) >= MIN_SOURCES


def draw(task: Task, rng: np.random.Generator, length: int, split: Split) -> Ids:
    """Draw a source of this split, or any source where the length has no room for splits."""
    source = task.sample(rng, length)
    if has_room(task, length):
        while split_of(source) != split:
            source = task.sample(rng, length)
    return source


def places(task: Task, length: int) -> tuple[int, int]:
    """Tokens of a source of this length, marks included, and tokens that the decoder reads, or writes, for it."""
    source = task.sample(np.random.default_rng(0), length)
    return len(source) + 2, len(task.target(source)) + 1


def train_batch(task: Task, settings: DataSettings, seed: int, step: int) -> Batch:
    """The training batch of this step: lengths uniform in the trained range, strings never held-out ones."""
    rng = np.random.default_rng([TRAIN_STREAM, seed, step])
    lengths = rng.integers(settings.min_length, settings.max_length + 1, settings.batch_size)
    return collate(task, [draw(task, rng, int(length), "train") for length in lengths])


def fingerprint(task: Task, settings: DataSettings, seed: int, lengths: Sequence[int], split: Split) -> str:
    """A digest of a run's data: its first training batch, and ten strings of each length that it is tested on.

    Models were trained and tested on the same strings if this is the same.
    """
    digest = hashlib.blake2b(digest_size=6)
    first = train_batch(task, settings, seed, 0)
    for source in [held for length in lengths for held in held_out(task, length, 10, split)]:
        digest.update(source.astype("<i4").tobytes() + task.target(source).astype("<i4").tobytes())
    for part in (first.source, first.target):
        digest.update(part.numpy().astype("<i4").tobytes())
    return digest.hexdigest()


def held_out(task: Task, length: int, count: int, split: Split) -> list[Ids]:
    """Different strings of one length, the same for every model and every seed.

    Returns:
        `count` sources, or all there are if there are fewer.
    """
    rng = np.random.default_rng([HELD_OUT_STREAM, split == "test", length])
    found: dict[bytes, Ids] = {}
    repeats = 0
    while len(found) < min(count, task.num_sources(length)) and repeats < REPEATS:
        source = draw(task, rng, length, split)
        repeats = repeats + 1 if source.tobytes() in found else 0
        found[source.tobytes()] = source
    return list(found.values())
