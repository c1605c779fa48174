"""attention.py against lesson.py, torch's own attention, and pencil and paper."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lookback import attention, lesson, masks
from lookback.attention import SHORT, Maps, MultiHeadAttention, attend, attend_fused, attend_short
from lookback.positions.base import Positions
from lookback.view import View, hide

BATCH, HEADS, QUERY, KEY, WIDTH = 2, 3, 5, 7, 4
D_MODEL = HEADS * WIDTH
LENGTHS = torch.tensor([KEY, 4])
KINDS = [
    "nothing",
    "padding",
    "causal",
    "causal and padding",
    "a mask per head",
    "bias",
    "bias and padding",
    "bias, causal and padding",
    "bias and a mask per head",
]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
Context = Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor | None], Tensor]


def formula(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
    return attend(query, key, value, mask, bias)[0]


both_paths = pytest.mark.parametrize("context_of", [formula, attend_fused], ids=["formula", "fused"])
every_kind = pytest.mark.parametrize("kind", KINDS)
both_dtypes = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


@dataclass(frozen=True)
class Case:
    """What one attention is given."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    bias: Tensor | None

    def leaves(self) -> list[Tensor]:
        return [tensor for tensor in (self.query, self.key, self.value, self.bias) if tensor is not None]

    def require_gradients(self) -> "Case":
        bias = None if self.bias is None else self.bias.clone().requires_grad_()
        query, key, value = (t.clone().requires_grad_() for t in (self.query, self.key, self.value))
        return Case(query, key, value, self.mask, bias)

    def context(self, context_of: Context) -> Tensor:
        return context_of(self.query, self.key, self.value, self.mask, self.bias)

    def additive(self) -> Tensor | None:
        """Mask and bias as the one number mask that torch's functions add, -inf = may not look."""
        if self.mask is None and self.bias is None:
            return None
        shape = (self.query.shape[0], HEADS, self.query.shape[2], self.key.shape[2])
        added = self.query.new_zeros(shape) if self.bias is None else self.bias.expand(shape)
        return added if self.mask is None else added.masked_fill(~self.mask, -math.inf)


def make_mask(kind: str, generator: torch.Generator) -> Tensor | None:
    if "per head" in kind:
        mask = torch.rand(BATCH, HEADS, QUERY, KEY, generator=generator) > 0.5
        mask[..., 0] = True  # no row is left with nothing
        return mask
    parts = [masks.causal(KEY)] if "causal" in kind else []
    parts += [masks.padding(LENGTHS, KEY)] if "padding" in kind else []
    return None if not parts else parts[0] if len(parts) == 1 else parts[0] & parts[1]


def make_case(kind: str, dtype: torch.dtype = torch.float64, seed: int = 0) -> Case:
    """Random input for one kind of mask; a causal mask is square, so it has as many queries as keys."""
    generator = torch.Generator().manual_seed(seed)
    queries = KEY if "causal" in kind else QUERY

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    query, key, value = normal(BATCH, HEADS, queries, WIDTH), *(normal(BATCH, HEADS, KEY, WIDTH) for _ in range(2))
    bias = normal(1, HEADS, queries, KEY) if "bias" in kind else None
    return Case(query, key, value, make_mask(kind, generator), bias)


def lesson_attention(case: Case) -> tuple[Tensor, Tensor]:
    """lesson.py's output and weights, in float64.

    It has no bias, but keys with a one-hot place appended, and queries with their row of the bias appended, have
    the bias in their product; the factors undo the change of the scale.
    """
    Q, K, V = (t.detach().double().numpy() for t in (case.query, case.key, case.value))
    mask = None if case.mask is None else case.mask.numpy()
    if case.bias is not None:
        B = np.broadcast_to(case.bias.detach().double().numpy(), (*Q.shape[:3], K.shape[2]))
        width = Q.shape[-1] + K.shape[2]
        Q = np.concatenate([Q * np.sqrt(width / Q.shape[-1]), B * np.sqrt(width)], axis=-1)
        K = np.concatenate([K, np.broadcast_to(np.eye(K.shape[2]), (*K.shape[:3], K.shape[2]))], axis=-1)
    output, weights = lesson.scaled_dot_product_attention(Q, K, V, mask)
    return torch.from_numpy(output), torch.from_numpy(weights)


