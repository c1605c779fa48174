"""The causal mask: what is measured, on models that read ahead or do not; and the rule, on numbers by hand."""

from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor

from conftest import write_run
from lookback import experiment, results
from lookback.bench import Bench, Runs
from lookback.claims import base, causal
from lookback.claims.base import HELD, IN_PART, NOT_HERE, Numbers
from lookback.claims.causal import ACCURACY, BEST, FREE, LOSS, SWAPPED, WAYS, Causal
from lookback.models.base import Memory, Seq2Seq, State
from lookback.tasks.base import Task
from lookback.tasks.reverse import Reverse
from lookback.tokens import EOS

CLAIM = Causal(experiment="claim_causal", strings=5)


def numbers(**changes: list[float]) -> Numbers:
    masked = {LOSS: [0.01, 0.02], ACCURACY: [1.0, 1.0], SWAPPED: [0.5, 0.1], FREE: [1.0, 0.95], BEST: [1.0, 1.0]}
    unmasked = {
        LOSS: [0.01, 0.05],
        ACCURACY: [1.0, 1.0],
        SWAPPED: [0.95, 1.0],
        FREE: [0.05, 0.0],
        BEST: [0.0, 0.05],
    }
    names = {"loss": LOSS, "swapped": SWAPPED, "free": FREE, "best": BEST}
    for name, values in changes.items():
        which, _, measure = name.partition("_")
        (masked if which == "masked" else unmasked)[names[measure]] = values
    rows = zip(WAYS.values(), (masked, unmasked), strict=True)
    return {way: {name: list(values) for name, values in row.items()} for way, row in rows}


@pytest.mark.parametrize(
    ("found", "wanted", "fails"),
    [
        (numbers(), HELD, []),
        (numbers(unmasked_loss=[0.0, 0.06]), NOT_HERE, [0]),
        (numbers(unmasked_free=[0.0, 0.06]), NOT_HERE, [1]),
        (numbers(masked_free=[0.94, 1.0]), NOT_HERE, [2]),
        (numbers(unmasked_swapped=[0.94, 1.0]), IN_PART, [3]),
        (numbers(masked_swapped=[0.95, 0.1]), IN_PART, [3]),
        (numbers(unmasked_best=[0.0, 0.06]), IN_PART, [4]),
    ],
)
def test_the_rule(found: Numbers, wanted: str, fails: list[int]) -> None:
    checks = CLAIM.checks(found)
    assert [number for number, check in enumerate(checks) if not check.holds] == fails
    assert base.verdict(checks) == wanted


def test_the_checks_tell_the_worst_seed() -> None:
    found = [check.found for check in CLAIM.checks(numbers())]
    assert found == [
        "0.05 at its highest",
        "0.05 at its best",
        "0.95 at its worst, at a teacher-forced loss of 0.02",
        "0.95 or more without, 0.50 or less with",
        "0.05 at its best",
    ]


class Ahead(Seq2Seq):
    """Under teacher forcing writes what stands next in its input, and EOS at the end; alone writes nothing."""

    def __init__(self, symbols: int) -> None:
        super().__init__()
        self.symbols = symbols

    def encode(self, source: Tensor, lengths: Tensor, maps: object = None) -> Memory:
        return Memory(source[..., None].float(), lengths)

    def decode(self, target: Tensor, memory: Memory, maps: object = None) -> Tensor:
        ahead = torch.cat([target[:, 1:], torch.full_like(target[:, :1], EOS)], dim=1)
        return 100.0 * torch.nn.functional.one_hot(ahead, self.symbols).float()

    def start(self, memory: Memory, max_length: int) -> State:
        return State(memory, 0, {"none": memory.states})

    def step(self, token: Tensor, state: State) -> Tensor:
        return torch.nn.functional.one_hot(torch.full_like(token, EOS), self.symbols).float()

    def sequential_steps(self, source: int, target: int) -> int:
        return 1


class Source(Ahead):
    """Writes the source backwards, whatever it is given."""

    def decode(self, target: Tensor, memory: Memory, maps: object = None) -> Tensor:
        ids = memory.states[..., 0].long()[:, 1:-1].flip(1)
        assert ids.shape[1] == 8, "only strings of the longest trained length"
        ids = torch.cat([ids, torch.full_like(ids[:, :1], EOS)], dim=1)[:, : target.shape[1]]
        return 100.0 * torch.nn.functional.one_hot(ids, self.symbols).float()

    def step(self, token: Tensor, state: State) -> Tensor:
        state.length += 1
        return self.decode(token.new_zeros(len(token), state.memory.states.shape[1]), state.memory)[
            :, state.length - 1
        ]


class Place:
    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    def train(self) -> Runs:
        return self.runs


def test_the_last_weights_are_measured_where_they_read_and_the_best_where_they_were_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Reverse(alphabet_size=26)
    asked = []

    def load(folder: Path, which: str | int = "best") -> tuple[Task, Seq2Seq]:
        asked.append(which)
        kind = Source if folder.name == "True" else Ahead
        return task, kind(len(task.target_vocabulary))

    monkeypatch.setattr(experiment, "load", load)
    runs: Runs = {}
    for sees, score in ((True, 0.75), (False, 0.25)):
        folder = write_run(
            tmp_path / str(sees), f"model.causal={str(sees).lower()}", exact_match={4: 1.0, 8: score}
        )
        runs[str(sees)] = [results.read(folder)]
    found = CLAIM.measure(cast(Bench, Place(runs)))
    assert asked == ["last", "last"]
    with_mask, without = found["with the mask"], found["without the mask"]
    assert without == {LOSS: [0.0], ACCURACY: [1.0], SWAPPED: [1.0], FREE: [0.0], BEST: [0.25]}
    [swapped] = with_mask[SWAPPED]
    assert with_mask == {LOSS: [0.0], ACCURACY: [1.0], SWAPPED: [swapped], FREE: [1.0], BEST: [0.75]}
    assert swapped is not None
    assert 1 / 9 <= swapped < 0.5  # the end stands where it did
    [shares] = CLAIM.plots(found)
    assert list(shares.lines["without the mask"].values()) == [[1.0], [1.0], [0.0]]
    assert causal.WAYS[True] in shares.lines
