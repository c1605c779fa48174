"""Files as somebody might write them: each fault is named, and what is right in another style passes."""

import io
import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from lookback import lesson, student, trials, verdicts
from lookback.student import Finding, check

SCRIPT = Path(__file__).parents[1] / "scripts" / "equivalence.py"

MATRICES = """
import numpy as np

def softmax(x):
    shifted = x - np.max(x, axis=-1, keepdims=True)
    e = np.exp(shifted)
    return e / np.sum(e, axis=-1, keepdims=True)

def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    weights = softmax(scores)
    return weights @ V, weights

class SelfAttention:
    def __init__(self, d_model, dk, dv, seed=42):
        rng = np.random.default_rng(seed)
        self.d_model, self.dk = d_model, dk
        self.Wq, self.Wk = rng.normal(0, 1, (2, d_model, dk))
        self.Wv = rng.normal(0, 1, (d_model, dv))

    def forward(self, X):
        return scaled_dot_product_attention(X @ self.Wq, X @ self.Wk, X @ self.Wv)

class MultiHeadAttention:
    def __init__(self, d_model, n_heads, rng):
        self.h, self.dk = n_heads, d_model // n_heads
        self.Wq, self.Wk, self.Wv, self.Wo = rng.normal(0, d_model ** -0.5, (4, d_model, d_model))

    def split_heads(self, x):
        B, T, D = x.shape
        return x.reshape(B, T, self.h, self.dk).transpose(0, 2, 1, 3)

    def forward(self, x):
        Q, K, V = (self.split_heads(x @ W) for W in (self.Wq, self.Wk, self.Wv))
        out, weights = scaled_dot_product_attention(Q, K, V)
        out = out.transpose(0, 2, 1, 3).reshape(x.shape)
        return out @ self.Wo, weights
"""

EINSUM = """
import numpy as np

def scaled_dot_product_attention(q, k, v, attention_mask=None):
    logits = np.einsum("...id,...jd->...ij", q, k) * q.shape[-1] ** -0.5
    if attention_mask is not None:
        logits = logits + attention_mask
    logits -= logits.max(-1, keepdims=True)
    p = np.exp(logits) / np.exp(logits).sum(-1)[..., None]
    return np.einsum("...ij,...jd->...id", p, v), p

class SelfAttention:
    def __init__(self, d_model, dk, dv):
        rng = np.random.default_rng(7)
        self.W_Q, self.W_K, self.W_V = (rng.normal(size=(n, d_model)) for n in (dk, dk, dv))

    def __call__(self, X):
        q, k, v = (np.einsum("td,nd->tn", X, W) for W in (self.W_Q, self.W_K, self.W_V))
        return scaled_dot_product_attention(q, k, v)

class MultiHeadAttention:
    def __init__(self, d_model, num_heads):
        rng = np.random.default_rng(7)
        size = (num_heads, d_model, d_model // num_heads)
        self.Wq, self.Wk, self.Wv = (rng.normal(size=size) for _ in range(3))
        self.Wo = rng.normal(size=(d_model, d_model))

    def forward(self, query, key, value):
        q, k, v = (np.einsum("btd,hdn->bhtn", x, W)
                   for x, W in zip((query, key, value), (self.Wq, self.Wk, self.Wv)))
        heads, p = scaled_dot_product_attention(q, k, v)
        return np.concatenate(list(np.moveaxis(heads, 1, 0)), axis=-1) @ self.Wo, p
"""

LOOPS = """
import math

def softmax(row):
    top = max(row)
    powers = [math.exp(value - top) for value in row]
    return [power / sum(powers) for power in powers]

def scaled_dot_product_attention(Q, K, V, mask=None):
    output, weights = [], []
    for i, q in enumerate(Q):
        scores = [sum(a * b for a, b in zip(q, k)) / math.sqrt(len(q)) for k in K]
        if mask is not None:
            scores = [s if mask[i][j] else float("-inf") for j, s in enumerate(scores)]
        weights.append(softmax(scores))
        output.append([sum(w * v[d] for w, v in zip(weights[-1], V)) for d in range(len(V[0]))])
    return output, weights
"""

