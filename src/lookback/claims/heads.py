"""Several heads: do they look at different things, and is the task learned sooner with more of them?"""

import math

import torch
from torch import Tensor

from lookback import config, learner
from lookback.alignment import LEARNED, measure, right_cells
from lookback.attention import Maps
from lookback.bench import Bench, exact_match, load, steps_to_99
from lookback.claims.base import Check, Claim, Numbers, Values, below, known
from lookback.data import Batch
from lookback.decode import evaluating
from lookback.evaluate import validation_batch
from lookback.models.base import Seq2Seq
from lookback.plots import Plot
from lookback.tokens import PAD

DIFFERENT = 0.1  # bits of divergence from which on heads are said to look at different things
STRINGS = 64
KINDS = ("encoder_self", "decoder_self", "cross")


def divergence(weights: Tensor, real: Tensor) -> float:
    """How differently the heads of one layer look: Jensen-Shannon divergence (Lin 1991, equation 4.1), in bits.

    It is the entropy of the heads' mean less the mean of their entropies: 0 = all heads look alike, log2(heads) =
    no two of them look at the same key. Divided by log2(heads) it does not grow with their number.

    Args:
        weights: (batch, heads, query, key), each row a distribution.
        real: (batch, query) bool, False for rows that are pads.

    Returns:
        the mean over real rows, from 0 to 1; nan for one head.
    """
    heads = weights.shape[1]
    if heads == 1:
        return math.nan
    mixture = torch.special.entr(weights.mean(dim=1)).sum(dim=-1)  # (batch, query)
    own = torch.special.entr(weights).sum(dim=-1).mean(dim=1)
    return float((mixture - own)[real].mean()) / math.log(heads)


def divergences(model: Seq2Seq, batch: Batch) -> dict[str, float]:
    """Kind of attention -> mean over layers of `divergence`, on a batch read by teacher forcing."""
    maps: Maps = {}
    with evaluating(model):
        model(batch.source, batch.source_lengths, batch.decoder_input, maps)
    found: dict[str, list[float]] = {}
    for place, weights in maps.items():
        kind = place.partition("/")[0]
        real = (batch.source if kind == "encoder_self" else batch.labels) != PAD
        found.setdefault(kind, []).append(divergence(weights, real))
    return {kind: sum(values) / len(values) for kind, values in found.items()}


class Heads(Claim):
    """Section 4 of the first lesson; Vaswani et al. 2017, section 3.2.2 and table 3, rows (A).

    Args:
        experiment: models that differ in num_heads alone.
    """

    sentence = "Several heads, each with its share of the width, learn to look at different things at once."
    lesson = "first lesson, section 4; second lesson, at the end"
    setup = (
        "Reverse strings of letters with 1, 2, 4 and 8 heads at one d_model, so that all have as many weights. How "
        "differently the heads of a layer look is the Jensen-Shannon divergence of their rows on validation "
        "strings, as a share of the most that so many heads can have: 0 = all look alike, 1 = no two look at the "
        "same symbol. How soon the task is learned tells whether it helps."
    )
    first = "heads"

    def __init__(self, *, experiment: str) -> None:
        self.experiment = experiment

    def measure(self, bench: Bench) -> Numbers:
        """Steps, scores, and how differently heads look, trained and before."""
        numbers: Numbers = {}
        for runs in bench.train().values():
            heads = runs[0].raw["model"]["num_heads"]
            row: dict[str, Values] = {
                "steps to 99 %": [steps_to_99(run) for run in runs],
                f"exact match at {runs[0].judged}": [exact_match(run, run.judged or 0) for run in runs],
            }
            for run in runs:
                if run.problem:
                    continue  # its weights are not finite
                task, model = load(run)
                batch = validation_batch(task, [run.longest] * STRINGS)
                scores = measure(model, batch, right_cells(task, batch))
                crossing = [
                    score for place, found in scores.items() if place.startswith("cross") for score in found
                ]
                learned = sum((score.largest or 0.0) >= LEARNED for score in crossing)
                row.setdefault("cross heads on the right cell", []).append(learned / len(crossing))
                if heads > 1:
                    _, untrained = learner.build(config.build(run.raw))
                    for when, which in (("untrained", untrained), ("trained", model)):
                        for kind, value in divergences(which, batch).items():
                            row.setdefault(f"{kind}, {when}", []).append(value)
            numbers[str(heads)] = row
        return numbers

    def checks(self, numbers: Numbers) -> list[Check]:
        """Heads differ, more than they did untrained; and more heads learn sooner."""
        several = {heads: row for heads, row in numbers.items() if heads != "1"}
        kinds = [kind for kind in KINDS if f"{kind}, trained" in next(iter(several.values()))]
        after = {
            kind: [value for row in several.values() for value in known(row[f"{kind}, trained"])] for kind in kinds
        }
        grown = [
            one - other
            for row in several.values()
            for kind in kinds
            for one, other in zip(known(row[f"{kind}, trained"]), known(row[f"{kind}, untrained"]), strict=True)
        ]
        most = max(several, key=int)
        sooner, words = below(numbers[most]["steps to 99 %"], numbers["1"]["steps to 99 %"])
        return [
            Check(
                f"in each kind of attention trained heads of a layer diverge by {DIFFERENT} or more, in every run",
                min(min(values) for values in after.values()) >= DIFFERENT,
                ", ".join(f"{kind} from {min(values):.2f} to {max(values):.2f}" for kind, values in after.items()),
                "this task has one relation to find, and heads of a kind may all find it",
            ),
            Check(
                "trained heads of a layer diverge more than the same heads before training, in every run",
                min(grown) > 0,
                f"least gain {min(grown):.2f}",
                "heads that all find the one answer look alike",
                core=True,
            ),
            Check(
                f"{most} heads reach 99 % in fewer steps than 1 head: the 95 % interval is below 0",
                sooner,
                words,
                "one head is enough for a task with one relation, and is wider than each of several",
            ),
        ]

    def plots(self, numbers: Numbers) -> list[Plot]:
        """Steps to 99 %, and divergence, against the number of heads."""
        steps = {"steps": {heads: known(row["steps to 99 %"]) for heads, row in numbers.items()}}
        lines: dict[str, dict[str, list[float]]] = {}
        for heads, row in numbers.items():
            for measured, values in row.items():
                if measured.partition(",")[0] in KINDS:
                    lines.setdefault(measured, {})[heads] = known(values)
        return [
            Plot(steps, "heads", "steps to 99 % exact match"),
            Plot(lines, "heads", "divergence of the heads of a layer", share=True),
        ]
