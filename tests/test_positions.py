"""Position encodings against the papers' formulas in NumPy, and what every one of them must keep."""

import math
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from lookback import config, launcher, learner, masks, schema
from lookback.attention import Maps
from lookback.decode import greedy
from lookback.metrics import sequence_loss
from lookback.models.base import Seq2Seq
from lookback.models.transformer import Transformer
from lookback.packing import pack
from lookback.positions.alibi import Alibi, slopes
from lookback.positions.base import Positions
from lookback.positions.learned import Learned
from lookback.positions.none import NoPositions
from lookback.positions.relative import Relative
from lookback.positions.rotary import Rotary, turn
from lookback.positions.sinusoidal import Sinusoidal, waves
from lookback.tokens import BOS, EOS, FIRST_SYMBOL, PAD

Told = tuple[object, ...]
BATCH, HEADS, WIDTH, SOURCE, TARGET = 2, 3, 4, 21, 19
D_MODEL = HEADS * WIDTH
SOURCE_SYMBOLS, TARGET_SYMBOLS = 31, 29
LENGTHS = torch.tensor([SOURCE, 9])
KINDS = sorted(path.stem for path in (Path(launcher.CONFIGS) / "model" / "positions").glob("*.yaml"))
SIZES = (f"model.d_model={D_MODEL}", f"model.num_heads={HEADS}", "model.d_ff=20", "model.num_layers=2")
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Tensors this small gain nothing from threads, and lose seconds when other programs hold the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def assert_close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------------------------------ each against its formula


