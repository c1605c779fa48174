"""Order: without positions attention sees a set; each encoding tells it where symbols stand."""

import torch
from torch import Tensor

from lookback import config, learner
from lookback.bench import Bench, exact_match
from lookback.claims.base import Check, Claim, Numbers, Values, known, mean, table
from lookback.decode import evaluating
from lookback.evaluate import validation_batch
from lookback.models.base import Seq2Seq
from lookback.plots import Plot
from lookback.results import Result
from lookback.sheets import Sheet

ROUNDING = 1e-4  # of 32-bit states of about 1, through all layers
SEEN = 0.01  # a difference that no rounding makes
NEVER = 0.05  # exact match of who does not know the order
OFTEN = 0.5  # exact match of who does: right more often than not
STRINGS = 8
SPREAD = 0.1  # of what is added to all weights, since tables of some encodings start at zero
NONE = "none"

AT = "exact match at "
MOVED = "change of a state"
LONGEST = "longest trained length"


def permuted_difference(model: Seq2Seq, source: Tensor, lengths: Tensor, order: Tensor) -> float:
    """How far the encoder is from giving permuted symbols the same states, permuted (equivariance).

    f(P x) = P f(x) for every permutation P holds for attention without positions, since its sum over keys knows no
    order (Vaswani et al. 2017, equation 1 and section 3.5; Lee et al. 2019, property 1).

    Args:
        model: any model.
        source: (batch, source), ids, all rows of one length, marks included.
        lengths: (batch,).
        order: (source - 2,), the permutation of the symbols between BOS and EOS, which stay at the ends.

    Returns:
        the largest difference of a number in a state.
    """
    places = torch.cat([torch.tensor([0]), order + 1, torch.tensor([source.shape[1] - 1])])
    with evaluating(model):
        states = model.encode(source, lengths).states
        permuted = model.encode(source[:, places], lengths).states
    return float((permuted - states[:, places]).abs().max())


def moved(run: Result) -> float:
    """`permuted_difference` of the model of a run with random weights, on strings of the longest trained length."""
    task, model = learner.build(config.build(run.raw))
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(SPREAD * torch.randn_like(weights))
    batch = validation_batch(task, [run.longest] * STRINGS)
    order = torch.arange(run.longest).roll(1 + run.seed % (run.longest - 1))  # no symbol stays
    return permuted_difference(model, batch.source, batch.source_lengths, order)


class Order(Claim):
    """Section 4 of the first lesson; Vaswani et al. 2017, section 3.5.

    Args:
        experiment: the Transformer with no positions, called `none`, and with each encoding.
    """

    sentence = (
        "Self-attention by itself sees a set of symbols: order must be added, "
        "and with a position encoding of any kind it is there."
    )
    lesson = "first lesson, section 4, the paragraph on positions"
    setup = (
        "First without training: all weights of an encoder are random, and the symbols of a string are permuted. "
        "If only order is lost, the states are the same, permuted alike. Then the Transformer learns to reverse "
        "strings without positions, and with each encoding; it is tested beyond the trained lengths as well."
    )
    first = "positions"

    def __init__(self, *, experiment: str) -> None:
        self.experiment = experiment

    def measure(self, bench: Bench) -> Numbers:
        """What a permutation changes, and exact match by length."""
        return {
            name: {
                MOVED: [moved(run) for run in runs],
                LONGEST: [float(run.longest) for run in runs],
                **{
                    f"{AT}{length}": [exact_match(run, length) for run in runs]
                    for length in runs[0].raw["evaluate"]["lengths"]
                },
            }
            for name, runs in bench.train().items()
        }

    def checks(self, numbers: Numbers) -> list[Check]:
        """A permutation is not noticed without positions, and is with each; so is the task learned."""
        judged = f"{AT}{mean(numbers[NONE][LONGEST]):.0f}"
        others = {name: row for name, row in numbers.items() if name != NONE}
        least = {name: min(known(row[MOVED])) for name, row in others.items()}
        worst = {name: min(known(row[judged])) for name, row in others.items()}
        return [
            Check(
                f"without positions, permuting the symbols changes no number of their states by more than "
                f"{ROUNDING}, in every seed",
                max(known(numbers[NONE][MOVED])) <= ROUNDING,
                f"{max(known(numbers[NONE][MOVED])):.1e} at most",
                "something beside positions tells places apart",
                core=True,
            ),
            Check(
                f"with each encoding it changes some number by {SEEN} or more, in every seed",
                min(least.values()) >= SEEN,
                "at least " + ", ".join(f"{value:.2f} {name}" for name, value in least.items()),
                "an encoding that says nothing while its table is near zero",
                core=True,
            ),
            Check(
                f"without positions, {judged}, the longest trained, is {NEVER} or less in every seed",
                max(known(numbers[NONE][judged])) <= NEVER,
                f"{max(known(numbers[NONE][judged])):.3f} at most",
                "the strings are so short that their order can be guessed",
                core=True,
            ),
            Check(
                f"with each encoding it is {OFTEN} or more in every seed",
                min(worst.values()) >= OFTEN,
                "at worst " + ", ".join(f"{value:.3f} {name}" for name, value in worst.items()),
                "that encoding learns more slowly, and training ended too early for it",
                core=True,
            ),
        ]

    def plots(self, numbers: Numbers) -> list[Plot]:
        """What a permutation changes, and exact match by length with the trained range shaded."""
        changes = {"random weights": {name: known(row[MOVED]) for name, row in numbers.items()}}
        lines = {
            name: {
                float(measure.removeprefix(AT)): known(values)
                for measure, values in row.items()
                if measure.startswith(AT)
            }
            for name, row in numbers.items()
        }
        shaded = (1.0, mean(numbers[NONE][LONGEST]))
        return [
            Plot(changes, "positions", "largest change of a state by permuting", log_up=True),
            Plot(lines, "length of the source", "exact match, decoded freely", shaded=shaded, share=True),
        ]

    def tables(self, numbers: Numbers) -> list[Sheet]:
        """All but the trained length, which is the same everywhere."""
        rows: dict[str, dict[str, Values]] = {
            name: {measure: values for measure, values in row.items() if measure != LONGEST}
            for name, row in numbers.items()
        }
        return [table(self.first, rows)]

    def notes(self, numbers: Numbers) -> list[str]:
        """What is beyond the claim."""
        return [
            f"Lengths above {mean(numbers[NONE][LONGEST]):.0f} were never trained. No check is made there: that "
            "order is told does not mean that it is understood at places that were never seen.",
            "Permuting is equivariance: each symbol's state goes along with it. The whole output is the same only "
            "where nothing else tells symbols apart.",
            "A decoder without positions is not quite blind: it sees only what was written before, and so can "
            "count. The encoder has no such help.",
        ]
