"""The RNN that looks back after each step, against the equations of Luong et al. 2015 on single vectors."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lookback.models.recurrent import Additive, General
from lookback.models.rnn_luong import RnnLuong
from test_recurrent import (
    LENGTHS,
    both_ways,
    every_cell,
    every_depth,
    hand_additive,
    hand_encode,
    hand_mean,
    hand_softmax,
    hand_stack,
    real,
    recurrent,
    source_and_target,
)

SCORES = ["dot", "general", "additive"]


def luong(score: str, **changes: Any) -> RnnLuong:
    model = recurrent(f"luong {score}", **changes)
    assert isinstance(model, RnnLuong)
    return model


def hand_score(model: RnnLuong, query: Tensor, state: Tensor) -> Tensor:
    """Section 3.1, on vectors."""
    score = model.look_back.score
    if isinstance(score, Additive):
        return hand_additive(score, query, state)
    return torch.dot(query, score.key_projection.weight @ state if isinstance(score, General) else state)


def hand_decode(model: RnnLuong, ids: list[int], target: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (target, symbols) and weights (target, source) of one row, a step at a time."""
    read, states = hand_encode(model, ids)
    logits, weights = [], []
    for token in target.tolist():
        states = hand_stack(model.decoder, model.target_embedding.weight[token], states)
        asking = states[-1][0]
        weights.append(hand_softmax([hand_score(model, asking, state) for state in read]))
        both = torch.cat([hand_mean(weights[-1], read), asking])  # [c; h], equation (5)
        attentional = torch.tanh(model.combine.weight @ both + model.combine.bias)
        logits.append(model.output.weight @ attentional)  # equation (6)
    return torch.stack(logits), torch.stack(weights)


@pytest.mark.parametrize("score", SCORES)
@every_cell
@both_ways
@torch.no_grad()
def test_logits_and_weights_are_those_of_the_papers_equations_step_by_step(
    score: str, cell: str, bidirectional: bool
) -> None:
    compare(luong(score, cell=cell, bidirectional=bidirectional))


@every_cell
@every_depth
@torch.no_grad()
def test_the_top_layer_asks(cell: str, num_layers: int) -> None:
    compare(luong("general", cell=cell, num_layers=num_layers))


def compare(model: RnnLuong) -> None:
    source, target = source_and_target()
    maps: dict[str, Tensor] = {}
    logits = model(source, LENGTHS, target, maps)
    for row in range(5):
        ids = real(source[row])
        expected, weights = hand_decode(model, ids, target[row])
        torch.testing.assert_close(logits[row], expected, rtol=0, atol=1e-10)
        torch.testing.assert_close(maps["cross/layer0"][row, 0, :, : len(ids)], weights, rtol=0, atol=1e-10)


@pytest.mark.parametrize("score", SCORES)
@torch.no_grad()
def test_the_source_is_read_through_states_and_final_state(score: str) -> None:
    model = luong(score)
    source, target = source_and_target()
    memory = model.encode(source, LENGTHS)
    before = model.decode(target, memory)
    for given in (memory.states, memory.final["hidden"]):
        given.add_(1.0)
        after = model.decode(target, memory)
        assert not torch.allclose(after, before)
        before = after


@pytest.mark.parametrize(
    ("score", "weights"),
    # embeddings and output 564, encoder and decoder of two GRU layers 4 * 3 * 312, W of [c; h] 24 * 12 + 12
    [("dot", 4608), ("general", 4608 + 144), ("additive", 4608 + 2 * 144 + 12 + 12)],
)
def test_the_number_of_weights_is_the_one_counted_on_paper(score: str, weights: int) -> None:
    assert 564 + 4 * 3 * 312 + 24 * 12 + 12 == 4608
    assert sum(parameter.numel() for parameter in luong(score).parameters()) == weights
