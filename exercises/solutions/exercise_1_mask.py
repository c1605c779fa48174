"""Solution of exercise 1: a mask.

练习 1：让缩放点积注意力接收一个掩码（True = 可以看），并写出因果掩码。

e^(-infinity) is 0, so a hidden key gets the weight 0, and the others share the whole weight. Weights set to 0 after
the softmax would no longer sum to 1.

`make exercise N=1 SOLUTION=1` tests this file.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def softmax(x: Array) -> Array:
    """Positive numbers that sum to 1 along the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    result: Array = e / e.sum(axis=-1, keepdims=True)
    return result


def scaled_dot_product_attention(Q: Array, K: Array, V: Array, mask: Mask | None = None) -> tuple[Array, Array]:
    """softmax(Q K^T / sqrt(d_k)) V, without the keys that are hidden.

    Args:
        Q: (query, d_k).
        K: (key, d_k).
        V: (key, d_v).
        mask: (query, key), True = may look; each query may look at one key at least. None = may look everywhere.

    Returns:
        output (query, d_v) and weights (query, key).
    """
    scores = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = softmax(scores)
    return weights @ V, weights


def causal_mask(tokens: int) -> Mask:
    """What a decoder may look at: each token sees itself and those before it.

    Returns:
        (query=tokens, key=tokens), True = may look.
    """
    return np.tri(tokens, dtype=np.bool_)