BY_ROWS = """
import numpy as np

def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()

def scaled_dot_product_attention(Q, K, V):
    scores = Q @ K.T / Q.shape[1] ** 0.5
    weights = np.array([softmax(row) for row in scores])
    return weights @ V, weights
"""

ONE_MAXIMUM = """
import numpy as np

def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum(-1, keepdims=True)
""" + MATRICES[MATRICES.index("def scaled_dot") :]

TORCH_LIKE = """
import numpy as np

def softmax(x, dim=-1):
    return np.exp(x - np.logaddexp.reduce(x, axis=dim, keepdims=True))

class MultiHeadAttention:
    def __init__(self, d_model, n_heads, seed):
        rng = np.random.RandomState(seed)
        self.n_heads = n_heads
        self.Wq, self.Wk, self.Wv, self.Wo = rng.randn(4, d_model, d_model)

    def forward(self, x, mask=None):
        T, D = x.shape
        q, k, v = ((x @ W.T).reshape(T, -1, self.n_heads).transpose(2, 0, 1) for W in (self.Wq, self.Wk, self.Wv))
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        if mask is not None:
            scores[:, mask == 0] = -np.inf
        p = softmax(scores)
        return (p @ v).transpose(1, 2, 0).reshape(T, D) @ self.Wo.T, p
"""


def judge(folder: Path, text: str) -> dict[str, Finding]:
    path = folder / "my_attention.py"
    path.write_text(text, encoding="utf-8")
    return {finding.step: finding for finding in check(path)}


def changed(old: str, new: str, text: str = MATRICES) -> str:
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("text", "there", "notes"),
    [
        (MATRICES, 4, {"scaled_dot_product_attention": "mask: True = may look"}),
        (EINSUM, 3, {"scaled_dot_product_attention": "mask: added to the scores, 0 and -inf"}),
        (
            LOOPS,
            2,
            {
                "softmax": "takes one row at a time, which is",
                "scaled_dot_product_attention": "mask: True = may look",
            },
        ),
        (
            BY_ROWS,
            2,
            {
                "softmax": "takes one row at a time, which is how it is used here",
                "scaled_dot_product_attention": "has no mask",
            },
        ),
        (ONE_MAXIMUM, 4, {"softmax": "one maximum for all rows"}),
        (TORCH_LIKE, 2, {"MultiHeadAttention": "takes tokens without a batch in front; mask: True = may look"}),
    ],
    ids=["matrices", "einsum", "loops", "by rows", "one maximum", "torch-like"],
)
def test_what_is_right_in_another_style_passes(
    tmp_path: Path, text: str, there: int, notes: dict[str, str]
) -> None:
    found = judge(tmp_path, text)
    assert [one.diagnosis for one in found.values() if one.verdict == "wrong"] == []
    assert len([one for one in found.values() if one.verdict == "right"]) == there
    for step, note in notes.items():
        assert found[step].diagnosis.startswith(note)


def test_the_lessons_own_layer_is_right(tmp_path: Path) -> None:
    found = judge(tmp_path, Path(str(lesson.__file__)).read_text(encoding="utf-8"))
    assert {one.verdict for one in found.values()} == {"right"}


