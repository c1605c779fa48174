"""LayerNorm: sizes of outputs by pencil and paper; and the rule, on numbers by hand."""

import math
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from conftest import write_run
from lookback import config, launcher, learner, results
from lookback.bench import Bench, Runs
from lookback.claims import base, norms
from lookback.claims.base import HELD, IN_PART, NOT_HERE, Numbers
from lookback.claims.norms import MATCH, SIZE, STEPS, Norms, output_sizes, root_mean_square, unsteadiness
from lookback.data import collate, train_batch
from lookback.models.layers import EncoderLayer
from lookback.models.transformer import Transformer

CLAIM = Norms(experiment="claim_norms", draws=2)


def test_the_root_mean_square_and_the_farthest_factor() -> None:
    assert root_mean_square(torch.tensor([[3.0, -4.0], [0.0, 5.0]])) == pytest.approx(math.sqrt(50 / 4))
    assert unsteadiness([1.0, 1.5, 0.25]) == 4.0
    assert unsteadiness([1.0, 1.5, 0.8]) == 1.5


def built(norm: str) -> tuple[config.Config, Transformer]:
    loaded = config.build(
        launcher.compose("train", ["experiment=smoke", f"model.norm={norm}", "model.num_layers=3"])
    )
    _, model = learner.build(loaded)
    assert isinstance(model, Transformer)
    return loaded, model


def test_outputs_of_a_norm_after_each_sublayer_have_size_1_in_every_layer() -> None:
    loaded, model = built("post")
    batch = train_batch(loaded.task(), loaded.data, 0, 0)
    assert output_sizes(model, batch) == pytest.approx([1.0] * 3, rel=1e-3)
    assert all(not layer._forward_hooks for layer in model.encoder)


def test_sublayers_that_add_nothing_hand_the_embeddings_on() -> None:
    loaded, model = built("none")
    for layer in model.encoder:
        assert isinstance(layer, EncoderLayer)
        for linear in (layer.attention.output_projection, layer.feed_forward.outer):
            torch.nn.init.zeros_(linear.weight)
            torch.nn.init.zeros_(linear.bias)
    batch = train_batch(loaded.task(), loaded.data, 0, 0)
    source = model.source_embedding(batch.source)
    wanted = model.encoder_positions.embed(source, torch.arange(source.shape[1]))[batch.source != 0]
    assert output_sizes(model, batch) == pytest.approx([float(wanted.detach().square().mean().sqrt())] * 3)


def test_pads_do_not_count() -> None:
    loaded, model = built("none")
    task = loaded.task()
    short, long = (source for source, _ in task.probe_pairs([2, 7]))
    alone = [output_sizes(model, collate(task, [source])) for source in (short, long)]
    both = output_sizes(model, collate(task, [short, long]))
    for layer, size in enumerate(both):  # a source of n letters has n + 2 places
        wanted = math.sqrt((4 * alone[0][layer] ** 2 + 9 * alone[1][layer] ** 2) / 13)
        assert size == pytest.approx(wanted, rel=1e-4)


def row(sizes: list[list[float]], steps: list[float | None], match: list[float]) -> dict[str, base.Values]:
    found: dict[str, base.Values] = {f"{SIZE}{layer}": list(values) for layer, values in enumerate(sizes, 1)}
    return {**found, STEPS: steps, MATCH: list(match)}


def numbers(
    pre: float = 1.1,
    post: float = 1.0,
    none: float = 3.0,
    steps: tuple[float | None, ...] = (200.0, 200.0, 200.0, 200.0),
) -> Numbers:
    """The last layer's size where the first's is 2; steps of pre, post, pre and post without warm-up."""
    slow: list[float | None] = [400.0, None]
    found = {}
    for warm, reached in (("warm-up", steps[:2]), ("no warm-up", steps[2:])):
        for name, last, at in zip(("norm before", "norm after"), (pre, post), reached, strict=True):
            quick = [at, None if at is None else at + 10.0]
            found[f"{name}, {warm}"] = row([[2.0, 2.0], [7.0, 7.0], [2 * last, 2.0]], quick, [1.0, 1.0])
        found[f"no norm, {warm}"] = row([[2.0, 2.0], [7.0, 7.0], [2 * none, 2.0]], slow, [1.0, 0.0])
    return found