def numpy_waves(index: NDArray[np.int64], width: int, base: float) -> NDArray[np.float64]:
    """Vaswani et al. 2017, section 3.5, column by column."""
    column = np.arange(width)
    angles = index[:, None] / base ** (2 * (column // 2) / width)
    return np.where(column % 2 == 0, np.sin(angles), np.cos(angles))


@pytest.mark.parametrize("base", [10_000.0, 50.0])
@pytest.mark.parametrize("width", [1, 2, 5, 7, 128])
def test_waves_are_the_papers_sines_and_cosines_at_even_and_odd_widths(width: int, base: float) -> None:
    index = torch.arange(40)
    table = waves(index, width, base)
    assert table.shape == (40, width)
    assert bool(table.isfinite().all())
    assert_close(table, torch.from_numpy(numpy_waves(index.numpy(), width, base)), 1e-6)
    assert all(bool((table[i] - table[j]).abs().max() > 1e-3) for i in range(40) for j in range(i))


def test_waves_far_out_are_as_exact_as_near_by() -> None:
    index = torch.tensor([50_000, 99_999])
    assert_close(waves(index, 6, 10_000.0), torch.from_numpy(numpy_waves(index.numpy(), 6, 10_000.0)), 1e-6)


@pytest.mark.parametrize("base", [10_000.0, 50.0])
def test_sinusoidal_adds_the_waves_of_each_place_to_every_row(base: float) -> None:
    x, index = normal(BATCH, 5, D_MODEL), torch.tensor([0, 3, 1, 8, 30])
    expected = x + torch.from_numpy(numpy_waves(index.numpy(), D_MODEL, base))
    assert_close(Sinusoidal(D_MODEL, HEADS, base=base).embed(x, index), expected, 1e-6)


def test_learned_adds_the_row_of_its_table_that_each_place_names() -> None:
    positions = Learned(D_MODEL, HEADS, max_length=16)
    index = torch.tensor([4, 0, 15, 2, 4])
    x = normal(BATCH, 5, D_MODEL)
    table = positions.table.detach().double().numpy()
    assert table.shape == (16, D_MODEL)
    assert_close(positions.embed(x, index), x + torch.from_numpy(np.eye(16)[index.numpy()] @ table), 1e-12)
    assert positions.max_length == 16


def test_no_positions_leaves_embeddings_queries_keys_and_scores_as_they_are() -> None:
    positions = NoPositions(D_MODEL, HEADS)
    x, heads, index = normal(BATCH, 5, D_MODEL), normal(BATCH, HEADS, 5, WIDTH), torch.arange(5)
    assert torch.equal(positions.embed(x, index), x)
    assert torch.equal(positions.rotate(heads, index), heads)
    assert positions.bias(index, index, None) is None
    assert positions.max_length is None


@pytest.mark.parametrize("base", [10_000.0, 50.0])
@pytest.mark.parametrize("width", [2, 4, 6, 10])
def test_rotary_is_a_multiplication_by_complex_numbers_of_length_one(width: int, base: float) -> None:
    x, index = normal(BATCH, HEADS, 5, width), torch.tensor([7, 0, 3, 1, 200])
    turns = np.exp(1j * index.numpy()[:, None] * base ** (-2 * np.arange(width // 2) / width))
    expected = x.numpy().view(np.complex128) * turns
    assert_close(turn(x, index, base), torch.from_numpy(expected.view(np.float64)), 1e-12)
    positions = Rotary(width * HEADS, HEADS, base=base)
    assert_close(positions.rotate(x, index), torch.from_numpy(expected.view(np.float64)), 1e-12)


@pytest.mark.parametrize("shift", [1, 6, 1000])
def test_rotary_products_depend_on_the_distance_only(shift: int) -> None:
    query, key = normal(BATCH, HEADS, 5, WIDTH, seed=1), normal(BATCH, HEADS, 7, WIDTH, seed=2)
    query_index, key_index = torch.tensor([4, 0, 9, 2, 1]), torch.tensor([3, 1, 0, 8, 2, 6, 5])

    def products(by: int) -> Tensor:
        return turn(query, query_index + by, 10_000.0) @ turn(key, key_index + by, 10_000.0).mT

    assert_close(products(shift), products(0), 1e-10)
    moved = turn(query, query_index + shift, 10_000.0) @ turn(key, key_index, 10_000.0).mT
    assert float((moved - products(0)).abs().max()) > 0.1


def test_rotary_turns_the_first_pair_of_columns_anticlockwise_by_one_radian_a_place() -> None:
    turned = turn(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([2, 2]), 10_000.0)
    c, s = math.cos(2.0), math.sin(2.0)
    assert_close(turned, torch.tensor([[c, s], [-s, c]]), 1e-6)


@pytest.mark.parametrize(("d_model", "num_heads", "width"), [(12, 4, 3), (15, 3, 5), (7, 7, 1)])
def test_rotary_refuses_an_odd_head_width(d_model: int, num_heads: int, width: int) -> None:
    rule = (
        "rotary positions need an even head width d_model / num_heads, "
        f"but d_model {d_model} / num_heads {num_heads} is {width}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(rule)}$"):
        Rotary(d_model, num_heads, base=10_000.0)


def test_alibi_slopes_for_eight_heads_are_the_papers() -> None:
    assert slopes(8).tolist() == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]


@pytest.mark.parametrize("num_heads", [1, 3, 4, 16])
def test_alibi_slopes_are_a_geometric_sequence_that_ends_at_one_256th(num_heads: int) -> None:
    ratio = 2 ** (-8 / num_heads)
    assert slopes(num_heads).tolist() == pytest.approx([ratio**head for head in range(1, num_heads + 1)])
    assert float(slopes(num_heads)[-1]) == 1 / 256


def test_alibi_takes_slope_times_distance_from_the_scores_on_both_sides() -> None:
    query_index, key_index = torch.tensor([4, 0, 9, 2, 1]), torch.tensor([3, 1, 0, 8, 2, 6, 5])
    slope = 2.0 ** (-8 * np.arange(1, HEADS + 1) / HEADS)
    distance = np.abs(query_index.numpy()[:, None] - key_index.numpy())
    expected = torch.from_numpy(-slope[:, None, None] * distance)[None]
    assert_close(Alibi(D_MODEL, HEADS).bias(query_index, key_index, None), expected, 1e-6)


def make_relative(clip: int) -> Relative:
    positions = Relative(D_MODEL, HEADS, clip=clip)
    nn.init.normal_(positions.table, generator=torch.Generator().manual_seed(5))
    return positions


def test_relative_looks_each_clipped_distance_up_in_its_heads_own_table() -> None:
    positions = make_relative(clip=3)
    query_index, key_index = torch.tensor([4, 0, 9, 2, 1]), torch.tensor([3, 1, 0, 8, 2, 6, 5])
    distance = np.clip(key_index.numpy() - query_index.numpy()[:, None], -3, 3)
    expected = positions.table.detach().numpy()[:, distance + 3][None]
    assert expected.shape == (1, HEADS, 5, 7)
    assert_close(positions.bias(query_index, key_index, None), torch.from_numpy(expected), 0)


def test_relative_bias_is_the_same_along_diagonals_clipped_beyond_and_not_symmetric() -> None:
    index = torch.arange(12)
    bias = make_relative(clip=4).bias(index, index, None)[0]
    assert torch.equal(bias[:, 1:, 1:], bias[:, :-1, :-1])
    assert torch.equal(bias[:, 0, 9], bias[:, 0, 4])  # distance clip + 5 is as distance clip
    assert torch.equal(bias[:, 9, 0], bias[:, 4, 0])
    assert not torch.equal(bias[:, 0, 4], bias[:, 0, 3])  # but clip - 1 is not
    assert bool((bias != bias.mT)[:, ~torch.eye(12, dtype=torch.bool)].all())
    assert not torch.equal(bias[0], bias[1])


def test_relative_begins_by_adding_nothing() -> None:
    index = torch.arange(7)
    assert bool((Relative(D_MODEL, HEADS, clip=2).bias(index, index, None) == 0).all())


# ------------------------------------------------------------------------------------ what every kind must keep


@cache
def raw(kind: str) -> dict[str, Any]:
    return launcher.compose("train", [f"model/positions={kind}", *SIZES])


def make_positions(kind: str) -> Positions:
    """One encoding as the yaml says, with random numbers where it learns some."""
    return make_model(kind).encoder_positions


def make_model(kind: str, *, dtype: torch.dtype = torch.float32, random: bool = True) -> Transformer:
    """The model that the yaml says, with two vocabularies.

    Random numbers replace all weights, since some are zero at first and would hide what they do.
    """
    torch.manual_seed(0)
    model = config.build(raw(kind)).model(SOURCE_SYMBOLS, TARGET_SYMBOLS)
    assert isinstance(model, Transformer)
    for parameter in model.parameters() if random else ():
        nn.init.normal_(parameter, std=0.4)
    return model.to(dtype).eval()


def make_transformer(
    positions: Callable[[int, int], Positions], *, d_model: int = D_MODEL, num_heads: int = HEADS
) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(
        SOURCE_SYMBOLS,
        TARGET_SYMBOLS,
        d_model=d_model,
        num_heads=num_heads,
        num_layers=1,
        d_ff=20,
        dropout=0.0,
        norm="pre",
        tied=False,
        log_length=False,
        residual=True,
        scale=True,
        causal=True,
        positions=positions,
    )
    return model.eval()


def make_source(batch: int = BATCH, width: int = SOURCE, lengths: Tensor = LENGTHS) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(FIRST_SYMBOL, SOURCE_SYMBOLS, (batch, width), generator=generator)
    return source.masked_fill(torch.arange(width) >= lengths[:, None], PAD)


def make_target() -> Tensor:
    """Every symbol of a row is different, so that each place has a row of the embedding to itself."""
    generator = torch.Generator().manual_seed(2)
    return torch.stack([torch.randperm(TARGET_SYMBOLS - 1, generator=generator)[:TARGET] + 1 for _ in range(BATCH)])


def write_step_by_step(model: Transformer, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
    state = model.start(model.encode(source, lengths), target.shape[1])
    steps = []
    for step in range(target.shape[1]):
        assert state.length == step
        steps.append(model.step(target[:, step], state))
    return torch.stack(steps, dim=1)


def test_every_known_encoding_is_offered_by_a_yaml() -> None:
    assert {"sinusoidal", "learned", "rotary", "alibi", "relative", "none"} <= set(KINDS)


@every_kind
def test_a_model_built_from_the_whole_configuration_has_the_encoding_of_the_yaml(kind: str) -> None:
    _, model = learner.build(config.build(raw(kind)))
    assert isinstance(model, Transformer)
    target = raw(kind)["model"]["positions"]["_target_"].rpartition(".")[2]
    assert {type(model.encoder_positions).__name__, type(model.decoder_positions).__name__} == {target}
    assert model.encoder_positions is not model.decoder_positions


@every_kind
def test_each_place_is_encoded_alike_whether_it_comes_alone_or_among_others(kind: str) -> None:
    positions = make_positions(kind)
    index = torch.arange(7)
    x, heads = normal(BATCH, 7, D_MODEL), normal(BATCH, HEADS, 7, WIDTH)
    embedded, turned, bias = (
        positions.embed(x, index),
        positions.rotate(heads, index),
        positions.bias(index, index, None),
    )
    for place in range(7):
        here = slice(place, place + 1)
        assert_close(positions.embed(x[:, here], index[here]), embedded[:, here], 1e-12)
        assert_close(positions.rotate(heads[:, :, here], index[here]), turned[:, :, here], 1e-12)
        # one query against 5 keys is a row of the full table
        row = positions.bias(index[here], index[:5], None)
        assert (row is None) == (bias is None)
        if row is not None and bias is not None:
            assert row.shape[-2:] == (1, 5)
            assert torch.equal(row, bias[:, :, here, :5])


@every_kind
def test_a_place_is_encoded_alike_in_all_rows_of_a_batch_and_places_differ(kind: str) -> None:
    positions = make_positions(kind)
    index = torch.arange(7)
    embedded = positions.embed(torch.ones(BATCH, 7, D_MODEL), index)
    turned = positions.rotate(torch.ones(BATCH, HEADS, 7, WIDTH), index)
    bias = positions.bias(index, index, None)
    assert torch.equal(embedded[0], embedded[1])
    assert torch.equal(turned[0], turned[1])
    assert bias is None or bias.shape == (1, HEADS, 7, 7)
    tables = [embedded[0], turned[0, 0], *(() if bias is None else (bias[0, 0],))]
    differ = [all(not torch.equal(table[i], table[j]) for i in range(7) for j in range(i)) for table in tables]
    assert any(differ) == (kind != "none")


@every_kind
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_embeddings_queries_and_keys_keep_their_dtype(kind: str, dtype: torch.dtype) -> None:
    positions = make_positions(kind)
    index = torch.arange(5)
    assert positions.embed(normal(BATCH, 5, D_MODEL, dtype=dtype), index).dtype == dtype
    assert positions.rotate(normal(BATCH, HEADS, 5, WIDTH, dtype=dtype), index).dtype == dtype


@torch.no_grad()
@every_kind
def test_step_by_step_decoding_gives_the_logits_of_the_full_pass_at_every_step(kind: str) -> None:
    model, source, target = make_model(kind), make_source(), make_target()
    full = model(source, LENGTHS, target)
    assert full.shape == (BATCH, TARGET, TARGET_SYMBOLS)
    steps = write_step_by_step(model, source, LENGTHS, target)
    for step in range(TARGET):
        torch.testing.assert_close(steps[:, step], full[:, step], rtol=1e-4, atol=1e-4)


@torch.no_grad()
@every_kind
def test_a_cache_with_room_to_spare_changes_no_logits(kind: str) -> None:
    model, target = make_model(kind), make_target()
    memory = model.encode(make_source(), LENGTHS)
    exact, roomy = model.start(memory, 3), model.start(memory, 11)
    for step in range(3):
        assert_close(model.step(target[:, step], roomy), model.step(target[:, step], exact), 1e-6)


@torch.no_grad()
@every_kind
def test_the_fused_kernel_and_the_watched_formula_give_the_same_logits(kind: str) -> None:
    model = make_model(kind, dtype=torch.float64)
    maps: Maps = {}
    watched = model(make_source(), LENGTHS, make_target(), maps)
    assert_close(model(make_source(), LENGTHS, make_target()), watched, 1e-9)
    places = {f"{which}/layer{layer}" for which in ("encoder_self", "decoder_self", "cross") for layer in (0, 1)}
    assert set(maps) == places


@torch.no_grad()
@every_kind
def test_maps_of_a_model_in_training_with_dropout_sum_to_one_and_show_what_may_be_seen(kind: str) -> None:
    model = make_model(kind, random=False).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
    maps: Maps = {}
    model(make_source(), LENGTHS, make_target(), maps)
    source_mask = masks.padding(LENGTHS, SOURCE)
    seen = {
        "encoder_self": source_mask.expand(BATCH, HEADS, SOURCE, SOURCE),
        "decoder_self": masks.causal(TARGET).expand(BATCH, HEADS, TARGET, TARGET),
        "cross": source_mask.expand(BATCH, HEADS, TARGET, SOURCE),
    }
    for place, weights in maps.items():
        assert torch.equal(weights > 0, seen[place.partition("/")[0]]), place
        assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), 1e-5)


@torch.no_grad()
@every_kind
def test_real_queries_of_a_padded_target_see_real_keys_up_to_themselves_and_nothing_else(kind: str) -> None:
    model, lengths = make_model(kind, random=False), [2, 5]
    target = make_target()[:, :5].masked_fill(torch.arange(5) >= torch.tensor(lengths)[:, None], PAD)
    maps: Maps = {}
    model(make_source(), LENGTHS, target, maps)
    for row, length in enumerate(lengths):
        for query in range(length):
            expected = torch.tensor([key <= query and key < length for key in range(5)])
            assert torch.equal(maps["decoder_self/layer0"][row, :, query] > 0, expected.expand(HEADS, 5))


@torch.no_grad()
@every_kind
def test_a_source_is_encoded_alike_alone_beside_others_and_at_any_padding_width(kind: str) -> None:
    model, source = make_model(kind), make_source()
    both = model.encode(source, LENGTHS)
    wide = model.encode(F.pad(source, (0, 3), value=PAD), LENGTHS)
    assert both.states.shape == (BATCH, SOURCE, D_MODEL)
    assert wide.states.shape == (BATCH, SOURCE + 3, D_MODEL)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model.encode(source[[row], :length], LENGTHS[[row]]).states[0]
        assert_close(both.states[row, :length], alone, 1e-5)
        assert_close(wide.states[row, :length], alone, 1e-5)


@torch.no_grad()
@every_kind
def test_a_target_gets_the_same_logits_alone_beside_others_and_at_any_padding_width(kind: str) -> None:
    model, source, target = make_model(kind), make_source(), make_target()
    both = model(source, LENGTHS, target)
    wide = model(F.pad(source, (0, 3), value=PAD), LENGTHS, F.pad(target, (0, 4), value=PAD))
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model(source[[row], :length], LENGTHS[[row]], target[[row]])[0]
        assert_close(both[row], alone, 1e-5)
        assert_close(wide[row, :TARGET], alone, 1e-5)


@torch.no_grad()
@every_kind
def test_permuting_a_batch_permutes_its_logits(kind: str) -> None:
    model, source, target = make_model(kind), make_source(), make_target()
    expected = model(source, LENGTHS, target).flip(0)
    assert_close(model(source.flip(0), LENGTHS.flip(0), target.flip(0)), expected, 1e-5)


@torch.no_grad()
@every_kind
def test_training_mode_without_dropout_gives_the_logits_of_evaluation_mode(kind: str) -> None:
    model, source = make_model(kind), F.pad(make_source(), (0, 3), value=PAD)
    evaluated = model.eval()(source, LENGTHS, make_target())
    assert_close(model.train()(source, LENGTHS, make_target()), evaluated, 1e-5)


@torch.no_grad()
@every_kind
def test_future_target_tokens_change_no_earlier_logit_by_a_single_bit(kind: str) -> None:
    model, target = make_model(kind), make_target()
    memory = model.encode(make_source(), LENGTHS)
    logits = model.decode(target, memory)
    for step in (0, 7, TARGET - 2):
        changed = target.clone()
        changed[:, step + 1 :] = target[:, step + 1 :].flip(1) % (TARGET_SYMBOLS - 1) + 1
        assert torch.equal(model.decode(changed, memory)[:, : step + 1], logits[:, : step + 1])


@every_kind
def test_earlier_logits_have_no_gradient_from_future_target_tokens(kind: str) -> None:
    model, target = make_model(kind), make_target()[:1]
    logits = model(make_source()[:1], LENGTHS[:1], target)
    for step in (0, 7, TARGET - 1):
        loss = logits[0, step].square().sum()
        (gradient,) = torch.autograd.grad(loss, model.target_embedding.weight, retain_graph=True)
        by_place = gradient[target[0]].abs().sum(dim=-1)
        assert bool((by_place[step + 1 :] == 0).all())
        assert bool((by_place[: step + 1] > 0).all())


@torch.no_grad()
@every_kind
def test_a_pad_embedding_of_a_million_changes_nothing(kind: str) -> None:
    model, lengths = make_model(kind), [TARGET, 6]
    source = make_source()
    target = make_target().masked_fill(torch.arange(TARGET) >= torch.tensor(lengths)[:, None], PAD)
    before, states = model(source, LENGTHS, target), model.encode(source, LENGTHS).states
    for embedding in (model.source_embedding, model.target_embedding):
        embedding.weight[PAD] = 1e6
    after, new_states = model(source, LENGTHS, target), model.encode(source, LENGTHS).states
    for row in range(BATCH):
        assert_close(after[row, : lengths[row]], before[row, : lengths[row]], 1e-6)
        assert_close(new_states[row, : LENGTHS[row]], states[row, : LENGTHS[row]], 1e-6)


@torch.no_grad()
@every_kind
def test_an_encoder_sees_a_set_if_and_only_if_it_has_no_positions(kind: str) -> None:
    model = make_model(kind, dtype=torch.float64)
    lengths = torch.tensor([SOURCE, SOURCE])
    source = make_source(lengths=lengths)
    order = torch.randperm(SOURCE, generator=torch.Generator().manual_seed(3))
    states = model.encode(source, lengths).states[:, order]
    permuted = model.encode(source[:, order], lengths).states
    difference = float((permuted - states).abs().max())
    assert difference < 1e-12 if kind == "none" else difference > 1e-2


@torch.no_grad()
@every_kind
def test_a_decoder_tells_the_order_of_what_it_wrote_even_without_positions(kind: str) -> None:
    """Its causal mask shows each query another number of keys (Kazemnejad et al. 2023)."""
    model, target = make_model(kind), make_target()
    swapped = target.clone()
    swapped[:, [0, 1]] = target[:, [1, 0]]
    memory = model.encode(make_source(), LENGTHS)
    difference = model.decode(swapped, memory)[:, -1] - model.decode(target, memory)[:, -1]
    assert float(difference.abs().max()) > 1e-4


@every_kind
def test_every_parameter_takes_part_so_that_no_table_is_left_unused(kind: str) -> None:
    model = make_model(kind)
    logits = model(make_source(), LENGTHS, make_target())
    parameters = dict(model.named_parameters())
    loss = sequence_loss(logits, make_target().roll(-1, dims=1))
    gradients = torch.autograd.grad(loss, [*parameters.values()])
    for name, gradient in zip(parameters, gradients, strict=True):
        if name.endswith("key_projection.bias"):
            continue  # adds the same to all of a query's scores, unless keys are turned
        assert float(gradient.abs().max()) > 1e-6, name


@every_kind
def test_a_source_of_nothing_but_pads_leaves_loss_and_gradients_finite_and_its_neighbour_alone(kind: str) -> None:
    model, lengths = make_model(kind), torch.tensor([SOURCE, 0])
    source, target = make_source(lengths=lengths), make_target()
    logits = model(source, lengths, target)
    loss = sequence_loss(logits, target.roll(-1, dims=1))
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(loss, [*parameters.values()])
    assert bool(loss.isfinite())
    for name, gradient in zip(parameters, gradients, strict=True):
        assert bool(gradient.isfinite().all()), name
    assert_close(logits[:1], model(source[:1], lengths[:1], target[:1]), 1e-5)


@torch.no_grad()
@every_kind
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_gives_finite_logits_close_to_float32_step_by_step_as_well(kind: str, dtype: torch.dtype) -> None:
    model, source, target = make_model(kind, random=False), make_source(), make_target()
    exact = model(source, LENGTHS, target)
    maps: Maps = {}
    with torch.autocast("cpu", dtype):
        fused, watched = model(source, LENGTHS, target), model(source, LENGTHS, target, maps)
        steps = write_step_by_step(model, source, LENGTHS, target)
    for logits in (fused, watched, steps):
        assert logits.dtype == dtype
        assert_close(logits, exact, 0.1)
    hidden = ~masks.padding(LENGTHS, SOURCE)
    assert bool((maps["cross/layer0"].masked_select(hidden) == 0).all())


@torch.no_grad()
@every_kind
def test_a_batch_of_three_hundred_is_encoded_row_by_row(kind: str) -> None:
    """More rows than any table has places here: 128 in the yaml of the learned one."""
    lengths = torch.arange(300) % 7 + 1
    source = make_source(300, 7, lengths)
    model = make_model(kind)
    states = model.encode(source, lengths).states
    assert states.shape == (300, 7, D_MODEL)
    assert_close(
        states[299, : lengths[299]], model.encode(source[299:], lengths[299:]).states[0, : lengths[299]], 1e-5
    )


# ------------------------------------------------------------------------------------------ doors and wiring


class Recorder(Positions):
    """Changes nothing, and writes down what each of its doors is told."""

    crosses = True

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.told: list[Told] = []

    def embed(self, x: Tensor, index: Tensor) -> Tensor:
        self.told.append(("embed", index.tolist()))
        return x

    def rotate(self, x: Tensor, index: Tensor) -> Tensor:
        self.told.append(("rotate", index.tolist()))
        return x

    def bias(self, query_index: Tensor, key_index: Tensor, key_lengths: Tensor | None) -> Tensor | None:
        lengths = None if key_lengths is None else key_lengths.tolist()
        self.told.append(("bias", query_index.tolist(), key_index.tolist(), lengths))
        return None

    def drain(self) -> list[Told]:
        told, self.told = sorted(self.told, key=str), []
        return told


@torch.no_grad()
def test_every_door_is_told_the_places_of_queries_and_keys_and_the_lengths_of_the_source() -> None:
    model = make_transformer(Recorder)
    encoder, decoder, cross = (model.encoder_positions, model.decoder_positions, model.cross_positions)
    assert isinstance(encoder, Recorder)
    assert isinstance(decoder, Recorder)
    assert isinstance(cross, Recorder)
    places, lengths = [0, 1, 2, 3, 4, 5, 6], [7, 4]
    memory = model.encode(make_source(width=7, lengths=torch.tensor(lengths)), torch.tensor(lengths))
    assert encoder.drain() == [
        ("bias", places, places, lengths),
        ("embed", places),
        ("rotate", places),
        ("rotate", places),
    ]
    target = make_target()
    model.decode(target[:, :5], memory)
    five = places[:5]
    assert decoder.drain() == [("bias", five, five, None), ("embed", five), ("rotate", five), ("rotate", five)]
    assert cross.drain() == [("bias", five, places, lengths), ("rotate", places), ("rotate", five)]
    state = model.start(memory, 3)
    assert cross.drain() == [("rotate", places)]  # once for all steps
    for step in range(3):
        model.step(target[:, step], state)
        here, past = [step], places[: step + 1]
        assert decoder.drain() == [("bias", here, past, None), ("embed", here), ("rotate", here), ("rotate", here)]
        assert cross.drain() == [("bias", here, places, lengths), ("rotate", here)]


# ------------------------------------------------------------------------------------------ lengths and widths


@every_kind
def test_heads_that_cannot_share_the_width_are_refused_in_the_same_words_whatever_the_encoding(kind: str) -> None:
    wrong = {**raw(kind), "model": {**raw(kind)["model"], "d_model": 13, "num_heads": 4}}
    rule = "d_model must be a multiple of num_heads, but is 13 with num_heads 4"
    with pytest.raises(schema.ConfigError, match=f"{re.escape(rule)}$"):
        config.build(wrong)


@torch.no_grad()
@every_kind
def test_sequences_longer_than_the_table_are_refused_and_all_others_are_encoded(kind: str) -> None:
    model = make_model(kind)
    length = 150  # past the learned table, and far past the relative clip
    source, lengths = make_source(1, length, torch.tensor([length])), torch.tensor([length])
    if model.max_length is None:
        assert bool(model.encode(source, lengths).states.isfinite().all())
        return
    rule = f"source has length 150 (marks included), but the model's positions end at {model.max_length} "
    with pytest.raises(ValueError, match=f"^{re.escape(rule + '(model.positions.max_length)')}$"):
        model.encode(source, lengths)


@torch.no_grad()
def test_learned_positions_take_a_sequence_as_long_as_their_table_and_refuse_one_more_everywhere() -> None:
    model = make_transformer(partial(Learned, max_length=16))
    assert model.max_length == 16
    source, lengths = make_source(1, 16, torch.tensor([16])), torch.tensor([16])
    memory = model.encode(source, lengths)
    target = make_target()[:1]
    assert model.decode(target[:, :16], memory).shape == (1, 16, TARGET_SYMBOLS)
    rule = "has length 17 (marks included), but the model's positions end at 16 (model.positions.max_length)"
    with pytest.raises(ValueError, match=f"^{re.escape('source ' + rule)}$"):
        model.encode(F.pad(source, (0, 1), value=EOS), lengths + 1)
    with pytest.raises(ValueError, match=f"^{re.escape('target ' + rule)}$"):
        model.decode(target[:, :17], memory)
    state = model.start(memory, TARGET)
    for step in range(16):
        model.step(target[:, step], state)
    with pytest.raises(ValueError, match=f"^{re.escape('target ' + rule)}$"):
        model.step(target[:, 16], state)


def test_decoding_with_learned_positions_stops_at_the_end_of_the_table() -> None:
    model = make_transformer(partial(Learned, max_length=16))
    for weights, fill in zip(model.decoder_norm.parameters(), (nn.init.zeros_, nn.init.ones_), strict=True):
        fill(weights)
    nn.init.zeros_(model.output.weight)
    nn.init.ones_(model.output.weight[4])  # always the likeliest, so it never writes EOS
    source, lengths = make_source(width=16, lengths=torch.tensor([16, 9])), torch.tensor([16, 9])
    decoded = greedy(model, source, lengths, max_tokens=40)
    assert decoded.tokens.shape == (BATCH, 16)
    assert decoded.ended.tolist() == [False, False]


@torch.no_grad()
def test_an_odd_model_width_works_with_waves() -> None:
    model = make_transformer(partial(Sinusoidal, base=10_000.0), d_model=33)
    logits = model(make_source(), LENGTHS, make_target())
    assert logits.shape == (BATCH, TARGET, TARGET_SYMBOLS)
    assert bool(logits.isfinite().all())


@torch.no_grad()
def test_relative_positions_have_a_say_in_cross_attention_and_learn_a_table_of_their_own() -> None:
    model = make_model("relative")
    cross = model.cross_positions
    assert isinstance(cross, Relative)
    assert cross not in (model.encoder_positions, model.decoder_positions)
    before = model(make_source(), LENGTHS, make_target())
    cross.table[:, 3] += 5.0
    assert float((model(make_source(), LENGTHS, make_target()) - before).abs().max()) > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"none"}))
