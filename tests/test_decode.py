"""Greedy decoding stops where it should, and leaves the model as it was."""

import pytest
import torch
from torch import Tensor

from lookback.attention import Maps
from lookback.decode import banned, evaluating, greedy
from lookback.models.base import Memory, Seq2Seq, State
from lookback.models.transformer import Transformer
from lookback.positions.learned import Learned
from lookback.tokens import BOS, EOS, PAD, UNK

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
        return State(memory, 0, {"row": torch.arange(len(self.rows))})

    def sequential_steps(self, source: int, target: int) -> int:
        return 1

    def step(self, token: Tensor, state: State) -> Tensor:
        self.read.append(token.tolist())
        rows = [self.rows[number] for number in state.cache["row"]]
        following = [row[min(state.length, len(row) - 1)] for row in rows]
        state.length += 1
        return torch.nn.functional.one_hot(torch.tensor(following), SYMBOLS).float()


def decode(
    rows: list[list[int]], max_tokens: int, wanted: Tensor | None = None, keep_all: bool = False
) -> tuple[list[list[int]], list[bool], Script]:
    model = Script(rows)
    source, lengths = torch.zeros(len(rows), 3, dtype=torch.long), torch.full((len(rows),), 3)
    decoded = greedy(model, source, lengths, max_tokens, wanted, keep_all)
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


ENDING = [[EOS], [5, EOS], [6, 7, 8, EOS], [7, 8, 6, 5, EOS]]


def test_rows_that_ended_are_dropped_once_they_are_half_of_the_rows() -> None:
    tokens, ended, model = decode(ENDING, 9)
    assert tokens == [row + [PAD] * (5 - len(row)) for row in ENDING]
    assert ended == [True] * 4
    assert [len(read) for read in model.read] == [4, 4, 2, 2, 1]


def test_all_rows_are_kept_where_a_question_knows_them_by_number() -> None:
    tokens, _, model = decode(ENDING, 9, keep_all=True)
    assert tokens == [row + [PAD] * (5 - len(row)) for row in ENDING]
    assert [len(read) for read in model.read] == [4] * 5


def test_with_what_is_wanted_a_row_ends_at_its_first_error() -> None:
    wanted = torch.tensor([[5, 6, EOS, PAD], [5, 6, 7, EOS], [8, EOS, PAD, PAD]])
    tokens, ended, model = decode([[5, 6, EOS], [5, 4, 7, EOS], [8, 6, 6, 6, EOS]], 9, wanted)
    assert tokens == [[5, 6, EOS], [5, 4, PAD], [8, 6, PAD]]
    assert ended == [True, False, False]
    assert [len(read) for read in model.read] == [3, 3, 1]


def test_an_end_where_more_is_wanted_is_an_end() -> None:
    tokens, ended, _ = decode([[5, EOS], [6, 7, 8, EOS]], 9, torch.tensor([[5, 6, EOS], [6, 7, EOS]]))
    assert tokens == [[5, EOS, PAD], [6, 7, 8]]
    assert ended == [True, False]


def test_what_no_target_has_is_put_out_of_reach_in_place() -> None:
    logits = torch.arange(3.0 * 5 * SYMBOLS).view(3, 5, SYMBOLS)
    kept = logits.clone()
    assert banned(logits) is logits
    forbidden = [PAD, BOS, UNK]
    assert logits[..., forbidden].eq(-torch.inf).all()
    allowed = [symbol for symbol in range(SYMBOLS) if symbol not in forbidden]
    assert torch.equal(logits[..., allowed], kept[..., allowed])


def test_control_symbols_are_never_written_however_likely() -> None:
    model = model_with_dropout()
    with torch.no_grad():
        model.decoder_norm.get_parameter("bias").fill_(1.0)
        model.output.weight[[PAD, BOS, UNK]] = 3.0
        model.output.weight[6] = 1.0
        model.output.weight[EOS] = -1.0
    decoded = greedy(model, torch.randint(4, 11, (2, 7)), torch.tensor([7, 4]), 5)
    assert decoded.tokens.tolist() == [[6] * 5] * 2


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
        residual=True,
        scale=True,
        causal=True,
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
        again = banned(model(source, lengths, read)).argmax(-1)
    real = tokens != PAD
    assert torch.equal(tokens[real], again[real])


@pytest.mark.parametrize("wanted", [False, True])
def test_dropping_rows_changes_no_row(wanted: bool) -> None:
    torch.manual_seed(6)
    model = model_with_dropout().eval()
    with torch.no_grad():
        model.source_embedding.weight *= 3  # so that sources matter
        model.target_embedding.weight *= 3
    source, lengths = torch.randint(4, 11, (16, 7)), torch.randint(2, 8, (16,))
    free = greedy(model, source, lengths, 25, keep_all=True)
    assert len({row.index(EOS) for row in free.tokens.tolist() if EOS in row}) > 2, "rows end at different places"
    if not wanted:
        assert torch.equal(free.tokens, greedy(model, source, lengths, 25).tokens)
        return
    right = free.tokens.clone()
    right[::2, 3] += 1  # every second row errs there, if it has not ended
    right[::2, 3] %= SYMBOLS
    checked = greedy(model, source, lengths, 25, right)
    agree = (checked.tokens == right[:, : checked.tokens.shape[1]]).all(dim=1) & checked.ended
    assert torch.equal(agree, (free.tokens == right).all(dim=1) & free.ended)
