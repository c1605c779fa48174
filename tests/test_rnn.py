"""The RNN without attention: its decoder against written-out gate equations, and what it may not see."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from lookback.models.base import Memory
from lookback.models.recurrent import Recurrent
from lookback.tokens import PAD
from test_recurrent import (
    LENGTHS,
    SOURCE_SYMBOLS,
    TARGET_SYMBOLS,
    both_ways,
    every_cell,
    every_depth,
    hand_encode,
    hand_stack,
    real,
    recurrent,
    source_and_target,
)


def hand_decode(model: Recurrent, ids: list[int], target: Tensor) -> Tensor:
    """Logits (target, symbols) of one row: Cho et al. 2014, without anything that comes from torch's RNNs."""
    _, states = hand_encode(model, ids)
    logits = []
    for token in target.tolist():
        states = hand_stack(model.decoder, model.target_embedding.weight[token], states)
        logits.append(model.output.weight @ states[-1][0])
    return torch.stack(logits)


@every_cell
@every_depth
@both_ways
@torch.no_grad()
def test_logits_are_those_of_a_loop_that_starts_from_the_final_state(
    cell: str, num_layers: int, bidirectional: bool
) -> None:
    model = recurrent("rnn", cell=cell, num_layers=num_layers, bidirectional=bidirectional)
    source, target = source_and_target()
    logits = model(source, LENGTHS, target)
    for row in range(5):
        expected = hand_decode(model, real(source[row]), target[row])
        torch.testing.assert_close(logits[row], expected, rtol=0, atol=1e-11)


@every_cell
@both_ways
def test_the_decoder_sees_nothing_of_the_source_but_the_final_state(cell: str, bidirectional: bool) -> None:
    model = recurrent("rnn", cell=cell, bidirectional=bidirectional)
    source, target = source_and_target()
    memory = model.encode(source, LENGTHS)
    blind = replace(memory, states=torch.full_like(memory.states, 1e6))
    torch.testing.assert_close(model.decode(target, blind), model.decode(target, memory), rtol=0, atol=0)
    for name in memory.final:
        other = {**memory.final, name: memory.final[name] + 1}
        changed = model.decode(target, Memory(memory.states, LENGTHS, other))
        assert not torch.allclose(changed, model.decode(target, memory)), name


@every_cell
@both_ways
def test_reading_in_reversed_order_is_reading_rows_reversed_by_hand(cell: str, bidirectional: bool) -> None:
    changes: dict[str, Any] = {"cell": cell, "bidirectional": bidirectional}
    forward, backward = recurrent("rnn", **changes), recurrent("rnn reversed", **changes)
    source, target = source_and_target()
    turned = torch.tensor([[*real(row)[::-1], *[PAD] * (8 - len(real(row)))] for row in source])
    logits = backward(source, LENGTHS, target)
    torch.testing.assert_close(logits, forward(turned, LENGTHS, target), rtol=0, atol=0)
    assert not torch.allclose(logits, forward(source, LENGTHS, target))


def test_no_map_is_made_where_there_is_no_attention() -> None:
    source, target = source_and_target()
    maps: dict[str, Tensor] = {}
    recurrent("rnn")(source, LENGTHS, target, maps)
    assert maps == {}


@pytest.mark.parametrize(
    ("cell", "num_layers", "bidirectional", "weights"),
    [
        # embeddings and output: (13 + 17) * 12 + 17 * 12 = 564; a GRU layer has 3 gates, an LSTM layer 4,
        # each with two matrices and two biases: 12 * 12 + 12 * 12 + 12 + 12 = 312
        ("gru", 1, False, 564 + 2 * 3 * 312),
        ("lstm", 2, False, 564 + 4 * 4 * 312),
        # one direction of half the width: 12 * 6 + 6 * 6 + 6 + 6 = 120
        ("gru", 2, True, 564 + 4 * 3 * 120 + 2 * 3 * 312),
    ],
)
def test_the_number_of_weights_is_the_one_counted_on_paper(
    cell: str, num_layers: int, bidirectional: bool, weights: int
) -> None:
    model = recurrent("rnn", cell=cell, num_layers=num_layers, bidirectional=bidirectional)
    assert sum(parameter.numel() for parameter in model.parameters()) == weights
    assert (SOURCE_SYMBOLS, TARGET_SYMBOLS) == (13, 17)
