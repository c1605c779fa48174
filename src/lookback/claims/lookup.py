"""A look-up: with large scores attention is the row of a table, and a trained head uses it as one."""

import math

import numpy as np
import torch

from lookback.alignment import LEARNED, NOWHERE, Head, clearest, measure, right_cells
from lookback.attention import attend
from lookback.bench import Bench, load
from lookback.claims.base import Check, Claim, Numbers, known, mean, table
from lookback.evaluate import validation_batch
from lookback.lookups import lookups
from lookback.models.base import Seq2Seq
from lookback.plots import Plot
from lookback.probes import make_probe
from lookback.results import Result
from lookback.sheets import Sheet
from lookback.tasks.base import Task

FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # scores are multiplied by these
CELLS, WIDTH = 20, 32  # of the table
CLOSE = 1e-5  # weights of 32 bits against pencil and paper
HARD = 1e-3  # from the hard look-up, at the largest factor
MOST = 0.5  # weight from which on a cell has more than all others together
BATCH, PROBES = 64, 8  # strings of the longest trained length: for the weight, and for larger scores

TABLE, HEAD = "table", "trained head"
FORMULA = "by the formula, times "
WEIGHT = "weight, times "
ERROR = "off the value, times "
LOOKS = "weight on the right cell"
LARGEST = "share of rows where it is largest"


def soft_lookup(factor: float, seed: int) -> tuple[float, float]:
    """Ask a table of orthonormal keys for each of its cells, with attention.

    The query is beta = factor * sqrt(d) times the key of the cell asked for, so that its score is `factor`, and
    that of all others 0 (Vaswani et al. 2017, equation 1).

    Args:
        factor: that score.
        seed: of keys and values, each (cells, width).

    Returns:
        the least weight on the cell that was asked for, and the largest difference of a number of what was found
        from the cell's value.
    """
    generator = torch.Generator().manual_seed(seed)
    keys = torch.linalg.qr(torch.randn(WIDTH, CELLS, generator=generator))[0].T[None, None]  # (1, 1, cells, width)
    values = torch.randn(1, 1, CELLS, WIDTH, generator=generator)
    found, weights = attend(factor * math.sqrt(WIDTH) * keys, keys, values)
    return float(weights[0, 0].diagonal().min()), float((found - values).abs().max())


def right_weight(factor: float, cells: int) -> float:
    """By pencil and paper, one score of `factor` among zeros: 1 / (1 + (n - 1) exp(-factor))."""
    return 1 / (1 + (cells - 1) * math.exp(-factor))


def sharpened(model: Seq2Seq, task: Task, head: Head, length: int) -> dict[float, float]:
    """Factor -> mean weight on the right cell of a trained head, were its scores so many times as large."""
    found: dict[float, list[float]] = {factor: [] for factor in FACTORS}
    for source, _ in task.test_pairs([length], lambda _: PROBES, "validation")[length]:
        probe = make_probe(task, source)
        scored = lookups(model, probe, head.place, head.number).scored
        assert scored is not None
        rows = np.flatnonzero(probe.right != NOWHERE)
        for factor in FACTORS:
            scores = factor * (scored.scores - scored.scores.max(axis=-1, keepdims=True))
            weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
            found[factor] += weights[rows, probe.right[rows]].tolist()
    return {factor: float(np.mean(values)) for factor, values in found.items()}


def look(run: Result) -> tuple[Head, dict[float, float]]:
    """The clearest cross-attention head of a run, and its weight with larger scores."""
    task, model = load(run)
    batch = validation_batch(task, [run.longest] * BATCH)
    head = clearest(measure(model, batch, right_cells(task, batch)))
    assert head is not None
    return head, sharpened(model, task, head, run.longest)


