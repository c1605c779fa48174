"""The division by sqrt(d_k): what it does to scores, to the softmax and its gradient, and to training."""

import math
from typing import Annotated

import torch
from torch import Tensor

from lookback.attention import masked_softmax
from lookback.bench import Bench, exact_match, steps_to_99
from lookback.claims.base import Check, Claim, Numbers, Values, below, cell, known
from lookback.plots import Plot
from lookback.rules import AtLeastOne, PositiveInt, head_width

TOLERANCE = 0.1  # of a variance, as a share of what it should be
SATURATED = 0.1  # share of the largest entropy up to which a row is said to look at one key alone
SPREAD = 0.5  # share of the largest entropy from which on it is said to look at many
VANISHED = 0.1  # share of the gradient with division up to which one without has vanished
STUCK = 0.5  # exact match up to which training is said to be stuck
Widths = Annotated[list[PositiveInt], AtLeastOne]
WAYS = {True: "divided", False: "not divided"}
VARIANCE, ENTROPY = "variance of scores", "entropy"
MEDIAN, MEAN = "gradient, median row", "gradient, mean row"
STEPS, MATCH = "steps to 99 %", "exact match"


def entropy(weights: Tensor) -> Tensor:
    """Of each row, as a share of its largest: from 0, one key alone, to 1, all keys alike.

    (..., key) -> (...), each row a distribution over two keys or more.
    """
    found: Tensor = torch.special.entr(weights).sum(dim=-1) / math.log(weights.shape[-1])
    return found


def gradient(weights: Tensor) -> Tensor:
    """How far a row moves with its scores: the Frobenius norm of the softmax's Jacobian, diag(w) - w w^T.

    Its square is sum w^2 - 2 sum w^3 + (sum w^2)^2. (..., key) -> (...), each row a distribution.
    """
    second, third = (weights**2).sum(dim=-1), (weights**3).sum(dim=-1)
    return (second - 2 * third + second**2).clamp(min=0.0).sqrt()  # rounding may bring it below 0


def untrained(width: int, queries: int, keys: int, divided: bool, seed: int) -> dict[str, float]:
    """Queries and keys of independent standard normal numbers: Vaswani et al. 2017, footnote 4.

    Returns:
        measure -> value, for so many queries, each with so many keys of its own.
    """
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(queries, 1, 1, width, generator=generator, dtype=torch.float64)
    key = torch.randn(queries, 1, keys, width, generator=generator, dtype=torch.float64)
    scores = query @ key.transpose(-2, -1) / (math.sqrt(width) if divided else 1.0)  # (queries, 1, 1, keys)
    weights = masked_softmax(scores, None)
    sizes = gradient(weights)
    return {
        VARIANCE: float(scores.var()),
        ENTROPY: float(entropy(weights).mean()),
        MEDIAN: float(sizes.median()),
        MEAN: float(sizes.mean()),
    }


def condition(width: int, divided: bool) -> str:
    """The name of a row of numbers."""
    return f"{width}, {WAYS[divided]}"


def line(numbers: Numbers, measure: str, divided: bool) -> dict[int, list[float]]:
    """A measure against d_k, with division or without; without the widths that were not measured."""
    rows = {
        int(name.partition(",")[0]): row for name, row in numbers.items() if name.endswith(f", {WAYS[divided]}")
    }
    return {width: known(row[measure]) for width, row in rows.items() if known(row.get(measure, []))}


def farthest_off(numbers: Numbers) -> float:
    """How far a variance is from d_k, or from 1 once divided, as a share of it: the largest of all draws."""
    return max(
        abs(value / (1 if divided else width) - 1)
        for divided in WAYS
        for width, values in line(numbers, VARIANCE, divided).items()
        for value in values
    )


