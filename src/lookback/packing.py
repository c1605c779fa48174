"""Several short strings in one row, so that training pays for hardly any pads.

Strings of 1 to 20 letters, padded to the longest, are nearly half pads. Here a row holds as many strings as fit;
each symbol knows its string and its place there, and attention stays within strings (Krell et al. 2021, "Efficient
Sequence Packing without Cross-contamination"). A string's source and target go to the rows of the same number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookback.tokens import PAD

Numbers = NDArray[np.int64]
NOBODY = -1  # the string of a pad


@dataclass(frozen=True, eq=False)
class Side:
    """The sources, or the targets, of all rows.

    Attributes:
        ids: (row, place), PAD where no string is.
        string: (row, place), the number of the string that stands there; NOBODY where there is none.
        index: (row, place), the place of each symbol in its own string, from 0.
        source_length: (row, place), the length of its string's source, marks included; 1 where there is none.
    """

    ids: Tensor
    string: Tensor
    index: Tensor
    source_length: Tensor

    def to(self, device: torch.device) -> "Side":
        """The same on another device."""
        return Side(*(getattr(self, field.name).to(device) for field in fields(self)))


@dataclass(frozen=True, eq=False)
class Packed:
    """A batch in rows of several strings.

    Attributes:
        source: what is read.
        target: what the decoder reads under teacher forcing.
        labels: (row, place of the target), what it should predict there; PAD = nothing.
    """

    source: Side
    target: Side
    labels: Tensor

    def to(self, device: torch.device) -> "Packed":
        """The same on another device."""
        return Packed(self.source.to(device), self.target.to(device), self.labels.to(device))


def pack(source: Tensor, source_lengths: Tensor, target: Tensor) -> Packed:
    """Lay a batch out in rows as wide as its longest string, by first fit from long to short. On the CPU.

    Args:
        source: (batch, source), ids; rows end in PAD.
        source_lengths: (batch,), real symbols of each source, marks included.
        target: (batch, target), ids between BOS and EOS; rows end in PAD.

    Returns:
        all sources, and all targets without their last symbol, with what follows each symbol as its label.
    """
    read = source_lengths.numpy()
    written = (target != PAD).sum(dim=1).numpy() - 1
    row, source_at, target_at = first_fit(read.tolist(), written.tolist())
    sources = _Layout(row, source_at, read)
    targets = _Layout(row, target_at, written)
    return Packed(
        sources.side(source.numpy(), read),
        targets.side(target.numpy(), read),
        targets.place(targets.of(target.numpy()[:, 1:]), PAD),
    )


def first_fit(source: Sequence[int], target: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Put each string into the first row that has room for its source and its target, long ones first.

    Args:
        source: the length of each source.
        target: the length of each target.

    Returns:
        for each string its row, and where its source and its target begin there.
    """
    source_width, target_width = max(source), max(target)
    least_source, least_target = min(source), min(target)
    used: list[tuple[int, int]] = []  # of each row: symbols of sources, and of targets
    open_rows: list[int] = []  # those with room for the shortest, in order
    found = [(0, 0, 0)] * len(source)
    for string in sorted(range(len(source)), key=lambda at: (-source[at], -target[at])):
        source_room, target_room = source_width - source[string], target_width - target[string]
        fitting = (row for row in open_rows if used[row][0] <= source_room and used[row][1] <= target_room)
        row = next(fitting, len(used))
        if row == len(used):
            used.append((0, 0))
            open_rows.append(row)
        read, written = used[row]
        found[string] = (row, read, written)
        read, written = used[row] = (read + source[string], written + target[string])
        if read + least_source > source_width or written + least_target > target_width:
            open_rows.remove(row)
    rows, sources, targets = zip(*found, strict=True)
    return list(rows), list(sources), list(targets)


class _Layout:
    """Where each symbol of each string goes.

    Args:
        row: of each string.
        start: its first place there.
        lengths: how many symbols it has.
    """

    def __init__(self, row: Sequence[int], start: Sequence[int], lengths: Numbers) -> None:
        self.string = np.repeat(np.arange(len(lengths)), lengths)  # of each symbol, string by string
        self.index = np.arange(len(self.string)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        self.row = np.asarray(row)[self.string]
        self.column = np.asarray(start)[self.string] + self.index
        self.shape = (max(row) + 1, int(self.column.max()) + 1)

    def of(self, table: Numbers) -> Numbers:
        """The symbols of a padded table, (batch, width), string by string."""
        return table[self.string, self.index]

    def place(self, values: Numbers, nothing: int) -> Tensor:
        """(row, place), from a value a symbol."""
        rows = np.full(self.shape, nothing)
        rows[self.row, self.column] = values
        return torch.from_numpy(rows)

    def side(self, table: Numbers, source_lengths: Numbers) -> Side:
        """The rows of a padded table."""
        return Side(
            self.place(self.of(table), PAD),
            self.place(self.string, NOBODY),
            self.place(self.index, 0),
            self.place(source_lengths[self.string], 1),
        )
