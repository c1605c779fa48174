"""lesson.py, the oracle, against numbers worked out by hand and torch's own modules."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from lookback import lesson

BATCH, HEADS, QUERY, KEY, WIDTH, VALUE_WIDTH = 2, 3, 5, 7, 4, 6
SCORES = [2.1, 0.3, 0.1, 0.8, 0.2]


def normal(*shape: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=shape)


def qkv() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    return (
        normal(BATCH, HEADS, QUERY, WIDTH, seed=1),
        normal(BATCH, HEADS, KEY, WIDTH, seed=2),
        normal(BATCH, HEADS, KEY, VALUE_WIDTH, seed=3),
    )


def random_mask(*shape: int) -> NDArray[np.bool_]:
    """Every query sees its first key at least."""
    mask: NDArray[np.bool_] = np.random.default_rng(4).random(shape) > 0.5
    mask[..., 0] = True
    return mask


def test_softmax_of_the_lessons_scores_is_the_hand_value_not_the_printed_one() -> None:
    weights = lesson.softmax(np.array(SCORES))
    np.testing.assert_allclose(weights, [0.580, 0.096, 0.079, 0.158, 0.087], rtol=0, atol=5e-4)
    total = sum(math.exp(score) for score in SCORES)
    np.testing.assert_allclose(weights, [math.exp(score) / total for score in SCORES], rtol=1e-12)


def test_softmax_of_one_thousand_does_not_overflow() -> None:
    np.testing.assert_allclose(lesson.softmax(np.array([1000.0, 1000.0 + math.log(3)])), [0.25, 0.75])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_sums_to_one_along_the_axis_it_is_given(axis: int) -> None:
    x = normal(3, 5)
    np.testing.assert_allclose(lesson.softmax(x, axis).sum(axis=axis), 1.0)
    np.testing.assert_allclose(lesson.softmax(x, axis), torch.softmax(torch.from_numpy(x), axis).numpy())


def test_one_query_between_two_keys_weighs_them_as_on_paper() -> None:
    output, weights = lesson.scaled_dot_product_attention(np.array([[0.0, math.sqrt(2)]]), np.eye(2), np.eye(2))
    np.testing.assert_allclose(weights, np.array([[1, math.e]]) / (1 + math.e))
    np.testing.assert_allclose(output, weights)


def test_attention_has_the_documented_shapes_and_its_rows_sum_to_one() -> None:
    output, weights = lesson.scaled_dot_product_attention(*qkv())
    assert output.shape == (BATCH, HEADS, QUERY, VALUE_WIDTH)
    assert weights.shape == (BATCH, HEADS, QUERY, KEY)
    np.testing.assert_allclose(weights.sum(-1), 1.0)


@pytest.mark.parametrize(
    "shape",
    [
        None,
        (QUERY, KEY),
        (1, KEY),
        (HEADS, QUERY, KEY),
        (HEADS, 1, KEY),
        (BATCH, 1, 1, KEY),
        (BATCH, 1, QUERY, KEY),
        (1, HEADS, QUERY, KEY),
        (BATCH, HEADS, QUERY, KEY),
    ],
)
def test_attention_equals_torchs_whatever_the_leading_axes_of_the_mask(shape: tuple[int, ...] | None) -> None:
    mask = None if shape is None else random_mask(*shape)
    output, weights = lesson.scaled_dot_product_attention(*qkv(), mask)
    query, key, value = (torch.from_numpy(array) for array in qkv())
    torch_mask = None if mask is None else torch.from_numpy(mask)
    expected = F.scaled_dot_product_attention(query, key, value, torch_mask).numpy()
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(weights.sum(-1), 1.0)
    if mask is not None:
        assert np.all(weights[~np.broadcast_to(mask, weights.shape)] == 0)
        assert np.all(weights[np.broadcast_to(mask, weights.shape)] > 0)


def test_a_mask_on_attention_without_batch_or_heads_hides_keys() -> None:
    Q, K, V = (array[0, 0] for array in qkv())
    mask = np.ones((QUERY, KEY), dtype=bool)
    mask[:, 2] = False
    seen = np.arange(KEY) != 2
    output, weights = lesson.scaled_dot_product_attention(Q, K, V, mask)
    without, _ = lesson.scaled_dot_product_attention(Q, K[seen], V[seen])
    assert np.all(weights[:, 2] == 0)
    np.testing.assert_allclose(output, without)


def test_a_query_that_may_look_nowhere_gets_nothing_and_leaves_the_others_as_they_were() -> None:
    mask = np.ones((QUERY, KEY), dtype=bool)
    mask[1] = False
    output, weights = lesson.scaled_dot_product_attention(*qkv(), mask)
    free, _ = lesson.scaled_dot_product_attention(*qkv())
    others = np.arange(QUERY) != 1
    assert np.all(weights[:, :, 1] == 0)
    assert np.all(output[:, :, 1] == 0)
    np.testing.assert_allclose(output[:, :, others], free[:, :, others])


def test_one_head_of_self_attention_is_three_projections_and_the_formula() -> None:
    head = lesson.SelfAttention(d_model=8, dk=4, dv=6)
    x = normal(2, 5, 8)
    output, weights = head.forward(x)
    query, key, value = (torch.from_numpy(x @ W) for W in (head.Wq, head.Wk, head.Wv))
    expected = F.scaled_dot_product_attention(query, key, value)
    assert output.shape == (2, 5, 6)
    assert weights.shape == (2, 5, 5)
    np.testing.assert_allclose(output, expected.numpy(), atol=1e-12)


def test_one_head_of_self_attention_with_a_causal_mask_never_looks_ahead() -> None:
    causal = np.tril(np.ones((5, 5), dtype=bool))
    _, weights = lesson.SelfAttention(d_model=8, dk=4, dv=6).forward(normal(2, 5, 8), causal)
    assert np.all(weights[:, ~causal] == 0)
    np.testing.assert_allclose(weights.sum(-1), 1.0)


def test_the_same_seed_makes_the_same_head_and_another_seed_another() -> None:
    x = normal(5, 8)
    first, again, other = (lesson.SelfAttention(8, 4, 6, seed).forward(x)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3


def test_four_heads_on_the_lessons_input_give_the_lessons_shapes() -> None:
    layer = lesson.MultiHeadAttention(64, 4, np.random.default_rng(0))
    output, weights = layer.forward(normal(2, 10, 64))
    assert output.shape == (2, 10, 64)
    assert weights.shape == (2, 4, 10, 10)
    np.testing.assert_allclose(weights.sum(-1), 1.0)


@pytest.mark.parametrize("masked", [False, True])
def test_multi_head_attention_equals_torchs_with_the_same_weights(masked: bool) -> None:
    ours = lesson.MultiHeadAttention(12, HEADS, np.random.default_rng(0))
    theirs = nn.MultiheadAttention(12, HEADS, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.from_numpy(np.concatenate([ours.Wq.T, ours.Wk.T, ours.Wv.T])))
        theirs.out_proj.weight.copy_(torch.from_numpy(ours.Wo.T))
    x = normal(BATCH, QUERY, 12)
    mask = random_mask(BATCH, HEADS, QUERY, QUERY) if masked else None
    hidden = None if mask is None else torch.from_numpy(~mask).flatten(0, 1)
    tensor = torch.from_numpy(x)
    expected, maps = theirs(tensor, tensor, tensor, attn_mask=hidden, average_attn_weights=False)
    output, weights = ours.forward(x, mask)
    np.testing.assert_allclose(output, expected.detach().numpy(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(weights, maps.detach().numpy(), rtol=0, atol=1e-12)


def test_a_width_that_the_heads_cannot_share_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^d_model must be a multiple of n_heads, but is 10 with n_heads 4$"):
        lesson.MultiHeadAttention(10, 4, np.random.default_rng(0))


def test_the_heatmap_draws_a_hand_made_map_in_five_shades() -> None:
    weights = np.array([[0.0, 0.125, 0.25], [0.375, 0.5, 0.3125]])
    drawing = lesson.ascii_heatmap(weights, ["he", "it"], ["a", "bcd", "ef"])
    assert drawing.split("\n") == [
        "       a bcd  ef",
        "  he       ░   ▒",
        "  it   ▓   █   ▒",
        "",
    ]


def test_the_heatmap_of_a_sentence_with_itself_needs_its_words_only_once() -> None:
    assert lesson.ascii_heatmap(np.array([[1.0, 0.0], [0.5, 0.75]]), ["x", "y"]) == "   x y\n x █  \n y ▒ ▓\n"


def test_the_heatmap_takes_other_shades_from_light_to_dark() -> None:
    assert lesson.ascii_heatmap(np.array([[0.0, 1.0, 2.0]]), ["q"], list("abc"), ".:#") == "   a b c\n q . : #\n"


def test_the_heatmap_of_nothing_but_zeros_is_blank() -> None:
    assert lesson.ascii_heatmap(np.zeros((2, 2)), ["x", "y"]) == "   x y\n x    \n y    \n"


@pytest.mark.parametrize(("rows", "columns"), [("xyz", None), ("xy", None), ("xyz", "ab"), ("ab", "xyzw")])
def test_labels_that_do_not_fit_the_map_are_refused(rows: str, columns: str | None) -> None:
    with pytest.raises(ValueError, match=r"^a map of shape \(2, 3\) does not fit"):
        lesson.ascii_heatmap(np.ones((2, 3)), list(rows), None if columns is None else list(columns))
