"""Attention by each of the ways that are said to be the same: the lesson's, ours, and torch's own."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lookback import attention, lesson, masks
from lookback.models.transformer import Transformer
from lookback.peers import TorchTransformer, copy_weights
from lookback.positions.base import Positions
from lookback.positions.sinusoidal import Sinusoidal
from lookback.view import View, hide

BATCH, HEADS, QUERY, KEY, HEAD_WIDTH = 2, 3, 5, 7, 6  # no two alike, and a root that has to be rounded
D_MODEL = HEADS * HEAD_WIDTH
NOWHERE, BLIND = "a row may look nowhere", 1  # and which
SOURCE_SYMBOLS, TARGET_SYMBOLS = 13, 17
LENGTHS, TARGET = (3, 6), 5  # real symbols of each source; symbols of each target
SEED = 0
NUMPY = (torch.float64, torch.float32)  # the precisions that it has


@contextmanager
def same_numbers() -> Iterator[None]:
    """The same random numbers each time, and nobody else's are touched."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        yield


class Inputs(NamedTuple):
    """What every way is given.

    Attributes:
        query: (batch, heads, query, head_width).
        key: (batch, heads, key, head_width).
        value: (batch, heads, key, head_width).
        mask: as in `attention.attend`.
        pull: the gradient that comes to the output, shaped like it.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    pull: Tensor


class Result(NamedTuple):
    """What a way gives back; None where it has no such thing."""

    output: Tensor
    weights: Tensor | None
    gradients: tuple[Tensor, ...] | None


Way = Callable[[Inputs], Result]


def mask_kinds(query: int, key: int) -> dict[str, Tensor | None]:
    """A mask of each kind: name -> None, or boolean, broadcasts to (batch, heads, query, key), True = may look."""
    random = torch.rand(BATCH, HEADS, query, key) > 0.5
    random[..., 0] = True
    nowhere = random.clone()
    nowhere[:, :, BLIND] = False
    return {
        "none": None,
        "causal": masks.causal(key)[:, :, :query],
        "padding": masks.padding(torch.tensor([3, key]), key),
        "random": random,
        NOWHERE: nowhere,
    }


def inputs(mask: Tensor | None, dtype: torch.dtype, stretch: float = 1.0) -> Inputs:
    """Random numbers around 1, whose queries are multiplied by `stretch`, and so are all scores."""
    sizes = (QUERY, KEY, KEY, QUERY)
    query, key, value, pull = (torch.randn(BATCH, HEADS, size, HEAD_WIDTH).to(dtype) for size in sizes)
    query, key, value = (part.requires_grad_() for part in (query * stretch, key, value))
    return Inputs(query, key, value, mask, pull)


def lesson_attention(given: Inputs) -> Result:
    """`lesson.scaled_dot_product_attention`, which knows no gradients."""
    query, key, value = (part.detach().numpy() for part in given[:3])
    mask = None if given.mask is None else given.mask.numpy()
    output, weights = lesson.scaled_dot_product_attention(query, key, value, mask)
    return Result(torch.from_numpy(output), torch.from_numpy(weights), None)


def formula(given: Inputs) -> Result:
    """`attention.attend`."""
    output, weights = attention.attend(*given[:3], given.mask)
    return Result(output, weights, _gradients(output, given))


def fused(given: Inputs) -> Result:
    """`attention.attend_fused`, which never forms the weights."""
    output = attention.attend_fused(*given[:3], given.mask)
    return Result(output, None, _gradients(output, given))


def short(given: Inputs) -> Result:
    """`attention.attend_short`, which is not made for rows that may look nowhere."""
    mask = torch.ones(1, 1, 1, 1, dtype=torch.bool) if given.mask is None else given.mask
    output = attention.attend_short(*given[:3], hide(None, mask).to(given.query.dtype))
    return Result(output, None, _gradients(output, given))


def torch_attention(given: Inputs) -> Result:
    """Torch's own `scaled_dot_product_attention`."""
    output = F.scaled_dot_product_attention(*given[:3], attn_mask=given.mask)
    return Result(output, None, _gradients(output, given))


def _gradients(output: Tensor, given: Inputs) -> tuple[Tensor, ...]:
    return torch.autograd.grad(output, given[:3], given.pull, materialize_grads=True)


class Layers(NamedTuple):
    """The layer with several heads, three times with the same weights, and what goes in.

    Attributes:
        x: (batch, token, d_model).
        mask: (batch, heads, token, token), or what broadcasts to it.
        pull: as in `Inputs`.
        ours: in the dtype of x.
        theirs: likewise.
        lessons: has no biases: those of ours must be 0 to compare.
    """

    x: Tensor
    mask: Tensor | None
    pull: Tensor
    ours: attention.MultiHeadAttention
    theirs: nn.MultiheadAttention
    lessons: lesson.MultiHeadAttention