ATTENTION, HEADS = "scaled_dot_product_attention", "MultiHeadAttention"
INLINE = "return scaled_dot_product_attention(X @ self.Wq, X @ self.Wk, X @ self.Wv)"
OWN = "w = softmax((X @ self.Wq) @ (X @ self.Wk).T / {}); return w @ (X @ self.Wv), w"
FAULTS = {
    "axis": ("softmax", changed("axis=-1", "axis=0"), "wrong axis: each column sums to 1"),
    "whole array": ("softmax", changed(", axis=-1, keepdims=True", ""), "over the whole array"),
    "sum over the wrong axis": (
        "softmax",
        changed("np.sum(e, axis=-1,", "np.sum(e, axis=0,"),
        "the sum in softmax runs over the wrong axis: the first row sums to",
    ),
    "sum of everything": (
        "softmax",
        changed("np.sum(e, axis=-1, keepdims=True)", "np.sum(e)"),
        "over the whole array",
    ),
    "no keepdims": (
        "softmax",
        changed("np.sum(e, axis=-1, keepdims=True)", "np.sum(e, axis=-1)"),
        "raises an error at line 7: ValueError: operands could not be broadcast",
    ),
    "no keepdims where it fits": (
        "SelfAttention",
        changed(
            INLINE,
            "s = (X @ self.Wq) @ (X @ self.Wk).T / 2; e = np.exp(s - s.max(axis=1, keepdims=True))\n"
            "        w = e / e.sum(axis=1); return w @ (X @ self.Wv), w",
        ),
        "each column is divided by the sum of a row",
    ),
    "no scale": (ATTENTION, changed(" / np.sqrt(Q.shape[-1])", ""), "scale is missing: scores are not divided"),
    "scale without root": (ATTENTION, changed("np.sqrt(Q.shape[-1])", "Q.shape[-1]"), "by 4, which is d_k without"),
    "scale turned": (ATTENTION, changed("/ np.sqrt", "* np.sqrt"), "multiplied by sqrt(d_k) = sqrt(4)"),
    "scale by a constant": (ATTENTION, changed("np.sqrt(Q.shape[-1])", "np.sqrt(64)"), "by 8 = sqrt(64), not by"),
    "scale by root d_model": (
        "SelfAttention",
        changed(INLINE, OWN.format("np.sqrt(self.d_model)")),
        "divided by sqrt(d_model) = 2.83, not by sqrt(d_k) = sqrt(4) = 2.00",
    ),
    "scale by d_model": (
        "SelfAttention",
        changed(INLINE, OWN.format("self.d_model")),
        "divided by d_model = 8, not by sqrt(d_k)",
    ),
    "exchanged": (
        "SelfAttention",
        changed("(X @ self.Wq, X @ self.Wk,", "(X @ self.Wk, X @ self.Wq,"),
        "queries and keys are exchanged",
    ),
    "heads scaled by d_model": (
        HEADS,
        changed(
            "out, weights = scaled_dot_product_attention(Q, K, V)",
            "weights = softmax(Q @ K.swapaxes(2, 3) / np.sqrt(x.shape[-1])); out = weights @ V",
        ),
        "divided by sqrt(d_model) = 3.46, not by sqrt(d_k)",
    ),
    "mask turned": (
        ATTENTION,
        changed("(mask, scores, -1e9)", "(mask, -1e9, scores)"),
        "sense of the mask is turned",
    ),
    "mask ignored": (ATTENTION, changed("scores = np.where(mask, scores, -1e9)", "pass"), "the mask does nothing"),
    "mask too weak": (
        ATTENTION,
        changed("-1e9", "-5"),
        "what fills hidden places is too weak: hidden keys have weights of up to 0.0",
    ),
    **{
        f"mask of {fill}": (
            ATTENTION,
            changed("np.where(mask, scores, -1e9)", fill),
            "too weak: where scores are up to 300, hidden keys have weights of up to ",
        )
        for fill in (
            "np.where(mask, scores, -12)",
            "np.where(mask, scores, -20)",
            "np.where(mask, scores, -100)",
            "scores + (1.0 - mask) * -14",
            "scores + np.asarray(mask, float) * -30",
        )
    },
    "mask too weak in its heads": (
        HEADS,
        changed(
            "def forward(self, x):",
            "def forward(self, x, mask=None):",
            changed(
                "out, weights = scaled_dot_product_attention(Q, K, V)",
                "s = Q @ K.swapaxes(2, 3) / self.dk ** 0.5\n"
                "        weights = softmax(s if mask is None else np.where(mask, s, -20)); out = weights @ V",
            ),
        ),
        "what fills hidden places is too weak: where scores are up to 300",
    ),
    "mask of zeros": (ATTENTION, changed("-1e9", "0"), "set to 0, which exp makes 1"),
    "late mask": (
        ATTENTION,
        changed(
            "scores = np.where(mask, scores, -1e9)", "return softmax(scores) * mask @ V, softmax(scores) * mask"
        ),
        "the mask comes after softmax: the first row sums to 0.",
    ),
    "heads mixed": (
        HEADS,
        changed("reshape(B, T, self.h, self.dk).transpose(0, 2, 1, 3)", "reshape(B, self.h, T, self.dk)"),
        "the heads are mixed: a head gets whole",
    ),
    "heads mixed in joining": (
        HEADS,
        changed("out.transpose(0, 2, 1, 3).reshape", "out.reshape"),
        "mixed when they are joined",
    ),
    "no projection": (HEADS, changed("out @ self.Wo", "out"), "the last projection is missing"),
    "softmax over heads": (
        HEADS,
        changed(
            "out, weights = scaled_dot_product_attention(Q, K, V)",
            "s = (Q @ K.swapaxes(2, 3) / self.dk ** 0.5).swapaxes(1, 3)\n"
            "        weights = softmax(s).swapaxes(1, 3); out = weights @ V",
        ),
        "wrong axis, that of the heads",
    ),
    "not stable": (
        "softmax",
        changed("np.exp(shifted)", "np.exp(x)"),
        "is not stable: of scores around 1000 it gives nan",
    ),
    "not normalised": (
        "softmax",
        changed("return e / np.sum(e, axis=-1, keepdims=True)", "return e"),
        "not normalised: the first row sums to",
    ),
    "no exp": ("softmax", changed("np.exp(shifted)", "x"), "without exp"),
    "no softmax": (ATTENTION, changed("softmax(scores)", "scores"), "there is no softmax"),
    "order": (
        ATTENTION,
        changed("weights @ V, weights", "weights, weights @ V"),
        "returns weights (5, 7) first, then the output (5, 6)",
    ),
    "three things": (
        ATTENTION,
        changed("weights @ V, weights", "Q, K, weights"),
        "returns shapes (5, 4) and (7, 4) and 1 more, but should return output (5, 6) and weights (5, 7)",
    ),
    "complex": (
        "softmax",
        changed("return e /", "return (1 + 0.5j) * e /"),
        "gives complex numbers, with imaginary parts of up to 0.",
    ),
    "only output": (
        ATTENTION,
        changed("weights @ V, weights", "weights @ V"),
        "returns only the output, (5, 6), and not the weights",
    ),
    "only weights": (
        ATTENTION,
        changed("weights @ V, weights", "weights"),
        "returns only the weights, (5, 7), and not the output",
    ),
    "nothing": (ATTENTION, changed("    return weights @ V, weights", ""), "returns nothing"),
    "turned keys": (
        ATTENTION,
        changed("K.swapaxes(-1, -2)", "K"),
        "raises an error at line 10: ValueError: matmul",
    ),
    "averaged heads": (
        HEADS,
        changed("self.Wo, weights", "self.Wo, weights.mean(1)"),
        "returns shapes (2, 5, 12) and (2, 5, 5), but should",
    ),
    "no matrix": (HEADS, changed("self.Wo", "self.last"), "has no attribute Wo"),
    "text": (
        "softmax",
        changed("return e / np.sum(e, axis=-1, keepdims=True)", "return 'weights'"),
        "returns str, which is no array",
    ),
    "infinite": (
        "softmax",
        changed("return e /", "return np.inf * e /"),
        "gives inf where all numbers that go in are small",
    ),
    "unknown": (
        ATTENTION,
        changed("weights @ V, weights", "weights @ (V + 1), weights"),
        "differs from the lesson's, output by up to 1 (the weights are right)",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_named_where_it_is(tmp_path: Path, name: str) -> None:
    step, text, words = FAULTS[name]
    found = judge(tmp_path, text)
    assert found[step].verdict == "wrong"
    assert words in found[step].diagnosis
    assert ";" not in found[step].diagnosis  # one fault, one sentence
    others = [one for one in found.values() if one.step != step and one.verdict != "right"]
    for other in others:  # steps that use it are not blamed
        assert other.diagnosis == f"only through {step}: with the lesson's in its place it is right"
    assert list(found) == list(student.STEPS)


@pytest.mark.parametrize("scale", ["2", "np.sqrt(self.d_model)", "self.d_model", "1"])
def test_a_layer_of_its_own_softmax_that_overflows_is_found_whatever_its_scale(tmp_path: Path, scale: str) -> None:
    own = "e = np.exp((X @ self.Wq) @ (X @ self.Wk).T / {}); w = e / e.sum(1)[:, None]; return w @ (X @ self.Wv), w"
    found = judge(tmp_path, changed(INLINE, own.format(scale)))["SelfAttention"]
    assert "is not stable: of very large scores it gives nan" in found.diagnosis
    assert found.diagnosis.count(";") == (scale != "2")


def test_output_alone_is_enough_to_name_a_fault(tmp_path: Path) -> None:
    text = changed("np.sqrt(Q.shape[-1])", "Q.shape[-1]", changed("weights @ V, weights", "weights @ V"))
    found = judge(tmp_path, text)[ATTENTION].diagnosis
    assert found.startswith("returns only the output, (5, 6), and not the weights; the scores are divided by 4")


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ("scores = Q @", "B, H, T, D = Q.shape; scores = Q @", "takes arrays with batch and heads in front"),
        ("return weights @ V, weights", "return [weights @ V, weights]", "mask: True = may look"),
        ("np.where(mask, scores, -1e9)", "scores - 1e9 * (1 - mask)", "mask: True = may look"),
        ("np.where(mask, scores, -1e9)", "scores + (1.0 - mask / 1.0) * -1e9", "mask: True = may look"),
        ("if mask is not None:", "if mask is not None:\n        -mask", "mask: 1 = may look, 0 = hidden"),
        (
            "np.where(mask, scores, -1e9)",
            "scores + mask * -1e9",
            "mask: 1 = hidden, as multiplied and added to the scores: the lessons' sense turned",
        ),
        (
            "return weights @ V, weights",
            "return weights @ V, weights, scores",
            "returns 1 more beside output and weights, which is not looked at",
        ),
        (
            "return weights @ V, weights",
            "return weights @ V, weights, {}, None",
            "returns 2 more beside output and weights, which is not looked at",
        ),
        (
            "return weights @ V, weights",
            "return [(weights @ V).tolist(), weights.tolist()]",
            "mask: True = may look",
        ),
    ],
)
def test_other_ways_to_be_called_are_found(tmp_path: Path, old: str, new: str, note: str) -> None:
    found = judge(tmp_path, changed(old, new))[ATTENTION]
    assert found.verdict == "right"
    assert found.diagnosis.startswith(note)


