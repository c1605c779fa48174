"""Where each output should look, and how far heads look there: pencil and paper."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from lookback import config, launcher, learner
from lookback.alignment import (
    LEARNED,
    NOWHERE,
    Head,
    HeadScore,
    clearest,
    head_scores,
    learned_since,
    measure,
    right_cells,
    scores_of_maps,
)
from lookback.data import collate
from lookback.tasks.base import Ids, Task
from lookback.tasks.copy import Copy
from lookback.tasks.reverse import Reverse
from lookback.tasks.sort import Sort
from lookback.tasks.synthetic import Synthetic


def ids(task: Task, text: str) -> Ids:
    return np.array(task.source_vocabulary.encode(text))


# Two strings, one head, three rows, four keys. The second string has two rows; its third is a pad.
WEIGHTS = torch.tensor(
    [
        [[[0.1, 0.7, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25], [0.0, 0.0, 0.5, 0.5]]],
        [[[0.0, 0.0, 1.0, 0.0], [0.5, 0.0, 0.0, 0.5], [1.0, 0.0, 0.0, 0.0]]],
    ]
)
RIGHT = torch.tensor([[1, 3, NOWHERE], [2, 1, NOWHERE]])
REAL = torch.tensor([[True, True, True], [True, True, False]])


def test_a_head_is_scored_on_its_right_cells_over_all_strings() -> None:
    [score] = head_scores(WEIGHTS, RIGHT, REAL)
    assert score.weight == pytest.approx((0.7 + 0.25 + 1.0 + 0.0) / 4)
    assert score.largest == pytest.approx(2 / 4)  # the row of four equal weights is no hit
    first = -(0.7 * math.log(0.7) + 3 * 0.1 * math.log(0.1))
    rows = [first, math.log(4), math.log(2), 0.0, math.log(2)]
    assert score.entropy == pytest.approx(sum(rows) / 5)


def test_each_head_has_its_own_score() -> None:
    other = torch.zeros_like(WEIGHTS)
    other[..., 3] = 1.0
    scores = head_scores(torch.cat([WEIGHTS, other], dim=1), RIGHT, REAL)
    assert scores[0] == head_scores(WEIGHTS, RIGHT, REAL)[0]
    assert scores[1] == HeadScore(weight=0.25, largest=0.25, entropy=0.0)


def test_without_right_cells_there_is_an_entropy_alone() -> None:
    [score] = head_scores(WEIGHTS, torch.full_like(RIGHT, NOWHERE), REAL)
    assert (score.weight, score.largest) == (None, None)
    assert list(score.values()) == ["entropy"]


def test_scores_do_not_depend_on_what_pads_look_at() -> None:
    changed = WEIGHTS.clone()
    changed[1, 0, 2] = torch.tensor([0.25, 0.25, 0.25, 0.25])
    assert head_scores(changed, RIGHT, REAL) == head_scores(WEIGHTS, RIGHT, REAL)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (Copy, [[1, 2, 3, NOWHERE], [1, NOWHERE, NOWHERE, NOWHERE]]),
        (Reverse, [[3, 2, 1, NOWHERE], [1, NOWHERE, NOWHERE, NOWHERE]]),
        (Sort, [[2, 3, 1, NOWHERE], [1, NOWHERE, NOWHERE, NOWHERE]]),
    ],
)
def test_the_right_cell_is_where_the_symbol_comes_from_after_bos(
    kind: type[Synthetic], wanted: list[list[int]]
) -> None:
    task = kind(alphabet_size=5)
    assert right_cells(task, collate(task, [ids(task, "cab"), ids(task, "d")])).tolist() == wanted


def test_a_task_without_an_answer_has_no_right_cells() -> None:
    class Constant(Synthetic):
        """aa -> a"""

        def target(self, source: Ids) -> Ids:
            return source[:1]

    task = Constant(alphabet_size=3)
    assert (right_cells(task, collate(task, [ids(task, "ab")])) == NOWHERE).all()


def test_right_cells_name_the_symbol_of_every_row() -> None:
    task = Sort(alphabet_size=26)
    batch = collate(task, [ids(task, text) for text in ("hello", "zzab", "q")])
    cells = right_cells(task, batch)
    for row, column in (cells != NOWHERE).nonzero().tolist():
        assert batch.source[row, cells[row, column]] == batch.labels[row, column]
    assert int((cells != NOWHERE).sum()) == 5 + 4 + 1


def test_self_attention_has_no_right_cells_and_its_own_pads() -> None:
    task = Reverse(alphabet_size=4)
    batch = collate(task, [ids(task, "abc"), ids(task, "d")])  # 5 and 3 source symbols, 4 and 2 rows
    sharp = torch.zeros(2, 1, 5, 5)
    sharp[:, :, :, 0] = 1.0
    sharp[1, :, 3:] = 0.2  # pads, which must not count
    maps = {"encoder_self/layer0": sharp, "cross/layer0": torch.full((2, 1, 4, 5), 0.2)}
    scores = scores_of_maps(maps, batch, right_cells(task, batch))
    assert scores["encoder_self/layer0"] == [HeadScore(None, None, 0.0)]
    assert scores["cross/layer0"][0].weight == pytest.approx(0.2)


def test_measuring_is_what_the_model_does_and_leaves_it_as_it_was() -> None:
    sizes = ["model.d_model=12", "model.num_heads=3", "model.d_ff=20", "model.dropout=0.5", "task.alphabet_size=5"]
    task, model = learner.build(config.build(launcher.compose("train", sizes)))
    model.train()
    batch = collate(task, [ids(task, "abcd"), ids(task, "ec")])
    state = torch.get_rng_state()
    first, second = (measure(model, batch, right_cells(task, batch)) for _ in range(2))
    assert first == second
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert {place: len(row) for place, row in first.items()} == {
        f"{kind}/layer{layer}": 3 for kind in ("encoder_self", "decoder_self", "cross") for layer in range(2)
    }
    maps: dict[str, Tensor] = {}
    model.eval()
    with torch.no_grad():
        model(batch.source, batch.source_lengths, batch.decoder_input, maps)
    weights = maps["cross/layer1"][:, 2]
    wanted = [
        weights[0, 0, 4],
        weights[0, 1, 3],
        weights[0, 2, 2],
        weights[0, 3, 1],
        weights[1, 0, 2],
        weights[1, 1, 1],
    ]
    assert first["cross/layer1"][2].weight == pytest.approx(float(torch.stack(wanted).mean()), abs=1e-6)


def test_the_clearest_head_has_learned_the_task_and_has_most_weight_on_the_right_cells() -> None:
    scores = {
        "encoder_self/layer0": [HeadScore(None, None, 0.0)],
        "cross/layer0": [HeadScore(0.3, 0.9, 0.1), HeadScore(0.6, 0.5, 1.0)],
        "cross/layer1": [HeadScore(0.5, 1.0, 0.2)],
    }
    head = clearest(scores)
    assert head == Head("cross/layer1", 0, HeadScore(0.5, 1.0, 0.2))
    assert head.name == "cross/layer1/head0"
    neither = {"cross/layer0": [HeadScore(0.3, 0.8, 0.1), HeadScore(0.6, 0.5, 1.0)]}
    assert clearest(neither) == Head("cross/layer0", 1, HeadScore(0.6, 0.5, 1.0))
    assert clearest({"encoder_self/layer0": [HeadScore(None, None, 0.5)]}) is None


def test_without_an_answer_the_clearest_head_is_the_sharpest() -> None:
    scores = {"cross/layer0": [HeadScore(None, None, 0.9), HeadScore(None, None, 0.4), HeadScore(None, None, 0.6)]}
    head = clearest(scores)
    assert head is not None
    assert head.number == 1


@pytest.mark.parametrize(
    ("history", "since"),
    [
        ([(100, 0.2), (200, 0.95), (300, 0.99)], 200),
        ([(100, 0.95), (200, 0.5), (300, LEARNED)], 300),
        ([(100, 0.95), (200, 0.89)], None),
        ([], None),
        ([(0, 1.0)], 0),
    ],
)
def test_a_head_has_learned_since_it_never_lost_it_again(
    history: list[tuple[int, float]], since: int | None
) -> None:
    assert learned_since(history) == since
