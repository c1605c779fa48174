"""The peers do what torch does, and copying makes them equal or says why it cannot."""

from functools import partial
from typing import Any

import pytest
import torch

from lookback.metrics import sequence_loss
from lookback.models.rnn import Rnn
from lookback.models.transformer import Transformer
from lookback.peers import TorchTransformer, copy_weights, our_names
from lookback.peers_rnn import BareRnn, copy_rnn_weights
from lookback.positions.alibi import Alibi
from lookback.positions.none import NoPositions
from lookback.positions.rotary import Rotary
from lookback.positions.sinusoidal import Sinusoidal

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
BATCH = (
    torch.tensor([[1, 5, 2, 0, 0], [1, 6, 7, 8, 2]]),  # source
    torch.tensor([3, 5]),  # lengths
    torch.tensor([[1, 7, 8], [1, 9, 2]]),  # target
)


def ours(**changes: object) -> Transformer:
    return Transformer(13, 17, **(SIZES | {"tied": False, "log_length": False, **WHOLE} | changes))


def theirs(**changes: object) -> TorchTransformer:
    return TorchTransformer(13, 17, **(SIZES | changes))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_every_parameter_of_ours_has_one_place_in_theirs(norm: str) -> None:
    names = [part for name, _ in theirs(norm=norm).named_parameters() for part in our_names(name)]
    assert sorted(names) == sorted(name for name, _ in ours(norm=norm).named_parameters())


def test_the_packed_projection_holds_query_key_and_value_in_torchs_order() -> None:
    our, their = ours(), theirs()
    copy_weights(our, their)
    packed = their.get_parameter("transformer.decoder.layers.1.multihead_attn.in_proj_weight").chunk(3)
    for part, name in zip(packed, ("query", "key", "value"), strict=True):
        torch.testing.assert_close(part, our.get_parameter(f"decoder.1.cross_attention.{name}_projection.weight"))


def test_training_the_copy_leaves_the_original_as_it_was() -> None:
    our, their = ours(), theirs()
    before = {name: value.clone() for name, value in our.state_dict().items()}
    copy_weights(our, their)
    with torch.no_grad():
        for parameter in their.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(our.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_layers": 1}, "num_layers must be the same in both models, but is 2 in ours and 1 in theirs"),
        ({"num_heads": 4}, "num_heads must be the same in both models, but is 3 in ours and 4 in theirs"),
        ({"norm": "post"}, "norm must be the same in both models, but is pre in ours and post in theirs"),
        (
            {"positions": NoPositions},
            "positions must be the same in both models, but is Sinusoidal in ours and NoPositions in theirs",
        ),
        (
            {"d_ff": 1},
            "transformer.encoder.layers.0.linear1.weight must have the same shape in both models, "
            "but has (20, 12) in ours and (1, 12) in theirs",
        ),
    ],
)
def test_copying_between_different_models_is_refused_with_both_values(
    changes: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the whole sentence is compared)
        copy_weights(ours(), theirs(**changes))
    assert str(error.value) == sentence


@pytest.mark.parametrize(("positions", "name"), [(Alibi, "Alibi"), (partial(Rotary, base=10_000.0), "Rotary")])
def test_positions_that_torch_has_no_door_for_are_refused(positions: object, name: str) -> None:
    rule = f"^nn.Transformer can only add positions to embeddings, but {name} turns or biases attention$"
    with pytest.raises(ValueError, match=rule):
        theirs(positions=positions)


