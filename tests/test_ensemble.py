"""An ensemble predicts the mean of its members' probabilities, in one pass and step by step."""

import math
import re
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from lookback.attention import Maps
from lookback.beam import beam_search
from lookback.decode import greedy
from lookback.models.base import Memory, Seq2Seq, State
from lookback.models.ensemble import Ensemble, log_mean
from lookback.models.rnn_bahdanau import RnnBahdanau
from lookback.models.rnn_luong import RnnLuong
from lookback.models.transformer import Transformer
from lookback.positions.learned import Learned
from lookback.tokens import BOS, EOS, FIRST_SYMBOL, PAD

SOURCE_SYMBOLS, TARGET_SYMBOLS = 13, 11
LENGTHS = torch.tensor([8, 3, 6])  # batch 3, source 8


def randomised(model: Seq2Seq) -> Seq2Seq:
    for parameter in model.parameters():
        parameter.data += 0.4 * torch.randn_like(parameter)
    return model.double().eval()


def transformer(max_length: int = 64, target_symbols: int = TARGET_SYMBOLS, **changes: Any) -> Seq2Seq:
    sizes: dict[str, Any] = {
        "d_model": 12,
        "num_heads": 3,
        "num_layers": 2,
        "d_ff": 20,
        "dropout": 0.0,
        "norm": "pre",
        "residual": True,
        "scale": True,
        "causal": True,
        "tied": False,
        "log_length": False,
        "positions": lambda d_model, num_heads: Learned(d_model, num_heads, max_length=max_length),
    }
    return randomised(Transformer(SOURCE_SYMBOLS, target_symbols, **(sizes | changes)))


def rnn(kind: type[RnnBahdanau | RnnLuong], cell: Literal["gru", "lstm"], d_model: int) -> Seq2Seq:
    own: dict[str, Any] = {"score": "general"} if kind is RnnLuong else {}
    sizes: dict[str, Any] = {"num_layers": 1, "bidirectional": False, "dropout": 0.0, "tied": False}
    return randomised(kind(SOURCE_SYMBOLS, TARGET_SYMBOLS, d_model=d_model, cell=cell, **sizes, **own))


def members() -> list[Seq2Seq]:
    return [transformer(), rnn(RnnBahdanau, "gru", 10), rnn(RnnLuong, "lstm", 14)]


def source() -> Tensor:
    ids = torch.randint(FIRST_SYMBOL, SOURCE_SYMBOLS, (3, 8))
    return ids.masked_fill(torch.arange(8) >= LENGTHS[:, None], PAD)


def target(batch: int) -> Tensor:
    return torch.randint(FIRST_SYMBOL, TARGET_SYMBOLS, (batch, 5))


def test_the_log_of_the_mean_is_that_of_probabilities_worked_out_by_hand() -> None:
    one = torch.tensor([0.5, 0.25, 0.25]).log() + 3  # a constant on all logits changes no probability
    other = torch.tensor([0.1, 0.9, 0.0]).log() - 2
    mean = log_mean([one, other])
    assert mean.exp().tolist() == pytest.approx([0.3, 0.575, 0.125])
    assert mean.softmax(-1).tolist() == pytest.approx([0.3, 0.575, 0.125])


def test_half_precision_is_averaged_in_float32() -> None:
    logits = torch.randn(2, 5, dtype=torch.bfloat16)
    assert log_mean([logits, logits]).dtype == torch.float32
    torch.testing.assert_close(log_mean([logits] * 3), logits.float().log_softmax(-1))


def test_one_member_alone_keeps_its_distribution() -> None:
    for member in members():
        ids, read = source(), target(3)
        own = member(ids, LENGTHS, read).softmax(-1)
        torch.testing.assert_close(Ensemble([member])(ids, LENGTHS, read).softmax(-1), own)


def test_three_members_predict_the_mean_of_their_probabilities() -> None:
    each, ids, read = members(), source(), target(3)
    mean = sum((member(ids, LENGTHS, read).softmax(-1) for member in each), torch.zeros(())) / 3
    torch.testing.assert_close(Ensemble(each)(ids, LENGTHS, read).softmax(-1), mean)


@torch.no_grad()
def test_steps_are_those_of_one_pass() -> None:
    model, ids, read = Ensemble(members()).eval(), source(), target(3)
    state = model.start(model.encode(ids, LENGTHS), 5)
    steps = torch.stack([model.step(read[:, place], state) for place in range(5)], dim=1)
    torch.testing.assert_close(steps, model(ids, LENGTHS, read))
    assert state.length == 5


@pytest.mark.parametrize("rows", [torch.tensor([True, False, True]), torch.tensor([2, 0, 2, 1])])
@torch.no_grad()
def test_rows_are_kept_in_every_member(rows: Tensor) -> None:
    model, ids = Ensemble(members()).eval(), source()
    chosen = torch.arange(3)[rows]
    read = target(len(chosen))
    read[:, :2] = torch.tensor([7, 9])  # what all rows read before
    state = model.start(model.encode(ids, LENGTHS), 5)
    for token in (7, 9):
        model.step(torch.full((3,), token), state)
    kept = state.keep(rows)
    assert kept.length == 2
    steps = torch.stack([model.step(read[:, place], kept) for place in range(2, 5)], dim=1)
    torch.testing.assert_close(steps, model(ids[chosen], LENGTHS[chosen], read)[:, 2:])
    assert kept.memory.lengths.tolist() == LENGTHS[chosen].tolist()