@pytest.mark.parametrize("fill", ["-np.inf", "-1e9", "-1e4", "-1000"])
@pytest.mark.parametrize("number", ["float32", "float64"])
def test_a_mask_that_leaves_nothing_is_strong_enough(tmp_path: Path, fill: str, number: str) -> None:
    text = changed("np.sqrt(Q.shape[-1])", f"np.sqrt(Q.shape[-1]); scores = scores.astype('{number}')")
    found = judge(tmp_path, changed("-1e9", fill, text))
    assert {one.verdict for one in found.values()} == {"right"}


def test_where_a_turned_mask_is_no_number_that_is_added_it_is_wrong(tmp_path: Path) -> None:
    for condition in ("mask", "mask == 1", "mask > 0.5"):
        found = judge(tmp_path, changed("np.where(mask, scores, -1e9)", f"np.where({condition}, -1e9, scores)"))
        assert found[ATTENTION].diagnosis.startswith("the sense of the mask is turned")


def test_two_faults_in_one_step_are_both_named(tmp_path: Path) -> None:
    text = changed(" / np.sqrt(Q.shape[-1])", "", changed("(mask, scores, -1e9)", "(mask, -1e9, scores)"))
    assert judge(tmp_path, text)[ATTENTION].diagnosis.count("; the sense of the mask is turned") == 1


