"""What the RNN models share, against gate equations written out for one row at a time, without pads."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lookback.metrics import sequence_loss
from lookback.models.base import Memory
from lookback.models.recurrent import SCORES, Additive, Dot, General, Hidden, LookBack, Recurrent, reverse_rows
from lookback.models.rnn import Rnn
from lookback.models.rnn_bahdanau import RnnBahdanau
from lookback.models.rnn_luong import RnnLuong
from lookback.models.transformer import Transformer
from lookback.positions.sinusoidal import Sinusoidal
from lookback.tokens import BOS, EOS, FIRST_SYMBOL, PAD

SOURCE_SYMBOLS, TARGET_SYMBOLS, D_MODEL = 13, 17, 12
SIZES: dict[str, Any] = {
    "d_model": D_MODEL,
    "num_layers": 2,
    "cell": "gru",
    "bidirectional": False,
    "dropout": 0.0,
    "tied": False,
}
KINDS: dict[str, tuple[type[Recurrent], dict[str, Any]]] = {
    "rnn": (Rnn, {"source_order": "forward"}),
    "rnn reversed": (Rnn, {"source_order": "reversed"}),
    "luong dot": (RnnLuong, {"score": "dot"}),
    "luong general": (RnnLuong, {"score": "general"}),
    "luong additive": (RnnLuong, {"score": "additive"}),
    "bahdanau": (RnnBahdanau, {}),
}
LENGTHS = torch.tensor([8, 3, 6, 2, 5])  # batch 5, source 8
TARGET_LENGTHS = torch.tensor([4, 11, 3, 9, 2])  # target 11

every_kind = pytest.mark.parametrize("kind", KINDS)
every_model = pytest.mark.parametrize("kind", ["rnn", "luong general", "bahdanau"])
looks_back = pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("rnn")])
every_cell = pytest.mark.parametrize("cell", ["gru", "lstm"])
every_depth = pytest.mark.parametrize("num_layers", [1, 2])
both_ways = pytest.mark.parametrize("bidirectional", [False, True])


def recurrent(kind: str, target_symbols: int = TARGET_SYMBOLS, **changes: Any) -> Recurrent:
    """A model in float64 whose weights and biases are larger than those it starts from."""
    torch.manual_seed(0)
    model, own = KINDS[kind]
    made = model(SOURCE_SYMBOLS, target_symbols, **(SIZES | own | changes))
    for parameter in made.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return made.double()


def strings(lengths: Tensor, symbols: int, seed: int) -> Tensor:
    """(batch, longest): BOS, letters, EOS, then PAD."""
    generator = torch.Generator().manual_seed(seed)
    width = int(lengths.max())
    rows = torch.randint(FIRST_SYMBOL, symbols, (len(lengths), width), generator=generator)
    rows[:, 0] = BOS
    rows[torch.arange(len(lengths)), lengths - 1] = EOS
    return rows.masked_fill(torch.arange(width) >= lengths[:, None], PAD)


def source_and_target() -> tuple[Tensor, Tensor]:
    return strings(LENGTHS, SOURCE_SYMBOLS, seed=1), strings(TARGET_LENGTHS, TARGET_SYMBOLS, seed=2)


def hand_cell(rnn: nn.GRU | nn.LSTM, suffix: str, x: Tensor, state: Hidden) -> Hidden:
    """One step of one layer on vectors: the equations that torch documents for nn.GRU and nn.LSTM."""
    read = rnn.get_parameter(f"weight_ih_{suffix}") @ x + rnn.get_parameter(f"bias_ih_{suffix}")
    recalled = rnn.get_parameter(f"weight_hh_{suffix}") @ state[0] + rnn.get_parameter(f"bias_hh_{suffix}")
    if isinstance(rnn, nn.GRU):
        read_parts, recalled_parts = read.chunk(3), recalled.chunk(3)
        reset, update = (torch.sigmoid(a + b) for a, b in zip(read_parts[:2], recalled_parts[:2], strict=True))
        new = torch.tanh(read_parts[2] + reset * recalled_parts[2])
        return ((1 - update) * new + update * state[0],)
    let_in, keep, new, let_out = (read + recalled).chunk(4)
    cell = torch.sigmoid(keep) * state[1] + torch.sigmoid(let_in) * torch.tanh(new)
    return (torch.sigmoid(let_out) * torch.tanh(cell), cell)


def hand_stack(rnn: nn.GRU | nn.LSTM, x: Tensor, states: list[Hidden], kept: float = 1.0) -> list[Hidden]:
    """One step of all layers: the input vector and the state of each layer -> the new states.

    `kept` is what dropout leaves of what goes from layer to layer.
    """
    new: list[Hidden] = []
    for layer, state in enumerate(states):
        new.append(hand_cell(rnn, f"l{layer}", kept * new[-1][0] if new else x, state))
    return new


def hand_encode(model: Recurrent, ids: Sequence[int], kept: float = 1.0) -> tuple[Tensor, list[Hidden]]:
    """One row without pads -> states (length, d_model) and the final state of each layer, directions joined.

    `kept` is what dropout leaves of embeddings and of what goes from layer to layer.
    """
    parts = 2 if isinstance(model.encoder, nn.LSTM) else 1
    zeros = model.output.weight.new_zeros(model.encoder.hidden_size)
    inputs, finals = [model.source_embedding.weight[i] for i in ids], []
    for layer in range(model.encoder.num_layers):
        inputs = [kept * x for x in inputs]
        state: Hidden = (zeros,) * parts
        forward = []
        for x in inputs:
            state = hand_cell(model.encoder, f"l{layer}", x, state)
            forward.append(state[0])
        final, outputs = state, forward
        if model.encoder.bidirectional:
            state, backward = (zeros,) * parts, []
            for x in reversed(inputs):
                state = hand_cell(model.encoder, f"l{layer}_reverse", x, state)
                backward.append(state[0])
            final = tuple(torch.cat(both) for both in zip(final, state, strict=True))
            outputs = [torch.cat(both) for both in zip(forward, reversed(backward), strict=True)]
        inputs = outputs
        finals.append(final)
    return torch.stack(inputs), finals


def hand_softmax(scores: Sequence[Tensor]) -> Tensor:
    """Numbers -> (number of them,), positive, with sum 1."""
    powers = torch.stack([torch.exp(score) for score in scores])
    return powers / powers.sum()


def hand_mean(weights: Tensor, states: Tensor) -> Tensor:
    """(length,) and (length, d_model) -> (d_model,), the weighted mean."""
    total = torch.zeros_like(states[0])
    for weight, state in zip(weights, states, strict=True):
        total = total + weight * state
    return total


def hand_additive(score: Additive, query: Tensor, state: Tensor) -> Tensor:
    """v . tanh(W query + b + U state) on vectors."""
    w, b = score.query_projection.weight, score.query_projection.bias
    return torch.dot(score.score.weight[0], torch.tanh(w @ query + b + score.key_projection.weight @ state))


def real(row: Tensor) -> list[int]:
    """The ids of a row up to its first PAD."""
    return [i for i in row.tolist() if i != PAD]


def poisoned(memory: Memory) -> Memory:
    """The same memory with states of 1e6 where there are pads."""
    pads = torch.arange(memory.states.shape[1]) >= memory.lengths[:, None]
    return replace(memory, states=memory.states.masked_fill(pads[:, :, None], 1e6))


@pytest.mark.parametrize("kind", ["rnn reversed", "bahdanau"])
@every_cell
@every_depth
@both_ways
@torch.no_grad()
def test_states_of_a_row_are_those_of_a_loop_over_that_row_alone(
    kind: str, cell: str, num_layers: int, bidirectional: bool
) -> None:
    model = recurrent(kind, cell=cell, num_layers=num_layers, bidirectional=bidirectional)
    source, _ = source_and_target()
    memory = model.encode(source, LENGTHS)
    names = ["hidden", "cell"] if cell == "lstm" else ["hidden"]
    assert list(memory.final) == names
    assert all(part.shape == (5, num_layers, D_MODEL) for part in memory.final.values())
    for row in range(5):
        ids = real(source[row])
        states, finals = hand_encode(model, ids[::-1] if kind == "rnn reversed" else ids)
        torch.testing.assert_close(memory.states[row, : len(ids)], states, rtol=0, atol=1e-12)
        for layer, final in enumerate(finals):
            for name, part in zip(names, final, strict=True):
                torch.testing.assert_close(memory.final[name][row, layer], part, rtol=0, atol=1e-12)


@every_cell
def test_the_final_state_is_of_the_last_real_symbol_and_its_backward_half_of_the_first(cell: str) -> None:
    source, _ = source_and_target()
    memory = recurrent("luong dot", cell=cell, bidirectional=True).encode(source, LENGTHS)
    top, half = memory.final["hidden"][:, -1], D_MODEL // 2
    torch.testing.assert_close(top[:, :half], memory.states[torch.arange(5), LENGTHS - 1, :half], rtol=0, atol=0)
    torch.testing.assert_close(top[:, half:], memory.states[:, 0, half:], rtol=0, atol=0)


@every_model
@both_ways
def test_encode_returns_the_full_padded_width(kind: str, bidirectional: bool) -> None:
    model = recurrent(kind, bidirectional=bidirectional)
    lengths = torch.tensor([3, 6])
    source = torch.cat([strings(lengths, SOURCE_SYMBOLS, seed=3), torch.zeros(2, 9, dtype=torch.long)], dim=1)
    memory = model.encode(source, lengths)
    assert memory.states.shape == (2, 15, D_MODEL)
    assert memory.lengths is lengths


@every_kind
@both_ways
@torch.no_grad()
def test_states_at_pads_change_nothing(kind: str, bidirectional: bool) -> None:
    model = recurrent(kind, bidirectional=bidirectional)
    source, target = source_and_target()
    memory = model.encode(source, LENGTHS)
    changed = poisoned(memory)
    assert changed.states.max() == 1e6
    torch.testing.assert_close(model.decode(target, changed), model.decode(target, memory), rtol=0, atol=0)
    states = [model.start(given, 11) for given in (memory, changed)]
    for place in range(3):
        logits = [model.step(target[:, place], state) for state in states]
        torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=0)


@every_model
@every_cell
@both_ways
@torch.no_grad()
def test_the_embedding_of_pad_reaches_no_logit_before_a_rows_end(kind: str, cell: str, bidirectional: bool) -> None:
    model = recurrent(kind, cell=cell, bidirectional=bidirectional)
    source, target = source_and_target()
    before = model(source, LENGTHS, target)
    for embedding in (model.source_embedding, model.target_embedding):
        embedding.weight[PAD] = 1e6
    after = model(source, LENGTHS, target)
    torch.testing.assert_close(after[target != PAD], before[target != PAD], rtol=0, atol=0)
    assert not torch.allclose(after[target == PAD], before[target == PAD])  # past its end a row does read PAD


@every_model
@every_cell
@both_ways
@torch.no_grad()
def test_a_row_does_not_depend_on_its_neighbours(kind: str, cell: str, bidirectional: bool) -> None:
    model = recurrent(kind, cell=cell, bidirectional=bidirectional)
    source, target = source_and_target()
    together = model(source, LENGTHS, target)
    for row in range(5):
        length = int(LENGTHS[row])
        alone = model(source[row : row + 1, :length], LENGTHS[row : row + 1], target[row : row + 1])
        torch.testing.assert_close(alone[0], together[row], rtol=0, atol=1e-12)


@every_model
@every_cell
@both_ways
def test_ten_more_pads_change_no_logit_no_loss_and_no_gradient(kind: str, cell: str, bidirectional: bool) -> None:
    model = recurrent(kind, cell=cell, bidirectional=bidirectional)
    found = []
    for more in (0, 10):
        source, target = (nn.functional.pad(rows, (0, more), value=PAD) for rows in source_and_target())
        logits = model(source, LENGTHS, target[:, :-1])
        loss = sequence_loss(logits, target[:, 1:])
        model.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = {name: torch.as_tensor(weights.grad) for name, weights in model.named_parameters()}
        found.append((logits[:, :10].detach(), loss.detach(), gradients))
        for name in ("source_embedding.weight", "target_embedding.weight"):
            assert not gradients[name][PAD].any(), name
    assert found[0][0].shape == (5, 10, TARGET_SYMBOLS)
    torch.testing.assert_close(found[1][0], found[0][0], rtol=0, atol=1e-12)
    torch.testing.assert_close(found[1][1:], found[0][1:], rtol=1e-6, atol=1e-8)  # a loss is float32


def test_rows_are_reversed_within_their_own_lengths() -> None:
    rows = torch.tensor([[1, 5, 6, 2, 0, 0], [1, 7, 8, 9, 4, 2], [3, 0, 0, 0, 0, 0]])
    turned = torch.tensor([[2, 6, 5, 1, 0, 0], [2, 4, 9, 8, 7, 1], [3, 0, 0, 0, 0, 0]])
    torch.testing.assert_close(reverse_rows(rows, torch.tensor([4, 6, 1])), turned, rtol=0, atol=0)


def test_scores_are_those_of_the_written_out_formulas() -> None:
    assert {"dot": Dot, "general": General, "additive": Additive} == SCORES
    scores = {name: kind(D_MODEL).double() for name, kind in SCORES.items()}
    query, states = torch.randn(3, 4, D_MODEL).double(), torch.randn(3, 7, D_MODEL).double()
    found = {name: score(query, score.keys(states)) for name, score in scores.items()}
    general, additive = scores["general"], scores["additive"]
    assert isinstance(general, General)
    assert isinstance(additive, Additive)
    for name, given in found.items():
        assert given.shape == (3, 4, 7), name
    for row in range(3):
        for asking in range(4):
            for key in range(7):
                q, h = query[row, asking], states[row, key]
                expected = {
                    "dot": torch.dot(q, h),
                    "general": torch.dot(q, general.key_projection.weight @ h),
                    "additive": hand_additive(additive, q, h),
                }
                for name, value in expected.items():
                    torch.testing.assert_close(found[name][row, asking, key], value, rtol=0, atol=1e-12, msg=name)


def test_scores_have_the_parameters_of_their_papers() -> None:
    d = D_MODEL
    counts = {name: sum(p.numel() for p in kind(d).parameters()) for name, kind in SCORES.items()}
    assert counts == {"dot": 0, "general": d * d, "additive": 2 * d * d + d + d}  # W and U, v, and W's bias


def test_scores_by_pencil() -> None:
    query = torch.tensor([[[1.0, 2.0]]])
    states = torch.tensor([[[3.0, -1.0], [0.5, 4.0], [2.0, 2.0]]])
    torch.testing.assert_close(Dot(2)(query, states), torch.tensor([[[1.0, 8.5, 6.0]]]))
    general = General(2)
    general.key_projection.weight.data = torch.tensor([[0.0, 1.0], [10.0, 0.0]])  # (h0, h1) -> (h1, 10 h0)
    torch.testing.assert_close(general(query, general.keys(states)), torch.tensor([[[59.0, 14.0, 42.0]]]))


@pytest.mark.parametrize("score", SCORES)
def test_the_context_is_the_mean_of_real_states_weighted_by_the_softmax_of_their_scores(score: str) -> None:
    scores = SCORES[score](D_MODEL).double()
    lengths = torch.tensor([2, 6, 4])
    memory = Memory(torch.randn(3, 6, D_MODEL).double(), lengths)
    query = torch.randn(3, 5, D_MODEL).double()
    context, weights = LookBack(scores)(query, scores.keys(memory.states), memory)
    assert context.shape == (3, 5, D_MODEL)
    assert weights.shape == (3, 1, 5, 6)
    assert not weights[0, :, :, 2:].any()
    assert not weights[2, :, :, 4:].any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 1, 5).double(), rtol=0, atol=1e-12)
    for row in range(3):
        states = memory.states[row, : lengths[row]]
        for asking in range(5):
            numbers = scores(query[row : row + 1, asking : asking + 1], scores.keys(states[None]))[0, 0]
            expected = hand_softmax(list(numbers))
            torch.testing.assert_close(weights[row, 0, asking, : lengths[row]], expected, rtol=0, atol=1e-12)
            mean = hand_mean(expected, states)
            torch.testing.assert_close(context[row, asking], mean, rtol=0, atol=1e-12)


def test_weights_by_pencil() -> None:
    states = torch.tensor([[[math.log(3.0), 0.0], [0.0, 8.0], [50.0, 50.0]]])
    look_back = LookBack(Dot(2))
    context, weights = look_back(torch.tensor([[[1.0, 0.0]]]), states, Memory(states, torch.tensor([2])))
    torch.testing.assert_close(weights, torch.tensor([[[[0.75, 0.25, 0.0]]]]))  # exp(log 3) : exp(0)
    torch.testing.assert_close(context, torch.tensor([[[0.75 * math.log(3.0), 2.0]]]))


def test_a_change_is_what_the_context_is_made_of_and_what_is_shown() -> None:
    states = torch.randn(3, 6, D_MODEL).double()
    memory = Memory(states, torch.tensor([2, 6, 4]))
    query = torch.randn(3, 5, D_MODEL).double()
    look_back = LookBack(Dot(D_MODEL))
    assert look_back.change is None
    assert (look_back.place, look_back.num_heads) == ("cross/layer0", 1)
    context, weights = look_back(query, states, memory)
    given: list[tuple[Tensor, Tensor | None]] = []

    def aimed(found: Tensor, mask: Tensor | None) -> Tensor:
        given.append((found, mask))
        return nn.functional.one_hot(torch.tensor([1, 0, 0, 1, 1]), 6).double().expand_as(found)

    look_back.change = aimed
    changed, shown = look_back(query, states, memory)
    torch.testing.assert_close(changed, states[:, [1, 0, 0, 1, 1]], rtol=0, atol=0)
    assert shown.shape == (3, 1, 5, 6)
    assert shown.argmax(dim=-1)[:, 0].tolist() == [[1, 0, 0, 1, 1]] * 3
    [(found, mask)] = given
    torch.testing.assert_close(found, weights, rtol=0, atol=0)
    assert mask is not None
    assert mask[:, 0, 0].tolist() == [[True] * 2 + [False] * 4, [True] * 6, [True] * 4 + [False] * 2]

    look_back.change = None
    torch.testing.assert_close(look_back(query, states, memory)[0], context, rtol=0, atol=0)


@looks_back
@torch.no_grad()
def test_a_change_reaches_the_logits_in_one_pass_and_in_steps(kind: str) -> None:
    model = recurrent(kind)
    source, target = source_and_target()
    before = model(source, LENGTHS, target)
    [layer] = [module for module in model.modules() if isinstance(module, LookBack)]
    layer.change = lambda weights, mask: weights.flip(-1)
    after = model(source, LENGTHS, target)
    assert not torch.allclose(after, before)
    state = model.start(model.encode(source, LENGTHS), 11)
    steps = torch.stack([model.step(target[:, place], state) for place in range(11)], dim=1)
    torch.testing.assert_close(steps, after, rtol=0, atol=1e-10)


@every_model
@every_cell
@every_depth
@both_ways
@torch.no_grad()
def test_cached_decoding_is_the_full_pass(kind: str, cell: str, num_layers: int, bidirectional: bool) -> None:
    model = recurrent(kind, cell=cell, num_layers=num_layers, bidirectional=bidirectional)
    source, target = source_and_target()
    memory = model.encode(source, LENGTHS)
    full = model.decode(target, memory)
    assert full.shape == (5, 11, TARGET_SYMBOLS)
    state = model.start(memory, 11)
    assert (state.length, state.memory) == (0, memory)
    for place in range(11):
        logits = model.step(target[:, place], state)
        torch.testing.assert_close(logits, full[:, place], rtol=0, atol=1e-10)
        assert state.length == place + 1
    torch.testing.assert_close(model.decode(target, memory), full, rtol=0, atol=0)  # the memory is as it was


@pytest.mark.parametrize("kind", ["rnn reversed", "luong dot", "luong additive"])
@torch.no_grad()
def test_cached_decoding_is_the_full_pass_in_every_variant(kind: str) -> None:
    model = recurrent(kind)
    source, target = source_and_target()
    state = model.start(model.encode(source, LENGTHS), 11)
    steps = torch.stack([model.step(target[:, place], state) for place in range(11)], dim=1)
    torch.testing.assert_close(steps, model(source, LENGTHS, target), rtol=0, atol=1e-10)


@every_model
@every_cell
@torch.no_grad()
def test_the_state_is_contiguous_where_it_enters_the_decoder(kind: str, cell: str) -> None:
    model = recurrent(kind, cell=cell, bidirectional=True)
    source, target = source_and_target()
    entered: list[Tensor] = []

    def listen(_: object, given: tuple[Tensor, Hidden | Tensor]) -> None:
        entered.extend(given[1] if isinstance(given[1], tuple) else (given[1],))

    model.decoder.register_forward_pre_hook(listen)
    memory = model.encode(source, LENGTHS)
    model.decode(target, memory)
    model.step(target[:, 0], model.start(memory, 11))
    assert entered
    assert all(part.is_contiguous() for part in entered)  # CUDA's kernels refuse any other


@every_model
@every_cell
@torch.no_grad()
def test_two_memories_stepped_in_turn_do_not_disturb_each_other(kind: str, cell: str) -> None:
    model = recurrent(kind, cell=cell, bidirectional=True)
    source, target = source_and_target()
    halves = [slice(0, 2), slice(2, 5)]
    memories = [model.encode(source[rows], LENGTHS[rows]) for rows in halves]
    full = model(source, LENGTHS, target)
    states = [model.start(memory, 11) for memory in memories]
    for place in range(11):
        for rows, state in zip(halves, states, strict=True):
            logits = model.step(target[rows, place], state)
            torch.testing.assert_close(logits, full[rows, place], rtol=0, atol=1e-10)


@every_model
@every_cell
@torch.no_grad()
def test_rows_of_a_state_can_be_dropped_and_reordered(kind: str, cell: str) -> None:
    model = recurrent(kind, cell=cell, bidirectional=True)
    source, target = source_and_target()
    full = model(source, LENGTHS, target)
    state = model.start(model.encode(source, LENGTHS), 11)
    for place in range(4):
        model.step(target[:, place], state)
    rows = torch.tensor([4, 1, 2])
    final = {name: part[rows] for name, part in state.memory.final.items()}
    memory = Memory(state.memory.states[rows], state.memory.lengths[rows], final)
    chosen = replace(state, memory=memory, cache={name: part[rows] for name, part in state.cache.items()})
    for place in range(4, 11):
        logits = model.step(target[rows, place], chosen)
        torch.testing.assert_close(logits, full[rows, place], rtol=0, atol=1e-10)


@every_kind
def test_what_is_written_later_changes_no_earlier_logit(kind: str) -> None:
    model = recurrent(kind, bidirectional=True)
    source, target = source_and_target()
    changed = target.clone()
    changed[:, 6:] = FIRST_SYMBOL + 1
    before, after = model(source, LENGTHS, target), model(source, LENGTHS, changed)
    torch.testing.assert_close(after[:, :6], before[:, :6], rtol=0, atol=0)
    assert not torch.allclose(after[:, 6:], before[:, 6:])


@looks_back
def test_a_watched_pass_gives_the_same_logits_and_one_map(kind: str) -> None:
    model = recurrent(kind, bidirectional=True)
    source, target = source_and_target()
    maps: dict[str, Tensor] = {}
    watched = model(source, LENGTHS, target, maps)
    torch.testing.assert_close(watched, model(source, LENGTHS, target), rtol=0, atol=0)
    assert {place: tuple(weights.shape) for place, weights in maps.items()} == {"cross/layer0": (5, 1, 11, 8)}
    weights = maps["cross/layer0"]
    torch.testing.assert_close(weights.sum(-1), torch.ones(5, 1, 11).double(), rtol=0, atol=1e-12)
    for row, length in enumerate(LENGTHS.tolist()):
        assert not weights[row, :, :, length:].any()
        assert bool((weights[row, :, :, :length] > 0).all())


@looks_back
def test_lengths_two_and_six_leave_weights_on_two_and_six_keys(kind: str) -> None:
    model, lengths, maps = recurrent(kind), torch.tensor([2, 6]), dict[str, Tensor]()
    target = strings(torch.tensor([5, 5]), TARGET_SYMBOLS, seed=4)
    model(strings(lengths, SOURCE_SYMBOLS, seed=3), lengths, target, maps)
    weights = maps["cross/layer0"]
    assert bool((weights[0, :, :, 2:] == 0).all())
    torch.testing.assert_close(weights[0, :, :, :2].sum(-1), torch.ones(1, 5).double(), rtol=0, atol=1e-12)
    assert bool((weights[1] > 0).all())


@every_model
@every_cell
@every_depth
@torch.no_grad()
def test_dropout_changes_training_and_leaves_evaluation_as_it_is_without_any(
    kind: str, cell: str, num_layers: int
) -> None:
    source, target = source_and_target()
    plain = recurrent(kind, cell=cell, num_layers=num_layers)
    dropped = recurrent(kind, cell=cell, num_layers=num_layers, dropout=0.3)
    expected = plain(source, LENGTHS, target)
    first, second = dropped(source, LENGTHS, target), dropped(source, LENGTHS, target)
    assert not torch.allclose(first, expected)
    assert not torch.allclose(first, second)
    dropped.eval()
    torch.testing.assert_close(dropped(source, LENGTHS, target), expected, rtol=0, atol=0)


@every_model
@every_cell
@both_ways
@torch.no_grad()
def test_dropout_of_everything_leaves_nothing_to_read_for_any_layer_or_output(
    kind: str, cell: str, bidirectional: bool
) -> None:
    model = recurrent(kind, cell=cell, bidirectional=bidirectional, dropout=1.0)
    source, target = source_and_target()
    memory = model.encode(source, LENGTHS)
    seen: list[tuple[Tensor, Tensor]] = []
    model.decoder.register_forward_hook(lambda _, given, made: seen.append((given[0], made[0])))
    logits = model.decode(target, memory)
    one = model.step(target[:, 0], model.start(memory, 11))
    assert not logits.any()  # the output has no bias
    assert not one.any()
    read, written = (torch.cat(parts, dim=1) for parts in zip(*seen, strict=True))
    assert read.shape[1] == 11 + 1  # the whole target, and the one step
    assert not read[..., :D_MODEL].any()
    for row in range(5):
        encoded, states = hand_encode(model, real(source[row]), kept=0.0)
        torch.testing.assert_close(memory.states[row, : len(encoded)], encoded, rtol=0, atol=1e-12)
        for layer, final in enumerate(states):  # the first has read embeddings, if there were any
            torch.testing.assert_close(memory.final["hidden"][row, layer], final[0], rtol=0, atol=1e-12)
        for place in range(11):
            states = hand_stack(model.decoder, read[row, place], states, kept=0.0)
            torch.testing.assert_close(written[row, place], states[-1][0], rtol=0, atol=1e-12)


@every_kind
@every_cell
def test_dropout_with_one_layer_is_no_cause_for_a_warning(kind: str, cell: str) -> None:
    model = recurrent(kind, cell=cell, num_layers=1, dropout=0.3)  # pytest makes every warning an error
    assert model.dropout.p == 0.3


@every_kind
def test_an_odd_width_has_no_halves_for_two_directions(kind: str) -> None:
    rule = re.escape("d_model must be even for a bidirectional encoder, but is 13")
    with pytest.raises(ValueError, match=f"^{rule}$"):
        recurrent(kind, d_model=13, bidirectional=True)
    source, target = source_and_target()
    assert recurrent(kind, d_model=13)(source, LENGTHS, target).shape == (5, 11, TARGET_SYMBOLS)


@every_kind
def test_tying_different_vocabularies_is_refused_with_both_sizes(kind: str) -> None:
    rule = "tied=True needs one vocabulary for source and target, but they have 13 and 17 symbols"
    with pytest.raises(ValueError, match=f"^{re.escape(rule)}$"):
        recurrent(kind, tied=True)


@every_kind
def test_a_tied_model_keeps_one_matrix_and_counts_it_once(kind: str) -> None:
    tied = recurrent(kind, tied=True, target_symbols=SOURCE_SYMBOLS)
    assert tied.source_embedding.weight is tied.target_embedding.weight
    assert tied.output.weight is tied.target_embedding.weight
    untied = recurrent(kind, target_symbols=SOURCE_SYMBOLS)
    counts = [sum(parameter.numel() for parameter in model.parameters()) for model in (tied, untied)]
    assert counts[1] - counts[0] == 2 * SOURCE_SYMBOLS * D_MODEL


@every_model
@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_and_output_start_as_their_spread_says(kind: str, tied: bool) -> None:
    made, own = KINDS[kind]
    torch.manual_seed(0)
    model = made(211, 211, **(SIZES | own | {"d_model": 48, "tied": tied}))
    for embedding in (model.source_embedding, model.target_embedding):
        assert embedding.weight.std().item() == pytest.approx(48**-0.5, rel=0.05)
    if not tied:
        bound = (6 / (211 + 48)) ** 0.5  # Glorot and Bengio 2010, equation (16)
        assert 0.98 * bound < model.output.weight.abs().max().item() <= bound
        assert model.output.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)


@every_model
def test_any_length_can_be_read_and_written(kind: str) -> None:
    model = recurrent(kind)
    assert model.max_length is None
    source = strings(torch.tensor([70, 3]), SOURCE_SYMBOLS, seed=5)
    target = strings(torch.tensor([90, 4]), TARGET_SYMBOLS, seed=6)
    assert model(source, torch.tensor([70, 3]), target).shape == (2, 90, TARGET_SYMBOLS)


@pytest.mark.parametrize(
    ("kind", "num_layers", "bidirectional", "steps"),
    [
        # 8 places read, 11 written; a second layer follows one place behind the first, so it adds 1; it begins to
        # write when it has read, while the first layer is one place ahead already
        ("rnn", 1, False, 8 + 11),
        ("rnn", 2, False, 8 + 1 + 11),
        ("rnn", 3, False, 8 + 2 + 11),
        # over two directions it has to wait for a whole row
        ("rnn", 1, True, 8 + 11),
        ("rnn", 2, True, 2 * 8 + 11),
        ("luong dot", 1, False, 8 + 11),
        ("luong dot", 2, True, 2 * 8 + 11),
        ("bahdanau", 1, True, 8 + 11),
        # what the top layer asks for comes back into layer 0 at the next place: nothing overlaps
        ("bahdanau", 2, False, 8 + 1 + 2 * 11),
        ("bahdanau", 3, True, 3 * 8 + 3 * 11),
    ],
)
def test_as_many_steps_wait_for_one_another_as_counted_on_paper(
    kind: str, num_layers: int, bidirectional: bool, steps: int
) -> None:
    model = recurrent(kind, num_layers=num_layers, bidirectional=bidirectional)
    assert model.sequential_steps(8, 11) == steps


def test_layers_of_a_transformer_wait_for_one_another_and_places_do_not() -> None:
    positions = partial(Sinusoidal, base=10_000.0)
    changes: dict[str, Any] = {"d_model": 12, "num_heads": 4, "d_ff": 20, "dropout": 0.0, "norm": "pre"}
    changes |= {"residual": True, "scale": True, "causal": True}
    model = Transformer(13, 17, **changes, num_layers=3, tied=False, log_length=False, positions=positions)
    assert [model.sequential_steps(*lengths) for lengths in ((8, 11), (80, 5))] == [6, 6]
