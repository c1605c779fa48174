"""The numbers behind a map: they must give the weights that the model used, and what its layer handed on."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lookback.attention import MultiHeadAttention
from lookback.decode import evaluating
from lookback.interventions import layers
from lookback.lesson import softmax
from lookback.lookups import Lookups, lookups
from lookback.models.rnn_luong import RnnLuong
from lookback.models.transformer import Transformer
from lookback.positions.addressed import Addressed
from lookback.positions.alibi import Alibi
from lookback.positions.none import NoPositions
from lookback.positions.relative import Relative
from lookback.positions.rotary import Rotary
from lookback.probes import Probe, make_probe
from lookback.tasks.duplicate import Duplicate

TASK = Duplicate(alphabet_size=5)
HEADS, WIDTH = 3, 12
PLACES = ("encoder_self/layer0", "decoder_self/layer0", "cross/layer0")
ADDRESSED = partial(Addressed, addresses=[[0, 1], [1, -1]], clip=2, gain=3.0)
ENCODINGS: dict[str, Any] = {
    "none": NoPositions,
    "rotary": partial(Rotary, base=100.0),
    "alibi": Alibi,
    "relative": partial(Relative, clip=2),
    "addressed": partial(ADDRESSED, gated=False),
    "gated": partial(ADDRESSED, gated=True),
}


def probe() -> Probe:
    return make_probe(TASK, TASK.spell("bead"))


def transformer(encoding: str = "none", *, log_length: bool = False) -> Transformer:
    """Without training, but with every parameter drawn, so that tables, gates and offsets say something."""
    symbols = len(TASK.source_vocabulary)
    model = Transformer(
        symbols,
        symbols,
        d_model=WIDTH,
        num_heads=HEADS,
        num_layers=1,
        d_ff=7,
        dropout=0.5,
        norm="pre",
        tied=False,
        log_length=log_length,
        residual=True,
        scale=True,
        causal=True,
        positions=ENCODINGS[encoding],
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def all_heads(model: Transformer, place: str) -> list[Lookups]:
    return [lookups(model, probe(), place, head) for head in range(HEADS)]


@pytest.mark.parametrize("log_length", [False, True])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("place", PLACES)
def test_the_softmax_of_the_scores_is_the_map(place: str, encoding: str, log_length: bool) -> None:
    model = transformer(encoding, log_length=log_length)
    maps = probe().watch(model)[place]
    for head, found in enumerate(all_heads(model, place)):
        assert found.scored is not None
        np.testing.assert_array_equal(found.weights, maps[head].astype(np.float64))
        scores = np.where(found.visible, found.scored.scores, -1e30)
        np.testing.assert_allclose(softmax(scores), found.weights, rtol=0, atol=1e-6)


@pytest.mark.parametrize("place", PLACES)
def test_weights_times_values_of_all_heads_are_what_the_layer_hands_on(place: str) -> None:
    model = transformer("rotary")
    layer, handed = layers(model)[place], []
    layer.register_forward_hook(lambda _, __, output: handed.append(output))
    found = all_heads(model, place)
    context = np.concatenate([one.weights @ one.scored.value for one in found if one.scored], axis=-1)
    assert isinstance(layer, MultiHeadAttention)
    expected = layer.output_projection(torch.from_numpy(context).float()).detach()
    torch.testing.assert_close(handed[0][0], expected, rtol=0, atol=1e-5)


def test_products_are_those_of_the_projections_one_head_a_share_of_the_width() -> None:
    model = transformer()
    given: list[Tensor] = []
    layer = layers(model)["encoder_self/layer0"]
    assert isinstance(layer, MultiHeadAttention)
    layer.register_forward_pre_hook(lambda _, arguments: given.append(arguments[0]))
    for head, found in enumerate(all_heads(model, "encoder_self/layer0")):
        share = slice(4 * head, 4 * head + 4)
        query, key = (
            F.linear(given[0][0], projection.weight[share], projection.bias[share]).detach().numpy()
            for projection in (layer.query_projection, layer.key_projection)
        )
        assert found.scored is not None
        np.testing.assert_allclose(found.scored.products, query @ key.T, rtol=0, atol=1e-5)
        np.testing.assert_allclose(found.scored.scaled, query @ key.T / 2, rtol=0, atol=1e-5)  # d_k = 4
        assert found.scored.bias is None


def test_the_bias_is_the_heads_own() -> None:
    found = all_heads(transformer("alibi"), "encoder_self/layer0")
    distance = np.abs(np.arange(6)[:, None] - np.arange(6))
    for head, one in enumerate(found):
        assert one.scored is not None
        assert one.scored.bias is not None
        np.testing.assert_allclose(one.scored.bias, -(2.0 ** (-8 * (head + 1) / HEADS)) * distance, rtol=1e-6)


def test_what_is_not_written_yet_is_not_visible() -> None:
    model = transformer()
    seen = {place: lookups(model, probe(), place, 0).visible for place in PLACES}
    np.testing.assert_array_equal(seen["decoder_self/layer0"], np.tri(9, dtype=bool))  # twice four, and EOS
    assert seen["encoder_self/layer0"].all()
    assert seen["cross/layer0"].shape == (9, 6)
    assert seen["cross/layer0"].all()


def test_other_scores_than_dot_products_are_not_made_up() -> None:
    symbols = len(TASK.source_vocabulary)
    sizes: dict[str, Any] = {"d_model": 6, "num_layers": 1, "cell": "gru", "bidirectional": False, "dropout": 0.0}
    model = RnnLuong(symbols, symbols, **sizes, tied=False, score="additive")
    found = lookups(model, probe(), "cross/layer0", 0)
    assert found.scored is None
    assert found.weights.shape == (9, 6)
    np.testing.assert_allclose(found.weights.sum(axis=-1), 1, atol=1e-6)


def test_nothing_stays_on_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = transformer().train()
    lookups(model, probe(), "cross/layer0", 1)
    assert model.training
    monkeypatch.setattr(Transformer, "decode", broken)
    with pytest.raises(RuntimeError, match="broken"):
        lookups(model, probe(), "cross/layer0", 1)
    assert not layers(model)["cross/layer0"]._forward_pre_hooks


def broken(*_: object) -> Tensor:
    raise RuntimeError("broken")


def test_a_head_that_is_not_there_is_refused_with_those_that_are() -> None:
    with (
        evaluating(model := transformer()),
        pytest.raises(ValueError, match=r"cross/layer0/head0 to head2\), but is 'cross/layer0/head3'"),
    ):
        lookups(model, probe(), "cross/layer0", 3)