class Scale(Claim):
    """Section 3 of the first lesson; Vaswani et al. 2017, section 3.2.1.

    Args:
        experiment: models that differ in num_heads and scale alone.
        widths: d_k without training; so are the others.
        keys: that a query looks at.
        queries: each with keys of its own.
        draws: of queries and keys, each of a seed.
    """

    sentence = (
        "Products of queries and keys grow with their width d_k; not divided by sqrt(d_k), they leave the softmax "
        "looking at one key with hardly any gradient, and training gets stuck."
    )
    lesson = "first lesson, section 3; second lesson, why to scale"
    setup = (
        "Without training: queries and keys of independent standard normal numbers. Entropy is a share of its "
        "largest: 1 = looks at all keys alike, 0 = at one. The gradient of a row is the Frobenius norm of the "
        "softmax's Jacobian; its mean can rest on a few rows, the median is what a typical row has. Trained: one "
        "layer reverses strings, with as many weights at each d_k, since only the number of heads changes."
    )
    first = "d_k"

    def __init__(
        self, *, experiment: str, widths: Widths, keys: PositiveInt, queries: PositiveInt, draws: PositiveInt
    ) -> None:
        self.experiment = experiment
        self.widths, self.keys, self.queries, self.draws = widths, keys, queries, draws

    def measure(self, bench: Bench) -> Numbers:
        """A row for each width and way: without training, and then trained."""
        trained = {}
        for runs in bench.train().values():
            model = runs[0].raw["model"]
            trained[head_width(model["d_model"], model["num_heads"]), model["scale"]] = runs
        numbers: Numbers = {}
        for width in sorted({*self.widths, *(width for width, _ in trained)}):
            for divided in WAYS:
                found = [untrained(width, self.queries, self.keys, divided, seed) for seed in range(self.draws)]
                row: dict[str, Values] = {name: [one[name] for one in found] for name in found[0]}
                if runs := trained.get((width, divided), []):
                    row[STEPS] = [steps_to_99(run) for run in runs]
                    row[MATCH] = [exact_match(run, run.longest) for run in runs]
                numbers[condition(width, divided)] = row
        return numbers

    def checks(self, numbers: Numbers) -> list[Check]:
        """Variance, entropy and gradient at every width; training at the widest."""
        off = farthest_off(numbers)
        many = min(min(values) for values in line(numbers, ENTROPY, True).values())
        widest = max(line(numbers, ENTROPY, False))
        one = max(line(numbers, ENTROPY, False)[widest])
        left = {}
        for name in (MEDIAN, MEAN):
            small, large = (line(numbers, name, divided)[widest] for divided in (False, True))
            left[name] = max(without / with_ for without, with_ in zip(small, large, strict=True))
        trained = max(line(numbers, MATCH, True))
        fast, slow = (numbers[condition(trained, divided)] for divided in WAYS)
        sooner, words = below(fast[STEPS], slow[STEPS])
        best = max(known(slow[MATCH]))
        return [
            Check(
                f"the variance of products is d_k, and 1 once divided, within {TOLERANCE:.0%}, in every draw",
                off <= TOLERANCE,
                f"farthest off by {off:.1%}",
                "there are too few queries for so narrow a limit",
                core=True,
            ),
            Check(
                f"the entropy at d_k {widest} is {SATURATED} or less without division, and with it "
                f"{SPREAD} or more at every d_k",
                one <= SATURATED and many >= SPREAD,
                f"{one:.3f} or less without, {many:.2f} or more with it",
                "this d_k is too small for the softmax to look at one key alone",
                core=True,
            ),
            Check(
                f"the median row's gradient at d_k {widest} without division is {VANISHED} or less of that with it",
                left[MEDIAN] <= VANISHED,
                f"at most {left[MEDIAN]:.2g} of it",
                "at this d_k half of the rows still have two keys that compete",
                core=True,
            ),
            Check(
                f"the mean of all rows' gradients, too, is {VANISHED} or less of that with division",
                left[MEAN] <= VANISHED,
                f"at most {left[MEAN]:.2g} of it",
                "the two best keys of some rows are nearly equal, and these rows keep their gradient at any d_k",
            ),
            Check(
                f"trained at d_k {trained}, 99 % takes fewer steps with division: the 95 % interval is below 0",
                sooner,
                words,
                "the optimizer's steps do not shrink with the gradient, and it can learn smaller queries and keys",
            ),
            Check(
                f"trained at d_k {trained} without division, exact match stays at {STUCK} or less, in every seed",
                best <= STUCK,
                f"at best {best:.2f}, against {cell(fast[MATCH])} with division",
                "rows whose best keys are nearly equal keep a gradient, and training finds its way through them",
            ),
        ]

    def plots(self, numbers: Numbers) -> list[Plot]:
        """Entropy and gradient against d_k, and exact match."""
        found = []
        for name, up in (
            (ENTROPY, "entropy, share of the largest"),
            (MEDIAN, "softmax gradient of the median row"),
        ):
            lines = {
                word: {float(at): row for at, row in line(numbers, name, way).items()} for way, word in WAYS.items()
            }
            found.append(Plot(lines, "d_k, without training", up, log_across=True, share=name == ENTROPY))
        bars = {word: {str(at): row for at, row in line(numbers, MATCH, way).items()} for way, word in WAYS.items()}
        return [*found, Plot(bars, "d_k, trained", "exact match at the longest length", share=True)]
