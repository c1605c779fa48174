"""Beam search against all outputs that there are, against greedy decoding, and against probabilities by hand."""

import itertools
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from lookback import config, launcher, learner
from lookback.attention import Maps
from lookback.beam import Hypothesis, beam_search, normaliser
from lookback.decode import greedy
from lookback.models.base import Memory, Seq2Seq, State
from lookback.tokens import BOS, EOS, FIRST_SYMBOL, PAD, UNK

MODELS = sorted(path.stem for path in (launcher.CONFIGS / "model").glob("*.yaml"))
LENGTHS = torch.tensor([7, 2, 5])  # batch 3, source 7
A, B, C, D = range(FIRST_SYMBOL, FIRST_SYMBOL + 4)
SYMBOLS = FIRST_SYMBOL + 4

every_model = pytest.mark.parametrize("choice", MODELS)
every_penalty = pytest.mark.parametrize("length_penalty", [0, 0.6, 1])

Book = dict[tuple[int, ...], dict[int, float]]


class Written(Seq2Seq):
    """Probabilities by hand: what was written, the source's first id before it -> token -> probability."""

    def __init__(self, book: Book, otherwise: dict[int, float]) -> None:
        super().__init__()
        self.book = book
        self.otherwise = otherwise
        self.steps: list[int] = []  # rows of each

    def encode(self, source: Tensor, lengths: Tensor, maps: Maps | None = None) -> Memory:
        return Memory(source[..., None].float(), lengths)

    def decode(self, target: Tensor, memory: Memory, maps: Maps | None = None) -> Tensor:
        raise NotImplementedError

    def start(self, memory: Memory, max_length: int) -> State:
        first = memory.states[:, 0].long()
        return State(memory, 0, {"read": torch.cat([first, torch.zeros(len(first), max_length).long()], dim=1)})

    def sequential_steps(self, source: int, target: int) -> int:
        return 1

    def step(self, token: Tensor, state: State) -> Tensor:
        state.cache["read"][:, state.length + 1] = token
        state.length += 1
        self.steps.append(len(token))
        logits = torch.full((len(token), SYMBOLS), -math.inf)
        for row, (first, *read) in enumerate(state.cache["read"][:, : state.length + 1].tolist()):
            assert read[0] == BOS
            following = self.book.get((first, *read[1:]), self.otherwise)
            for symbol, probability in following.items():
                logits[row, symbol] = math.log(probability)
        return logits


def search(model: Written, firsts: Sequence[int], max_tokens: int, **rules: Any) -> list[list[Hypothesis]]:
    source = torch.tensor([[first, 9] for first in firsts])
    return beam_search(model, source, torch.full((len(firsts),), 2), max_tokens, **rules)


def tokens(found: list[Hypothesis]) -> list[list[int]]:
    return [one.tokens for one in found]


@cache
def composed(*overrides: str) -> dict[str, Any]:
    return launcher.compose("train", ["experiment=smoke", *overrides])


def built(choice: str, alphabet: int, seed: int = 0, noise: float = 0.4) -> Seq2Seq:
    raw = composed(f"model={choice}", "model.d_model=12", f"task.alphabet_size={alphabet}")
    _, model = learner.build(config.build(raw))
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.data += noise * torch.randn_like(parameter)
    return model.double()


