"""Does exercise 2 keep its heads apart? `make exercise N=2`."""

from typing import Any

import numpy as np

from checks import check, load, pair, same, shape
from lookback import lesson

mine: Any = load("exercise_2_heads")

TOKENS, HEADS, D_K = 5, 3, 2
D_MODEL = HEADS * D_K
TABLE = np.arange(TOKENS * D_MODEL, dtype=float).reshape(TOKENS, D_MODEL)  # row = token, so each number is another


def oracle() -> tuple[lesson.MultiHeadAttention, np.ndarray]:
    rng = np.random.default_rng(1)
    return lesson.MultiHeadAttention(D_MODEL, HEADS, rng), 2 * rng.normal(size=(TOKENS, D_MODEL))


def run(X: np.ndarray, *matrices: np.ndarray) -> tuple[Any, Any]:
    output, weights = pair("multi_head_attention", mine.multi_head_attention(X, *matrices, HEADS))
    shape("output", output, (TOKENS, D_MODEL), "tokens, d_model")
    shape("weights", weights, (HEADS, TOKENS, TOKENS), "heads, query, key")
    return output, weights


def test_each_head_has_its_own_columns_of_all_tokens() -> None:
    split = mine.split_heads(TABLE, HEADS)
    shape(f"split_heads of {TOKENS} tokens of width {D_MODEL}", split, (HEADS, TOKENS, D_K), "heads, tokens, d_k")
    for head in range(HEADS):
        columns = f"columns {head * D_K} to {head * D_K + D_K - 1} of every token"
        expected = TABLE[:, head * D_K : (head + 1) * D_K]
        same(f"head {head} of split_heads", split[head], expected, f"must be {columns}; here a row is a token")


def test_joining_undoes_splitting() -> None:
    split = TABLE.reshape(TOKENS, HEADS, D_K).swapaxes(0, 1)
    joined = mine.join_heads(split)
    shape("join_heads", joined, (TOKENS, D_MODEL), "tokens, heads * d_k")
    same("join_heads", joined, TABLE, "each token must get its own numbers back, head beside head")


def test_the_weights_of_each_query_sum_to_one() -> None:
    attention, X = oracle()
    _, weights = run(X, attention.Wq, attention.Wk, attention.Wv, attention.Wo)
    sums = weights.sum(axis=-1)
    check(np.allclose(sums, 1), f"weights must sum to 1 over the keys (last axis), but sum to\n{sums.round(3)}")


def test_a_head_looks_with_its_own_columns_alone() -> None:
    attention, X = oracle()
    _, before = run(X, attention.Wq, attention.Wk, attention.Wv, attention.Wo)
    other = attention.Wq.copy()
    other[:, D_K : 2 * D_K] += 1.0  # what makes the queries of head 1
    _, after = run(X, other, attention.Wk, attention.Wv, attention.Wo)
    changed = [head for head in range(HEADS) if not np.allclose(before[head], after[head])]
    check(
        changed == [1],
        f"other queries of head 1 must change the weights of head 1 alone, but changed heads {changed}",
    )


def test_weights_are_those_of_the_lesson() -> None:
    attention, X = oracle()
    _, weights = run(X, attention.Wq, attention.Wk, attention.Wv, attention.Wo)
    hint = f"scores are divided by sqrt(d_k) = sqrt({D_K}), the width of one head"
    same("weights", weights, attention.forward(X[None])[1][0], hint)


def test_the_output_is_that_of_the_lesson() -> None:
    attention, X = oracle()
    output, _ = run(X, attention.Wq, attention.Wk, attention.Wv, attention.Wo)
    same("output", output, attention.forward(X[None])[0][0], "the heads' outputs, joined, and then times Wo")