def layers(mask: Tensor | None, dtype: torch.dtype, *, biases: bool) -> Layers:
    """Layers with random weights, and random biases if they are asked for, on random tokens."""
    ours = attention.MultiHeadAttention(D_MODEL, HEADS)
    theirs = nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True)
    lessons = lesson.MultiHeadAttention(D_MODEL, HEADS, np.random.default_rng(0))
    projections = _projections(ours)
    with torch.no_grad():
        for projection in (*projections, ours.output_projection):
            projection.weight.normal_(std=1 / math.sqrt(D_MODEL))
            projection.bias.normal_(std=float(biases))
        theirs.in_proj_weight.copy_(torch.cat([projection.weight for projection in projections]))
        theirs.in_proj_bias.copy_(torch.cat([projection.bias for projection in projections]))
        theirs.out_proj.load_state_dict(ours.output_projection.state_dict())
    for name, projection in zip(("Wq", "Wk", "Wv", "Wo"), (*projections, ours.output_projection), strict=True):
        weight = projection.weight.detach().to(dtype if dtype in NUMPY else torch.float32)
        setattr(lessons, name, weight.numpy().T)
    x, pull = (torch.randn(BATCH, QUERY, D_MODEL).to(dtype) for _ in range(2))
    return Layers(x.requires_grad_(), mask, pull, ours.to(dtype), theirs.to(dtype), lessons)


def _projections(ours: attention.MultiHeadAttention) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    return ours.query_projection, ours.key_projection, ours.value_projection


def lesson_layer(given: Layers) -> Result:
    """`lesson.MultiHeadAttention`."""
    mask = None if given.mask is None else given.mask.numpy()
    output, weights = given.lessons.forward(given.x.detach().numpy(), mask)
    return Result(torch.from_numpy(output), torch.from_numpy(weights), None)


def watched_layer(given: Layers) -> Result:
    """Our layer, asked for its map: the formula runs."""
    maps: attention.Maps = {}
    output = _run(given, maps)
    return Result(output, maps[given.ours.place], _layer_gradients(output, given))


def unwatched_layer(given: Layers) -> Result:
    """Our layer, not asked: the fused kernel runs."""
    output = _run(given, None)
    return Result(output, None, _layer_gradients(output, given))


def _run(given: Layers, maps: attention.Maps | None) -> Tensor:
    index = torch.arange(given.x.shape[1])
    view = View(Positions(D_MODEL, HEADS), index, index, given.mask)
    return given.ours(given.x, given.ours.keys_values(given.x, view.positions, index), view, maps)  # type: ignore[no-any-return]


def _layer_gradients(output: Tensor, given: Layers) -> tuple[Tensor, ...]:
    """Of x, of the three projections in torch's order, and of the output's."""
    ours = given.ours
    parts = [*_projections(ours), ours.output_projection]
    asked = [given.x, *(part.weight for part in parts), *(part.bias for part in parts)]
    x, *found = torch.autograd.grad(output, asked, given.pull, materialize_grads=True)
    return x, torch.cat(found[:3]), torch.cat(found[4:7]), found[3], found[7]


def torch_layer(given: Layers) -> Result:
    """`nn.MultiheadAttention`; it cannot give weights where a row may look nowhere (they would not be numbers)."""
    theirs, hidden = given.theirs, None
    if given.mask is not None:
        whole = given.mask.expand(BATCH, HEADS, QUERY, QUERY)
        hidden = ~whole.flatten(0, 1)  # torch's masks say True = hidden
    asked = hidden is None or not bool(hidden.all(dim=-1).any())
    output, weights = theirs(
        given.x, given.x, given.x, attn_mask=hidden, need_weights=asked, average_attn_weights=False
    )
    out = theirs.out_proj
    parts = (given.x, theirs.in_proj_weight, theirs.in_proj_bias, out.weight, out.bias)
    return Result(output, weights, torch.autograd.grad(output, parts, given.pull))


def transformers(norm: Literal["pre", "post"]) -> tuple[Transformer, TorchTransformer]:
    """Ours and torch's with the same weights."""
    sizes: dict[str, Any] = {"d_model": D_MODEL, "num_heads": HEADS, "num_layers": 2, "d_ff": 20}
    sizes |= {"dropout": 0.0, "norm": norm, "positions": partial(Sinusoidal, base=10_000.0)}
    alike: dict[str, Any] = {"tied": False, "log_length": False, "residual": True, "scale": True, "causal": True}
    ours = Transformer(SOURCE_SYMBOLS, TARGET_SYMBOLS, **sizes, **alike)
    theirs = TorchTransformer(SOURCE_SYMBOLS, TARGET_SYMBOLS, **sizes)
    copy_weights(ours, theirs)
    return ours, theirs


def strings() -> tuple[Tensor, Tensor, Tensor]:
    """Sources with pads, their lengths, and targets; no control tokens, which mean nothing to the layers."""
    source = torch.randint(SOURCE_SYMBOLS, (len(LENGTHS), max(LENGTHS)))
    return source, torch.tensor(LENGTHS), torch.randint(TARGET_SYMBOLS, (len(LENGTHS), TARGET))


def largest(first: Sequence[Tensor], second: Sequence[Tensor] | None = None) -> float:
    """The largest absolute value, or difference; nan if any is."""
    parts = [part.detach().double() for part in first]
    if second is not None:
        parts = [part - other.detach().double() for part, other in zip(parts, second, strict=True)]
    return float(torch.stack([part.abs().max() for part in parts]).max())