@pytest.mark.parametrize(
    ("found", "wanted", "fails"),
    [
        (numbers(), HELD, []),
        (numbers(pre=0.92), HELD, []),
        (numbers(pre=1.2), IN_PART, [1]),
        (numbers(post=0.9), IN_PART, [1]),  # 1 / 0.9 is above 1.1
        (numbers(none=1.05), NOT_HERE, [0]),
        (numbers(none=0.3, pre=0.4), IN_PART, [1]),
        (numbers(steps=(None, 200.0, 200.0, 200.0)), NOT_HERE, [2]),
        (numbers(steps=(200.0, None, 200.0, 200.0)), IN_PART, [3]),
        (numbers(steps=(200.0, 200.0, 500.0, 200.0)), IN_PART, [4]),
        (numbers(steps=(200.0, 200.0, 200.0, None)), IN_PART, [5]),
    ],
)
def test_the_rule(found: Numbers, wanted: str, fails: list[int]) -> None:
    checks = CLAIM.checks(found)
    assert [number for number, check in enumerate(checks) if not check.holds] == fails
    assert base.verdict(checks) == wanted


def test_the_checks_tell_factors_by_norm() -> None:
    assert (
        CLAIM.checks(numbers(pre=0.5))[0].found == "by a factor of norm before 2.00, norm after 1.00, no norm 3.00"
    )


def test_a_quick_experiment_has_no_rows_without_warm_up() -> None:
    found = {name: one for name, one in numbers().items() if name.endswith(", warm-up")}
    assert len(CLAIM.checks(found)) == 4
    assert base.verdict(CLAIM.checks(found)) == HELD
    assert list(CLAIM.plots(found)[1].lines["no norm"]) == ["warm-up"]


class Place:
    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    def train(self) -> Runs:
        return self.runs


def test_every_norm_is_measured_with_warm_up_and_without(tmp_path: Path) -> None:
    runs: Runs = {}
    for norm, warm, score in (("pre", 7, 1.0), ("pre", 0, 0.75), ("none", 7, 0.5), ("none", 0, 0.0)):
        settings = (f"model.norm={norm}", f"train.warmup_steps={warm}", "model.num_layers=3", "model.d_model=12")
        name = f"{norm}{warm}"
        failed: dict[str, Any] = (
            {"status": "failed", "reason": "NonFiniteLossError: at step 7"} if score == 0 else {}
        )
        folder = write_run(
            tmp_path / name, *settings, exact_match={8: score or 1.0}, validations=[(20, score, 2.0)], **failed
        )
        runs[name] = [results.read(folder, name)]
    found = CLAIM.measure(cast(Bench, Place(runs)))
    assert list(found) == [
        "norm before, warm-up",
        "norm before, no warm-up",
        "no norm, warm-up",
        "no norm, no warm-up",
    ]
    assert [one[MATCH] for one in found.values()] == [[1.0], [0.75], [0.5], [0.0]]
    assert [one[STEPS] for one in found.values()] == [[20.0], [None], [None], [None]]
    sizes = []
    for seed in (0, 1):
        one = config.build({**runs["none7"][0].raw, "seed": seed})
        task, model = learner.build(one)
        sizes.append(output_sizes(model, train_batch(task, one.data, seed, 0)))
    wanted = [list(pair) for pair in zip(*sizes, strict=True)]
    assert [found["no norm, warm-up"][f"{SIZE}{layer}"] for layer in (1, 2, 3)] == wanted


def test_the_figure_has_sizes_by_layer_and_scores_by_warm_up() -> None:
    left, right = CLAIM.plots(numbers(pre=1.5))
    assert left.lines["norm before"] == {1.0: [2.0, 2.0], 2.0: [7.0, 7.0], 3.0: [3.0, 2.0]}
    assert right.lines["no norm"] == {"warm-up": [1.0, 0.0], "no warm-up": [1.0, 0.0]}
    assert list(right.lines) == list(norms.NORMS.values())
