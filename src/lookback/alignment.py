"""The known answer: where each output should look, and how far each head looks there.

Copy, reverse and sort know from which place of the source each symbol of the target comes. That place is the
right cell of its row in a map of cross-attention. Maps of self-attention have no right cells, only an entropy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookback.attention import Maps
from lookback.data import Batch
from lookback.decode import evaluating
from lookback.models.base import Seq2Seq
from lookback.tasks.base import Task
from lookback.tokens import PAD

NOWHERE = -1  # in a table of right cells: this row has none
LEARNED = 0.9  # a head has learned the task when its weight is largest on the right cell in so many rows


@dataclass(frozen=True)
class HeadScore:
    """How one head looks, over all real rows of some maps.

    Attributes:
        weight: mean weight on the right cell; None where no row has one.
        largest: share of the rows with a right cell in which it weighs more than every other cell.
        entropy: mean over rows of -sum(weight log weight), in nats: 0 = looks at one symbol, log(n) = at n alike.
    """

    weight: float | None
    largest: float | None
    entropy: float

    def values(self) -> dict[str, float]:
        """Those that there are, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


def head_scores(weights: Tensor, right: Tensor, real: Tensor) -> list[HeadScore]:
    """Measure each head.

    Args:
        weights: (batch, heads, query, key).
        right: (batch, query), the column of the right cell of each row; NOWHERE where there is none.
        real: (batch, query) bool, False for rows that are pads.

    Returns:
        one a head.
    """
    entropies = torch.special.entr(weights).sum(dim=-1).transpose(0, 1)[:, real].mean(dim=-1) + 0.0  # never -0.0
    rows = weights.transpose(0, 1)[:, right != NOWHERE]  # (heads, rows with a right cell, key)
    if not rows.shape[1]:
        return [HeadScore(None, None, entropy) for entropy in entropies.tolist()]
    cells = right[right != NOWHERE].expand(len(rows), -1)[..., None]
    on_cell = rows.gather(-1, cells)[..., 0]  # (heads, rows)
    others = rows.scatter(-1, cells, -1.0).amax(dim=-1)
    largest = (on_cell > others).double().mean(dim=-1)
    found = zip(on_cell.mean(dim=-1).tolist(), largest.tolist(), entropies.tolist(), strict=True)
    return [HeadScore(*values) for values in found]


def right_cells(task: Task, batch: Batch) -> Tensor:
    """The right cell of each row of cross-attention maps: (batch, target - 1), NOWHERE for marks and pads.

    It is the one that the task's alignment names. Where a symbol occurs twice in the source, as often in sorting,
    looking at its twin is as good, and yet counts as looking elsewhere.
    """
    source = batch.source.cpu().numpy()
    cells = torch.full(batch.labels.shape, NOWHERE)
    for row, length in enumerate(batch.source_lengths.tolist()):
        places = task.alignment(source[row, 1 : length - 1])
        if places is not None:
            cells[row, : len(places)] = torch.from_numpy(places + 1)  # after BOS
    return cells


def measure(model: Seq2Seq, batch: Batch, right: Tensor) -> dict[str, list[HeadScore]]:
    """Measure every head of a model on a batch, by teacher forcing.

    Args:
        model: any model, on the batch's device.
        batch: of strings.
        right: from `right_cells`.

    Returns:
        place, such as `cross/layer0` -> a score for each of its heads.
    """
    maps: Maps = {}
    with evaluating(model):
        model(batch.source, batch.source_lengths, batch.decoder_input, maps)
    return scores_of_maps(maps, batch, right)


def scores_of_maps(maps: Maps, batch: Batch, right: Tensor) -> dict[str, list[HeadScore]]:
    """Measure every head in the maps of a batch: see `measure`."""
    written, read = batch.labels != PAD, batch.source != PAD
    scores = {}
    for place, weights in maps.items():
        real = read if place.startswith("encoder") else written
        cells = right if place.startswith("cross") else torch.full(real.shape, NOWHERE)
        scores[place] = head_scores(weights.float(), cells.to(weights.device), real)
    return scores


@dataclass(frozen=True)
class Head:
    """One head of a model: the place of its map, its number there, and how it looks."""

    place: str
    number: int
    score: HeadScore

    @property
    def name(self) -> str:
        """As in the tags of the board: `cross/layer0/head1`."""
        return f"{self.place}/head{self.number}"

    @property
    def learned(self) -> bool:
        """Whether it alone has learned the task."""
        return (self.score.largest or 0.0) >= LEARNED

    def of(self, maps: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
        """Its map, (query, key), among those of all places, each (heads, query, key)."""
        weights: NDArray[np.float32] = maps[self.place][self.number]
        return weights


def clearest(scores: Mapping[str, list[HeadScore]]) -> Head | None:
    """The cross-attention head that looks most where the answer stands.

    One that has learned the task comes before one that has not, then more weight on the right cells, then less
    entropy, which alone counts where nothing is right.

    Returns:
        None if no place is cross-attention.
    """
    heads = [
        Head(place, number, score)
        for place, row in scores.items()
        if place.startswith("cross/")
        for number, score in enumerate(row)
    ]
    return max(heads, key=lambda head: (head.learned, head.score.weight or 0.0, -head.score.entropy), default=None)


def learned_since(history: Iterable[tuple[int, float]]) -> int | None:
    """The step from which on a head had learned the task and did not lose it again.

    Args:
        history: pairs of a step and the head's `largest` there, in order.

    Returns:
        None if it has not at the end.
    """
    since = None
    for step, largest in history:
        since = (since if since is not None else step) if largest >= LEARNED else None
    return since