def test_faults_in_two_steps_are_told_apart(tmp_path: Path) -> None:
    found = judge(tmp_path, changed("/ np.sqrt(Q.shape[-1])", "", changed("axis=-1", "axis=0")))
    assert "wrong axis" in found["softmax"].diagnosis
    assert found[ATTENTION].diagnosis.startswith("the scale is missing")
    assert "axis" not in found[ATTENTION].diagnosis
    assert found[HEADS].diagnosis.startswith(f"only through softmax and {ATTENTION}")


def test_the_first_lessons_code_as_it_is_printed_has_three_axes_where_its_heads_give_four(tmp_path: Path) -> None:
    text = changed("scaled_dot_product_attention", "scaled_dot_attention")
    found = judge(tmp_path, changed("K.swapaxes(-1, -2)", "K.transpose(0, 2, 1)", text))
    assert found[ATTENTION].verdict == "right"
    assert found[ATTENTION].diagnosis.startswith("takes arrays with a batch in front, as in the first lesson")
    assert found[HEADS].diagnosis == "raises an error at line 10: ValueError: axes don't match array"
    assert "swapaxes(-1, -2)" in found[HEADS].hint


def test_sizes_are_pairwise_distinct_so_that_no_axis_is_taken_for_another() -> None:
    sizes = [
        trials.BATCH,
        trials.HEADS,
        trials.QUERIES,
        trials.KEYS,
        trials.D_K,
        trials.D_V,
        trials.D_MODEL,
        trials.WIDTH,
    ]
    assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize("heads", [1, 3])
