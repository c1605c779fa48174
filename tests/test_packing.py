"""Several strings a row: every symbol is there once, and the model says of it what it says of the string alone."""

import numpy as np
import torch

from lookback import masks
from lookback.packing import NOBODY, first_fit, pack
from lookback.tokens import BOS, EOS, PAD

SOURCES = [[4, 5, 6], [7], [8, 9], [4, 4, 4, 4, 4]]
TARGETS = [[6, 5], [7, 7, 7], [], [5]]


def padded(rows: list[list[int]]) -> torch.Tensor:
    width = max(map(len, rows)) + 2
    return torch.tensor([[BOS, *row, EOS] + [PAD] * (width - len(row) - 2) for row in rows])


def test_first_fit_puts_long_strings_first_and_short_ones_into_what_is_left() -> None:
    assert first_fit([3, 7, 4, 2], [2, 4, 2, 1]) == ([1, 0, 1, 2], [4, 0, 0, 0], [2, 0, 0, 0])


def test_a_row_must_have_room_for_the_target_too() -> None:
    assert first_fit([2, 2, 2, 6], [5, 1, 4, 3]) == ([1, 2, 2, 0], [0, 2, 0, 0], [0, 4, 0, 0])


def test_each_string_is_there_once_in_order() -> None:
    lengths = torch.tensor([len(row) + 2 for row in SOURCES])
    packed = pack(padded(SOURCES), lengths, padded(TARGETS))
    for side, rows in (
        (packed.source, [[BOS, *row, EOS] for row in SOURCES]),
        (packed.target, [[BOS, *row] for row in TARGETS]),
    ):
        for number, row in enumerate(rows):
            here = side.string == number
            assert side.ids[here].tolist() == row
            assert side.index[here].tolist() == list(range(len(row)))
            assert set(side.source_length[here].tolist()) == {len(SOURCES[number]) + 2}
        assert bool((side.ids[side.string == NOBODY] == PAD).all())
        assert int((side.string != NOBODY).sum()) == sum(map(len, rows))
    labels = [packed.labels[packed.target.string == number].tolist() for number in range(4)]
    assert labels == [[*row, EOS] for row in TARGETS]


def test_source_and_target_of_a_string_are_in_one_row() -> None:
    packed = pack(padded(SOURCES), torch.tensor([len(row) + 2 for row in SOURCES]), padded(TARGETS))
    for number in range(4):
        rows = [
            (side.string == number).any(dim=1).nonzero().flatten().tolist()
            for side in (packed.source, packed.target)
        ]
        assert rows[0] == rows[1]
        assert len(rows[0]) == 1


def test_rows_are_as_wide_as_the_longest_string_and_fuller_than_one_string_a_row() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.integers(4, 30, length).tolist() for length in rng.integers(1, 21, 64)]
    table = padded(rows)
    packed = pack(table, torch.tensor([len(row) + 2 for row in rows]), table)
    assert packed.source.ids.shape[1] == table.shape[1]
    assert (table != PAD).float().mean() < 0.65
    assert (packed.source.ids != PAD).float().mean() > 0.85


def test_queries_see_their_own_string_alone() -> None:
    mask = masks.same(torch.tensor([[3, 3, 5, NOBODY]]), torch.tensor([[5, 3, NOBODY]]))
    assert mask.tolist() == [[[[False, True, False], [False, True, False], [True, False, False], [True] * 3]]]