def assert_close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------------------------------------------ the formula


@both_paths
def test_one_query_between_two_keys_weighs_them_as_on_paper(context_of: Context) -> None:
    query = torch.tensor([[[[0.0, math.sqrt(2)]]]], dtype=torch.float64)
    identity = torch.eye(2, dtype=torch.float64)[None, None]
    expected = torch.tensor([1.0, math.e], dtype=torch.float64) / (1 + math.e)
    assert_close(context_of(query, identity, identity, None, None)[0, 0, 0], expected, 1e-12)
    assert_close(attend(query, identity, identity)[1][0, 0, 0], expected, 1e-12)


@both_dtypes
@every_kind
@both_paths
def test_the_context_equals_the_lessons(context_of: Context, kind: str, dtype: torch.dtype) -> None:
    case = make_case(kind, dtype)
    context = case.context(context_of)
    assert context.dtype == dtype
    assert context.shape == case.query.shape
    assert_close(context, lesson_attention(case)[0], TOLERANCE[dtype])


@both_dtypes
@every_kind
def test_the_weights_equal_the_lessons_and_sum_to_one_over_the_keys(kind: str, dtype: torch.dtype) -> None:
    case = make_case(kind, dtype)
    _, weights = attend(case.query, case.key, case.value, case.mask, case.bias)
    assert weights.shape == (BATCH, HEADS, case.query.shape[2], KEY)
    assert_close(weights, lesson_attention(case)[1], TOLERANCE[dtype])
    assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), 1e-6)
    if case.mask is not None:
        assert torch.equal(weights > 0, case.mask.expand_as(weights))


