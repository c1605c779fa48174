"""The lesson, step by step: what each step computes and how its arrays are named, but no sentence and no printing.

A step is a pure function from a `Setting` to a `Page`; a new one is added to `STEPS`, and its sentences to
`walk_words.py`. All is computed by `lesson.py`; only the last step needs torch, and says so where it is missing.
"""

from collections.abc import Callable, Sequence

import numpy as np

from lookback import lesson
from lookback.lesson import Array, scaled_dot_product_attention
from lookback.walk_parts import Facts, Grid, Label, Page, Part, Said, Setting, Shades

SCORES = np.array([2.1, 0.3, 0.1, 0.8, 0.2])  # of q1 in the second lesson
PRINTED = np.array([0.52, 0.09, 0.07, 0.14, 0.08])  # what it prints for their softmax
WIDTHS, QUERIES, KEYS = (4, 16, 64, 256), 1000, 8  # of the step on scaling
BATCH, TOKENS, WIDTH, HEADS = 2, 10, 64, 4  # of the first lesson's example


def softmax(setting: Setting) -> Page:
    """Scores to weights: the second lesson's example, put right."""
    weights, raised = lesson.softmax(SCORES), np.exp(SCORES - SCORES.max())
    rows: list[Label] = ["scores (5,)", "exp(scores - max) (5,)", "weights (5,)", Said("softmax.printed")]
    keys = [f"k{number}" for number in range(1, len(SCORES) + 1)]
    values = np.stack([SCORES, raised, weights, PRINTED])
    grid = Grid("", values, rows, keys, sums=True)
    notices = [
        Said("softmax.sum", {"total": weights.sum(), "rounded": weights.round(2).sum()}),
        Said("softmax.corrected", {"total": PRINTED.sum(), **dict(zip(keys, weights, strict=True))}),
        Said("softmax.shift", {"difference": _difference(lesson.softmax(SCORES + 1000), weights)}),
    ]
    return Page("softmax", ["softmax(x)_i = exp(x_i - max(x)) / sum_j exp(x_j - max(x))"], [[grid]], notices)


def attention(setting: Setting) -> Page:
    """Queries, keys and values of a sentence, and the way of the second word's query to its output."""
    words, X, head = setting.sentence, setting.embeddings(), setting.head()
    Q, K, V = X @ head.Wq, X @ head.Wk, X @ head.Wv
    output, weights = scaled_dot_product_attention(Q[[1]], K, V)
    scores = Q[1] @ K.T
    arrays = {"X": X, "Q": Q, "K": K, "V": V}
    grids = [Grid(name, array, words, _numbers(array.shape[1])) for name, array in arrays.items()]
    scored = np.stack([scores, scores / np.sqrt(setting.dk)], axis=1)
    mixed = np.stack([weights[0], weights[0] * V[:, 0]], axis=1)
    mixed = np.concatenate([mixed, mixed.sum(axis=0, keepdims=True)])
    parts = [
        grids[:1],
        grids[1:3],
        grids[3:],
        [
            Grid("", scored, words, ["q K^T\n", "q K^T\n/ sqrt(d_k)"]),
            Grid("", mixed, [*words, Said("sum")], ["weights\n", "weights\n* V[:, 0]"]),
        ],
        [Grid("output", output, [words[1]], _numbers(setting.dv))],
    ]
    notices = [
        Said("attention.match", {"query": words[1], **_largest(weights, words)}),
        Said("attention.sum", {"first": output[0, 0]}),
    ]
    formula = ["Q = X Wq    K = X Wk    V = X Wv", "Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V"]
    return Page("attention", formula, parts, notices, {"query": words[1]})


def scaling(setting: Setting) -> Page:
    """What sqrt(d_k) does to scores, weights and slopes, measured on random queries and keys."""
    rng = np.random.default_rng(setting.seed)
    rows = []
    for width in WIDTHS:
        Q, K = rng.normal(size=(QUERIES, 1, width)), rng.normal(size=(QUERIES, KEYS, width))
        scores = Q @ K.swapaxes(-1, -2)
        both = lesson.softmax(scores), scaled_dot_product_attention(Q, K, K)[1]
        variances = scores.var(), (scores / np.sqrt(width)).var()
        slopes = [(weights * (1 - weights)).mean() for weights in both]
        rows.append([*variances, *(weights.max(-1).mean() for weights in both), *slopes])
    columns = [
        Said(f"scaling.{what}_{kind}") for what in ("variance", "largest", "slope") for kind in ("raw", "scaled")
    ]
    grid = Grid("", np.array(rows), [f"d_k = {width}" for width in WIDTHS], columns, digits=3)
    notices = [
        Said("scaling.variance", {"width": WIDTHS[-1], "raw": rows[-1][0], "scaled": rows[-1][1]}),
        Said("scaling.saturated", {"width": WIDTHS[-1], "raw": rows[-1][2], "scaled": rows[-1][3]}),
        Said("scaling.slope", {"ratio": rows[-1][5] / rows[-1][4]}),
    ]
    formula = ["scores = q K^T    Var(scores) = d_k    Var(scores / sqrt(d_k)) = 1"]
    return Page("scaling", formula, [[grid]], notices, {"queries": QUERIES, "keys": KEYS})


