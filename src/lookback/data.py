"""Batches of a task. A batch is a pure function of (seed, step), so resuming needs no data state."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lookback.rules import PositiveInt
from lookback.tasks.base import Ids, Pair, Split, Task
from lookback.tokens import BOS, EOS, PAD


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


CHUNK_TOKENS = 16_384  # source tokens in a batch that is only looked at, marks and pads included
CHUNK_ROWS = 256


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

    def parts(self) -> list["Batch"]:
        """The same rows in batches that take little memory; a small batch is one."""
        widest = max(self.source.shape[1], self.target.shape[1])
        rows = max(1, min(CHUNK_ROWS, CHUNK_TOKENS // widest))
        starts = range(0, len(self.source), rows)
        return [self] if len(starts) == 1 else [self._some(slice(start, start + rows)) for start in starts]

    def share(self, rank: int, count: int) -> "Batch":
        """The rows of one of several processes, every count-th from row `rank` on, no wider than they must be."""
        return self._some(slice(rank, None, count))

    def _some(self, rows: slice) -> "Batch":
        source, lengths, target = (part[rows] for part in (self.source, self.source_lengths, self.target))
        if len(source):
            source, target = source[:, : int(lengths.max())], target[:, : int((target != PAD).sum(dim=1).max())]
        return Batch(source, lengths, target)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return Batch(self.source.to(device), self.source_lengths.to(device), self.target.to(device))


def batch_of(pairs: Sequence[Pair]) -> Batch:
    """Make one batch of these pairs."""
    sources, targets = zip(*pairs, strict=True)
    return Batch(
        torch.from_numpy(_padded(sources)),
        torch.tensor([len(source) + 2 for source in sources]),
        torch.from_numpy(_padded(targets)),
    )


def collate(task: Task, sources: Sequence[Ids]) -> Batch:
    """Make one batch of these sources and their right answers."""
    return batch_of([(source, task.known_answer(source)) for source in sources])


def _padded(rows: Sequence[Ids]) -> Ids:
    table = np.full((len(rows), max(map(len, rows)) + 2), PAD)
    table[:, 0] = BOS
    for line, row in zip(table, rows, strict=True):
        line[1 : len(row) + 1] = row
        line[len(row) + 1] = EOS
    return table


def train_batch(task: Task, settings: DataSettings, seed: int, step: int) -> Batch:
    """The training batch of this step."""
    return batch_of(task.training_pairs(settings.batch_size, settings.trained, seed, step))


def fingerprint(task: Task, settings: DataSettings, seed: int, lengths: Sequence[int] | None, split: Split) -> str:
    """A digest of a run's data: its first training batch, and ten pairs of each length that it is tested on.

    Models were trained and tested on the same pairs if this is the same.
    """
    digest = hashlib.blake2b(digest_size=6)
    first = train_batch(task, settings, seed, 0)
    tests = task.test_pairs(lengths, lambda length: 10, split)
    for length in tests if lengths is None else lengths:
        for source, target in tests.get(length, []):
            digest.update(source.astype("<i4").tobytes() + target.astype("<i4").tobytes())
    for part in (first.source, first.target):
        digest.update(part.numpy().astype("<i4").tobytes())
    return digest.hexdigest()
