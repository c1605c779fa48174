"""Solution of exercise 2: heads.

练习 2：从零实现多头注意力：切分、每个头各算一次注意力、拼接，再乘以 Wo。

The width is reshaped first, and the axes are swapped after that. A reshape to (heads, tokens, d_k) at once would
give a head numbers of other tokens.

`make exercise N=2 SOLUTION=1` tests this file.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def softmax(x: Array) -> Array:
    """Positive numbers that sum to 1 along the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    result: Array = e / e.sum(axis=-1, keepdims=True)
    return result


def split_heads(x: Array, n_heads: int) -> Array:
    """Cut the width into blocks, one a head: (tokens, d_model) -> (heads, tokens, d_model / heads).

    Head 0 has the first columns of every token, head 1 the next ones, and so on.
    """
    tokens, d_model = x.shape
    return x.reshape(tokens, n_heads, d_model // n_heads).swapaxes(0, 1)


def join_heads(x: Array) -> Array:
    """Undo `split_heads`: (heads, tokens, d_k) -> (tokens, heads * d_k)."""
    heads, tokens, d_k = x.shape
    return x.swapaxes(0, 1).reshape(tokens, heads * d_k)


def multi_head_attention(X: Array, Wq: Array, Wk: Array, Wv: Array, Wo: Array, n_heads: int) -> tuple[Array, Array]:
    """Attend from X to X with several heads.

    Args:
        X: (tokens, d_model).
        Wq: (d_model, d_model), makes queries: Q = X Wq.
        Wk: likewise keys.
        Wv: likewise values.
        Wo: (d_model, d_model), is applied to the joined heads.
        n_heads: d_model is a multiple of it.

    Returns:
        output (tokens, d_model) and weights (heads, query=tokens, key=tokens).
    """
    Q, K, V = (split_heads(X @ W, n_heads) for W in (Wq, Wk, Wv))
    scores = Q @ K.swapaxes(1, 2) / np.sqrt(Q.shape[-1])  # (heads, query, key)
    weights = softmax(scores)
    return join_heads(weights @ V) @ Wo, weights