def sentence(setting: Setting) -> Page:
    """The weights of all words of the sentence, as a table, and the output."""
    words = setting.sentence
    output, weights = setting.head().forward(setting.embeddings())
    looked = weights.sum(axis=0)
    notices = [
        Said("sentence.rows", {"difference": _difference(weights.sum(-1), np.ones(len(words)))}),
        Said("sentence.columns", {"key": words[looked.argmax()], "total": looked.max()}),
        Said("sentence.chance"),
    ]
    parts = [[_table("weights", weights, words)], [Grid("output", output, words, _numbers(setting.dv))]]
    return Page("sentence", ["weights = softmax(Q K^T / sqrt(d_k))    output = weights V"], parts, notices)


def heatmap(setting: Setting) -> Page:
    """The same weights in shades."""
    words = setting.sentence
    _, weights = setting.head().forward(setting.embeddings())
    found = _largest(weights, words)
    steps = {name: weights.max() * part / 4 for part, name in enumerate(("first", "second", "third"), start=1)}
    notices = [Said("heatmap.shades", {**steps, "largest": weights.max()}), Said("heatmap.largest", found)]
    formula = ["shade = chars[int(4 * weight / weights.max())]"]
    return Page("heatmap", formula, [[Shades("weights", weights, words)]], notices)


def masks(setting: Setting) -> Page:
    """The causal mask, a padding mask, and a query that may look nowhere."""
    words, X, head, causal = setting.sentence, setting.embeddings(), setting.head(), setting.causal()
    _, free = head.forward(X)
    _, weights = head.forward(X, causal)
    _, padded = head.forward(X, np.arange(len(words))[None, :] < len(words) - 1)
    blind, nothing = head.forward(X, np.zeros_like(causal))
    kept = free * causal
    notices = [
        Said("masks.causal", {"above": np.abs(weights[~causal]).max(), "word": words[0], "weight": weights[0, 0]}),
        Said("masks.share", {"difference": _difference(weights, kept / kept.sum(-1, keepdims=True))}),
        Said("masks.padding", {"word": words[-1], "column": padded[:, -1].max()}),
        Said("masks.nowhere", {"weight": np.abs(nothing).max(), "output": np.abs(blind).max()}),
    ]
    parts = [
        [Grid("mask", causal.astype(float), words, words, digits=0)],
        [_table("weights", weights, words)],
        [_table("weights, padding", padded, words)],
    ]
    return Page("masks", ["weights = softmax(where(mask, Q K^T / sqrt(d_k), -inf))"], parts, notices)


def heads(setting: Setting) -> Page:
    """The map of each head of a layer with several."""
    words, X, layer = setting.sentence, setting.embeddings(), setting.layer()
    output, weights = layer.forward(X[None])
    alone = []
    for head in range(layer.h):
        part = slice(head * layer.dk, (head + 1) * layer.dk)
        Q, K, V = (X @ W[:, part] for W in (layer.Wq, layer.Wk, layer.Wv))
        alone.append(scaled_dot_product_attention(Q, K, V)[1])
    names = [f"weights[0, {head}]" for head in range(layer.h)]
    maps = list(zip(names, weights[0], strict=True))
    notices = [
        *(Said("heads.head", {"head": head, **_largest(part, words)}) for head, part in enumerate(weights[0])),
        Said("heads.scale"),
        Said("heads.differ", {"difference": _difference(weights[0, 0], weights[0, 1])}),
        Said("heads.alone", {"difference": _difference(weights[0], np.stack(alone))}),
    ]
    parts: list[Sequence[Part]] = [
        *([_table(name, part, words)] for name, part in maps),
        [Shades(name, part, words) for name, part in maps],
        [Grid("output[0]", output[0], words, _numbers(setting.d_model))],
    ]
    formula = [
        "head_i = Attention(X Wq_i, X Wk_i, X Wv_i)",
        "MultiHead(X) = concat(head_0, ..., head_{h-1}) Wo",
    ]
    values = {"width": setting.d_model, "heads": layer.h, "share": layer.dk}
    return Page("heads", formula, parts, notices, values)


