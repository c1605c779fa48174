"""The parts of the Transformer that can be left out, to see what they are there for."""

import math
from functools import partial
from typing import Any

import pytest
import torch

from lookback import config, contestants, launcher
from lookback.models.layers import NoNorm, PostNorm, PreNorm, replaced, residual_connection
from lookback.models.transformer import Transformer
from lookback.packing import pack
from lookback.positions.sinusoidal import Sinusoidal
from lookback.tokens import BOS, EOS, PAD

SIZES: dict[str, Any] = {
    "d_model": 12,
    "num_heads": 3,
    "num_layers": 2,
    "d_ff": 20,
    "dropout": 0.0,
    "norm": "pre",
    "tied": False,
    "log_length": False,
    "residual": True,
    "scale": True,
    "causal": True,
    "positions": partial(Sinusoidal, base=10_000.0),
}
SOURCE = torch.tensor([[BOS, 5, 9, 7, 6, 8, EOS], [BOS, 8, 4, EOS, PAD, PAD, PAD]])
LENGTHS = torch.tensor([7, 4])
TARGET = torch.tensor([[BOS, 6, 5, 9, 4], [BOS, 7, 8, 5, 9]])


def transformer(**changes: object) -> Transformer:
    """With every parameter drawn, so that each says something."""
    torch.manual_seed(0)
    model = Transformer(11, 13, **(SIZES | changes)).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def sharpened(model: Transformer, factor: float) -> Transformer:
    """The same with all queries so many times as large."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "query_projection" in name:
                parameter.mul_(factor)
    return model


def silence(model: Transformer) -> None:
    """Let the feed-forward layers say nothing but their biases."""
    for name, parameter in model.named_parameters():
        if name.endswith("feed_forward.outer.weight"):
            torch.nn.init.zeros_(parameter)


def test_without_scale_scores_are_those_of_queries_sqrt_dk_times_as_large() -> None:
    plain, scaled = transformer(scale=False), sharpened(transformer(), math.sqrt(12 / 3))
    for model in (plain, scaled):
        model.eval()
    torch.testing.assert_close(plain(SOURCE, LENGTHS, TARGET), scaled(SOURCE, LENGTHS, TARGET))
    assert not torch.allclose(plain(SOURCE, LENGTHS, TARGET), transformer()(SOURCE, LENGTHS, TARGET))
    batch = pack(SOURCE, LENGTHS, TARGET)
    torch.testing.assert_close(plain.packed(batch), scaled.packed(batch))
    with torch.no_grad():
        steps = [model.start(model.encode(SOURCE, LENGTHS), 3) for model in (plain, scaled)]
        first, second = (m.step(TARGET[:, 0], s) for m, s in zip((plain, scaled), steps, strict=True))
    torch.testing.assert_close(first, second)


@pytest.mark.parametrize(
    ("kind", "join", "wanted"),
    [  # x = (3, -1); the sublayer doubles and adds 1; the norm of (a, b) is (1, -1) if a > b, but for its epsilon
        (NoNorm, residual_connection, [10.0, -2.0]),
        (NoNorm, replaced, [7.0, -1.0]),
        (PreNorm, residual_connection, [6.0, -2.0]),
        (PreNorm, replaced, [3.0, -1.0]),
        (PostNorm, residual_connection, [1.0, -1.0]),
        (PostNorm, replaced, [1.0, -1.0]),
    ],
)
def test_what_is_around_a_sublayer_by_pencil_and_paper(kind: type[NoNorm], join: Any, wanted: list[float]) -> None:
    x = torch.tensor([[[3.0, -1.0]]])
    found = kind(2, 0.0, join)(x, lambda x: 2 * x + 1)
    torch.testing.assert_close(found.flatten().tolist(), wanted, atol=1e-4, rtol=0)


def test_without_residuals_nothing_of_a_layers_input_passes_beside_its_sublayers() -> None:
    model = transformer(residual=False, num_layers=1)
    silence(model)
    assert not model(SOURCE, LENGTHS, TARGET).diff(dim=1).any()  # every place says what the biases say
    kept = transformer(num_layers=1)
    silence(kept)
    assert kept.encode(SOURCE, LENGTHS).states.diff(dim=1).abs().min() > 0


@pytest.mark.parametrize(("norm", "norms"), [("pre", 2 * 2 + 2 * 3 + 2), ("post", 2 * 2 + 2 * 3), ("none", 0)])
def test_there_are_as_many_norms_as_the_stack_asks_for(norm: str, norms: int) -> None:
    kinds = [type(module) for module in transformer(norm=norm).modules()]
    assert kinds.count(torch.nn.LayerNorm) == norms


def test_without_the_causal_mask_an_earlier_logit_knows_what_is_written_later() -> None:
    later = TARGET.clone()
    later[:, -1] = 10
    for causal in (True, False):
        model = transformer(causal=causal)
        changed = model(SOURCE, LENGTHS, later) - model(SOURCE, LENGTHS, TARGET)
        assert bool(changed[:, :-1].any()) is not causal


def test_without_the_causal_mask_rows_of_several_strings_know_their_own_future_alone() -> None:
    model = transformer(causal=False)
    batch = pack(SOURCE, LENGTHS, TARGET)
    alone = model(SOURCE, LENGTHS, TARGET[:, :-1])  # the last is only a label
    packed = model.packed(batch)
    for number in range(len(SOURCE)):
        here = batch.target.string == number
        torch.testing.assert_close(packed[here], alone[number, : int(here.sum())])


def test_a_step_of_one_layer_without_the_causal_mask_is_the_last_place_of_what_was_written() -> None:
    model = transformer(causal=False, num_layers=1)
    with torch.no_grad():
        state = model.start(model.encode(SOURCE, LENGTHS), 5)
        for place in range(5):
            last = model(SOURCE, LENGTHS, TARGET[:, : place + 1])[:, -1]
            torch.testing.assert_close(model.step(TARGET[:, place], state), last)


def test_a_configuration_from_before_the_switches_has_all_parts() -> None:
    raw = launcher.compose("train")
    older = {**raw, "model": {k: v for k, v in raw["model"].items() if k not in ("residual", "scale", "causal")}}
    assert config.upgraded(older) == raw


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("model.residual=false", "model.residual must be true beside peers"),
        ("model.scale=false", "model.scale must be true beside peers"),
        ("model.causal=false", "model.causal must be true beside peers"),
        ("model.norm=none", "model.norm must be pre or post beside peers"),
    ],
)
def test_peers_that_cannot_leave_a_part_out_are_refused(override: str, reason: str) -> None:
    loaded = config.build(launcher.compose("train", [override]))
    with pytest.raises(ValueError, match=reason):
        contestants.of_torch(loaded)