def test_the_large_scores_overflow_and_yet_one_maximum_for_all_would_do(heads: int) -> None:
    Wq, Wk = np.random.default_rng(5).normal(size=(2, 12, 12))
    x = trials.far_tokens((2, 5, 12), Wq, Wk, heads)
    query, key = ((x @ W).reshape(2, 5, heads, -1).swapaxes(1, 2) for W in (Wq, Wk))
    scores = query @ key.swapaxes(2, 3) / np.sqrt(12 / heads)
    assert 709.8 < scores.max() < 745
    assert scores.min() > scores.max() - 745


BAD = {
    "syntax": ("def softmax(x):\n    return (", "line 2: SyntaxError: '(' was never closed"),
    "indentation": ("x = 1\n  y = 2\n", "line 2: IndentationError: unexpected indent"),
    "raises": (
        "import numpy as np\n\nnp.zeros(3)[5]\n",
        "line 3: IndexError: index 5 is out of bounds for axis 0 with size 3",
    ),
    "in a function": (
        "def start():\n    return undefined\n\nstart()\n",
        "line 2: NameError: name 'undefined' is not defined",
    ),
    "leaves": ("import sys\nsys.exit(3)\n", "line 2: SystemExit: 3"),
    "asks": ("name = input('who? ')\n", "line 1: EOFError: EOF when reading a line"),
    "many lines": ("raise ValueError('one\\ntwo')\n", "line 1: ValueError: one two"),
    "reads a file": (
        "\nopen('none.npy')\n",
        "line 2: FileNotFoundError: [Errno 2] No such file or directory: 'none.npy'",
    ),
    "of another file": (
        "import numpy\nexec('x = (')\n",
        "line 2: SyntaxError: '(' was never closed (<string>, line 1)",
    ),
    "too deep": (
        "\nx = " + "+".join(["1"] * 200_000),
        "line 2, the longest: RecursionError: maximum recursion depth exceeded during compilation",
    ),
    "a kind of its own": ("class Stop(BaseException): pass\nraise Stop('now')\n", "line 2: Stop: now"),
    "the end of a generator": ("raise GeneratorExit\n", "line 1: GeneratorExit"),
    "a mute error": (
        "class Mute(Exception):\n    def __str__(self): raise SystemError\nraise Mute\n",
        "line 3: Mute: its message cannot be made",
    ),
    "colours": (
        r"raise type('\x1b[7m', (ValueError,), {})('\x1b[31mred\x07 \u202eback')",
        r"line 1: \x1b[7m: \x1b[31mred\x07 \u202eback",
    ),
    "not text": ("\0", "SyntaxError: source code string cannot contain null bytes"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_run_is_told_in_one_line_with_the_number_of_its_own(
    tmp_path: Path, name: str
) -> None:
    text, line = BAD[name]
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the whole sentence is compared)
        judge(tmp_path, text)
    assert str(error.value) == f"{tmp_path / 'my_attention.py'}: {line}"


RAISED = {
    "class Stop(BaseException): pass": ("raise Stop('now')", "raises an error at line 4: Stop: now"),
    "class Mute(Exception):\n def __str__(self): 1 / 0": (
        "raise Mute",
        "raises an error at line 5: Mute: its message cannot be made",
    ),
    "class Array:\n def __array__(self, *_, **__): raise ValueError('\x1b')": (
        "return Array()",
        r"returns Array, which is no array of numbers (\x1b)",
    ),
    "import torch": (
        "return torch.zeros(x.shape, requires_grad=True)",
        "returns Tensor, which is no array of numbers (Can't call numpy() on Tensor that requires grad.",
    ),
    "": ("raise GeneratorExit", "raises an error at line 4: GeneratorExit"),
    "#": ("raise StopIteration", "raises an error at line 4: StopIteration"),
}


@pytest.mark.parametrize("start", RAISED)
def test_what_a_step_raises_or_returns_is_told_whatever_its_kind(tmp_path: Path, start: str) -> None:
    line, told = RAISED[start]
    found = judge(tmp_path, f"{start}\n\ndef softmax(x):\n    {line}\n")["softmax"]
    assert found.verdict == "wrong"
    assert found.diagnosis.startswith(told)


def test_what_is_raised_where_a_layer_is_looked_at_is_told_with_its_line(tmp_path: Path) -> None:
    text = "class SelfAttention:\n    def __init__(self, *sizes): pass\n    def __getattr__(self, name):\n"
    found = judge(tmp_path, f"{text}        raise RuntimeError(name)\n    def __dir__(self): return ['Wq']\n")
    assert found["SelfAttention"].diagnosis == "raises an error at line 4: RuntimeError: Wq"


@pytest.mark.parametrize("text", ["raise KeyboardInterrupt", "def softmax(x): raise KeyboardInterrupt"])
def test_ctrl_c_is_no_fault_of_the_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        judge(tmp_path, text)


def test_a_file_without_any_of_the_names_is_told_which_and_what_it_has(tmp_path: Path) -> None:
    rule = r"must have one of softmax, .*, MultiHeadAttention, but has my_softmax$"
    with pytest.raises(ValueError, match=rule):
        judge(tmp_path, "import numpy as np\n\ndef my_softmax(x):\n    return x\n")
    with pytest.raises(ValueError, match=r"but has no function or class at all$"):
        judge(tmp_path, "import numpy as np\n")


def test_a_file_that_answers_to_no_name_is_told_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"MultiHeadAttention, but has __getattr__, mine$"):
        judge(tmp_path, "def __getattr__(name): raise RuntimeError(name)\nmine = lambda: 0\n")
    with pytest.raises(ValueError, match=r"MultiHeadAttention, but has Shy$"):
        judge(tmp_path, "class Shy:\n    __class__ = property(lambda self: 1 / 0)\nshy = Shy()\n")