@both_dtypes
@every_kind
@both_paths
def test_context_and_gradients_equal_torchs(context_of: Context, kind: str, dtype: torch.dtype) -> None:
    ours, theirs = (make_case(kind, dtype).require_gradients() for _ in range(2))
    context = ours.context(context_of)
    expected = F.scaled_dot_product_attention(theirs.query, theirs.key, theirs.value, theirs.additive())
    assert_close(context, expected, TOLERANCE[dtype])
    probe = torch.randn(context.shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    gradients = torch.autograd.grad(context, ours.leaves(), probe)
    for actual, gradient in zip(gradients, torch.autograd.grad(expected, theirs.leaves(), probe), strict=True):
        assert_close(actual, gradient, TOLERANCE[dtype])


@pytest.mark.parametrize("kind", ["nothing", "causal and padding", "a mask per head", "bias and a mask per head"])
@both_paths
def test_gradients_are_the_slope_of_the_lessons_formula(context_of: Context, kind: str) -> None:
    case = make_case(kind).require_gradients()
    if case.mask is not None:
        mask = case.mask.clone()
        mask[0, :, 3] = False  # one query that may look nowhere
        case = replace(case, mask=mask)
    context = case.context(context_of)
    generator = torch.Generator().manual_seed(1)
    probe, *directions = (
        torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in (context, *case.leaves())
    )
    gradients = torch.autograd.grad(context, case.leaves(), probe)

    def moved(by: float) -> float:
        parts = [leaf.detach() + by * way for leaf, way in zip(case.leaves(), directions, strict=True)]
        at = Case(parts[0], parts[1], parts[2], case.mask, parts[3] if len(parts) == 4 else None)
        return float((lesson_attention(at)[0] * probe).sum())

    slope = (moved(1e-5) - moved(-1e-5)) / 2e-5
    ours = sum(float((g * way).sum()) for g, way in zip(gradients, directions, strict=True))
    assert ours == pytest.approx(slope, rel=1e-6)


@both_paths
def test_permuting_the_keys_with_their_values_changes_nothing(context_of: Context) -> None:
    case = make_case("nothing")
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    permuted = replace(case, key=case.key[:, :, order], value=case.value[:, :, order])
    assert_close(permuted.context(context_of), case.context(context_of), 1e-12)


@both_paths
def test_a_key_that_points_along_the_query_far_enough_is_all_that_is_seen(context_of: Context) -> None:
    key = torch.eye(KEY)[None, None]
    value = torch.arange(KEY * KEY, dtype=torch.float32).view(1, 1, KEY, KEY)
    context = context_of(key[:, :, [2, 5]] * 1000, key, value, None, None)
    assert_close(context, value[:, :, [2, 5]], 1e-6)


@both_paths
def test_scores_ten_thousand_times_as_large_stay_finite(context_of: Context) -> None:
    case = make_case("bias and padding", torch.float32).require_gradients()
    context = replace(case, query=case.query * 10_000).context(context_of)
    assert bool(context.isfinite().all())
    weights = attend(case.query * 10_000, case.key, case.value, case.mask, case.bias)[1]
    assert_close(weights.sum(-1), torch.ones(BATCH, HEADS, QUERY), 1e-6)
    assert all(bool(g.isfinite().all()) for g in torch.autograd.grad(context.sum(), case.leaves()))


def test_one_query_with_five_keys_and_no_mask_sees_all_five() -> None:
    case = make_case("nothing")
    _, weights = attend(case.query[:, :, :1], case.key[:, :, :5], case.value[:, :, :5])
    assert weights.shape == (BATCH, HEADS, 1, 5)
    assert bool((weights > 0).all())


# --------------------------------------------------------------------------------------------------- the mask


@pytest.mark.parametrize("kind", [kind for kind in KINDS if make_case(kind).mask is not None])
@both_paths
def test_hidden_keys_and_values_of_a_million_change_nothing(context_of: Context, kind: str) -> None:
    case = make_case(kind, torch.float32)
    assert case.mask is not None
    queries = case.query.shape[2]
    seen = case.mask.expand(BATCH, HEADS, queries, KEY)
    for query in range(queries):
        hidden = ~seen[:, :, query, :, None]
        changed = replace(case, key=case.key.masked_fill(hidden, 1e6), value=case.value.masked_fill(hidden, 1e6))
        actual, expected = changed.context(context_of), case.context(context_of)
        assert_close(actual[:, :, query], expected[:, :, query], 1e-6)


@both_paths
def test_true_means_may_look_so_a_mask_of_one_key_gives_that_keys_value(context_of: Context) -> None:
    case = make_case("nothing")
    mask = (torch.arange(KEY) == 2)[None, None, None, :]
    context = replace(case, mask=mask).context(context_of)
    assert_close(context, case.value[:, :, 2:3].expand_as(context), 1e-12)


@both_paths
def test_a_mask_of_nothing_but_true_equals_no_mask(context_of: Context) -> None:
    case = make_case("bias")
    masked = replace(case, mask=torch.ones(1, 1, 1, KEY, dtype=torch.bool))
    assert_close(masked.context(context_of), case.context(context_of), 1e-12)


@pytest.mark.parametrize("biased", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("where", ["one query of one head", "one query", "a whole row of the batch"])
@both_paths
def test_a_query_that_may_look_nowhere_gets_nothing_and_leaves_the_others_as_they_were(
    context_of: Context, where: str, biased: bool
) -> None:
    case = make_case("bias and a mask per head" if biased else "a mask per head").require_gradients()
    assert case.mask is not None
    blocked = torch.zeros(BATCH, HEADS, QUERY, dtype=torch.bool)
    match where:
        case "one query of one head":
            blocked[1, 2, 3] = True
        case "one query":
            blocked[:, :, 1] = True
        case _:
            blocked[1] = True
    shut = replace(case, mask=case.mask & ~blocked[..., None])
    context = shut.context(context_of)
    _, weights = attend(shut.query, shut.key, shut.value, shut.mask, shut.bias)
    assert bool((context[blocked] == 0).all())
    assert bool((weights[blocked] == 0).all())
    free = case.context(context_of)
    assert_close(context[~blocked], free[~blocked], 1e-12)

    probe = torch.randn(context.shape, generator=torch.Generator().manual_seed(1), dtype=context.dtype)
    gradients = torch.autograd.grad(context, case.leaves(), probe)
    others = torch.autograd.grad(free, case.leaves(), probe.masked_fill(blocked[..., None], 0.0))
    assert bool((gradients[0][blocked] == 0).all())
    for actual, expected in zip(gradients, others, strict=True):
        assert bool(actual.isfinite().all())
        assert_close(actual, expected, 1e-12)


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@pytest.mark.parametrize("kind", ["a mask per head", "bias and a mask per head"])
@both_paths
def test_a_query_that_may_look_nowhere_makes_no_nan_that_anomaly_detection_would_stop_at(
    context_of: Context, kind: str
) -> None:
    case = make_case(kind).require_gradients()
    assert case.mask is not None
    mask = case.mask.clone()
    mask[1, :, 3] = False
    with torch.autograd.set_detect_anomaly(True):
        gradients = torch.autograd.grad(replace(case, mask=mask).context(context_of).sum(), case.leaves())
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


@pytest.mark.parametrize(
    ("mask", "what"),
    [
        (torch.ones(BATCH, HEADS, QUERY, KEY), "torch.float32 of shape (2, 3, 5, 7)"),
        (torch.ones(BATCH, 1, 1, KEY, dtype=torch.int64), "torch.int64 of shape (2, 1, 1, 7)"),
        (torch.ones(BATCH, 1, QUERY, KEY, dtype=torch.uint8), "torch.uint8 of shape (2, 1, 5, 7)"),
        (torch.ones(HEADS, QUERY, KEY, dtype=torch.bool), "torch.bool of shape (3, 5, 7)"),
        (torch.ones(QUERY, KEY, dtype=torch.bool), "torch.bool of shape (5, 7)"),
        (torch.zeros(QUERY, KEY), "torch.float32 of shape (5, 7)"),
    ],
    ids=["float", "int64", "uint8", "3-d", "2-d", "2-d float"],
)
@pytest.mark.parametrize("kind", ["nothing", "bias"])
@both_paths
def test_a_mask_that_could_be_misread_is_refused(context_of: Context, kind: str, mask: Tensor, what: str) -> None:
    rule = "mask must be boolean (True = may look) and 4-d (batch, heads, query, key), but is "
    with pytest.raises(ValueError, match=f"^{re.escape(rule + what)}$"):
        replace(make_case(kind, torch.float32), mask=mask).context(context_of)


# ---------------------------------------------------------------------------------------------- half precision


@pytest.mark.parametrize("autocast", [False, True], ids=["half inputs", "autocast"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@every_kind
def test_half_precision_works_hides_exactly_and_keeps_its_dtype(
    kind: str, dtype: torch.dtype, autocast: bool
) -> None:
    exact = make_case(kind, torch.float32)
    case = exact if autocast else make_case(kind, dtype)
    with torch.autocast("cpu", dtype, enabled=autocast):
        context, weights = attend(case.query, case.key, case.value, case.mask, case.bias)
        fused = case.context(attend_fused)
    assert context.dtype == fused.dtype == dtype
    expected_context, expected_weights = lesson_attention(exact)
    assert_close(context, expected_context, 5e-2)
    assert_close(fused, expected_context, 5e-2)
    assert_close(weights, expected_weights, 5e-2)
    assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), 1e-2)
    if case.mask is not None:
        assert bool((weights.masked_select(~case.mask) == 0).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["a mask per head", "bias and a mask per head"])
@both_paths
def test_a_query_that_may_look_nowhere_gets_nothing_in_half_precision_and_finite_gradients(
    context_of: Context, kind: str, dtype: torch.dtype
) -> None:
    case = make_case(kind, dtype).require_gradients()
    assert case.mask is not None
    mask = case.mask.clone()
    mask[1, :, 3] = False
    context = replace(case, mask=mask).context(context_of)
    assert bool((context[1, :, 3] == 0).all())
    gradients = torch.autograd.grad(context.sum(), case.leaves())
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


@pytest.mark.parametrize("kind", ["bias", "bias and padding"])
@pytest.mark.parametrize(
    ("dtype", "wider"),
    [(torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float32, torch.float64)],
    ids=str,
)
@both_paths
def test_a_bias_of_a_wider_dtype_than_the_queries_is_taken_and_the_context_keeps_theirs(
    context_of: Context, dtype: torch.dtype, wider: torch.dtype, kind: str
) -> None:
    case = replace(make_case(kind, dtype), bias=make_case(kind, wider).bias)
    context = case.context(context_of)
    assert context.dtype == dtype
    assert_close(context, lesson_attention(make_case(kind))[0], 1e-5 if dtype == torch.float32 else 5e-2)


@both_paths
def test_products_past_float16_whose_scores_are_within_it_do_not_overflow(context_of: Context) -> None:
    """60 * 60 * 64 is past 65,504, the largest float16; divided by sqrt(64) it is not."""
    query = torch.full((1, 1, 1, 64), 60.0, dtype=torch.float16)
    key = torch.cat([query, query - 1], dim=2)
    value = torch.randn(1, 1, 2, 64, generator=torch.Generator().manual_seed(0)).half()
    assert_close(context_of(query, key, value, None, None)[0, 0, 0], value[0, 0, 0], 1e-3)


# ------------------------------------------------------------------------------------------- several heads


class Given(Positions):
    """Adds the bias it is given, and counts how often it is asked."""

    def __init__(self, given: Tensor | None) -> None:
        super().__init__(D_MODEL, HEADS)
        self.given = given
        self.asked = 0

    def bias(self, query_index: Tensor, key_index: Tensor, key_lengths: Tensor | None) -> Tensor | None:
        self.asked += 1
        return self.given


class Stretched(Positions):
    """Makes what stands at place t (1 + t) times as long: a `rotate` that anyone can work out."""

    def rotate(self, x: Tensor, index: Tensor) -> Tensor:
        return x * (1 + index)[:, None]


def make_layer(dtype: torch.dtype = torch.float64, place: str = "attention") -> MultiHeadAttention:
    torch.manual_seed(0)
    layer = MultiHeadAttention(D_MODEL, HEADS, place)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer.to(dtype)


def make_inputs(queries: int = QUERY, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    shapes = ((BATCH, queries, D_MODEL), (BATCH, KEY, D_MODEL))
    x, memory = (torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes)
    return x, memory


def look(
    layer: MultiHeadAttention, x: Tensor, memory: Tensor, case: Case | None = None, maps: Maps | None = None
) -> Tensor:
    """Attend from x to memory with the mask and the bias of a case."""
    positions = Given(None if case is None else case.bias)
    index, key_index = torch.arange(x.shape[1]), torch.arange(memory.shape[1])
    view = View(positions, index, key_index, None if case is None else case.mask)
    output: Tensor = layer(x, layer.keys_values(memory, positions, key_index), view, maps)
    return output


def torch_layer(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    """torch's layer with copies of our weights."""
    parts = (ours.query_projection, ours.key_projection, ours.value_projection)
    theirs = nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True, dtype=parts[0].weight.dtype)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        theirs.out_proj.load_state_dict(ours.output_projection.state_dict())
    return theirs


@pytest.mark.parametrize("watched", [False, True], ids=["fused", "watched"])
@both_dtypes
@every_kind
def test_the_layer_and_all_its_gradients_equal_torchs_with_the_same_weights(
    kind: str, dtype: torch.dtype, watched: bool
) -> None:
    case = make_case(kind, dtype)
    ours = make_layer(dtype)
    theirs = torch_layer(ours)
    x, memory = (t.requires_grad_() for t in make_inputs(case.query.shape[2], dtype))
    maps: Maps | None = {} if watched else None
    output = look(ours, x, memory, case, maps)
    additive = case.additive()
    added = None if additive is None else additive.flatten(0, 1)  # torch's layer wants (batch * heads, query, key)
    expected, weights = theirs(x, memory, memory, attn_mask=added, average_attn_weights=False)
    assert_close(output, expected, TOLERANCE[dtype])
    if maps is not None:
        assert_close(maps["attention"], weights, TOLERANCE[dtype])

    probe = torch.randn(output.shape, generator=torch.Generator().manual_seed(3), dtype=dtype)
    parts = (ours.query_projection, ours.key_projection, ours.value_projection)
    our_leaves = [x, memory, *(part.weight for part in parts), *(part.bias for part in parts)]
    our_leaves += [*ours.output_projection.parameters()]
    their_leaves = [x, memory, theirs.in_proj_weight, theirs.in_proj_bias, *theirs.out_proj.parameters()]
    of = torch.autograd.grad(output, our_leaves, probe)
    gradients = [*of[:2], torch.cat(of[2:5]), torch.cat(of[5:8]), *of[8:]]
    for actual, gradient in zip(gradients, torch.autograd.grad(expected, their_leaves, probe), strict=True):
        assert_close(actual, gradient, TOLERANCE[dtype])


@both_dtypes
@pytest.mark.parametrize("kind", ["nothing", "causal", "causal and padding"])
def test_the_layer_equals_the_lessons_heads_with_the_same_weights(kind: str, dtype: torch.dtype) -> None:
    theirs = lesson.MultiHeadAttention(D_MODEL, HEADS, np.random.default_rng(0))
    ours = MultiHeadAttention(D_MODEL, HEADS)
    parts = (ours.query_projection, ours.key_projection, ours.value_projection, ours.output_projection)
    with torch.no_grad():
        for part, W in zip(parts, (theirs.Wq, theirs.Wk, theirs.Wv, theirs.Wo), strict=True):
            part.weight.copy_(torch.from_numpy(W.T))
            part.bias.zero_()
    case = make_case(kind, dtype)
    _, x = make_inputs(dtype=dtype)
    maps: Maps = {}
    output = look(ours.to(dtype), x, x, case, maps)
    expected, weights = theirs.forward(x.double().numpy(), None if case.mask is None else case.mask.numpy())
    tolerance = 1e-5 if dtype == torch.float32 else 1e-6  # the weights passed through float32
    assert_close(output, torch.from_numpy(expected), tolerance)
    assert_close(maps["attention"], torch.from_numpy(weights), tolerance)
    assert_close(look(ours, x, x, case), output, tolerance)


@both_dtypes
@every_kind
def test_the_output_is_the_same_whether_maps_are_asked_for_or_not(kind: str, dtype: torch.dtype) -> None:
    case = make_case(kind, dtype)
    x, memory = make_inputs(case.query.shape[2], dtype)
    layer = make_layer(dtype)
    assert_close(look(layer, x, memory, case, {}), look(layer, x, memory, case), 1e-6)


def test_maps_are_put_under_the_layers_place_with_an_axis_of_heads_that_differ() -> None:
    maps: Maps = {"before": torch.zeros(())}
    x, memory = make_inputs()
    output = look(make_layer(place="cross/layer1"), x, memory, maps=maps)
    assert output.shape == (BATCH, QUERY, D_MODEL)
    assert list(maps) == ["before", "cross/layer1"]
    weights = maps["cross/layer1"]
    assert weights.shape == (BATCH, HEADS, QUERY, KEY)
    assert_close(weights.sum(-1), torch.ones(BATCH, HEADS, QUERY), 1e-12)
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert bool(((weights[:, first] - weights[:, second]).abs() > 0.05).any())


def test_the_layer_scales_by_the_width_of_a_head_not_of_the_model() -> None:
    layer = make_layer()
    x, memory = make_inputs()
    maps: Maps = {}
    look(layer, x, memory, maps=maps)
    query, key = layer.query_projection(x), layer.key_projection(memory)
    for head in range(HEADS):
        columns = slice(head * WIDTH, (head + 1) * WIDTH)
        scores = query[..., columns] @ key[..., columns].mT / math.sqrt(WIDTH)
        assert_close(maps["attention"][:, head], scores.softmax(-1), 1e-12)


@pytest.mark.parametrize("watched", [False, True], ids=["fused", "watched"])
def test_queries_and_keys_are_turned_by_their_own_places_and_values_are_not(watched: bool) -> None:
    layer, positions = make_layer(), Stretched(D_MODEL, HEADS)
    x, memory = make_inputs()
    query_index, key_index = torch.tensor([4, 0, 9, 2, 1]), torch.tensor([3, 1, 0, 8, 2, 6, 5])
    view = View(positions, query_index, key_index)
    output = layer(x, layer.keys_values(memory, positions, key_index), view, {} if watched else None)

    def heads(of: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.stack(np.split(of.detach().numpy(), HEADS, axis=-1), axis=1)

    Q = heads(layer.query_projection(x)) * (1 + query_index.numpy())[:, None]
    K = heads(layer.key_projection(memory)) * (1 + key_index.numpy())[:, None]
    context, _ = lesson.scaled_dot_product_attention(Q, K, heads(layer.value_projection(memory)))
    joined = torch.from_numpy(np.concatenate(list(context.swapaxes(0, 1)), axis=-1))
    assert_close(output, layer.output_projection(joined), 1e-12)


def test_layers_that_share_a_view_work_out_its_bias_once() -> None:
    positions = Given(make_case("bias").bias)
    index, key_index = torch.arange(QUERY), torch.arange(KEY)
    view = View(positions, index, key_index)
    x, memory = make_inputs()
    for layer in (make_layer(), make_layer()):
        layer(x, layer.keys_values(memory, positions, key_index), view)
        layer(x, layer.keys_values(memory, positions, key_index), view, {})
    assert positions.asked == 1


@pytest.mark.parametrize("watched", [False, True], ids=["fused", "watched"])
def test_the_rows_of_a_batch_do_not_see_each_other(watched: bool) -> None:
    layer = make_layer()
    x, memory = make_inputs()
    together = look(layer, x, memory, maps={} if watched else None)
    swapped = look(layer, x.flip(0), memory.flip(0), maps={} if watched else None)
    alone = torch.cat([look(layer, x[[row]], memory[[row]], maps={} if watched else None) for row in range(BATCH)])
    assert_close(swapped, together.flip(0), 1e-12)
    assert_close(alone, together, 1e-12)


def test_training_mode_drops_no_weights_so_a_map_is_what_was_used() -> None:
    layer = make_layer().train()
    x, memory = make_inputs()
    maps: Maps = {}
    assert_close(look(layer, x, memory, maps=maps), look(layer.eval(), x, memory), 1e-12)
    assert_close(maps["attention"].sum(-1), torch.ones(BATCH, HEADS, QUERY), 1e-12)


@pytest.mark.parametrize("maps", [None, {}], ids=["fused", "watched"])
def test_the_layer_refuses_a_mask_that_could_be_misread(maps: Maps | None) -> None:
    x, memory = make_inputs()
    case = replace(make_case("nothing"), mask=torch.ones(HEADS, QUERY, KEY, dtype=torch.bool))
    rule = "mask must be boolean (True = may look) and 4-d (batch, heads, query, key), "
    with pytest.raises(ValueError, match=f"^{re.escape(rule + 'but is torch.bool of shape (3, 5, 7)')}$"):
        look(make_layer(), x, memory, case, maps)


def test_a_width_that_the_heads_cannot_share_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^d_model must be a multiple of num_heads, but is 10 with num_heads 4$"):
        MultiHeadAttention(10, 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@every_kind
def test_the_layer_under_autocast_is_close_to_float32_and_hides_exactly(kind: str, dtype: torch.dtype) -> None:
    case = make_case(kind, torch.float32)
    x, memory = make_inputs(case.query.shape[2], torch.float32)
    layer = make_layer(torch.float32)
    maps: Maps = {}
    with torch.autocast("cpu", dtype):
        watched, fused = look(layer, x, memory, case, maps), look(layer, x, memory, case)
    assert watched.dtype == fused.dtype == dtype
    assert bool(((watched - look(layer, x, memory, case)).abs() < 0.2).all())
    assert bool(((fused - watched).abs() < 0.2).all())
    assert_close(maps["attention"].sum(-1), torch.ones(maps["attention"].shape[:-1]), 1e-2)
    if case.mask is not None:
        assert bool((maps["attention"].masked_select(~case.mask) == 0).all())


# ------------------------------------------------------------------------------------------------ the change


def aimed(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Head h of query t looks at key (h + 2 t) mod 7 alone, whatever the weights were."""
    heads, queries = torch.arange(HEADS)[:, None], torch.arange(weights.shape[2])[None]
    return F.one_hot((heads + 2 * queries) % KEY, KEY).to(weights.dtype).expand_as(weights)


def test_a_layer_starts_without_a_change_and_knows_its_place_and_heads() -> None:
    layer = make_layer(place="cross/layer1")
    assert layer.change is None
    assert (layer.place, layer.num_heads) == ("cross/layer1", HEADS)


@every_kind
def test_without_a_change_the_fused_kernel_runs_and_its_context_is_used_bit_for_bit(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = make_case(kind)
    x, memory = make_inputs(case.query.shape[2])
    layer = make_layer()
    keys_values = layer.keys_values(memory, Positions(D_MODEL, HEADS), torch.arange(KEY))
    query = layer.split_heads(layer.query_projection(x))
    context = attend_fused(query, *keys_values, case.mask, case.bias)
    expected = layer.output_projection(context.transpose(1, 2).reshape(BATCH, -1, D_MODEL))
    layer.change = aimed
    assert not torch.allclose(look(layer, x, memory, case), expected)
    layer.change = None
    with monkeypatch.context() as patched, torch.no_grad():
        patched.setattr("lookback.attention.attend", None)  # whoever calls it fails
        assert torch.equal(look(layer, x, memory, case), expected)


@every_kind
def test_short_rows_have_the_context_and_the_gradients_of_the_formula(kind: str) -> None:
    case = make_case(kind)
    mask = torch.ones(1, 1, QUERY, KEY, dtype=torch.bool) if case.mask is None else case.mask
    found = []
    for short in (True, False):
        query, key, value = (part.clone().requires_grad_() for part in (case.query, case.key, case.value))
        bias = None if case.bias is None else case.bias.clone().requires_grad_()
        if short:
            context = attend_short(query, key, value, hide(bias, mask).double())
        else:
            context = attend(query, key, value, mask, bias)[0]
        context = context * mask.any(dim=-1, keepdim=True)  # a query that may look nowhere is nobody's here
        (context**2).sum().backward()  # type: ignore[no-untyped-call]
        found.append([context, query.grad, key.grad, value.grad, None if bias is None else bias.grad])
    for ours, theirs in zip(*found, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert_close(ours, theirs, 1e-12)


@pytest.mark.parametrize(("keys", "packed", "short"), [(32, True, True), (33, True, False), (32, False, False)])
def test_only_packed_rows_of_few_keys_take_the_products(
    keys: int, packed: bool, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SHORT == 32
    called: list[str] = []

    def spy(real: Callable[..., Tensor], *args: Any) -> Tensor:
        called.append(real.__name__)
        return real(*args)

    for function in (attend_short, attend_fused):
        monkeypatch.setattr(attention, function.__name__, partial(spy, function))
    layer, x = make_layer(), torch.ones(BATCH, keys, D_MODEL, dtype=torch.float64)
    index = torch.arange(keys)
    positions = Positions(D_MODEL, HEADS)
    mask = torch.ones(1, 1, keys, keys, dtype=torch.bool)
    layer(x, layer.keys_values(x, positions, index), View(positions, index, index, mask, packed=packed))
    assert called == ["attend_short" if short else "attend_fused"]


@pytest.mark.parametrize("watched", [False, True], ids=["fused", "watched"])
def test_a_change_is_what_the_output_is_made_of_and_what_the_map_shows(watched: bool) -> None:
    layer = make_layer()
    x, memory = make_inputs()
    layer.change = aimed
    maps: Maps | None = {} if watched else None
    output = look(layer, x, memory, maps=maps)
    value = layer.value_projection(memory)
    for query in range(QUERY):
        parts = [value[:, (head + 2 * query) % KEY, head * WIDTH : (head + 1) * WIDTH] for head in range(HEADS)]
        assert_close(output[:, query], layer.output_projection(torch.cat(parts, dim=-1)), 1e-12)
    if maps is not None:
        assert torch.equal(maps["attention"], aimed(maps["attention"], None))


@pytest.mark.parametrize("watched", [False, True], ids=["fused", "watched"])
@every_kind
def test_a_change_is_given_the_weights_and_the_mask_and_one_that_changes_nothing_changes_nothing(
    kind: str, watched: bool
) -> None:
    case = make_case(kind)
    x, memory = make_inputs(case.query.shape[2])
    layer = make_layer()
    maps: Maps = {}
    expected = look(layer, x, memory, case, maps)
    given: list[tuple[Tensor, Tensor | None]] = []

    def listen(weights: Tensor, mask: Tensor | None) -> Tensor:
        given.append((weights, mask))
        return weights

    layer.change = listen
    assert_close(look(layer, x, memory, case, {} if watched else None), expected, 1e-12)
    [(weights, mask)] = given
    assert torch.equal(weights, maps["attention"])
    assert mask is case.mask


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["nothing", "bias and padding"])
def test_a_change_works_under_autocast_and_keeps_the_dtype(kind: str, dtype: torch.dtype) -> None:
    case = make_case(kind, torch.float32)
    x, memory = make_inputs(dtype=torch.float32)
    layer = make_layer(torch.float32)
    layer.change = aimed
    with torch.autocast("cpu", dtype):
        output = look(layer, x, memory, case)
    assert output.dtype == dtype
    assert bool(((output - look(layer, x, memory, case)).abs() < 0.2).all())