def test_self_attention_of_the_decoder_tells_places_apart_at_distinct_positions(kind: str) -> None:
    """With one symbol repeated, and no source, only positions can make places differ."""
    model = make_model(kind, dtype=torch.float64)
    target = torch.full((1, 7), FIRST_SYMBOL)
    memory = model.encode(make_source()[:1], torch.tensor([0]))
    maps: Maps = {}
    model.decode(target, memory, maps)
    last = maps["decoder_self/layer0"][0, :, -1]
    assert bool((last.std(dim=-1) > 1e-3).all())


# ------------------------------------------------------------------------------------- several strings in a row


def mixed_batch() -> tuple[Tensor, Tensor, Tensor]:
    """Sources and targets of different lengths, which first fit puts three or two to a row."""
    lengths = torch.tensor([9, 3, 5, 4, 2, 8, 3])
    written = torch.tensor([3, 7, 2, 9, 4, 5, 1])  # symbols between BOS and EOS
    source = make_source(len(lengths), 9, lengths)
    generator = torch.Generator().manual_seed(3)
    target = torch.randint(FIRST_SYMBOL, TARGET_SYMBOLS, (len(lengths), 11), generator=generator)
    place = torch.arange(11)
    target = target.masked_fill(place == 0, BOS).masked_fill(place == written[:, None] + 1, EOS)
    return source, lengths, target.masked_fill(place > written[:, None] + 1, PAD)


