"""Does exercise 3 measure, and does it find what attention does not know? `make exercise N=3`."""

from typing import Any

import numpy as np

from checks import check, load, pair, same, shape
from lookback.lesson import SelfAttention

mine: Any = load("exercise_3_two_sentences")

TOKENS, D_MODEL = 5, 7
ORDER = [2, 0, 3, 4, 1]  # not its own inverse
ENTRIES = ["shapes", "row_sums", "matrices", "weights", "moved"]


def sentence(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(TOKENS, D_MODEL))


def attention() -> SelfAttention:
    return SelfAttention(D_MODEL, dk=4, dv=3)


class Known:
    """Not attention at all: it shows maps that are known, and spoils its matrices while it does."""

    MAPS = (
        np.array([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.3, 0.3, 0.4]]),
        np.array([[0.1, 0.4, 0.5], [0.3, 0.6, 0.1], [0.1, 0.45, 0.4]]),  # the last row sums to 0.95
    )

    def __init__(self) -> None:
        self.Wq, self.Wk, self.Wv = np.zeros((3, 2)), np.zeros((3, 2)), np.zeros((3, 4))

    def forward(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.Wk[2, 1] -= 0.25
        return X, self.MAPS[int(X[0, 0])]


def compare(of: Any, X1: np.ndarray, X2: np.ndarray) -> dict[str, Any]:
    found = mine.compare(of, X1, X2)
    check(isinstance(found, dict), f"compare must return a dict, but returned {found!r}")
    missing = [name for name in ENTRIES if name not in found]
    check(not missing, f"compare must return the entries {ENTRIES}, but {missing} are missing")
    return dict(found)


def test_matrices_shapes_and_row_sums_stay_the_same() -> None:
    found = compare(attention(), sentence(0), sentence(1))
    shapes, expected = [tuple(one) for one in found["shapes"]], [(TOKENS, TOKENS)] * 2
    check(shapes == expected, f"shapes must be those of the weights, {expected}, but are {shapes}")
    off = found["row_sums"]
    check(
        0 <= off < 1e-12,
        f"row_sums must be 0 but for rounding, but is {off}: each query's weights sum over the keys",
    )
    same("matrices", found["matrices"], 0, "a pass does not change Wq, Wk and Wv")


def test_the_weights_change_with_the_sentence() -> None:
    of = attention()
    first, second = (of.forward(sentence(seed))[1] for seed in (0, 1))
    found = compare(of, sentence(0), sentence(1))
    expected = float(np.abs(first - second).max())
    same("weights", found["weights"], expected, "the largest |difference| of the two maps, not of the outputs")
    moved = sum(int(a.argmax() != b.argmax()) for a, b in zip(first, second, strict=True))
    same("moved", found["moved"], moved, "how many rows have their largest weight in another column")
    twice = compare(of, sentence(0), sentence(0))
    same("the same sentence twice", [twice["weights"], twice["moved"]], [0, 0], "nothing changes")


def test_it_is_measured_and_not_assumed() -> None:
    first, second = np.zeros((3, 3)), np.ones((3, 3))
    for X1, X2 in ((first, second), (second, first)):
        found = compare(Known(), X1, X2)
        same("weights of two known maps", found["weights"], 0.8, "|difference| has no sign: compare both ways")
        same("moved of two known maps", found["moved"], 2, "rows 0 and 2 look elsewhere")
        same("row_sums of two known maps", found["row_sums"], 0.05, "one row of one map sums to 0.95")
        same(
            "matrices that were spoiled",
            found["matrices"],
            0.5,
            "copy them before the first pass, or they change too",
        )


def test_attention_without_positions_only_moves_what_is_moved() -> None:
    of, X = attention(), sentence(2)
    again, from_map = pair("permuted", mine.permuted(of, X, ORDER))
    for what, found in (("the first map of permuted", again), ("the second map of permuted", from_map)):
        shape(what, found, (TOKENS, TOKENS), "query, key")
    weights = of.forward(X)[1]
    expected = np.array([[weights[query, key] for key in ORDER] for query in ORDER])
    same("the weights of the permuted sentence", again, of.forward(X[ORDER])[1], "run attention on X[order]")
    hint = "row t and column s must be row order[t] and column order[s] of the old map: both are put in order"
    same("the permuted map", from_map, expected, hint)
    same("the two maps", from_map, again, "they must agree")


def test_the_second_map_is_made_without_another_pass() -> None:
    X = np.random.default_rng(3).integers(0, 2, size=(3, 3)).astype(float)
    X[0, 0], X[2, 0] = 1.0, 0.0  # in the old order the second known map, in the new order the first
    again, from_map = pair("permuted", mine.permuted(Known(), X, [2, 0, 1]))
    same("the first map", again, Known.MAPS[0], "it is that of the sentence in the new order")
    expected = Known.MAPS[1][[2, 0, 1]][:, [2, 0, 1]]
    same(
        "the second map", from_map, expected, "it is made of the old order's map, not of a pass over the new order"
    )
