"""Does exercise 1 hide what it should? `make exercise N=1`."""

import math
from typing import Any

import numpy as np

from checks import check, load, pair, same, shape

mine: Any = load("exercise_1_mask")

E = math.e
Q = np.array([[2.0, 0.0, 2.0, 0.0], [0.0, 2.0, 0.0, 2.0]])  # 2 queries, d_k = 4
K = np.array([[0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]])  # 3 keys
V = np.array([[0.0, 10.0], [5.0, 5.0], [10.0, 0.0]])
SCORES = np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])  # q . k / sqrt(4), by hand
MASK = np.array([[True, True, False], [False, True, True]])
MASKED = np.array([[1, E, 0], [0, E, 1]]) / (1 + E)  # of e^0 and e^1 alone


def attend(mask: Any) -> tuple[Any, Any]:
    output, weights = pair("scaled_dot_product_attention", mine.scaled_dot_product_attention(Q, K, V, mask))
    shape("output", output, (2, 2), "query, d_v")
    shape("weights", weights, (2, 3), "query, key")
    return output, weights


def test_without_a_mask_nothing_is_hidden() -> None:
    expected = np.exp(SCORES) / np.exp(SCORES).sum(axis=-1, keepdims=True)
    output, weights = attend(None)
    same(
        "weights without a mask", weights, expected, "the softmax of each query's scores over the keys (last axis)"
    )
    same("output without a mask", output, expected @ V, "weights @ V")
    same("a mask that is True everywhere", attend(np.ones((2, 3), dtype=bool))[1], expected, "it hides nothing")


def test_keys_where_the_mask_is_false_have_no_weight() -> None:
    _, weights = attend(MASK)
    turned = not weights[MASK].any() or np.allclose(weights[MASK], 1)
    hint = " It is the other way round: True must mean 'may look'." if turned else ""
    hidden = weights[~MASK]
    check(
        np.all(np.abs(hidden) < 1e-12),
        f"weights must be 0 where the mask is False, but are {hidden} there: hide scores before the softmax.{hint}",
    )


def test_the_keys_that_are_left_share_the_whole_weight() -> None:
    output, weights = attend(MASK)
    sums = weights.sum(axis=-1)
    check(
        np.allclose(sums, 1), f"each row of weights must sum to 1, but they sum to {sums}: mask before the softmax"
    )
    same(
        "weights with a mask",
        weights,
        MASKED,
        "the softmax over the keys that may be seen, as if there were no others",
    )
    same("output with a mask", output, MASKED @ V, "weights @ V")


def test_a_hidden_value_does_not_leak_into_the_output() -> None:
    loud = V.copy()
    loud[2] = 1e6
    output, _ = mine.scaled_dot_product_attention(Q, K, loud, MASK)
    same(
        "output of query 0, whose key 2 is hidden",
        output[0],
        MASKED[0] @ V,
        "it cannot depend on the value of key 2",
    )


def test_the_causal_mask_hides_the_future() -> None:
    mask = mine.causal_mask(4)
    shape("causal_mask(4)", mask, (4, 4), "query, key")
    check(mask.dtype == np.bool_, f"causal_mask must be boolean, True = may look, but its dtype is {mask.dtype}")
    for query in range(4):
        seen = np.flatnonzero(mask[query]).tolist()
        wanted = list(range(query + 1))
        check(
            seen == wanted,
            f"token {query} may look at tokens {wanted} (itself and earlier), but the mask shows {seen}",
        )


def test_the_future_changes_nothing_that_was_written() -> None:
    x = np.random.default_rng(0).normal(size=(5, 3))
    later = x.copy()
    later[4] += 1.0
    before, after = (mine.scaled_dot_product_attention(X, X, X, mine.causal_mask(5))[0] for X in (x, later))
    same("outputs of tokens 0 to 3 when token 4 changes", after[:4], before[:4], "they may not see token 4")