class Lookup(Claim):
    """The look-up of the second lesson; Bahdanau et al. 2014, section 3.1, calls it a soft alignment.

    Args:
        experiment: a Transformer.
    """

    sentence = (
        "Attention is a soft look-up in a table: the larger the scores, the harder it is, "
        "and a head learns by itself which cell to ask for."
    )
    lesson = "second lesson, the comparison with a database; first lesson, section 3"
    setup = (
        f"A table of {CELLS} cells with orthonormal keys is asked for each cell in turn, with scores from "
        f"{FACTORS[0]:g} to {FACTORS[-1]:g}. Then Transformers that have learned to reverse strings: for each "
        "symbol that is written one place of the source is the right one, and the cross-attention head that looks "
        "there most is measured on validation strings. Its scores, too, are multiplied by these numbers."
    )
    first = "what is asked"

    def __init__(self, *, experiment: str) -> None:
        self.experiment = experiment

    def measure(self, bench: Bench) -> Numbers:
        """The table, and the clearest head of every run."""
        [runs] = bench.train().values()
        looks = [None if run.problem else look(run) for run in runs]
        tables = {factor: [soft_lookup(factor, run.seed) for run in runs] for factor in FACTORS}
        return {
            TABLE: {
                **{f"{WEIGHT}{factor:g}": [weight for weight, _ in found] for factor, found in tables.items()},
                **{f"{FORMULA}{factor:g}": [right_weight(factor, CELLS)] for factor in FACTORS},
                **{f"{ERROR}{factor:g}": [error for _, error in found] for factor, found in tables.items()},
            },
            HEAD: {
                **{f"{WEIGHT}{factor:g}": [one and one[1][factor] for one in looks] for factor in FACTORS},
                LOOKS: [one and one[0].score.weight for one in looks],
                LARGEST: [one and one[0].score.largest for one in looks],
            },
        }

    def checks(self, numbers: Numbers) -> list[Check]:
        """The limit; a head that has learned the task; and most of its weight."""
        cells, head = numbers[TABLE], numbers[HEAD]
        off = max(
            abs(value - mean(cells[f"{FORMULA}{factor:g}"]))
            for factor in FACTORS
            for value in known(cells[f"{WEIGHT}{factor:g}"])
        )
        error = max(known(cells[f"{ERROR}{FACTORS[-1]:g}"]))
        largest, weights = known(head[LARGEST]), known(head[LOOKS])
        return [
            Check(
                f"the weight on the cell asked for is 1 / (1 + (n - 1) exp(-score)) to within {CLOSE:g}, and at "
                f"score {FACTORS[-1]:g} what is found is the cell's value to within {HARD:g}",
                off <= CLOSE and error <= HARD,
                f"{off:.1e} off the formula, {error:.1e} off the value",
                "the formula is computed wrongly",
                core=True,
            ),
            Check(
                f"in every seed there is a head whose weight is largest on the right cell in {LEARNED} of the rows",
                None not in head[LARGEST] and min(largest) >= LEARNED,
                ", ".join(f"{value:.3f}" for value in largest),
                "several heads or layers share the work, or the task was not learned when training ended",
                core=True,
            ),
            Check(
                f"that head has a mean weight of {MOST} or more on the right cell, in every seed",
                None not in head[LOOKS] and min(weights) >= MOST,
                ", ".join(f"{value:.3f}" for value in weights),
                "a largest weight is enough for being right, and training ends before scores have grown",
            ),
        ]

    def plots(self, numbers: Numbers) -> list[Plot]:
        """Weight on the right cell as scores grow, and how far what is found is from the value."""
        lines = {
            name: {factor: known(row[f"{WEIGHT}{factor:g}"]) for factor in FACTORS} for name, row in numbers.items()
        }
        errors = {factor: known(numbers[TABLE][f"{ERROR}{factor:g}"]) for factor in FACTORS}
        above = {factor: values for factor, values in errors.items() if min(values) > 0}
        return [
            Plot(lines, "scores, times", "weight on the right cell", log_across=True, share=True),
            Plot({TABLE: above}, "scores, times", "largest distance from the value", log_across=True, log_up=True),
        ]

    def tables(self, numbers: Numbers) -> list[Sheet]:
        """A row a factor; and how the head looks as it was trained."""
        rows = {
            f"times {factor:g}": {
                "table, formula": numbers[TABLE][f"{FORMULA}{factor:g}"],
                "table, weight": numbers[TABLE][f"{WEIGHT}{factor:g}"],
                "table, off the value": numbers[TABLE][f"{ERROR}{factor:g}"],
                "trained head, weight": numbers[HEAD][f"{WEIGHT}{factor:g}"],
            }
            for factor in FACTORS
        }
        own = {HEAD: {name: numbers[HEAD][name] for name in (LOOKS, LARGEST)}}
        return [table("scores", rows, "Larger scores"), table("head", own, "The clearest head, as trained")]

    def notes(self, numbers: Numbers) -> list[str]:
        """What the limit of the trained head is."""
        return [
            "Multiplied scores turn every row into its largest cell, right or wrong: the head's line ends at the "
            "share of rows where the right cell is the largest.",
            "A head may be right on its task with a weight below 1: what it hands on must only be told apart from "
            "the rest. The last row of a map, which writes the end, has no right cell.",
            f"Measured on {BATCH} strings of the longest trained length; with larger scores on {PROBES} of them.",
        ]