class Certain(Seq2Seq):
    """Writes what its rule says with the probability that it says."""

    def __init__(self, following: list[dict[int, float]]) -> None:
        super().__init__()
        self.following = following

    def encode(self, source: Tensor, lengths: Tensor, maps: Maps | None = None) -> Memory:
        return Memory(source[..., None].float(), lengths)

    def decode(self, target: Tensor, memory: Memory, maps: Maps | None = None) -> Tensor:
        state = self.start(memory, target.shape[1])
        return torch.stack([self.step(target[:, place], state) for place in range(target.shape[1])], dim=1)

    def start(self, memory: Memory, max_length: int) -> State:
        return State(memory, 0, {})

    def step(self, token: Tensor, state: State) -> Tensor:
        logits = torch.full((len(token), TARGET_SYMBOLS), -math.inf)
        for symbol, probability in self.following[state.length].items():
            logits[:, symbol] = math.log(probability)
        state.length += 1
        return logits

    def sequential_steps(self, source: int, target: int) -> int:
        return 10 * source + target


def test_greedy_and_beam_search_write_what_members_agree_on() -> None:
    one = Certain([{4: 0.5, 5: 0.3, 6: 0.2}, {EOS: 1.0}])
    other = Certain([{6: 0.45, 5: 0.4, 4: 0.15}, {EOS: 0.5, 7: 0.5}])
    model, ids = Ensemble([one, other]), source()
    decoded = greedy(model, ids, LENGTHS, 2)
    assert decoded.tokens.tolist() == [[5, EOS]] * 3  # 0.35, where 4 and 6 have 0.325
    for row in beam_search(model, ids, LENGTHS, 2, size=4, length_penalty=0, count=3):
        assert sorted(hypothesis.tokens for hypothesis in row) == [[4], [5], [6]]
        assert row[0].tokens == [5]
        expected = [0.35 * 0.75, 0.325 * 0.75, 0.325 * 0.75]
        assert [math.exp(hypothesis.log_probability) for hypothesis in row] == pytest.approx(expected)


@torch.no_grad()
def test_beam_search_scores_are_those_of_one_pass_of_the_ensemble() -> None:
    model, ids = Ensemble(members()).eval(), source()
    found = beam_search(model, ids, LENGTHS, 7, size=5, length_penalty=0.6, count=4)
    single = beam_search(model, ids, LENGTHS, 7, size=1, length_penalty=0.6)
    written = greedy(model, ids, LENGTHS, 7).tokens.tolist()
    for row, length in enumerate(LENGTHS):
        assert single[row][0].tokens == [token for token in written[row] if token not in (EOS, PAD)]
        for one in found[row]:
            labels = [*one.tokens, EOS] if one.ended else one.tokens
            read = torch.tensor([[BOS, *labels[:-1]]])
            likely = model(ids[row : row + 1, :length], length[None], read)[0].log_softmax(-1)
            assert one.log_probability == pytest.approx(float(likely[range(len(labels)), labels].sum()), abs=1e-4)


def test_the_shortest_limit_is_that_of_all() -> None:
    unlimited = rnn(RnnLuong, "gru", 10)
    assert Ensemble([unlimited, transformer(9), transformer(7)]).max_length == 7
    assert Ensemble([unlimited, unlimited]).max_length is None
    with pytest.raises(ValueError, match="positions end at 7"):
        Ensemble([transformer(9), transformer(7)])(source(), LENGTHS, target(3))
    assert Ensemble([unlimited, transformer()]).state_numbers is None


def test_members_wait_for_one_another() -> None:
    assert Ensemble([Certain([{4: 1.0}]), Certain([{5: 1.0}])]).sequential_steps(3, 7) == 74


def test_it_has_its_members_parameters_and_modes() -> None:
    each = members()
    model = Ensemble(each)
    numbers = [sum(weights.numel() for weights in one.parameters()) for one in (*each, model)]
    assert sum(numbers[:-1]) == numbers[-1]
    model.train()
    assert all(member.training for member in each)


def test_members_that_do_not_fit_together_are_refused_and_stay_as_they_were() -> None:
    other = transformer(target_symbols=12).train()
    message = "members of an ensemble must have the same number of target symbols, but have [11, 12]"
    with pytest.raises(ValueError, match=re.escape(message)):
        Ensemble([transformer(), other])
    assert other.training
    with pytest.raises(ValueError, match="an ensemble must have at least 1 member, but has 0"):
        Ensemble([])


def test_maps_are_of_one_model() -> None:
    model, maps = Ensemble([transformer()]), dict[str, Tensor]()
    memory = model.encode(source(), LENGTHS)
    for ask in (
        lambda: model.encode(source(), LENGTHS, maps),
        lambda: model.decode(target(3), memory, maps),
        lambda: model(source(), LENGTHS, target(3), maps),
    ):
        with pytest.raises(ValueError, match="attention maps are of one model"):
            ask()
    assert not maps
