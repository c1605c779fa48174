"""One vector: how long a string the state of d numbers holds, from d = 16 to 128."""

import math
from itertools import pairwise

from lookback.bench import Bench, exact_match
from lookback.claims.base import Check, Claim, Numbers, Values, known, mean, table
from lookback.growth import exponent
from lookback.plots import Plot
from lookback.sheets import Sheet

HALF = 0.5  # exact match that a string of the span still has
FULL = 2.0  # bits of a string for each number of the state, from which on the string is much too long for it
NEARLY_NEVER = 0.05  # exact match that is nearly none
PROPORTION = 1.0  # the exponent of a span that is in proportion to the state

AT = "exact match at "
SPAN = "span"
BITS = "bits a symbol"
DENSITY = "bits a number"


def span(scores: dict[int, float]) -> float:
    """The length at which exact match first falls below `HALF`, by a straight line between two lengths.

    Args:
        scores: length -> exact match, which counts as 1 at length 0.

    Returns:
        the longest of the lengths if it never does.
    """
    points = [(0, 1.0), *sorted(scores.items())]
    for (shorter, high), (longer, low) in pairwise(points):
        if low < HALF:
            return shorter + (longer - shorter) * (high - HALF) / (high - low)
    return float(points[-1][0])


class OneVector(Claim):
    """Section 1 of the first lesson: T symbols in d numbers. Sutskever et al. 2014, section 2, has such a state.

    Args:
        experiment: the plain RNN with a GRU, in several widths.
    """

    sentence = (
        "A string much longer than its one state has room for is nearly never given back right, "
        "and each doubling of the state holds longer ones."
    )
    lesson = "first lesson, section 1; second lesson, the problem"
    setup = (
        "Reverse strings of 1 to 20 letters with the plain RNN, whose GRU hands one vector of d numbers to its "
        "decoder. The span of a state is the length at which exact match on held-out strings falls below "
        f"{HALF}. A string of T letters is T x log2(26) bits; bits a number is what each of the d numbers would "
        "have to carry at the span."
    )
    first = "d"

    def __init__(self, *, experiment: str) -> None:
        self.experiment = experiment

    def measure(self, bench: Bench) -> Numbers:
        """Exact match by length, the span, and bits."""
        numbers: Numbers = {}
        for runs in bench.train().values():
            raw = runs[0].raw
            width, bits = raw["model"]["d_model"], math.log2(raw["task"]["alphabet_size"])
            lengths = [length for length in raw["evaluate"]["lengths"] if length <= raw["data"]["max_length"]]
            spans = [span({length: exact_match(run, length) for length in lengths}) for run in runs]
            numbers[f"{width}"] = {
                SPAN: [*spans],
                DENSITY: [found * bits / width for found in spans],
                BITS: [bits for _ in runs],
                **{f"{AT}{length}": [exact_match(run, length) for run in runs] for length in lengths},
            }
        return numbers

    def checks(self, numbers: Numbers) -> list[Check]:
        """A larger state holds more; what is much too long is nearly never right; and the law of growth."""
        gains = {
            f"{smaller} to {larger}": [
                more - less
                for less, more in zip(known(numbers[smaller][SPAN]), known(numbers[larger][SPAN]), strict=True)
            ]
            for smaller, larger in pairwise(numbers)
        }
        spans = ", ".join(f"{mean(row[SPAN]):.1f} of d = {width}" for width, row in numbers.items())
        crammed = [
            (value, f"{value:.3f} at length {length}, d = {width}")
            for width, row in numbers.items()
            for length, values in by_length(row).items()
            if length * mean(row[BITS]) >= FULL * int(width)
            for value in known(values)
        ]
        power, low, high = exponent(
            [(float(width), max(value, 1e-9)) for width, row in numbers.items() for value in known(row[SPAN])]
        )
        return [
            Check(
                "the span grows with each doubling of d, in every seed",
                min(min(found) for found in gains.values()) > 0,
                f"{spans}; least gain "
                + ", ".join(f"{min(found):.1f} from {step}" for step, found in gains.items()),
                "the larger state was not trained long enough to be used",
                core=True,
            ),
            Check(
                f"strings with {FULL:g} or more bits for each number of the state have exact match "
                f"{NEARLY_NEVER} or less, at every length and in every seed",
                bool(crammed) and max(crammed)[0] <= NEARLY_NEVER,
                f"at most {max(crammed)[1]}" if crammed else "no string was so long",
                "32-bit numbers have room for more, and training found a denser code"
                if crammed
                else "the strings are too short for these states",
                core=True,
            ),
            Check(
                "the span is in proportion to d: the exponent's 95 % interval has 1 in it",
                low <= PROPORTION <= high,
                f"span ~ d^{power:.2f}, from {low:.2f} to {high:.2f}",
                "a larger state would hold more than so many steps of training teach it to; where the exponent is "
                "above 1, the small ones are kept busy by more than the symbols",
            ),
        ]

    def plots(self, numbers: Numbers) -> list[Plot]:
        """Exact match against length, and the span against d, beside one bit a number."""
        lines = {
            f"d = {width}": {float(length): known(values) for length, values in by_length(row).items()}
            for width, row in numbers.items()
        }
        spans = {
            "span that was found": {float(width): known(row[SPAN]) for width, row in numbers.items()},
            "1 bit a number": {float(width): [int(width) / mean(row[BITS])] for width, row in numbers.items()},
        }
        return [
            Plot(lines, "length of the source", "exact match, decoded freely", share=True),
            Plot(spans, "d, numbers in the state", "span, symbols", log_across=True),
        ]

    def tables(self, numbers: Numbers) -> list[Sheet]:
        """The spans, and exact match with a row a length."""
        spans = {width: {name: row[name] for name in (SPAN, DENSITY)} for width, row in numbers.items()}
        lengths = {length: None for row in numbers.values() for length in by_length(row)}
        turned = {
            f"{length}": {f"d = {width}": by_length(row).get(length, []) for width, row in numbers.items()}
            for length in lengths
        }
        return [table(self.first, spans, "Spans"), table("length", turned, "Exact match by length")]

    def notes(self, numbers: Numbers) -> list[str]:
        """What the limit is, and is not."""
        return [
            "d numbers of 32 bits each could tell far more strings apart than there are: 20 letters are 94 bits. "
            "The limit is what gradient descent finds in so many steps, and what a decoder can read off again: "
            "with more steps spans are longer, and end all the same.",
            f"A span is counted up to the longest tested length. Bits a number at exact match {HALF} are a measure "
            "of length rather than of information: in a string that is wrong most symbols are right.",
        ]


def by_length(row: dict[str, Values]) -> dict[int, Values]:
    """Length -> exact match, of a condition's measures."""
    return {int(name.removeprefix(AT)): values for name, values in row.items() if name.startswith(AT)}
