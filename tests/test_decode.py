"""Greedy decoding stops where it should, and leaves the model as it was."""

import pytest
import torch
from torch import Tensor

from lookback.attention import Maps
from lookback.decode import evaluating, greedy
from lookback.models.base import Memory, Seq2Seq, State
from lookback.models.transformer import Transformer
from lookback.positions.learned import Learned
from lookback.tokens import BOS, EOS, PAD

SYMBOLS = 9


class Script(Seq2Seq):
    """Writes fixed rows, whatever it reads, and repeats the last symbol for ever."""

    def __init__(self, rows: list[list[int]]) -> None:
        super().__init__()
        self.rows = rows
        self.read: list[list[int]] = []

    def encode(self, source: Tensor, lengths: Tensor, maps: Maps | None = None) -> Memory:
        return Memory(source, lengths)

    def decode(self, target: Tensor, memory: Memory, maps: Maps | None = None) -> Tensor:
        raise NotImplementedError

    def start(self, memory: Memory, max_length: int) -> State:
        return State(memory, 0, {})

    def sequential_steps(self, source: int, target: int) -> int:
        return 1

    def step(self, token: Tensor, state: State) -> Tensor:
        self.read.append(token.tolist())
        following = [row[min(state.length, len(row) - 1)] for row in self.rows]
        state.length += 1
        return torch.nn.functional.one_hot(torch.tensor(following), SYMBOLS).float()


def decode(rows: list[list[int]], max_tokens: int) -> tuple[list[list[int]], list[bool], Script]:
    model = Script(rows)
    decoded = greedy(model, torch.zeros(len(rows), 3, dtype=torch.long), torch.full((len(rows),), 3), max_tokens)
    return decoded.tokens.tolist(), decoded.ended.tolist(), model


def test_rows_that_ended_are_filled_with_pads() -> None:
    tokens, ended, _ = decode([[5, EOS, 7], [6, 5, 4, EOS]], 10)
    assert tokens == [[5, EOS, PAD, PAD], [6, 5, 4, EOS]]
    assert ended == [True, True]


def test_a_row_that_never_ends_is_cut_at_the_cap_and_marked() -> None:
    tokens, ended, _ = decode([[5], [6, EOS]], 4)
    assert tokens == [[5, 5, 5, 5], [6, EOS, PAD, PAD]]
    assert ended == [False, True]


def test_a_cap_of_zero_writes_nothing() -> None:
    tokens, ended, _ = decode([[5], [6, EOS]], 0)
    assert tokens == [[], []]
    assert ended == [False, False]


def test_each_step_reads_the_symbol_written_before_it() -> None:
    _, _, model = decode([[5, 6, EOS]], 10)
    assert model.read == [[BOS], [5], [6]]


def model_with_dropout(max_length: int = 64) -> Transformer:
    return Transformer(
        11,
        SYMBOLS,
        d_model=12,
        num_heads=3,
        num_layers=2,
        d_ff=20,
        dropout=0.5,
        norm="pre",
        tied=False,
        log_length=False,
        positions=lambda d_model, num_heads: Learned(d_model, num_heads, max_length=max_length),
    )


def test_decoding_has_no_dropout_and_gives_the_mode_back() -> None:
    model = model_with_dropout().train()
    source, lengths = torch.randint(4, 11, (5, 7)), torch.tensor([7, 3, 5, 2, 6])
    first = greedy(model, source, lengths, 15)
    assert torch.equal(first.tokens, greedy(model, source, lengths, 15).tokens)
    assert model.training


def test_the_mode_comes_back_after_an_error() -> None:
    model = model_with_dropout().train()

    def fail() -> None:
        with evaluating(model):
            assert not model.training
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert model.training
    assert torch.is_grad_enabled()


def test_decoding_ends_where_the_learned_positions_end() -> None:
    model = model_with_dropout(max_length=8)
    with torch.no_grad():
        model.output.weight[EOS] = 0
        model.decoder_norm.get_parameter("bias").fill_(1.0)
        model.output.weight[5] = 1.0  # symbol 5 always wins
    decoded = greedy(model, torch.randint(4, 11, (2, 7)), torch.tensor([7, 4]), 40)
    assert decoded.tokens.shape == (2, 8)
    assert not decoded.ended.any()


def test_free_running_greedy_is_the_argmax_of_the_full_pass_on_its_own_output() -> None:
    model = model_with_dropout().eval()
    source, lengths = torch.randint(4, 11, (3, 7)), torch.tensor([7, 3, 5])
    tokens = greedy(model, source, lengths, 12).tokens
    with torch.no_grad():
        read = torch.cat([torch.full((3, 1), BOS), tokens[:, :-1]], dim=1)
        again = model(source, lengths, read).argmax(-1)
    real = tokens != PAD
    assert torch.equal(tokens[real], again[real])