def test_dropout_of_everything_leaves_the_peer_a_residual_path_of_zeros() -> None:
    model = theirs(dropout=1.0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    logits = model(*BATCH)  # the last norm turns zeros into its bias
    expected = model.output(model.get_parameter("transformer.decoder.norm.bias"))
    torch.testing.assert_close(logits, expected.expand(2, 3, 17), rtol=0, atol=1e-5)


def test_the_peer_predicts_without_dropout() -> None:
    dropped, plain = theirs(dropout=0.3), theirs()
    plain.load_state_dict(dropped.state_dict())
    assert not torch.allclose(dropped(*BATCH), plain(*BATCH))
    torch.testing.assert_close(dropped.eval()(*BATCH), plain(*BATCH))


def test_torch_is_told_true_where_a_key_is_hidden() -> None:
    model, told = theirs(), {}

    def listen(module: object, arguments: object, keywords: dict[str, Any]) -> None:
        told.update(keywords)

    model.transformer.encoder.register_forward_pre_hook(listen, with_kwargs=True)
    model.transformer.decoder.register_forward_pre_hook(listen, with_kwargs=True)
    model(*BATCH)
    padding = torch.tensor([[False, False, False, True, True], [False, False, False, False, False]])
    future = torch.tensor([[False, True, True], [False, False, True], [False, False, False]])
    for name, expected in {
        "src_key_padding_mask": padding,
        "memory_key_padding_mask": padding,
        "tgt_mask": future,
    }.items():
        torch.testing.assert_close(told[name], expected, msg=name)
    assert told["tgt_is_causal"] is True  # without the hint torch takes a slower way


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_both_halves_together_are_nn_transformer_as_torch_runs_it_whole(norm: str) -> None:
    model, (source, lengths, target) = theirs(norm=norm), BATCH
    index = torch.arange(5)
    padding = torch.tensor([[False, False, False, True, True], [False, False, False, False, False]])
    states = model.transformer(
        model.encoder_positions.embed(model.source_embedding(source), index),
        model.decoder_positions.embed(model.target_embedding(target), index[:3]),
        src_key_padding_mask=padding,
        tgt_mask=torch.ones(3, 3, dtype=torch.bool).triu(1),
        tgt_is_causal=True,
        memory_key_padding_mask=padding,
    )
    torch.testing.assert_close(model(source, lengths, target), model.output(states))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_peer_keeps_the_padded_width_when_it_predicts(norm: str) -> None:
    model = theirs(norm=norm, num_heads=2).eval()  # torch takes its shortcuts with an even number only
    source = torch.tensor([[1, 5, 2, 0, 0, 0]])
    with torch.no_grad():
        states = model.transformer.encoder(
            model.source_embedding(source), src_key_padding_mask=torch.arange(6)[None] >= 3
        )
    assert states.shape == (1, 6, 12)


def rnn(**changes: Any) -> Rnn:
    settings: dict[str, Any] = {"cell": "gru", "bidirectional": False, "dropout": 0.0, "tied": False}
    settings |= {"d_model": 12, "num_layers": 2, "source_order": "forward"} | changes
    return Rnn(13, settings.pop("target_symbols", 17), **settings)


def bare(source_symbols: int = 13, target_symbols: int = 17, **changes: Any) -> BareRnn:
    settings: dict[str, Any] = {"d_model": 12, "num_layers": 2, "cell": "gru"}
    return BareRnn(source_symbols, target_symbols, **(settings | changes))


@pytest.mark.parametrize(("tied", "target_symbols"), [(False, 17), (True, 13)])
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_without_pads_the_bare_loop_gives_the_logits_and_the_loss_of_our_rnn(
    tied: bool, target_symbols: int, num_layers: int, cell: str
) -> None:
    our = rnn(tied=tied, target_symbols=target_symbols, num_layers=num_layers, cell=cell)
    their = bare(target_symbols=target_symbols, num_layers=num_layers, cell=cell)
    copy_rnn_weights(our, their)
    source, target = torch.randint(4, 13, (3, 7)), torch.randint(4, 13, (3, 6))
    logits = [model(source, torch.tensor([7, 7, 7]), target[:, :-1]) for model in (our, their)]
    assert logits[0].shape == (3, 5, target_symbols)
    torch.testing.assert_close(logits[1], logits[0], rtol=0, atol=1e-6)
    losses = [sequence_loss(given, target[:, 1:]) for given in logits]
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-6, atol=0)


def test_the_bare_loop_hands_over_the_state_after_the_pads() -> None:
    our, their = rnn(), bare()
    copy_rnn_weights(our, their)
    source, lengths, target = BATCH
    logits = their(*BATCH)
    torch.testing.assert_close(logits[1], our(*BATCH)[1], rtol=0, atol=1e-6)  # a row without pads
    assert not torch.allclose(logits[0], our(*BATCH)[0], atol=1e-4)
    as_symbols = our(source, torch.tensor([5, 5]), target)
    torch.testing.assert_close(logits, as_symbols, rtol=0, atol=1e-6)
    torch.testing.assert_close(logits, their(source, lengths * 0, target), rtol=0, atol=0)


def test_training_the_bare_copy_leaves_our_rnn_as_it_was() -> None:
    our, their = rnn(), bare()
    before = {name: value.clone() for name, value in our.state_dict().items()}
    copy_rnn_weights(our, their)
    torch.testing.assert_close(their.state_dict(), before, rtol=0, atol=0)
    with torch.no_grad():
        for parameter in their.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(our.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("changes", "their_changes", "sentence"),
    [
        ({}, {"source_symbols": 14}, "source_symbols {}, but is 13 in ours and 14 in theirs"),
        ({}, {"target_symbols": 18}, "target_symbols {}, but is 17 in ours and 18 in theirs"),
        ({}, {"d_model": 20}, "d_model {}, but is 12 in ours and 20 in theirs"),
        ({}, {"num_layers": 3}, "num_layers {}, but is 2 in ours and 3 in theirs"),
        ({}, {"cell": "lstm"}, "cell {}, but is gru in ours and lstm in theirs"),
        ({"bidirectional": True}, {}, "bidirectional {}, but is True in ours and False in theirs"),
        ({"dropout": 0.3}, {}, "dropout {}, but is 0.3 in ours and 0.0 in theirs"),
        ({"source_order": "reversed"}, {}, "source_order {}, but is reversed in ours and forward in theirs"),
    ],
)
def test_copying_between_different_recurrent_models_is_refused_with_both_values(
    changes: dict[str, object], their_changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the whole sentence is compared)
        copy_rnn_weights(rnn(**changes), bare(**their_changes))
    assert str(error.value) == sentence.format("must be the same in both models")
