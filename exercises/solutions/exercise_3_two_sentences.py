"""Solution of exercise 3: two sentences, one attention.

练习 3：把两个等长的句子送入同一个 SelfAttention，量出哪些变了、哪些不变；再打乱词序看看。

The same for both: the three matrices, the shape of the map, and that each row sums to 1. Different: the weights,
and which key a query looks at most, for queries and keys are made of the tokens. In another order each token looks
at the same tokens with the same weights; only the places have changed. Without positions, attention sees a set.

`make exercise N=3 SOLUTION=1` tests this file.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Attention(Protocol):
    """What `lookback.lesson.SelfAttention` is: three matrices, and a pass."""

    Wq: Array
    Wk: Array
    Wv: Array

    def forward(self, X: Array) -> tuple[Array, Array]:
        """(tokens, d_model) -> output (tokens, d_v) and weights (query=tokens, key=tokens)."""
        ...


def compare(attention: Attention, X1: Array, X2: Array) -> dict[str, Any]:
    """Send two sentences through one attention, and measure what changes.

    Args:
        attention: the same for both.
        X1: (tokens, d_model), the vectors of the first sentence.
        X2: (tokens, d_model), those of the second.

    Returns:
        these entries:

        - `shapes`: the shape of the first sentence's weights and that of the second's, two tuples in a list;
        - `row_sums`: how far, at most, the sum of any row of weights in both is from 1;
        - `matrices`: the largest |difference| of any number in Wq, Wk and Wv before the two passes and after them;
        - `weights`: the largest |difference| between the weights of the first sentence and those of the second;
        - `moved`: the number of queries whose largest weight is on another key.
    """
    before = [W.copy() for W in (attention.Wq, attention.Wk, attention.Wv)]
    first, second = (attention.forward(X)[1] for X in (X1, X2))
    after = (attention.Wq, attention.Wk, attention.Wv)
    return {
        "shapes": [first.shape, second.shape],
        "row_sums": max(float(np.abs(weights.sum(axis=-1) - 1).max()) for weights in (first, second)),
        "matrices": max(float(np.abs(old - new).max()) for old, new in zip(before, after, strict=True)),
        "weights": float(np.abs(first - second).max()),
        "moved": int((first.argmax(axis=-1) != second.argmax(axis=-1)).sum()),
    }


def permuted(attention: Attention, X: Array, order: list[int]) -> tuple[Array, Array]:
    """Put the tokens of a sentence in another order, in two ways that agree.

    Args:
        attention: without positions, so that it knows no order.
        X: (tokens, d_model).
        order: new place t gets the token of old place order[t].

    Returns:
        the weights of the sentence in the new order; and the same map made of the weights of the sentence in the
        old order, whose rows and columns are put in the new order without another pass.
    """
    again = attention.forward(X[order])[1]
    weights = attention.forward(X)[1]
    return again, weights[order][:, order]