def shapes(setting: Setting) -> Page:
    """The first lesson's example, array by array."""
    rng = np.random.default_rng(setting.seed)
    layer = lesson.MultiHeadAttention(WIDTH, HEADS, rng)
    x = rng.normal(0, 1, (BATCH, TOKENS, WIDTH))
    Q, K, V = (layer.split_heads(x @ W) for W in (layer.Wq, layer.Wk, layer.Wv))
    mixed, _ = scaled_dot_product_attention(Q, K, V)
    output, weights = layer.forward(x)
    rows: list[tuple[str, tuple[int, ...], Label]] = [
        ("x", x.shape, Said("shapes.tokens")),
        ("Wq, Wk, Wv, Wo", layer.Wq.shape, Said("shapes.matrix")),
        ("x Wq", (x @ layer.Wq).shape, Said("shapes.tokens")),
        ("Q, K, V", Q.shape, Said("shapes.split")),
        ("K^T", K.swapaxes(-1, -2).shape, Said("shapes.turned")),
        ("Q K^T / sqrt(d_k)", (Q @ K.swapaxes(-1, -2)).shape, Said("shapes.map")),
        ("weights", weights.shape, Said("shapes.map")),
        ("weights V", mixed.shape, Said("shapes.split")),
        ("concat", mixed.swapaxes(1, 2).reshape(x.shape).shape, Said("shapes.tokens")),
        ("output", output.shape, Said("shapes.tokens")),
    ]
    notices = [
        Said("shapes.maps", {"maps": BATCH * HEADS, "tokens": TOKENS}),
        Said("shapes.same", {"total": weights[0, 0, 0].sum()}),
    ]
    values = {"batch": BATCH, "tokens": TOKENS, "width": WIDTH, "heads": HEADS}
    formula = ["d_k = d_model / h    MultiHead(x) = concat(head_0, ..., head_{h-1}) Wo"]
    return Page("shapes", formula, [[Facts(Said("shapes.axes"), rows)]], notices, values)


def torch(setting: Setting) -> Page:
    """The layer of several heads beside `nn.MultiheadAttention` with the very same weights, in float64."""
    formula = ["nn.MultiheadAttention(d_model, n_heads, bias=False, batch_first=True)"]
    try:
        from torch import float64, from_numpy, nn, no_grad  # noqa: PLC0415
    except ImportError:
        return Page("torch", formula, [], [Said("torch.missing")])
    ours, X, causal = setting.layer(), setting.embeddings()[None], setting.causal()
    theirs = nn.MultiheadAttention(setting.d_model, setting.n_heads, bias=False, batch_first=True, dtype=float64)
    rows: list[tuple[str, tuple[int, ...], Label]] = []
    differences = []
    with no_grad():
        theirs.in_proj_weight.copy_(from_numpy(np.concatenate([ours.Wq.T, ours.Wk.T, ours.Wv.T])))
        theirs.out_proj.weight.copy_(from_numpy(ours.Wo.T))
        x = from_numpy(X)
        for name, mask in (("", None), (", causal", causal)):
            hidden = None if mask is None else from_numpy(~mask)
            found = theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)
            for what, our, their in zip(("output", "weights"), ours.forward(X, mask), found, strict=True):
                differences.append(_difference(our, their.numpy()))
                rows.append((what + name, our.shape, f"{differences[-1]:.2g}"))
    notices = [Said("torch.same", {"difference": max(differences)}), Said("torch.mean"), Said("torch.mask")]
    return Page("torch", formula, [[Facts(Said("torch.difference"), rows)]], notices)


Step = Callable[[Setting], Page]
STEPS: list[Step] = [softmax, attention, scaling, sentence, heatmap, masks, heads, shapes, torch]


def chosen(typed: Sequence[str]) -> dict[int, Step]:
    """The steps that were asked for by number or name, by their number; all if none was.

    Raises:
        ValueError: if there is no such step.
    """
    numbers = {step.__name__: number for number, step in enumerate(STEPS, start=1)}
    numbers |= {f"{number}": number for number in numbers.values()}
    for name in typed:
        if name not in numbers:
            listed = ", ".join(step.__name__ for step in STEPS)
            raise ValueError(f"step must be 1 to {len(STEPS)} or one of {listed}, but is {name!r}")
    asked = [numbers[name] for name in typed] or list(numbers.values())
    return {number: STEPS[number - 1] for number in asked}


def _largest(weights: Array, words: Sequence[str]) -> dict[str, float | str]:
    """The largest weight of a map (query, key), with its words; of a single row, the key alone."""
    query, key = divmod(int(weights.argmax()), weights.shape[1])
    both = {"query": words[query], "key": words[key]} if len(weights) > 1 else {"key": words[key]}
    return {**both, "largest": weights.max()}


def _table(name: str, weights: Array, words: Sequence[str]) -> Grid:
    return Grid(name, weights, words, words, digits=3 if len(words) <= 8 else 2, sums=True)


def _numbers(width: int) -> list[str]:
    return [f"{column}" for column in range(width)]


def _difference(first: Array, second: Array) -> float:
    return float(np.abs(first - second).max())
