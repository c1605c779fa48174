"""The RNN that looks back before each step, against the equations of Bahdanau et al. 2014 on single vectors."""

from typing import Any

import torch
from torch import Tensor

from lookback.models.recurrent import Additive
from lookback.models.rnn_bahdanau import RnnBahdanau
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


def bahdanau(**changes: Any) -> RnnBahdanau:
    model = recurrent("bahdanau", **changes)
    assert isinstance(model, RnnBahdanau)
    return model


def hand_decode(model: RnnBahdanau, ids: list[int], target: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (target, symbols) and weights (target, source) of one row, a step at a time."""
    read, states = hand_encode(model, ids)
    score = model.look_back.score
    assert isinstance(score, Additive)
    logits, weights = [], []
    for token in target.tolist():
        asking = states[-1][0]  # before this step
        weights.append(hand_softmax([hand_additive(score, asking, state) for state in read]))
        symbol, context = model.target_embedding.weight[token], hand_mean(weights[-1], read)
        states = hand_stack(model.decoder, torch.cat([symbol, context]), states)
        three = torch.cat([states[-1][0], context, symbol])
        logits.append(model.output.weight @ torch.tanh(model.combine.weight @ three + model.combine.bias))
    return torch.stack(logits), torch.stack(weights)


@every_cell
@every_depth
@both_ways
@torch.no_grad()
def test_logits_and_weights_are_those_of_the_papers_equations_step_by_step(
    cell: str, num_layers: int, bidirectional: bool
) -> None:
    model = bahdanau(cell=cell, num_layers=num_layers, bidirectional=bidirectional)
    source, target = source_and_target()
    maps: dict[str, Tensor] = {}
    logits = model(source, LENGTHS, target, maps)
    for row in range(5):
        ids = real(source[row])
        expected, weights = hand_decode(model, ids, target[row])
        torch.testing.assert_close(logits[row], expected, rtol=0, atol=1e-10)
        torch.testing.assert_close(maps["cross/layer0"][row, 0, :, : len(ids)], weights, rtol=0, atol=1e-10)


@every_cell
def test_the_first_weights_do_not_depend_on_the_first_symbol_and_the_second_do(cell: str) -> None:
    model = bahdanau(cell=cell, bidirectional=True)
    source, target = source_and_target()
    maps: list[dict[str, Tensor]] = [{}, {}]
    for symbol, seen in zip((4, 5), maps, strict=True):
        target[:, 0] = symbol
        model(source, LENGTHS, target, seen)
    first, second = (seen["cross/layer0"] for seen in maps)
    torch.testing.assert_close(first[:, :, 0], second[:, :, 0], rtol=0, atol=0)  # the state before it asks
    assert not torch.allclose(first[:, :, 1], second[:, :, 1])


@torch.no_grad()
def test_the_context_is_fed_into_the_cell() -> None:
    model = bahdanau(num_layers=1)
    model.combine.weight[:, 12:] = 0.0  # the output is read from the state alone
    source, target = source_and_target()
    memory = model.encode(source, LENGTHS)
    before = model.decode(target, memory)
    model.get_parameter("decoder.weight_ih_l0")[:, 12:] = 0.0
    blind = model.decode(target, memory)
    assert not torch.allclose(blind, before)
    memory.states[:] += 1
    torch.testing.assert_close(model.decode(target, memory), blind, rtol=0, atol=0)


def test_the_number_of_weights_is_the_one_counted_on_paper() -> None:
    d, gru = 12, 3 * 312  # a GRU layer of width 12 has 3 gates of 12 * 12 + 12 * 12 + 12 + 12 weights
    cell = gru + 3 * d * d  # reads two vectors, so its input matrices are twice as wide
    score = 2 * d * d + d + d
    combine = 3 * d * d + d
    paper = (13 + 17) * d + 17 * d + gru + cell + score + combine
    assert sum(parameter.numel() for parameter in bahdanau(num_layers=1).parameters()) == paper
