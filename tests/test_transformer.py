"""Our Transformer against torch's own, against pencil and paper, and at its edges."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from lookback.attention import Maps
from lookback.models.transformer import Transformer
from lookback.peers import TorchTransformer, copy_weights, our_names
from lookback.positions.base import Positions
from lookback.positions.learned import Learned
from lookback.positions.sinusoidal import Sinusoidal
from lookback.tokens import BOS, EOS, FIRST_SYMBOL, PAD

SOURCE_SYMBOLS, TARGET_SYMBOLS = 13, 17
SIZES: dict[str, Any] = {
    "d_model": 12,
    "num_heads": 3,
    "num_layers": 2,
    "d_ff": 20,
    "dropout": 0.0,
    "norm": "pre",
    "positions": partial(Sinusoidal, base=10_000.0),
}
WHOLE = {"residual": True, "scale": True, "causal": True}
LENGTHS = torch.tensor([8, 3, 6, 2, 5])  # batch 5, source 8
TARGET_LENGTHS = torch.tensor([4, 11, 3, 9, 2])  # target 11


def transformer(**changes: object) -> Transformer:
    """A Transformer whose norms and biases are not the ones and zeros they start from."""
    torch.manual_seed(0)
    model = Transformer(
        SOURCE_SYMBOLS, TARGET_SYMBOLS, **(SIZES | {"tied": False, "log_length": False, **WHOLE} | changes)
    )
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


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


def backward(logits: Tensor) -> None:
    """From a number to which every logit adds its own share."""
    (logits.sin() * logits).mean().backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", [SIZES["positions"], partial(Learned, max_length=19)])
def test_torchs_own_transformer_with_the_same_weights_gives_the_same_logits_and_gradients(
    norm: str, num_layers: int, dtype: torch.dtype, tolerance: float, positions: partial[Positions]
) -> None:
    changes = {"norm": norm, "num_layers": num_layers, "positions": positions}
    ours = transformer(**changes).to(dtype)
    theirs = TorchTransformer(SOURCE_SYMBOLS, TARGET_SYMBOLS, **(SIZES | changes)).to(dtype)
    copy_weights(ours, theirs)
    source, target = source_and_target()
    logits = [model(source, LENGTHS, target[:, :-1]) for model in (ours, theirs)]
    assert logits[0].dtype == dtype
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=tolerance)
    for result in logits:
        backward(result)
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    for name, parameter in theirs.named_parameters():
        packed = torch.cat([torch.as_tensor(gradients.pop(part)) for part in our_names(name)])
        torch.testing.assert_close(packed, parameter.grad, rtol=tolerance, atol=tolerance, msg=name)
    assert not gradients


def test_a_watched_pass_gives_the_same_logits_and_a_map_for_every_attention() -> None:
    model = transformer()
    source, target = source_and_target()
    maps: Maps = {}
    watched = model(source, LENGTHS, target, maps)
    torch.testing.assert_close(watched, model(source, LENGTHS, target), rtol=0, atol=1e-5)
    assert {place: tuple(weights.shape) for place, weights in maps.items()} == {
        "encoder_self/layer0": (5, 3, 8, 8),
        "encoder_self/layer1": (5, 3, 8, 8),
        "decoder_self/layer0": (5, 3, 11, 11),
        "decoder_self/layer1": (5, 3, 11, 11),
        "cross/layer0": (5, 3, 11, 8),
        "cross/layer1": (5, 3, 11, 8),
    }


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_larger_or_noisier_padding_changes_no_real_logit(norm: str) -> None:
    model = transformer(norm=norm).double()
    source, target = source_and_target()
    expected = model(source, LENGTHS, target)
    noise = torch.randint(FIRST_SYMBOL, SOURCE_SYMBOLS, (5, 15))
    noise[:, :8] = torch.where(source == PAD, noise[:, :8], source)
    torch.testing.assert_close(model(noise, LENGTHS, target), expected, rtol=0, atol=1e-12)


def test_what_is_written_later_changes_no_earlier_logit() -> None:
    model = transformer().double()
    source, target = source_and_target()
    changed = target.clone()
    changed[:, 6:] = FIRST_SYMBOL + 1
    before, after = model(source, LENGTHS, target), model(source, LENGTHS, changed)
    torch.testing.assert_close(after[:, :6], before[:, :6], rtol=0, atol=1e-12)
    assert not torch.allclose(after[:, 6:], before[:, 6:])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_number_of_weights_is_the_one_counted_on_paper(norm: str) -> None:
    d, f, layers = 12, 20, 2
    attention = 4 * (d * d + d)  # query, key, value and output, each with a bias
    feed_forward = (d * f + f) + (f * d + d)
    layer_norm = 2 * d
    encoder = layers * (attention + feed_forward + 2 * layer_norm)
    decoder = layers * (2 * attention + feed_forward + 3 * layer_norm)
    final_norms = 2 * layer_norm if norm == "pre" else 0
    embeddings, output = (SOURCE_SYMBOLS + TARGET_SYMBOLS) * d, TARGET_SYMBOLS * d
    paper = encoder + decoder + final_norms + embeddings + output
    assert paper == (6644 if norm == "pre" else 6596)
    assert sum(parameter.numel() for parameter in transformer(norm=norm).parameters()) == paper


def test_a_tied_model_keeps_one_matrix_and_counts_it_once() -> None:
    changes: dict[str, Any] = SIZES | {"tied": True, "log_length": False, **WHOLE}
    tied = Transformer(TARGET_SYMBOLS, TARGET_SYMBOLS, **changes)
    assert tied.source_embedding.weight is tied.target_embedding.weight
    assert tied.output.weight is tied.target_embedding.weight
    untied = Transformer(
        TARGET_SYMBOLS, TARGET_SYMBOLS, **(changes | {"tied": False, "log_length": False, **WHOLE})
    )
    counts = [sum(parameter.numel() for parameter in model.parameters()) for model in (tied, untied)]
    assert counts[1] - counts[0] == 2 * TARGET_SYMBOLS * 12


def test_the_gradient_of_a_tied_matrix_sums_those_of_its_three_places() -> None:
    changes: dict[str, Any] = SIZES | {"tied": True, "log_length": False, **WHOLE}
    torch.manual_seed(0)
    ours = Transformer(TARGET_SYMBOLS, TARGET_SYMBOLS, **changes).double()
    theirs = TorchTransformer(TARGET_SYMBOLS, TARGET_SYMBOLS, **SIZES).double()
    copy_weights(ours, theirs)
    source, target = source_and_target()
    for model in (ours, theirs):
        backward(model(source, LENGTHS, target))
    places = (theirs.source_embedding, theirs.target_embedding, theirs.output)
    total = torch.stack([torch.as_tensor(place.weight.grad) for place in places]).sum(dim=0)
    torch.testing.assert_close(ours.output.weight.grad, total, rtol=0, atol=1e-10)


@pytest.mark.parametrize("tied", [True, False])
def test_weights_start_as_glorot_and_the_embeddings_own_spread_say(tied: bool) -> None:
    changes: dict[str, Any] = SIZES | {"d_model": 48, "d_ff": 80, "tied": tied, "log_length": False, **WHOLE}
    torch.manual_seed(0)
    model = Transformer(211, 211, **changes)
    for embedding in (model.source_embedding, model.target_embedding):
        assert embedding.weight.std().item() == pytest.approx(48**-0.5, rel=0.05)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and not (tied and name == "output"):
            bound = (6 / sum(module.weight.shape)) ** 0.5  # Glorot and Bengio 2010, equation (16)
            assert 0.98 * bound < module.weight.abs().max().item() <= bound, name
            assert module.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05), name
    for name, parameter in model.named_parameters():
        assert not name.endswith("bias") or not parameter.any(), name


def test_dropout_changes_training_and_leaves_evaluation_as_it_is_without_any() -> None:
    source, target = source_and_target()
    plain, dropped = transformer(), transformer(dropout=0.3)
    expected = plain(source, LENGTHS, target)
    first, second = dropped(source, LENGTHS, target), dropped(source, LENGTHS, target)
    assert not torch.allclose(first, expected)
    assert not torch.allclose(first, second)
    dropped.eval()
    torch.testing.assert_close(dropped(source, LENGTHS, target), expected, rtol=0, atol=0)


def test_dropout_of_everything_leaves_a_residual_path_of_zeros() -> None:
    source, target = source_and_target()
    model = transformer(dropout=1.0)  # of embeddings, and of what each sublayer adds
    torch.nn.init.ones_(model.get_parameter("encoder_norm.bias"))
    logits = model(source, LENGTHS, target)  # the last norm turns zeros into its bias
    expected = model.output(model.get_parameter("decoder_norm.bias"))
    torch.testing.assert_close(logits, expected.expand(5, 11, TARGET_SYMBOLS), rtol=0, atol=1e-6)
    torch.testing.assert_close(model.encode(source, LENGTHS).states, torch.ones(5, 8, 12), rtol=0, atol=1e-6)


def test_a_source_row_without_any_symbol_is_finite_and_leaves_its_neighbour_alone() -> None:
    model = transformer()
    lengths = torch.tensor([7, 0])
    source = strings(torch.tensor([7, 2]), SOURCE_SYMBOLS, seed=3)
    source[1] = PAD
    target = strings(torch.tensor([5, 3]), TARGET_SYMBOLS, seed=4)
    logits = model(source, lengths, target)
    torch.testing.assert_close(logits[:1], model(source[:1], lengths[:1], target[:1]), rtol=0, atol=1e-5)
    backward(logits)
    assert bool(logits.isfinite().all())
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name


def test_a_source_row_without_any_symbol_adds_nothing_through_cross_attention() -> None:
    model = transformer()
    target = strings(torch.tensor([5]), TARGET_SYMBOLS, seed=4)
    none = torch.tensor([0])
    logits = [model(torch.full((1, 7), symbol), none, target) for symbol in (PAD, FIRST_SYMBOL + 2)]
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=0)


def test_more_rows_than_places_pass_through_learned_positions() -> None:
    model = transformer(positions=partial(Learned, max_length=64))
    source = strings(torch.full((300,), 6), SOURCE_SYMBOLS, seed=5)
    target = strings(torch.full((300,), 4), TARGET_SYMBOLS, seed=6)
    logits = model(source, torch.full((300,), 6), target)
    assert logits.shape == (300, 4, TARGET_SYMBOLS)
    alone = model(source[299:], torch.tensor([6]), target[299:])
    torch.testing.assert_close(logits[299:], alone, rtol=0, atol=1e-5)


def test_a_source_or_target_past_the_learned_positions_is_refused_with_both_lengths() -> None:
    model = transformer(positions=partial(Learned, max_length=9))
    fits = strings(torch.tensor([9]), SOURCE_SYMBOLS, seed=7)
    long = strings(torch.tensor([10]), SOURCE_SYMBOLS, seed=7)
    assert model(fits, torch.tensor([9]), fits).shape == (1, 9, TARGET_SYMBOLS)
    limit = r"but the model's positions end at 9 \(model\.positions\.max_length\)$"
    with pytest.raises(ValueError, match=rf"^source has length 10 \(marks included\), {limit}"):
        model(long, torch.tensor([10]), fits)
    with pytest.raises(ValueError, match=rf"^target has length 10 \(marks included\), {limit}"):
        model(fits, torch.tensor([9]), long)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("training", [True, False])
def test_encode_returns_the_full_padded_width_in_either_mode(norm: str, training: bool) -> None:
    model = transformer(norm=norm).train(training)
    source = strings(torch.tensor([8, 8]), SOURCE_SYMBOLS, seed=8)
    lengths = torch.tensor([5, 3])
    with torch.no_grad():
        memory = model.encode(source, lengths)
    assert memory.states.shape == (2, 8, 12)
    assert memory.lengths is lengths


def test_a_width_that_the_heads_cannot_share_is_refused_with_both_numbers() -> None:
    rule = "^d_model must be a multiple of num_heads, but is 30 with num_heads 4$"
    with pytest.raises(ValueError, match=rule):
        transformer(d_model=30, num_heads=4)


def test_tying_different_vocabularies_is_refused_with_both_sizes() -> None:
    rule = "^tied=True needs one vocabulary for source and target, but they have 13 and 17 symbols$"
    with pytest.raises(ValueError, match=rule):
        transformer(tied=True)