def sources(alphabet: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(FIRST_SYMBOL, FIRST_SYMBOL + alphabet, (3, 7), generator=generator)
    return ids.masked_fill(torch.arange(7) >= LENGTHS[:, None], PAD)


def forced(
    model: Seq2Seq, source: Tensor, length: Tensor, written: list[int], ended: bool, length_penalty: float
) -> Hypothesis:
    """An output scored in one teacher-forced pass of its source alone, without pads."""
    labels = [*written, EOS] if ended else written
    model.eval()
    with torch.no_grad():
        logits = model(source[None, : int(length)], length[None], torch.tensor([[BOS, *labels[:-1]]]))
    total = float(logits[0].log_softmax(-1)[range(len(labels)), labels].sum())
    return Hypothesis(written, ended, total, total / len(labels) ** length_penalty)


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [(one.tokens, one.ended) for one in found] == [(one.tokens, one.ended) for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)
        assert one.score == pytest.approx(other.score, abs=1e-4)


@pytest.mark.parametrize(
    ("length", "length_penalty", "expected"), [(9, 0.5, 3), (7, 0, 1), (7, 1, 7), (5, 2, 25), (0, 0.6, 1)]
)
def test_the_normaliser_is_a_power_of_the_length(length: int, length_penalty: float, expected: float) -> None:
    assert normaliser(length, length_penalty) == pytest.approx(expected)


@every_penalty
@every_model
def test_a_search_as_wide_as_all_outputs_ranks_them_as_trying_each_does(choice: str, length_penalty: float) -> None:
    model, cap = built(choice, alphabet=2), 4
    source = sources(alphabet=2)
    written = [list(ids) for n in range(cap) for ids in itertools.product((A, B), repeat=n)]
    cut = [list(ids) for ids in itertools.product((A, B), repeat=cap)]
    assert (len(written), len(cut)) == (15, 16)
    rules: dict[str, Any] = {"size": 31, "length_penalty": length_penalty}
    found = beam_search(model, source, LENGTHS, cap, **rules, count=31)
    best = beam_search(model, source, LENGTHS, cap, **rules)
    for row in range(3):
        expected = [
            forced(model, source[row], LENGTHS[row], ids, ended, length_penalty)
            for ended, outputs in ((True, written), (False, cut))
            for ids in outputs
        ]
        expected.sort(key=lambda one: (not one.ended, -one.score))
        assert_same(found[row], expected)
        assert_same(best[row], expected[:1])


@every_penalty
@every_model
def test_scores_are_those_of_a_teacher_forced_pass_and_no_output_comes_twice(
    choice: str, length_penalty: float
) -> None:
    model, source = built(choice, alphabet=6), sources(alphabet=6)
    found = beam_search(model, source, LENGTHS, 8, size=5, length_penalty=length_penalty, count=5)
    for row in range(3):
        assert len({(*one.tokens, one.ended) for one in found[row]}) == 5
        again = [
            forced(model, source[row], LENGTHS[row], one.tokens, one.ended, length_penalty) for one in found[row]
        ]
        assert_same(found[row], again)
        assert again == sorted(again, key=lambda one: (not one.ended, -one.score))
        assert all(FIRST_SYMBOL <= token < FIRST_SYMBOL + 6 for one in found[row] for token in one.tokens)


@every_penalty
@every_model
def test_with_one_hypothesis_it_writes_what_greedy_decoding_writes(choice: str, length_penalty: float) -> None:
    for seed in range(3):
        model, source = built(choice, alphabet=6, seed=seed), sources(alphabet=6)
        decoded = greedy(model, source, LENGTHS, 11)
        found = beam_search(model, source, LENGTHS, 11, size=1, length_penalty=length_penalty)
        for [one], written, ended in zip(found, decoded.tokens.tolist(), decoded.ended.tolist(), strict=True):
            assert one.ended == ended
            assert one.tokens == [token for token in written if token not in (EOS, PAD)]


@every_penalty
@every_model
def test_an_output_of_greedy_decoding_never_has_a_better_score(choice: str, length_penalty: float) -> None:
    compared = 0
    for seed in range(8):
        model, source = built(choice, alphabet=6, seed=seed, noise=0.6), sources(alphabet=6)
        decoded = greedy(model, source, LENGTHS, 11)
        found = beam_search(model, source, LENGTHS, 11, size=2, length_penalty=length_penalty)
        for row, ended in enumerate(decoded.ended.tolist()):
            written = [token for token in decoded.tokens[row].tolist() if token not in (EOS, PAD)]
            own = forced(model, source[row], LENGTHS[row], written, ended, length_penalty)
            if ended or not found[row][0].ended:
                assert found[row][0].score >= own.score - 1e-5
                compared += 1
    assert compared >= 8


@every_model
def test_a_row_does_not_depend_on_those_beside_it(choice: str) -> None:
    model, source = built(choice, alphabet=6, seed=2), sources(alphabet=6)
    rules: dict[str, Any] = {"size": 4, "length_penalty": 0.6, "count": 2}
    together = beam_search(model, source, LENGTHS, 11, **rules)
    wide = torch.nn.functional.pad(source[[2, 0]], (0, 6), value=PAD)
    others = beam_search(model, wide, LENGTHS[[2, 0]], 11, **rules)
    for row, length in enumerate(LENGTHS.tolist()):
        [alone] = beam_search(model, source[row : row + 1, :length], LENGTHS[row : row + 1], 11, **rules)
        assert_same(together[row], alone)
    assert_same(others[0], together[2])
    assert_same(others[1], together[0])


@every_model
def test_the_state_of_a_row_that_is_named_twice_is_its_own(choice: str) -> None:
    model, source = built(choice, alphabet=6).eval(), sources(alphabet=6)
    rows, target = torch.tensor([2, 0, 2, 2]), torch.randint(FIRST_SYMBOL, 10, (4, 6))
    target[:, :2] = target[[0, 1, 0, 0], :2]  # what was read before is the same in copies
    with torch.no_grad():
        full = model(source[rows], LENGTHS[rows], target)
        state = model.start(model.encode(source, LENGTHS), 6)
        for place in range(2):
            model.step(torch.stack([target[1, place], torch.tensor(A), target[0, place]]), state)
        state = state.keep(rows)
        steps = [model.step(target[:, place], state) for place in range(2, 6)]
    torch.testing.assert_close(torch.stack(steps, dim=1), full[:, 2:], rtol=1e-6, atol=1e-6)


FALLING_BEHIND: Book = {
    (1,): {A: 0.4, B: 0.35, C: 0.25},
    (1, A): {A: 0.28, B: 0.24, C: 0.24, D: 0.24},
    (1, A, A): {EOS: 1.0},
    (1, B): {A: 0.5, B: 0.5},
    (1, B, A): {EOS: 0.2, A: 0.2, B: 0.2, C: 0.2, D: 0.2},
    (1, B, B): {EOS: 0.28, A: 0.24, B: 0.24, C: 0.24},
}


def test_what_greedy_decoding_writes_goes_on_where_it_falls_behind() -> None:
    [[best, *others]] = search(Written(FALLING_BEHIND, {EOS: 1.0}), [1], 5, size=2, length_penalty=0, count=2)
    assert best.tokens == [A, A]
    assert best.log_probability == pytest.approx(math.log(0.4 * 0.28))
    assert tokens(others) == [[B, B]]


def test_what_goes_on_beside_the_best_is_one_row_and_no_more() -> None:
    model = Written(FALLING_BEHIND, {EOS: 1.0})
    search(model, [1], 5, size=2, length_penalty=0, count=2)
    assert model.steps == [1, 2, 3]  # of B A, B B, and A A, which is greedy's


ENDS_EARLY: Book = {(1,): {EOS: 0.6, A: 0.4}, (1, A): {A: 0.9, EOS: 0.1}, (1, A, A): {EOS: 1.0}}


@pytest.mark.parametrize(
    ("length_penalty", "cap", "steps", "expected"),
    [
        (0, 7, 1, []),  # log 0.4 < log 0.6
        (1, 1, 1, []),
        (1, 2, 2, []),  # log 0.4 / 2 = -0.46 > log 0.6 = -0.51; then A ends with log 0.04 / 2
        (1, 7, 3, [A, A]),  # log 0.4 / 7 = -0.13; A A ends with log 0.36 / 3 = -0.34
        (0.5, 3, 1, []),  # log 0.4 / 3**0.5 = -0.53 < log 0.6
        (0.5, 5, 3, []),  # log 0.36 / 5**0.5 = -0.46 > log 0.6; then A A ends with log 0.36 / 3**0.5 = -0.59
    ],
)
def test_a_search_ends_when_nothing_open_can_become_the_best(
    length_penalty: float, cap: int, steps: int, expected: list[int]
) -> None:
    model = Written(ENDS_EARLY, {EOS: 1.0})
    [[best]] = search(model, [1], cap, size=3, length_penalty=length_penalty)
    assert best.tokens == expected
    assert best.ended
    assert len(model.steps) == steps


def test_more_hypotheses_asked_for_means_a_longer_search_and_the_same_best() -> None:
    one, two = (Written(ENDS_EARLY, {EOS: 1.0}) for _ in range(2))
    [found] = search(one, [1], 7, size=3, length_penalty=0, count=1)
    [more] = search(two, [1], 7, size=3, length_penalty=0, count=2)
    assert tokens(more) == [[], [A, A]]
    assert more[:1] == found
    assert (len(one.steps), len(two.steps)) == (1, 3)


MANY_ENDS: Book = {
    (1,): {EOS: 0.1, A: 0.5, B: 0.4},
    (1, A): {EOS: 0.1, A: 0.5, B: 0.4},
    (1, B): {EOS: 0.1, A: 0.5, B: 0.4},
    (1, A, A): {EOS: 0.5, C: 0.5},
    (1, A, B): {EOS: 0.5, C: 0.5},
}


def test_what_ended_early_is_kept_whatever_ends_after_it() -> None:
    [found] = search(Written(MANY_ENDS, {EOS: 1.0}), [1], 9, size=3, length_penalty=0, count=3)
    assert tokens(found) == [[B, A], [A, A], [A, A, C]]
    assert [math.exp(one.log_probability) for one in found] == pytest.approx([0.2, 0.125, 0.125])
    [found] = search(Written(MANY_ENDS, {EOS: 0.1, A: 0.9}), [1], 9, size=5, length_penalty=0, count=5)
    assert [] in tokens(found)


def test_rows_that_are_done_leave_the_batch() -> None:
    book: Book = {
        (1,): {EOS: 0.9, A: 0.1},
        (2,): {A: 0.5, B: 0.5},
        (2, A): {EOS: 1.0},
        (2, B): {A: 0.6, B: 0.4},
        (3,): {C: 1.0},
        (3, C): {EOS: 1.0},
    }
    model = Written(book, {EOS: 1.0})
    found = search(model, [3, 1, 2], 6, size=4, length_penalty=0, count=1)
    assert [tokens(row) for row in found] == [[[C]], [[]], [[A]]]
    assert model.steps == [3, 3]


def test_an_open_hypothesis_that_cannot_reach_the_best_waits_for_one_that_can() -> None:
    book: Book = {(1,): {EOS: 0.5, A: 0.3, B: 0.2}, (1, A): {A: 1.0}, (1, A, A): {A: 1.0}, (1, B): {B: 1.0}}
    [found] = search(Written(book, {EOS: 1.0}), [1], 5, size=3, length_penalty=1, count=3)
    assert tokens(found) == [[A, A, A], [B, B], []]
    scores = [math.log(0.3) / 4, math.log(0.2) / 3, math.log(0.5)]
    assert [one.score for one in found] == pytest.approx(scores)


def test_what_is_cut_off_comes_after_what_ended_and_fills_up() -> None:
    book: Book = {(1,): {EOS: 0.1, A: 0.6, B: 0.3}, (1, A): {A: 0.7, B: 0.3}, (1, B): {A: 0.5, B: 0.5}}
    [found] = search(Written(book, {EOS: 1.0}), [1], 2, size=5, length_penalty=1, count=4)
    assert tokens(found) == [[], [A, A], [A, B], [B, A]] or tokens(found) == [[], [A, A], [A, B], [B, B]]
    assert [one.ended for one in found] == [True, False, False, False]
    scores = [math.log(0.1), *(math.log(p) / 2 for p in (0.42, 0.18, 0.15))]
    assert [one.score for one in found] == pytest.approx(scores)


def test_control_symbols_are_never_written_though_their_probability_counts() -> None:
    [found] = search(
        Written({(1,): {PAD: 0.3, BOS: 0.2, UNK: 0.25, A: 0.15, B: 0.1}}, {EOS: 0.5, UNK: 0.5}),
        [1],
        4,
        size=3,
        length_penalty=0,
        count=2,
    )
    assert tokens(found) == [[A], [B]]
    assert [math.exp(one.log_probability) for one in found] == pytest.approx([0.075, 0.05])


def test_of_equals_the_one_that_greedy_decoding_takes_goes_first() -> None:
    model = Written({}, dict.fromkeys((D, C, B, A), 0.25))
    decoded = greedy(model, torch.tensor([[1, 9]]), torch.tensor([2]), 5)
    [[one]] = search(model, [1], 5, size=1, length_penalty=1)
    assert one.tokens == decoded.tokens[0].tolist()


def test_a_cap_of_zero_writes_nothing() -> None:
    found = search(Written({}, {EOS: 1.0}), [1, 2], 0, size=3, length_penalty=0.6, count=2)
    assert found == [[Hypothesis([], False, 0.0, 0.0)]] * 2


def test_no_rows_are_no_hypotheses() -> None:
    source = torch.zeros(0, 2, dtype=torch.long)
    model = Written({}, {EOS: 1.0})
    assert beam_search(model, source, torch.zeros(0).long(), 4, size=3, length_penalty=1) == []


@pytest.mark.parametrize("following", [{A: math.nan}, {PAD: 1.0}])
def test_where_nothing_can_follow_a_row_is_cut_off(following: dict[int, float]) -> None:
    model = Written({(1, A): following, (2, A): {B: 1.0}, (2, A, B): {EOS: 1.0}}, {A: 1.0})
    nothing, something = search(model, [1, 2], 5, size=3, length_penalty=1, count=2)
    assert nothing == [Hypothesis([A], False, 0.0, 0.0)]
    assert something == [Hypothesis([A, B], True, 0.0, 0.0)]


def test_it_ends_where_the_models_positions_end() -> None:
    _, model = learner.build(
        config.build(
            composed(
                "model/positions=learned",
                "data.max_length=5",
                "evaluate.lengths=[3]",
                "model.positions.max_length=7",
            )
        )
    )
    with torch.no_grad():
        model.get_parameter("decoder_norm.bias").fill_(1.0)
        model.get_parameter("output.weight")[EOS] = -1.0  # far less likely than any other
    found = beam_search(model, sources(alphabet=6), LENGTHS, 40, size=5, length_penalty=0, count=2)
    assert {(len(one.tokens), one.ended) for row in found for one in row} == {(7, False)}


def test_it_has_no_dropout_and_gives_the_mode_back() -> None:
    _, model = learner.build(config.build(composed("model.dropout=0.5", "task.alphabet_size=6")))
    model.train()
    first, second = (
        beam_search(model, sources(alphabet=6), LENGTHS, 8, size=4, length_penalty=0.6) for _ in range(2)
    )
    assert first == second
    assert model.training


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"size": 0}, "size must be at least 1, but is 0"),
        ({"length_penalty": -0.1}, "length_penalty must be at least 0 and finite, but is -0.1"),
        ({"length_penalty": math.nan}, "length_penalty must be at least 0 and finite, but is nan"),
        ({"length_penalty": math.inf}, "length_penalty must be at least 0 and finite, but is inf"),
        ({"count": 0}, "count must be 1 to size, which is 3, but is 0"),
        ({"count": 4}, "count must be 1 to size, which is 3, but is 4"),
    ],
)
def test_what_makes_no_sense_is_refused(rules: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        search(Written({}, {EOS: 1.0}), [1], 5, **({"size": 3, "length_penalty": 0.6} | rules))
