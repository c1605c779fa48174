"""Beam search against all outputs that there are, against greedy decoding, and against teacher forcing."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from lookback import config, launcher
from lookback.beam import Hypothesis, beam_search, normaliser
from lookback.decode import greedy
from lookback.models.base import Seq2Seq
from lookback.models.ensemble import Ensemble
from lookback.tokens import BOS, EOS, PAD, UNK

MODELS = ("transformer", "rnn", "rnn_luong", "rnn_bahdanau")
LETTERS = 3
WRITABLE = [EOS, 4, 5, 6]
TINY = ["model.d_model=12", "task.alphabet_size=3", "model.dropout=0.0"]


def made(name: str = "transformer", seed: int = 0, sharp: float = 4.0) -> Seq2Seq:
    """An untrained model with clear preferences."""
    more = ["model.num_heads=3", "model.d_ff=20"] if name == "transformer" else []
    torch.manual_seed(seed)
    model = config.build(launcher.compose("train", [f"model={name}", *TINY, *more])).model(4 + LETTERS, 4 + LETTERS)
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() == 2 and weights.shape[0] == 4 + LETTERS:
                weights.mul_(sharp)
    return model.eval()


SOURCE = torch.tensor([[1, 4, 5, 6, 2], [1, 6, 2, 0, 0], [1, 5, 5, 2, 0]])
LENGTHS = torch.tensor([5, 3, 4])


def log_probability(model: Seq2Seq, row: int, tokens: tuple[int, ...], ended: bool) -> float:
    """By teacher forcing, the row alone and without pads."""
    source = SOURCE[row : row + 1, : LENGTHS[row]]
    target = torch.tensor([[BOS, *tokens, *([EOS] if ended else [])]])
    with torch.no_grad():
        logits = model(source, LENGTHS[row : row + 1], target[:, :-1])
    each = torch.log_softmax(logits, dim=-1).gather(2, target[:, 1:, None])
    return float(each.sum())


def search(model: Seq2Seq, size: int, penalty: float = 1.0, cap: int = 6, count: int = 1) -> list[list[Hypothesis]]:
    return beam_search(model, SOURCE, LENGTHS, cap, size=size, length_penalty=penalty, count=count)


def outputs(cap: int) -> list[tuple[int, ...]]:
    """All outputs that end by themselves within the cap."""
    letters = [token for token in WRITABLE if token != EOS]
    return [tokens for length in range(cap) for tokens in itertools.product(letters, repeat=length)]


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_wide_beam_finds_the_best_of_all_outputs(penalty: float, seed: int) -> None:
    model, cap = made(seed=seed), 3
    found = search(model, size=30, penalty=penalty, cap=cap, count=5)
    for row in range(len(SOURCE)):
        scores = {tokens: log_probability(model, row, tokens, True) for tokens in outputs(cap)}
        ranked = sorted(scores, key=lambda tokens: -scores[tokens] / (len(tokens) + 1) ** penalty)
        assert [one.tokens for one in found[row]] == ranked[:5]
        wanted = [scores[tokens] for tokens in ranked[:5]]
        assert [one.log_probability for one in found[row]] == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_teacher_forcing(name: str) -> None:
    model = made(name)
    for row, best in enumerate(search(model, size=3, penalty=0.6, count=3)):
        assert len({(one.tokens, one.ended) for one in best}) == len(best) == 3
        assert [one.score for one in best if one.ended] == sorted(
            (one.score for one in best if one.ended), reverse=True
        )
        for one in best:
            wanted = log_probability(model, row, one.tokens, one.ended)
            assert one.log_probability == pytest.approx(wanted, abs=1e-4)
            assert one.score == pytest.approx(wanted / (len(one.tokens) + one.ended) ** 0.6, abs=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_a_beam_of_one_writes_what_greedy_writes(name: str) -> None:
    for seed in range(3):
        model = made(name, seed)
        wrote = greedy(model, SOURCE, LENGTHS, 6).tokens.tolist()
        wanted = [tuple(row[: row.index(EOS)] if EOS in row else row) for row in wrote]
        assert [best[0].tokens for best in search(model, size=1)] == wanted


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_beam_never_scores_below_greedy(penalty: float) -> None:
    fell = 0
    for seed in range(12):
        model = made(seed=seed, sharp=6.0)
        wide, narrow = (search(model, size=size, penalty=penalty, cap=9) for size in (2, 1))
        for one, other in zip(wide, narrow, strict=True):
            assert (one[0].ended, one[0].score) >= (other[0].ended, other[0].score - 1e-5)
            fell += one[0].tokens != other[0].tokens
    assert fell  # searching does change something


@pytest.mark.parametrize("name", MODELS)
def test_a_row_does_not_depend_on_its_neighbours(name: str) -> None:
    model = made(name)
    together = search(model, size=3, count=3)
    for row in range(len(SOURCE)):
        source, lengths = SOURCE[row : row + 1, : LENGTHS[row]], LENGTHS[row : row + 1]
        [alone] = beam_search(model, source, lengths, 6, size=3, length_penalty=1.0, count=3)
        assert [one.tokens for one in alone] == [one.tokens for one in together[row]]
        assert [one.score for one in alone] == pytest.approx([one.score for one in together[row]], abs=1e-5)


class Scripted(Seq2Seq):
    """Predicts by what it has read so far: a table from prefixes to probabilities."""

    def __init__(self, table: dict[tuple[int, ...], dict[int, float]]) -> None:
        super().__init__()
        self.table = table
        self.steps = 0

    def encode(self, source: Tensor, lengths: Tensor, maps: object = None):  # type: ignore[no-untyped-def] # noqa: ANN201
        from lookback.models.base import Memory

        return Memory(torch.zeros(*source.shape, 1), lengths)

    def _logits(self, prefix: tuple[int, ...]) -> Tensor:
        row = torch.full((7,), 1e-9)
        for token, share in self.table.get(prefix, {EOS: 1.0}).items():
            row[token] = share
        return row.log()

    def decode(self, target: Tensor, memory: object, maps: object = None) -> Tensor:
        rows = [[self._logits(tuple(row[1 : end + 1])) for end in range(len(row))] for row in target.tolist()]
        return torch.stack([torch.stack(row) for row in rows])

    def start(self, memory, max_length: int):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
        from lookback.models.base import State

        return State(memory, 0, {"read": torch.empty(len(memory.lengths), 0, dtype=torch.long)})

    def step(self, token: Tensor, state) -> Tensor:  # type: ignore[no-untyped-def] # noqa: ANN001
        self.steps += 1
        state.cache["read"] = torch.cat([state.cache["read"], token[:, None]], dim=1)
        return torch.stack([self._logits(tuple(row[1:])) for row in state.cache["read"].tolist()])

    def sequential_steps(self, source: int, target: int) -> int:
        return 1


ONE = (torch.tensor([[1, 4, 2]]), torch.tensor([3]))


def test_a_finished_output_is_never_lost_to_better_unfinished_ones() -> None:
    """`4` ends with 0.3; for two steps two unfinished outputs are likelier, and then they fall."""
    table = {
        (): {4: 0.5, 5: 0.5},
        (4,): {EOS: 0.6, 5: 0.4},
        (5,): {5: 1.0},
        (5, 5): {4: 0.4, 5: 0.3, 6: 0.3},
    }
    [found] = beam_search(Scripted(table), *ONE, 8, size=3, length_penalty=0.0, count=3)
    assert found[0].tokens == (4,)
    assert found[0].log_probability == pytest.approx(math.log(0.3), abs=1e-5)


def test_a_longer_output_that_can_still_win_is_waited_for() -> None:
    """`5` ends first, with 0.48; `4 4 4 4 4` has 0.3 in the end, more by the mean and less by the sum."""
    sure = {(4,) * number: {4: 0.9, EOS: 0.1} for number in range(1, 5)}
    table = {(): {4: 0.5, 5: 0.5}, (5,): {EOS: 0.96, 6: 0.04}, **sure, (4,) * 5: {EOS: 1.0}}
    [mean], [total] = (
        beam_search(Scripted(table), *ONE, 9, size=2, length_penalty=penalty)[0] for penalty in (1.0, 0.0)
    )
    assert (mean.tokens, total.tokens) == ((4,) * 5, (5,))
    assert mean.score == pytest.approx(math.log(0.5 * 0.9**4) / 6, abs=1e-5)


def test_a_search_stops_when_nothing_can_win_any_more() -> None:
    table: dict[tuple[int, ...], dict[int, float]] = {(): {EOS: 0.9, 4: 0.1}, (4,): {EOS: 0.5, 5: 0.5}}
    table |= {(4, *[5] * number): {5: 1.0} for number in range(1, 90)}
    model = Scripted(table)
    beam_search(model, *ONE, 80, size=2, length_penalty=0.0)
    assert model.steps < 6  # greedy's two among them


def test_what_is_cut_off_comes_after_what_ended() -> None:
    table = {(): {4: 0.98, 5: 0.02}, (5,): {EOS: 1.0}, **{(4,) * number: {4: 1.0} for number in range(1, 9)}}
    [found] = beam_search(Scripted(table), *ONE, 4, size=2, length_penalty=0.0, count=2)
    assert [(one.tokens, one.ended) for one in found] == [((5,), True), ((4,) * 4, False)]


def test_controls_are_never_written_however_likely() -> None:
    table = {(): {PAD: 0.4, BOS: 0.3, UNK: 0.2, 4: 0.06, EOS: 0.04}, (4,): {UNK: 0.9, EOS: 0.1}}
    [found] = beam_search(Scripted(table), *ONE, 5, size=2, length_penalty=0.0, count=2)
    assert [one.tokens for one in found] == [(), (4,)]
    assert found[1].log_probability == pytest.approx(math.log(0.06 * 0.1), abs=1e-4)  # of the whole softmax
    assert greedy(Scripted(table), *ONE, 5).tokens.tolist() == [[4, EOS]]


def test_the_models_own_limit_is_kept() -> None:
    model = made("rnn")
    model.max_length = 2
    assert all(len(one.tokens) <= 2 for best in search(model, size=3, count=3, cap=50) for one in best)


@pytest.mark.parametrize(
    ("length", "penalty", "value"), [(4, 0.0, 1.0), (4, 1.0, 4.0), (4, 0.5, 2.0), (1, 0.7, 1.0)]
)
def test_the_normaliser_by_hand(length: int, penalty: float, value: float) -> None:
    assert normaliser(length, penalty) == pytest.approx(value)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^count must be 1 to size, but is 4 with size 3$"):
        search(made(), size=3, count=4)
    with pytest.raises(ValueError, match=r"^length_penalty must not be below 0, but is -0\.5$"):
        search(made(), size=3, penalty=-0.5)


def test_an_ensemble_is_searched_like_a_model() -> None:
    both = Ensemble([made(seed=1), made("rnn_luong", seed=2)]).eval()
    found = search(both, size=3, count=2)
    for row, best in enumerate(found):
        assert best[0].log_probability == pytest.approx(
            log_probability(both, row, best[0].tokens, best[0].ended), abs=1e-4
        )
