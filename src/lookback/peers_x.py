"""The encoder-decoder of x-transformers, which is no dependency but the extra `bench`. The only room that knows it.

It is imported when a model is built and not before, so that everything else works without it.
"""

import importlib.metadata
import importlib.util
import warnings
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lookback import masks
from lookback.tokens import BOS

DISTRIBUTION = "x-transformers"


def version() -> str | None:
    """The installed version; None where there is none."""
    try:
        if importlib.util.find_spec("x_transformers") is None:
            return None
    except ModuleNotFoundError:  # of a finder that says so in this way
        return None
    return importlib.metadata.version(DISTRIBUTION)


class XTransformersPeer(nn.Module):
    """`x_transformers.XTransformer` with sinusoidal positions and fused attention, called as our models are.

    Everything that is not named here is left as its authors chose it, the first weights too. So it is not quite
    our function: GELU in place of ReLU, no biases in attention and norms, and a learned scale on the waves.

    Args:
        source_symbols: size of the source vocabulary, control tokens included.
        target_symbols: size of the target vocabulary.
        d_model: width of embeddings and layers; a multiple of num_heads.
        num_heads: attention heads in every attention layer; each has width d_model / num_heads.
        num_layers: layers of the encoder, and of the decoder.
        d_ff: inner width of the feed-forward layers.
        dropout: on embeddings, attention weights and inner feed-forward units.
        norm: where norms stand: `pre` or `post`.
        max_length: the longest prefix that `write` feeds; waves have no end of their own.

    Raises:
        ModuleNotFoundError: if x-transformers is not installed.
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
        max_length: int,
    ) -> None:
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it uses torch.jit, which torch 2.13 gives up
            from x_transformers import XTransformer  # noqa: PLC0415 (may be missing, and takes seconds)

        side: dict[str, Any] = {
            "depth": num_layers,
            "heads": num_heads,
            "attn_dim_head": d_model // num_heads,
            "ff_mult": d_ff / d_model,
            "max_seq_len": max_length,
            "use_abs_pos_emb": True,  # or there are no positions at all
            "scaled_sinu_pos_emb": True,
            "attn_flash": True,
            "pre_norm": norm == "pre",
            "emb_dropout": dropout,
            "attn_dropout": dropout,
            "ff_dropout": dropout,
        }
        both = {f"{which}_{name}": value for which in ("enc", "dec") for name, value in side.items()}
        self.model = XTransformer(dim=d_model, enc_num_tokens=source_symbols, dec_num_tokens=target_symbols, **both)

    @property
    def output(self) -> nn.Linear:
        """The layer that makes logits of the decoder's states."""
        return self.model.decoder.net.to_logits  # type: ignore[no-any-return]

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Predict every next token of given targets at once.

        Args:
            source: (batch, source), ids; rows end in PAD.
            lengths: (batch,), real symbols of each row, marks included.
            target: (batch, target), ids; starts with BOS.

        Returns:
            logits (batch, target, symbols).
        """
        seen = masks.padding(lengths, source.shape[1])[:, 0, 0]  # (batch, source), True = may look, as in ours
        memory = self.model.encoder(source, mask=seen, return_embeddings=True)
        return self.model.decoder.net(target, context=memory, context_mask=seen)  # type: ignore[no-any-return]

    def write(self, source: Tensor, lengths: Tensor, tokens: int) -> Tensor:
        """Write the likeliest token at each step, with its own `generate` and its own cache; EOS stops nobody.

        Where nothing is hidden it gets no mask.

        Args:
            source: (batch, source), ids; rows end in PAD.
            lengths: (batch,), real symbols of each row, marks included.
            tokens: how many to write.

        Returns:
            (batch, tokens), ids.
        """
        mask = masks.needed(lengths, source.shape[1])
        seen = None if mask is None else mask[:, 0, 0]
        start = torch.full((len(source), 1), BOS)
        return self.model.generate(source, start, tokens, mask=seen, temperature=0.0, cache_kv=True)  # type: ignore[no-any-return]