@every_kind
@pytest.mark.parametrize("more", [[], ["model.log_length=true"]], ids=["plain", "log_length"])
def test_packed_rows_say_what_each_string_says_alone(kind: str, more: list[str]) -> None:
    raw_config = launcher.compose("train", [f"model/positions={kind}", *SIZES, *more])
    check_packing(config.build(raw_config).model(SOURCE_SYMBOLS, TARGET_SYMBOLS))


def test_packed_rows_say_what_each_string_says_alone_through_a_gate_too() -> None:
    more = ["model/positions=two_ended", "model.positions.gated=true", "model.log_length=true"]
    check_packing(config.build(launcher.compose("train", [*SIZES, *more])).model(SOURCE_SYMBOLS, TARGET_SYMBOLS))


def check_packing(model: Seq2Seq) -> None:
    assert isinstance(model, Transformer)
    torch.manual_seed(4)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    model = model.double().eval()
    source, lengths, target = mixed_batch()
    packed = pack(source, lengths, target)
    assert len(packed.labels) < len(source)
    gradients = []
    for logits, labels in (
        (model.packed(packed), packed.labels),
        (model(source, lengths, target[:, :-1]), target[:, 1:]),
    ):
        model.zero_grad()
        loss = sequence_loss(logits, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        gradients.append([loss.detach(), *(weights.grad for weights in model.parameters())])
        if labels is packed.labels:
            by_string = {int(number): logits[packed.target.string == number] for number in range(len(source))}
        else:
            for number, row in by_string.items():
                assert_close(row, logits[number, : len(row)], 1e-5)
    for ours, theirs in zip(*gradients, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert_close(ours, theirs, 1e-6)
