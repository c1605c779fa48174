"""What one head asks and finds on a string, in numbers: the look-ups behind the rows of its map."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lookback.attention import MultiHeadAttention
from lookback.decode import evaluating
from lookback.interventions import head_name, layers, parse_head
from lookback.models.base import Seq2Seq
from lookback.probes import Probe

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scored:
    """Where the scores of a head come from, if they are scaled dot products.

    Attributes:
        products: (query, key), q . k, after whatever turns or stretches queries and keys.
        head_width: d_k.
        bias: (query, key), what the position encoding adds to a score; None where it adds nothing.
        value: (key, d_k), what each key hands on.
    """

    products: Numbers
    head_width: int
    bias: Numbers | None
    value: Numbers

    @property
    def scaled(self) -> Numbers:
        """(query, key), q . k / sqrt(d_k)."""
        return self.products / math.sqrt(self.head_width)

    @property
    def scores(self) -> Numbers:
        """(query, key), what the softmax is of."""
        return self.scaled if self.bias is None else self.scaled + self.bias


@dataclass(frozen=True, eq=False)
class Lookups:
    """One head on one string.

    Attributes:
        weights: (query, key), its map.
        visible: (query, key) bool, False where the mask hides a key.
        scored: None where the layer's scores are not scaled dot products.
    """

    weights: Numbers
    visible: NDArray[np.bool_]
    scored: Scored | None


def lookups(model: Seq2Seq, probe: Probe, place: str, head: int) -> Lookups:
    """Watch one head on a string.

    Args:
        model: any model that has the head.
        probe: the string, and what is written for it.
        place: of the layer, such as `cross/layer0`.
        head: its number there.

    Raises:
        ValueError: if the model has no such head.
    """
    parse_head(model, head_name(place, head))
    layer = layers(model)[place]
    given: list[tuple[Any, ...]] = []
    hook = layer.register_forward_pre_hook(lambda _, arguments: given.append(arguments))
    try:
        weights = probe.watch(model)[place][head].astype(np.float64)
    finally:
        hook.remove()
    everywhere = np.ones(weights.shape, dtype=np.bool_)
    if not isinstance(layer, MultiHeadAttention):
        return Lookups(weights, everywhere, None)
    [(x, keys_values, view, _)] = given
    with evaluating(model):
        query, bias = layer.asked(x, view)

    def own(of_heads: torch.Tensor) -> NDArray[Any]:
        """One head's part of (batch=1, heads or 1, ...)."""
        return of_heads[0, head if of_heads.shape[1] > 1 else 0].cpu().numpy()

    scored = Scored(
        own(query.double() @ keys_values.key.double().mT),
        layer.head_width,
        None if bias is None else np.broadcast_to(own(bias.double()), weights.shape),
        own(keys_values.value.double()),
    )
    visible = everywhere if view.mask is None else np.broadcast_to(own(view.mask), weights.shape)
    return Lookups(weights, visible, scored)
