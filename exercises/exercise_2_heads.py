"""Exercise 2: heads.

练习 2：从零实现多头注意力：切分、每个头各算一次注意力、拼接，再乘以 Wo。

Cut Q, K and V into one block of columns a head, run attention in each head, join what comes back, and project it.

`make exercise N=2` tests this file. The solution is in `solutions/`.
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
    raise NotImplementedError("TODO: cut the width; each head has all tokens")


def join_heads(x: Array) -> Array:
    """Undo `split_heads`: (heads, tokens, d_k) -> (tokens, heads * d_k)."""
    raise NotImplementedError("TODO: put the heads side by side again")


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
    raise NotImplementedError("TODO: project, split, attend in each head, join, project")
