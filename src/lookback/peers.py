"""What people use today, as peers to test and time against. No model of ours is made of it."""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from lookback import masks
from lookback.attention import MultiHeadAttention
from lookback.models.transformer import Transformer
from lookback.positions.base import Positions


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` between embeddings and a linear output: the function that `Transformer` computes.

    Two differences remain. With dropout above 0, torch also drops attention weights and inner feed-forward
    units. And positions can only be added to embeddings: torch has no place for the other two doors.

    Args:
        source_symbols: size of the source vocabulary, control tokens included.
        target_symbols: size of the target vocabulary.
        d_model: width of embeddings and layers; a multiple of num_heads.
        num_heads: attention heads in every attention layer.
        num_layers: layers of the encoder, and of the decoder.
        d_ff: inner width of the feed-forward layers.
        dropout: on embeddings, and wherever torch has it.
        norm: where LayerNorm stands: `pre` or `post`. As in ours, only pre-norm stacks end in one more norm.
        positions: makes a position encoding, such as `Sinusoidal`, from (d_model, num_heads).

    Raises:
        ValueError: if the encoding opens `rotate` or `bias`.
    """

    def __init__(
        self,
        source_symbols: int,
        target_symbols: int,
        *,
        d_model: int,
        num_heads: int,
        num_layers: int,
        d_ff: int,
        dropout: float,
        norm: Literal["pre", "post"],
        positions: Callable[[int, int], Positions],
    ) -> None:
        super().__init__()
        self.source_embedding = nn.Embedding(source_symbols, d_model)
        self.target_embedding = nn.Embedding(target_symbols, d_model)
        self.encoder_positions = positions(d_model, num_heads)
        self.decoder_positions = positions(d_model, num_heads)
        _check_only_embeds(self.encoder_positions)
        pre = norm == "pre"
        sizes = (d_model, num_heads, d_ff, dropout)
        encoder_layer = nn.TransformerEncoderLayer(*sizes, batch_first=True, norm_first=pre)
        decoder_layer = nn.TransformerDecoderLayer(*sizes, batch_first=True, norm_first=pre)
        norms = [nn.LayerNorm(d_model) if pre else None for _ in range(2)]
        # Nested tensors would cut the encoder's states at the longest row in eval mode, and warn about pre-norm.
        self.transformer = nn.Transformer(
            d_model,
            num_heads,
            custom_encoder=nn.TransformerEncoder(encoder_layer, num_layers, norms[0], enable_nested_tensor=False),
            custom_decoder=nn.TransformerDecoder(decoder_layer, num_layers, norms[1]),
            batch_first=True,
        )
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(d_model, target_symbols, bias=False)

    def _embed(self, ids: Tensor, embedding: nn.Embedding, positions: Positions) -> Tensor:
        index = torch.arange(ids.shape[1], device=ids.device)
        x: Tensor = self.dropout(positions.embed(embedding(ids), index))
        return x

    def encode(self, source: Tensor, hidden_keys: Tensor | None) -> Tensor:
        """Read the sources.

        Args:
            source: (batch, source), ids; rows end in PAD.
            hidden_keys: (batch, source), True where there is no symbol: torch's masks say True = hidden. None = all
                are symbols.

        Returns:
            (batch, source, d_model).
        """
        x = self._embed(source, self.source_embedding, self.encoder_positions)
        return self.transformer.encoder(x, src_key_padding_mask=hidden_keys)  # type: ignore[no-any-return]

    def decode(self, target: Tensor, memory: Tensor, hidden_keys: Tensor | None) -> Tensor:
        """Run the decoder on all given targets at once.

        Args:
            target: (batch, target), ids; starts with BOS.
            memory: from `encode`.
            hidden_keys: as in `encode`.

        Returns:
            states (batch, target, d_model), from which `output` makes logits.
        """
        hidden_future = ~masks.causal(target.shape[1], target.device)[0, 0]  # (target, target)
        return self.transformer.decoder(  # type: ignore[no-any-return]
            self._embed(target, self.target_embedding, self.decoder_positions),
            memory,
            tgt_mask=hidden_future,
            tgt_is_causal=True,
            memory_key_padding_mask=hidden_keys,
        )

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Predict every next token of given targets at once.

        Args:
            source: (batch, source), ids; rows end in PAD.
            lengths: (batch,), real symbols of each row, marks included.
            target: (batch, target), ids; starts with BOS.

        Returns:
            logits (batch, target, symbols).
        """
        hidden_keys = hidden(lengths, source.shape[1])
        states = self.decode(target, self.encode(source, hidden_keys), hidden_keys)
        return self.output(states)  # type: ignore[no-any-return]


def hidden(lengths: Tensor, width: int) -> Tensor:
    """(batch,) -> (batch, width), True where a row has no symbol: what torch calls a key padding mask."""
    return ~masks.padding(lengths, width)[:, 0, 0]


def _check_only_embeds(positions: Positions) -> None:
    kind = type(positions)
    if kind.rotate is not Positions.rotate or kind.bias is not Positions.bias:
        raise ValueError(
            f"nn.Transformer can only add positions to embeddings, but {kind.__name__} turns or biases attention"
        )


OUR_NAMES = {
    "transformer.encoder.layers.": "encoder.",
    "transformer.decoder.layers.": "decoder.",
    "transformer.encoder.norm": "encoder_norm",
    "transformer.decoder.norm": "decoder_norm",
    "multihead_attn": "cross_attention",
    "out_proj": "output_projection",
    "linear1": "feed_forward.inner",
    "linear2": "feed_forward.outer",
    "norm1": "residuals.0.norm",
    "norm2": "residuals.1.norm",
    "norm3": "residuals.2.norm",
}


def our_names(name: str) -> list[str]:
    """Which parameters of `Transformer` make up the one of this name in `TorchTransformer`.

    Torch packs the projections of query, key and value, in this order, along the first axis: a weight of
    (3 d_model, d_model) and a bias of (3 d_model,).
    """
    name = name.replace("self_attn", "self_attention" if "decoder" in name else "attention")
    for theirs, ours in OUR_NAMES.items():
        name = name.replace(theirs, ours)
    if "in_proj_" not in name:
        return [name]
    return [name.replace("in_proj_", f"{what}_projection.") for what in ("query", "key", "value")]


@torch.no_grad()
def copy_weights(ours: Transformer, theirs: TorchTransformer) -> None:
    """Give theirs the weights of ours, so that both compute the same function. Copies, shares nothing.

    A tied matrix of ours is copied to each of its three places.

    Raises:
        ValueError: if they differ in a size, in `norm` or in the position encoding, naming what and both values.
    """
    _check_same_form(ours, theirs)
    source = dict(ours.named_parameters(remove_duplicate=False))
    for name, whole in theirs.named_parameters():
        packed = torch.cat([source.pop(part) for part in our_names(name)])
        if packed.shape != whole.shape:
            shapes = f"{tuple(packed.shape)} in ours and {tuple(whole.shape)} in theirs"
            raise ValueError(f"{name} must have the same shape in both models, but has {shapes}")
        whole.copy_(packed)
    assert not source


def _check_same_form(ours: Transformer, theirs: TorchTransformer) -> None:
    """Refuse what shapes do not show, or would show unclearly."""
    encoder = theirs.transformer.encoder
    norms = isinstance(ours.encoder_norm, nn.LayerNorm), encoder.norm is not None
    forms = {
        "num_layers": (len(ours.encoder), encoder.num_layers),
        "num_heads": (_num_heads(ours), _num_heads(theirs)),
        "norm": tuple("pre" if pre else "post" for pre in norms),
        "positions": tuple(type(model.encoder_positions).__name__ for model in (ours, theirs)),
    }
    refuse_differences(forms)


def refuse_differences(forms: Mapping[str, tuple[object, ...]]) -> None:
    """Of each form by its name, ours and theirs must be equal.

    Raises:
        ValueError: naming the first that differs, and both values.
    """
    for name, (our_form, their_form) in forms.items():
        if our_form != their_form:
            values = f"{our_form} in ours and {their_form} in theirs"
            raise ValueError(f"{name} must be the same in both models, but is {values}")


def _num_heads(model: nn.Module) -> int:
    kinds = (MultiHeadAttention, nn.MultiheadAttention)
    return next(module.num_heads for module in model.modules() if isinstance(module, kinds))