def test_a_missing_file_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.py: cannot be read: No such file or directory$"):
        check(tmp_path / "none.py")


def test_what_a_file_prints_warns_and_draws_is_not_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noisy = "import sys, warnings\nprint('here')\nsys.stderr.write('there')\nwarnings.warn('beware')\n"
    found = judge(tmp_path, noisy + changed("e = np.exp(shifted)", "print(x); e = np.exp(shifted)"))
    assert {one.verdict for one in found.values()} == {"right"}
    assert capsys.readouterr() == ("", "")


def test_trials_under_main_do_not_run_and_files_beside_it_are_found(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text(changed("class SelfAttention", "class Other"), encoding="utf-8")
    text = "from beside_it import softmax, scaled_dot_product_attention\n"
    found = judge(tmp_path, text + "if __name__ == '__main__':\n    raise ValueError\n")
    assert [one.verdict for one in found.values()] == ["right", "right", "not there", "not there"]
    assert str(tmp_path) not in sys.path


def test_a_function_that_changes_what_it_is_given_is_judged_by_what_it_gives(tmp_path: Path) -> None:
    text = changed(
        "scores = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])", "Q /= 2; scores = Q @ K.swapaxes(-1, -2)"
    )
    assert judge(tmp_path, text)[ATTENTION].verdict == "right"


@pytest.mark.parametrize("default", ["", "=None", "=-1"])
def test_a_softmax_that_is_told_its_axis_is_told_the_last(tmp_path: Path, default: str) -> None:
    text = changed("def softmax(x)", f"def softmax(x, axis{default})", changed("axis=-1", "axis=axis"))
    found = judge(tmp_path, changed("softmax(scores)", "softmax(scores, axis=-1)", text))
    assert {one.verdict for one in found.values()} == {"right"}


def test_a_softmax_whose_own_axis_is_another_is_wrong(tmp_path: Path) -> None:
    text = changed("def softmax(x)", "def softmax(x, axis=0)", changed("axis=-1", "axis=axis"))
    assert "wrong axis" in judge(tmp_path, text)["softmax"].diagnosis


def test_queries_and_keys_are_other_numbers() -> None:
    assert not np.isin(trials.normal(5, 4), trials.normal(7, 4)).any()


def shown(path: Path, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    verdicts.check_file(console, path)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_what_a_person_reads_fits_80_columns_and_names_the_first_to_repair(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(changed(" / np.sqrt(Q.shape[-1])", ""), encoding="utf-8")
    lines = shown(path).splitlines()
    assert lines[0] == "softmax                       right"
    assert lines[1] == "scaled_dot_product_attention  wrong"
    assert lines[2].startswith("    the scale is missing")
    assert lines[-1] == "3 of 4 steps are wrong; begin with scaled_dot_product_attention"
    assert max(map(len, lines)) <= 80


def test_readme_shows_what_is_said_of_a_file_without_the_scale(tmp_path: Path) -> None:
    path = tmp_path / "my_attention.py"
    text = changed(" / np.sqrt(Q.shape[-1])", "")
    path.write_text(text[: text.index("class SelfAttention")], encoding="utf-8")
    assert shown(path) in (SCRIPT.parents[1] / "README.md").read_text(encoding="utf-8")


def test_brackets_in_a_message_are_shown_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def softmax(x):\n    raise ValueError('[red]x[/red] [/]')\n", encoding="utf-8")
    assert "ValueError: [red]x[/red] [/]" in shown(path)


def run_script(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> int:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *arguments])
    code = runpy.run_path(str(SCRIPT))["main"]()
    assert isinstance(code, int)
    return code


@pytest.mark.parametrize(
    ("text", "code", "last"),
    [
        (MATRICES, 0, "all is right"),
        (LOOPS, 0, "all that is there is right"),
        (changed("axis=-1", "axis=0"), 1, "4 of 4 steps are wrong; begin with softmax"),
    ],
    ids=["right", "some", "wrong"],
)
def test_the_script_says_so_by_its_exit_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    code: int,
    last: str,
) -> None:
    (tmp_path / "my.py").write_text(text, encoding="utf-8")
    assert run_script(monkeypatch, tmp_path, "--file", "my.py", "--json", "found.json") == code
    assert capsys.readouterr().out.splitlines()[-1] == last
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert found["ok"] is (code == 0)
    assert [one["step"] for one in found["findings"]] == list(student.STEPS)


@pytest.mark.parametrize("place", ["\nimport os; os.chdir('/')", ""], ids=["file", "step"])
def test_a_file_that_goes_elsewhere_takes_nobody_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    text = changed("e = np.exp", "__import__('os').chdir('/'); e = np.exp") if place == "" else MATRICES + place
    (tmp_path / "my.py").write_text(text, encoding="utf-8")
    assert run_script(monkeypatch, tmp_path, "--file", "my.py", "--json", "found.json") == 0
    assert Path.cwd() == tmp_path
    assert (tmp_path / "found.json").is_file()


def test_complex_numbers_leave_no_warning_on_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text("def softmax(x):\n    return x * 1j\n", encoding="utf-8")
    command = [sys.executable, str(SCRIPT), "--file", "my.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "")


def test_a_file_that_cannot_be_run_ends_the_script_with_one_line_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text("x = 1 +\n", encoding="utf-8")
    command = [sys.executable, str(SCRIPT), "--file", "my.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    error = "equivalence: my.py: line 1: SyntaxError: invalid syntax\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", error)
