"""The two lessons' attention in NumPy: nothing here but arrays and the formula.

This file is for reading. It keeps the lessons' names (Q, K, V, Wq, Wk, Wv, Wo), and it is the oracle that the
torch layers in `attention.py` are tested against.

A correction to the second lesson: the softmax of its first row of scores, 2.1 0.3 0.1 0.8 0.2, is
0.58 0.10 0.08 0.16 0.09 (to two digits), not the 0.52 0.09 0.07 0.14 0.08 printed there, whose sum is 0.90 and
not 1.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]


def softmax(x: Array, axis: int = -1) -> Array:
    """exp(x) / sum(exp(x)) along `axis`; the maximum is subtracted first, so that exp cannot overflow."""
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    result: Array = e / e.sum(axis=axis, keepdims=True)
    return result


def scaled_dot_product_attention(
    Q: Array, K: Array, V: Array, mask: NDArray[np.bool_] | None = None
) -> tuple[Array, Array]:
    """softmax(Q K^T / sqrt(d_k)) V: equation (2) of the first lesson, equation (1) of Vaswani et al. 2017.

    Args:
        Q: (..., query, d_k), what each query looks for.
        K: (..., key, d_k), what each key contains.
        V: (..., key, d_v), what each key offers.
        mask: (..., query, key), True where the query may look at the key. A query that may look nowhere
            gets weights 0 and output 0.

    Returns:
        output (..., query, d_v) and weights (..., query, key); each row of weights sums to 1.
    """
    d_k = Q.shape[-1]
    scores = Q @ K.swapaxes(-1, -2) / np.sqrt(d_k)
    if mask is None:
        weights = softmax(scores)
    else:
        lowest = np.finfo(scores.dtype).min
        weights = softmax(np.where(mask, scores, lowest)) * mask
    return weights @ V, weights


class SelfAttention:
    """One head of attention from a sequence to itself (second lesson, step 3).

    Args:
        d_model: width of the input.
        dk: width of queries and keys.
        dv: width of values.
        seed: of the random weights.
    """

    def __init__(self, d_model: int, dk: int, dv: int, seed: int = 42) -> None:
        rng = np.random.default_rng(seed)
        scale = np.sqrt(2.0 / (d_model + dk))
        self.Wq = rng.normal(0, scale, (d_model, dk))
        self.Wk = rng.normal(0, scale, (d_model, dk))
        self.Wv = rng.normal(0, np.sqrt(2.0 / (d_model + dv)), (d_model, dv))

    def forward(self, X: Array, mask: NDArray[np.bool_] | None = None) -> tuple[Array, Array]:
        """Attend from X to X.

        Args:
            X: (..., tokens, d_model).
            mask: (..., tokens, tokens), True = may look.

        Returns:
            output (..., tokens, dv) and weights (..., tokens, tokens).
        """
        return scaled_dot_product_attention(X @ self.Wq, X @ self.Wk, X @ self.Wv, mask)


class MultiHeadAttention:
    """Several heads side by side, each on its own share of the width (first lesson, section 5).

    Args:
        d_model: width of input and output; a multiple of n_heads.
        n_heads: number of heads; each has width d_model / n_heads.
        rng: source of the random weights.

    Raises:
        ValueError: if d_model is not a multiple of n_heads.
    """

    def __init__(self, d_model: int, n_heads: int, rng: np.random.Generator) -> None:
        if d_model % n_heads != 0:
            raise ValueError(f"d_model must be a multiple of n_heads, but is {d_model} with n_heads {n_heads}")
        self.h = n_heads
        self.dk = d_model // n_heads
        scale = 1.0 / np.sqrt(d_model)
        self.Wq = rng.normal(0, scale, (d_model, d_model))
        self.Wk = rng.normal(0, scale, (d_model, d_model))
        self.Wv = rng.normal(0, scale, (d_model, d_model))
        self.Wo = rng.normal(0, scale, (d_model, d_model))

    def split_heads(self, x: Array) -> Array:
        """(batch, tokens, d_model) -> (batch, heads, tokens, dk): each head sees the whole sequence."""
        batch, tokens, _ = x.shape
        return x.reshape(batch, tokens, self.h, self.dk).swapaxes(1, 2)

    def forward(self, x: Array, mask: NDArray[np.bool_] | None = None) -> tuple[Array, Array]:
        """Attend from x to x with every head, join the heads, project.

        Args:
            x: (batch, tokens, d_model).
            mask: anything that broadcasts to (batch, heads, tokens, tokens), True = may look.

        Returns:
            output (batch, tokens, d_model) and weights (batch, heads, tokens, tokens).
        """
        Q, K, V = (self.split_heads(x @ W) for W in (self.Wq, self.Wk, self.Wv))
        heads, weights = scaled_dot_product_attention(Q, K, V, mask)
        joined = heads.swapaxes(1, 2).reshape(x.shape)
        return joined @ self.Wo, weights


def shade(weights: Array, chars: str = " ░▒▓█") -> list[list[str]]:
    """A character for each cell of a map (query, key): the first of `chars` = 0, the last = the largest weight.

    Shares of the largest weight are rounded down, so with five shades the fourth begins at three quarters of it.
    """
    levels = (weights * (len(chars) - 1) / max(weights.max(), np.finfo(float).tiny)).astype(int)
    return [[chars[level] for level in row] for row in levels]


def ascii_heatmap(weights: Array, rows: list[str], columns: list[str] | None = None, chars: str = " ░▒▓█") -> str:
    """Draw a map of weights with five shades: blank = 0, full = the largest weight of the map.

    Args:
        weights: (query, key), one row a query.
        rows: a label for each query.
        columns: a label for each key; the rows' labels when left out, as in the lesson.
        chars: shades from light to dark.

    Returns:
        The drawing, one line for the column labels and one a query. The lesson prints it.

    Raises:
        ValueError: if the labels do not fit the map.
    """
    columns = rows if columns is None else columns
    if weights.shape != (len(rows), len(columns)):
        raise ValueError(f"a map of shape {weights.shape} does not fit {len(rows)} rows, {len(columns)} columns")
    cell = max(len(label) for label in [*rows, *columns]) + 1
    lines = [" " * cell + "".join(f"{label:>{cell}}" for label in columns)]
    for label, row in zip(rows, shade(weights, chars), strict=True):
        lines.append(f"{label:>{cell}}" + "".join(f"{char:>{cell}}" for char in row))
    return "\n".join(lines) + "\n"
