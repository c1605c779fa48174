"""The causal mask: what a decoder learns that may look at what is still to be written."""

from dataclasses import replace

from lookback import experiment
from lookback.bench import Bench, exact_match
from lookback.claims.base import Check, Claim, Numbers, Values, known
from lookback.evaluate import validate, validation_batch
from lookback.plots import Plot
from lookback.rules import PositiveInt

NOTHING = 0.05  # nats a token up to which a loss is said to have gone to 0
FAILED = 0.05  # exact match up to which decoding fails
RIGHT = 0.95  # exact match, or token accuracy, from which on it works
WAYS = {True: "with the mask", False: "without the mask"}
LOSS, ACCURACY = "loss, teacher-forced", "token accuracy, teacher-forced"
SWAPPED = "token accuracy, another source"
FREE, BEST = "exact match, decoded freely", "exact match, best checkpoint"


class Causal(Claim):
    """The first exercise of the second lesson; Vaswani et al. 2017, section 3.2.3.

    The weights are those after the last step. The best checkpoint is chosen by exact match, decoded freely, and so
    may come from before the model without the mask has learned to read ahead. And all strings have one length, so
    that no pads stand behind a target: a decoder without the mask would see them here, and never does in training.

    Args:
        experiment: models that differ in causal alone.
        strings: validation strings of the longest trained length.
    """

    sentence = (
        "A decoder that may look at what is still to be written learns to read it there and cannot write by "
        "itself; the causal mask prevents that."
    )
    lesson = "second lesson, learning goals and exercise 1; first lesson, section 5"
    setup = (
        "Reverse short strings with the causal mask in the decoder and without. The decoder is given the right "
        "symbols, as in training (teacher forcing), or writes on after its own (decoded freely); both on "
        "validation strings of the longest trained length, with the weights after the last step. To see where it "
        "reads, it is also given the right symbols beside the source of another string. The best checkpoint, "
        "which is chosen by exact match, is tried on test strings."
    )
    first = "decoder"

    def __init__(self, *, experiment: str, strings: PositiveInt) -> None:
        self.experiment = experiment
        self.strings = strings

    def measure(self, bench: Bench) -> Numbers:
        """Teacher-forced and free scores of the last weights, and the best exact match."""
        numbers: Numbers = {}
        for runs in bench.train().values():
            row: dict[str, Values] = {name: [] for name in (LOSS, ACCURACY, SWAPPED, FREE, BEST)}
            for run in runs:
                task, model = experiment.load(run.folder, "last")
                batch = validation_batch(task, [run.longest] * self.strings)
                extra = run.raw["evaluate"]["extra_tokens"]
                right, _ = validate(model, task, batch, extra, examples=1)
                other, _ = validate(model, task, replace(batch, source=batch.source.roll(1, 0)), extra, examples=1)
                values = (right.loss, right.token_accuracy, other.token_accuracy, right.exact_match)
                for name, value in zip((LOSS, ACCURACY, SWAPPED, FREE), values, strict=True):
                    row[name].append(value)
                row[BEST].append(exact_match(run, run.longest))
            numbers[WAYS[runs[0].raw["model"]["causal"]]] = row
        return numbers

    def checks(self, numbers: Numbers) -> list[Check]:
        """Without the mask the loss goes to 0 and decoding fails; with it both are fine."""
        masked, unmasked = ({name: known(values) for name, values in numbers[way].items()} for way in WAYS.values())
        return [
            Check(
                f"without the mask, the teacher-forced loss is {NOTHING} nats a token or less, in every seed",
                max(unmasked[LOSS]) <= NOTHING,
                f"{max(unmasked[LOSS]):.1g} at its highest",
                "too few steps were made",
                core=True,
            ),
            Check(
                f"without the mask, exact match decoded freely is {FAILED} or less, in every seed",
                max(unmasked[FREE]) <= FAILED,
                f"{max(unmasked[FREE]):.2f} at its best",
                "it has learned to read the source as well, and falls back on that where there is nothing ahead",
                core=True,
            ),
            Check(
                f"with the mask, exact match decoded freely is {RIGHT} or more, in every seed",
                min(masked[FREE]) >= RIGHT,
                f"{min(masked[FREE]):.2f} at its worst, at a teacher-forced loss of {max(masked[LOSS]):.1g}",
                "it had not learned the task when training ended; more steps would tell",
                core=True,
            ),
            Check(
                f"beside another source, token accuracy stays at {RIGHT} or more without the mask, and does not "
                "with it, in every seed",
                min(unmasked[SWAPPED]) >= RIGHT > max(masked[SWAPPED]),
                f"{min(unmasked[SWAPPED]):.2f} or more without, {max(masked[SWAPPED]):.2f} or less with",
                "without the mask it still reads some symbols from the source",
            ),
            Check(
                f"the best checkpoint without the mask has exact match {FAILED} or less, too, in every seed",
                max(unmasked[BEST]) <= FAILED,
                f"{max(unmasked[BEST]):.2f} at its best",
                "it comes from before the model had learned to read ahead",
            ),
        ]

    def plots(self, numbers: Numbers) -> list[Plot]:
        """What is right by where the symbols before it come from."""
        places = {
            ACCURACY: "given the right\nsymbols (tokens)",
            SWAPPED: "the same beside\nanother source (tokens)",
            FREE: "decoded freely\n(whole strings)",
        }
        shares = {way: {word: known(row[name]) for name, word in places.items()} for way, row in numbers.items()}
        return [Plot(shares, "what the decoder is given", "share that is right", share=True)]
