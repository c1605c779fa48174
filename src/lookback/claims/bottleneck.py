"""The bottleneck: one state for the whole source, or a look back at each of its symbols."""

from lookback.bench import Bench, exact_match
from lookback.claims.base import Check, Claim, Numbers, known, mean
from lookback.plots import Plot

FALL = 0.5  # of exact match, from the shortest judged length to the longest
RIGHT = 0.95  # what counts as right at a length
PLAIN = "rnn"
AT = "exact match at "


class Bottleneck(Claim):
    """Section 1 of the first lesson, tried as in Bahdanau et al. 2014, figure 2: quality against length.

    Args:
        experiment: an RNN without attention, called `rnn`, and models with attention.
    """

    sentence = (
        "An encoder that puts the whole source into one vector loses it as the source grows; "
        "attention does not, within the trained lengths."
    )
    lesson = "first lesson, sections 1 and 2; second lesson, the problem"
    setup = (
        "Reverse strings of letters. The plain RNN (an LSTM) hands one state to its decoder, rnn_luong is an RNN "
        "that looks back, and the Transformer has nothing but attention. All have as many weights and see the same "
        "batches; held-out strings are decoded freely, and one counts if every symbol and the end are right."
    )

    def __init__(self, *, experiment: str) -> None:
        self.experiment = experiment

    def measure(self, bench: Bench) -> Numbers:
        """Exact match by length."""
        return {
            name: {
                f"{AT}{length}": [exact_match(run, int(length)) for run in runs]
                for length in runs[0].summary["exact_match"]
                if int(length) <= runs[0].longest
            }
            for name, runs in bench.train().items()
        }

    def checks(self, numbers: Numbers) -> list[Check]:
        """The plain RNN falls; the others do not."""
        plain = numbers[PLAIN]
        short, long = list(plain)[1], list(plain)[-1]
        falls = [one - other for one, other in zip(known(plain[short]), known(plain[long]), strict=True)]
        others = {name: row for name, row in numbers.items() if name != PLAIN}
        worst = {name: min(min(known(values)) for values in row.values()) for name, row in others.items()}
        return [
            Check(
                f"the plain RNN's {short} is above its {long} by {FALL} or more, in every seed",
                min(falls) >= FALL,
                f"{mean(plain[short]):.2f} against {mean(plain[long]):.2f}, least fall {min(falls):.2f}",
                "the strings are short enough for this state, or too few steps were made to learn even short ones",
                core=True,
            ),
            Check(
                f"each model with attention has exact match {RIGHT} or more at every length, in every seed",
                min(worst.values()) >= RIGHT,
                ", ".join(f"{name} {value:.3f} at its worst" for name, value in worst.items()),
                "it had not learned the task when training ended; more steps would tell",
                core=True,
            ),
        ]

    def plots(self, numbers: Numbers) -> list[Plot]:
        """Exact match against length."""
        lines = {
            name: {float(measure.removeprefix(AT)): known(values) for measure, values in row.items()}
            for name, row in numbers.items()
        }
        return [Plot(lines, "length of the source", "exact match, decoded freely", share=True)]
