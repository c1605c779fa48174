"""Addresses that move as one writes, gates that weigh them, scores that grow with the length: pencil and paper."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from lookback import attention, config, launcher, masks
from lookback.attention import MultiHeadAttention, attend
from lookback.positions.addressed import Addressed, Gate
from lookback.positions.none import NoPositions
from lookback.positions.relative import Relative
from lookback.schema import ConfigError
from lookback.view import View

HEADS, WIDTH = 3, 12


def addressed(addresses: list[list[int]], *, clip: int = 2, gain: float = 1.0, gated: bool = False) -> Addressed:
    """Tables in which each address, head and distance has a number: 100 * address + head + distance / 10."""
    made = Addressed(WIDTH, HEADS, addresses=addresses, clip=clip, gain=gain, gated=gated)
    distances = torch.arange(-clip, clip + 1) / 10
    with torch.no_grad():
        for at in range(len(addresses)):
            made.table[at] = 100.0 * (at + 1) + torch.arange(HEADS)[:, None] + distances
    return made


def places(bias: Tensor, head: int, at: int = 0) -> list[list[int]]:
    """The distances that a bias of `addressed` speaks of: tenths, for each query and key of the first row."""
    return ((bias[0, head] - 100.0 * (at + 1) - head) * 10).round().int().tolist()


def test_from_the_start_the_address_is_the_querys_own_place() -> None:
    bias = addressed([[0, 1]]).bias(torch.arange(3), torch.arange(5), torch.tensor([5]))
    assert bias.shape == (1, HEADS, 3, 5)
    for head in range(HEADS):
        assert places(bias, head) == [[0, 1, 2, 2, 2], [-1, 0, 1, 2, 2], [-2, -1, 0, 1, 2]]


def test_from_the_end_the_address_walks_back() -> None:
    bias = addressed([[1, -1]]).bias(torch.arange(3), torch.arange(5), torch.tensor([5]))
    assert places(bias, 1) == [[-2, -2, -2, -1, 0], [-2, -2, -1, 0, 1], [-2, -1, 0, 1, 2]]


def test_the_end_is_each_rows_own_and_not_that_of_the_padded_batch() -> None:
    made = addressed([[1, -1]])
    both = made.bias(torch.arange(4), torch.arange(7), torch.tensor([7, 4]))
    alone = made.bias(torch.arange(4), torch.arange(4), torch.tensor([4]))
    assert torch.equal(both[1, :, :, :4], alone[0])
    assert not torch.equal(both[0, :, :, :4], alone[0])


def test_one_source_length_later_serves_the_second_copy() -> None:
    """(-1, 1): at place n - 1 + t the address is t again."""
    bias = addressed([[-1, 1]]).bias(torch.tensor([4, 5]), torch.arange(5), torch.tensor([5]))
    assert places(bias, 0) == [[0, 1, 2, 2, 2], [-1, 0, 1, 2, 2]]


@pytest.mark.parametrize(("letters", "second_half"), [(4, 2), (5, 3), (6, 3), (7, 4)])
def test_a_walk_in_strides_finds_the_second_half_of_odds_first(letters: int, second_half: int) -> None:
    """From place ceil(L / 2) on, odds-first reads letters 2, 4, ...: with the mark before them, keys 2, 4, ..."""
    keys = letters + 2
    places_written = torch.tensor([second_half, second_half + 1])
    bias = addressed([[-1, 2]]).bias(places_written, torch.arange(keys), torch.tensor([keys]))
    first, second = places(bias, 0)
    assert first[:3] == [0, 1, 2]  # two places before key 2
    assert second[:5] == [-2, -1, 0, 1, 2]  # two places before key 4


def test_a_walk_back_in_strides_starts_on_a_multiple_of_its_stride() -> None:
    bias = addressed([[1, -2]]).bias(torch.arange(2), torch.arange(6), torch.tensor([6]))
    assert places(bias, 0) == [[-2, -2, -2, -1, 0, 1], [-2, -1, 0, 1, 2, 2]]


def test_a_stride_of_zero_stays_where_it_is() -> None:
    bias = addressed([[1, 0]]).bias(torch.arange(2), torch.arange(4), torch.tensor([4]))
    assert places(bias, 0) == [[-2, -2, -1, 0], [-2, -2, -1, 0]]


def test_addresses_add_up() -> None:
    made = addressed([[0, 1], [1, -1]])
    lengths, query, key = torch.tensor([5, 3]), torch.arange(4), torch.arange(5)
    one, two = (addressed([address]) for address in ([0, 1], [1, -1]))
    with torch.no_grad():
        two.table.add_(100.0)
    expected = one.bias(query, key, lengths) + two.bias(query, key, lengths)
    assert torch.allclose(made.bias(query, key, lengths), expected)


def test_where_the_length_is_not_known_only_addresses_from_the_start_speak() -> None:
    query, key = torch.arange(4), torch.arange(5)
    assert torch.equal(
        addressed([[0, 1], [1, -1]]).bias(query, key, None), addressed([[0, 1]]).bias(query, key, None)
    )


def test_from_the_start_alone_it_is_the_relative_encoding() -> None:
    made, other = addressed([[0, 1]], clip=3), Relative(WIDTH, HEADS, clip=3)
    with torch.no_grad():
        other.table.copy_(made.table[0])
    query, key = torch.arange(2, 6), torch.arange(9)
    assert torch.equal(made.bias(query, key, None), other.bias(query, key, None))


def test_the_gain_multiplies_tables_that_start_at_zero() -> None:
    made = addressed([[0, 1]], gain=7.0)
    assert torch.allclose(
        made.bias(torch.arange(2), torch.arange(3), None),
        7.0 * addressed([[0, 1]]).bias(torch.arange(2), torch.arange(3), None),
    )
    fresh = Addressed(WIDTH, HEADS, addresses=[[0, 1], [1, -1]], clip=4, gain=10.0, gated=True)
    assert fresh.table.shape == (2, HEADS, 9)
    assert not fresh.table.any()


def test_gates_are_one_before_training_and_weigh_each_address_by_the_querys_state() -> None:
    made = addressed([[0, 1], [1, -1]], gated=True)
    gate = made.gate()
    assert isinstance(gate, Gate)
    x = torch.randn(2, 4, WIDTH, generator=torch.Generator().manual_seed(0))
    query, key, lengths = torch.arange(4), torch.arange(5), torch.tensor([5, 3])
    biases = made.bias(query, key, lengths)
    assert torch.allclose(gate(x, biases), addressed([[0, 1], [1, -1]]).bias(query, key, lengths))
    nn.init.normal_(gate.weight, generator=torch.Generator().manual_seed(1))
    nn.init.normal_(gate.offset, generator=torch.Generator().manual_seed(2))
    found = gate(x, biases).detach()
    for row, head, place in [(0, 0, 0), (1, 2, 3), (0, 1, 2)]:
        expected = torch.zeros(5)
        for at in range(2):
            unit = at * HEADS + head
            weight = 2 / (1 + math.exp(-float((gate.weight[unit] @ x[row, place] + gate.offset[unit]).detach())))
            expected += weight * biases[row, unit, place].detach()
        assert torch.allclose(found[row, head, place], expected, rtol=1e-4)


def test_without_gates_there_is_no_module_for_them() -> None:
    assert addressed([[0, 1]]).gate() is None
    assert NoPositions(WIDTH, HEADS).gate() is None


@pytest.mark.parametrize("addresses", [[], [[0, 1], [1]], [[0, 1, 2]]])
def test_addresses_are_pairs(addresses: list[list[int]]) -> None:
    with pytest.raises(ValueError, match=r"^addresses must be pairs \[end, rate\], at least one, but are \["):
        Addressed(WIDTH, HEADS, addresses=addresses, clip=4, gain=1.0, gated=False)


def test_sharpness_is_the_logarithm_of_the_keys_that_may_be_looked_at_to_base_ten() -> None:
    none = NoPositions(WIDTH, HEADS)
    view = partial(View, none, torch.arange(3))
    assert view(torch.arange(100)).sharpness.item() == pytest.approx(2.0)
    padded = view(torch.arange(12), masks.padding(torch.tensor([10, 1]), 12)).sharpness
    assert padded.flatten().tolist() == pytest.approx([1.0, 0.0])
    causal = view(torch.arange(3), masks.causal(3)).sharpness
    assert causal.flatten().tolist() == pytest.approx([0.0, math.log10(2), math.log10(3)])
    nowhere = view(torch.arange(2), torch.zeros(1, 1, 3, 2, dtype=torch.bool)).sharpness
    assert torch.isfinite(nowhere).all()


@pytest.mark.parametrize("watched", [False, True])
def test_all_scores_grow_with_the_length_bias_included(watched: bool) -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(WIDTH, HEADS, "cross/layer0", log_length=True)
    positions = addressed([[0, 1]])
    x, memory = torch.randn(2, 4, WIDTH), torch.randn(2, 7, WIDTH)
    view = View(positions, torch.arange(4), torch.arange(7), masks.padding(torch.tensor([7, 3]), 7))
    keys_values = layer.keys_values(memory, positions, view.key_index)
    found = layer(x, keys_values, view, {} if watched else None)
    factor = torch.tensor([math.log10(7), math.log10(3)])[:, None, None, None]
    query = layer.split_heads(layer.query_projection(x))
    bias = positions.bias(view.query_index, view.key_index, None)
    context, _ = attend(query * factor, *keys_values, view.mask, bias * factor)
    assert torch.allclose(found, layer.output_projection(context.transpose(1, 2).flatten(2)), atol=1e-5)


@pytest.mark.parametrize("blocks", [1, 60, 10_000])
@pytest.mark.parametrize("causal", [False, True])
def test_queries_in_blocks_look_as_all_at_once(blocks: int, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    positions = addressed([[0, 1], [1, -1]], gated=True)
    layer = MultiHeadAttention(WIDTH, HEADS, "x/layer0", positions.gate(), log_length=True)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    x, lengths = torch.randn(2, 7, WIDTH), torch.tensor([7, 4])
    mask = masks.causal(7) if causal else masks.padding(lengths, 7)
    view = View(positions, torch.arange(7), torch.arange(7), mask, None if causal else lengths)
    keys_values = layer.keys_values(x, positions, view.key_index)
    whole = layer(x, keys_values, view)
    monkeypatch.setattr(attention, "BLOCK_SCORES", blocks)
    with torch.no_grad():
        assert torch.allclose(layer(x, keys_values, view), whole, atol=1e-5)


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("model.positions.addresses=[[0,99999999999999999999]]", "model.positions.addresses"),
        ("model.positions.addresses=[[-1001,0]]", "model.positions.addresses"),
        ("model.positions.clip=5000", "model.positions.clip"),
        ("model.positions.gain=1e300", "model.positions.gain"),
    ],
)
def test_numbers_past_all_sense_are_refused(setting: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        config.build(launcher.compose("train", ["model/positions=two_ended", setting]))
