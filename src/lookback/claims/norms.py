"""LayerNorm: whether it steadies what layers hand on, and whether training goes faster."""

from torch import Tensor, nn

from lookback import config, learner, masks
from lookback.bench import Bench, exact_match, steps_to_99
from lookback.claims.base import Check, Claim, Numbers, Values, below, known
from lookback.data import Batch, train_batch
from lookback.decode import evaluating
from lookback.models.base import Seq2Seq
from lookback.models.transformer import Transformer
from lookback.plots import Plot
from lookback.rules import PositiveInt

STEADY = 1.1  # the last layer's output may be so many times as large as the first's, or as small
WARM = {True: "warm-up", False: "no warm-up"}
NORMS = {"pre": "norm before", "post": "norm after", "none": "no norm"}
SIZE, STEPS, MATCH = "output of layer ", "steps to 99 %", "exact match"


def root_mean_square(x: Tensor) -> float:
    """The size of a typical number of x, of any shape."""
    return float(x.square().mean().sqrt())


def output_sizes(model: Seq2Seq, batch: Batch) -> list[float]:
    """The root mean square of what each layer of the encoder hands on, in their order; pads do not count.

    Args:
        model: a Transformer.
        batch: whose sources are read.
    """
    assert isinstance(model, Transformer)
    outputs: list[Tensor] = []

    def keep(layer: nn.Module, read: object, wrote: Tensor) -> None:
        outputs.append(wrote)

    hooks = [layer.register_forward_hook(keep) for layer in model.encoder]
    with evaluating(model):
        model.encode(batch.source, batch.source_lengths)
    for hook in hooks:
        hook.remove()
    real = masks.padding(batch.source_lengths, batch.source.shape[1])[:, 0, 0]  # (batch, source)
    return [root_mean_square(output[real]) for output in outputs]


def growth(row: dict[str, Values]) -> list[float]:
    """How many times as large the last layer's output is as the first's: a value a seed."""
    sizes = [known(values) for measure, values in row.items() if measure.startswith(SIZE)]
    return [last / first for first, last in zip(sizes[0], sizes[-1], strict=True)]


def unsteadiness(values: list[float]) -> float:
    """The farthest from 1, as a factor that is never below 1: both 2 and 1/2 are 2."""
    return max(max(value, 1 / value) for value in values)


def condition(norm: str, warm: bool) -> str:
    """The name of a row of numbers."""
    return f"{NORMS[norm]}, {WARM[warm]}"


class Norms(Claim):
    """Section 4 of the first lesson; Ba et al. 2016; Xiong et al. 2020 on where the norm stands, and on warm-up.

    Args:
        experiment: models that differ in norm alone, each with warm-up and without.
        draws: of weights and batch before training, each of a seed.
    """

    sentence = "LayerNorm keeps what layers hand on at one size, and makes training converge sooner."
    lesson = "first lesson, section 4, the table"
    setup = (
        "Six layers with LayerNorm before each sublayer, after it (as in the paper), or nowhere. Before training: "
        "the root mean square of what each layer of the encoder hands on, of a training batch. Then all "
        "are trained to reverse short strings, with the learning rate rising over the first steps (warm-up) or at "
        "its highest at once. A run whose loss does not stay finite counts as exact match 0."
    )
    first = "norm"

    def __init__(self, *, experiment: str, draws: PositiveInt) -> None:
        self.experiment = experiment
        self.draws = draws

    def measure(self, bench: Bench) -> Numbers:
        """Sizes before training, where warm-up has no say yet, and what was learned."""
        numbers: Numbers = {}
        for runs in bench.train().values():
            raw = runs[0].raw
            row: dict[str, Values] = {}
            for seed in range(self.draws):
                built = config.build({**raw, "seed": seed})
                task, untrained = learner.build(built)
                sizes = output_sizes(untrained, train_batch(task, built.data, seed, 0))
                for layer, size in enumerate(sizes, 1):
                    row.setdefault(f"{SIZE}{layer}", []).append(size)
            row[STEPS] = [steps_to_99(run) for run in runs]
            row[MATCH] = [exact_match(run, run.longest) for run in runs]
            numbers[condition(raw["model"]["norm"], raw["train"]["warmup_steps"] > 0)] = row
        return numbers

    def checks(self, numbers: Numbers) -> list[Check]:
        """A norm steadies outputs, and training needs fewer steps with it."""
        factors = {norm: unsteadiness(growth(numbers[condition(norm, True)])) for norm in NORMS}
        words = ", ".join(f"{NORMS[norm]} {factor:.2f}" for norm, factor in factors.items())
        found = [
            Check(
                "untrained, outputs change less from the first layer to the last with a norm than without, "
                "wherever it stands, in the seed in which they change most",
                max(factors["pre"], factors["post"]) < factors["none"],
                f"by a factor of {words}",
                "the norm before a sublayer steadies what it reads, not the sum that is handed on",
                core=True,
            ),
            Check(
                f"with a norm they change by a factor of {STEADY} or less, wherever it stands, in every seed",
                max(factors["pre"], factors["post"]) <= STEADY,
                f"by a factor of {words}",
                "with the norm before each sublayer every sublayer adds to a sum that nothing scales down",
            ),
        ]
        for norm, warm in (("pre", True), ("post", True), ("pre", False), ("post", False)):
            if condition(norm, warm) not in numbers:
                continue  # a quick experiment
            with_, without = (numbers[condition(which, warm)][STEPS] for which in (norm, "none"))
            sooner, told = below(with_, without)
            found.append(
                Check(
                    f"{NORMS[norm]} reaches 99 % in fewer steps than no norm, with {WARM[warm]}: the 95 % interval "
                    "is below 0",
                    sooner,
                    told,
                    "a deep stack in the paper's form needs a lower learning rate, and more steps than these"
                    if norm == "post"
                    else "so few layers do nearly as well without, and so few seeds cannot tell them apart",
                    core=(norm, warm) == ("pre", True),
                )
            )
        return found

    def plots(self, numbers: Numbers) -> list[Plot]:
        """Sizes by layer, steps and exact match."""
        sizes = {
            words: {
                float(measure.removeprefix(SIZE)): known(values)
                for measure, values in numbers[condition(norm, True)].items()
                if measure.startswith(SIZE)
            }
            for norm, words in NORMS.items()
        }
        trained = {
            words: {
                WARM[warm]: known(numbers[condition(norm, warm)][MATCH])
                for warm in WARM
                if condition(norm, warm) in numbers
            }
            for norm, words in NORMS.items()
        }
        return [
            Plot(sizes, "layer of the encoder, untrained", "root mean square of its output", log_up=True),
            Plot(trained, "training", "exact match at the longest length", share=True),
        ]
