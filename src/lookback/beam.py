"""Beam search: writing several targets a source at once, and keeping the likeliest.

Axes beside those of `models/base.py`: open (hypotheses of all rows that are still being written, those of a row
beside one another), rows (those of the batch that have an open one), candidates (what a row may go on with).
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lookback.decode import banned, evaluating
from lookback.models.base import Seq2Seq
from lookback.tokens import BOS, EOS


def normaliser(length: int, length_penalty: float) -> float:
    """What a sum of log-probabilities is divided by: length ** length_penalty.

    Each token makes the sum smaller, so that without it short outputs are favoured. This is the form that Wu et al.
    2016 describe in section 7, before they change it to ((5 + length) / 6) ** length_penalty, equation (14).

    Args:
        length: tokens written, EOS included; where none is, 1 takes its place.
        length_penalty: 0 leaves the sum as it is, 1 makes it the mean of a token.
    """
    return float(max(length, 1) ** length_penalty)


@dataclass(frozen=True)
class Hypothesis:
    """One output of a search.

    Attributes:
        tokens: ids without BOS and EOS.
        ended: it wrote EOS; False = it was cut off at the cap.
        log_probability: natural logarithm, summed over the tokens and the EOS.
        score: log_probability / `normaliser`.
    """

    tokens: list[int]
    ended: bool
    log_probability: float
    score: float


@dataclass(eq=False)
class _Open:
    """The open hypotheses.

    Attributes:
        number: (rows,), which row of the batch each is.
        row: (open,), index into `number`; ascending.
        slot: (open,), place among those of its row, 0 to size.
        greedy: (open,) bool: greedy decoding writes this one.
        log_probability: (open,), summed so far.
        tokens: (open, 1 + written), ids with BOS.
    """

    number: Tensor
    row: Tensor
    slot: Tensor
    greedy: Tensor
    log_probability: Tensor
    tokens: Tensor


@dataclass(eq=False)
class _Candidates:
    """What each row goes on with: the `size` best, and greedy decoding's own where it is none of these.

    Attributes:
        log_probability: (rows, candidates), -inf where there is none; falling, but for the last.
        parent: (rows, candidates), index of the open hypothesis that it prolongs.
        token: (rows, candidates), ids.
        greedy: (rows, candidates) bool, as in `_Open`.
    """

    log_probability: Tensor
    parent: Tensor
    token: Tensor
    greedy: Tensor


def beam_search(
    model: Seq2Seq,
    source: Tensor,
    lengths: Tensor,
    max_tokens: int,
    *,
    size: int,
    length_penalty: float,
    count: int = 1,
) -> list[list[Hypothesis]]:
    """Prolong the `size` likeliest hypotheses of each row by a token, again and again.

    One that writes EOS takes a place only in the step in which it does so; with size 1 this is `greedy`. The one
    that greedy decoding writes is always prolonged, beside the others if it is none of the best, so that no ended
    output of `greedy` has a better score than what is found. A row is left when its `count` best ended hypotheses
    are certain: a sum only falls, so no open one can reach more than its sum / normaliser(cap).

    Args:
        model: any model.
        source: (batch, source), ids.
        lengths: (batch,), real symbols of each row, marks included.
        max_tokens: the cap; the model's own max_length, if lower, takes its place.
        size: hypotheses of each row that are prolonged at each step.
        length_penalty: as in `normaliser`; at least 0.
        count: hypotheses of each row that are asked for.

    Returns:
        for each row 1 to count distinct hypotheses, those that ended first, the best score first. PAD, BOS and UNK
        are never written, though their probability counts.

    Raises:
        ValueError: if size, length_penalty or count is out of its range.
    """
    _check(size, length_penalty, count)
    cap = max_tokens if model.max_length is None else min(max_tokens, model.max_length)
    search = _Search(size, length_penalty, count, cap, [[] for _ in lengths])
    with evaluating(model):
        state = model.start(model.encode(source, lengths), cap)
        beam = _begin(lengths)
        for _ in range(cap):
            candidates = _choose(model.step(beam.tokens[:, -1], state), beam, size)
            beam, parent = search.advance(beam, candidates)
            if not len(parent):
                break
            state = state.keep(parent)
        search.cut_off(beam, torch.ones_like(beam.greedy))
    return search.found


def _check(size: int, length_penalty: float, count: int) -> None:
    if size < 1:
        raise ValueError(f"size must be at least 1, but is {size}")
    if not 0 <= length_penalty < math.inf:
        raise ValueError(f"length_penalty must be at least 0 and finite, but is {length_penalty}")
    if not 1 <= count <= size:
        raise ValueError(f"count must be 1 to size, which is {size}, but is {count}")


def _begin(lengths: Tensor) -> _Open:
    """One hypothesis a row, which has read BOS."""
    row = torch.arange(len(lengths), device=lengths.device)
    slot = torch.zeros_like(row)
    log_probability = torch.zeros(len(row), device=row.device)
    return _Open(row, row, slot, torch.ones_like(row, dtype=torch.bool), log_probability, slot[:, None] + BOS)


def _choose(logits: Tensor, beam: _Open, size: int) -> _Candidates:
    """Find each row's best candidates among all tokens of all its hypotheses.

    Args:
        logits: (open, symbols); changed in place.
        beam: what was read.
        size: how many a row.
    """
    likely = F.log_softmax(logits, dim=-1, dtype=torch.float32)
    total = beam.log_probability[:, None] + banned(likely)
    values, tokens = total.topk(min(size, total.shape[1]))  # a row's best are among the best of each of its own
    rows, width = len(beam.number), values.shape[1]
    table = values.new_full((rows, size + 1, width), -math.inf)
    table[beam.row, beam.slot] = values
    index = beam.row.new_full((rows, size + 1), -1)
    index[beam.row, beam.slot] = torch.arange(len(beam.row), device=beam.row.device)
    best, place = table.flatten(1).topk(size)  # (rows, size)
    parent = index.gather(1, place // width)
    token = tokens[parent, place % width]

    own = beam.row.new_full((rows, 1), -1)  # the hypothesis that greedy decoding writes, and its next token
    own[beam.row[beam.greedy], 0] = beam.greedy.nonzero()[:, 0]
    following = banned(logits).argmax(dim=-1)[own]
    greedy = (parent == own) & (token == following)
    missing = (own >= 0) & ~greedy.any(dim=1, keepdim=True)
    value = total[own, following].masked_fill(~missing, -math.inf)
    best[:, -1:].masked_fill_(missing & (value >= best[:, -1:]), -math.inf)  # of equals, greedy's own goes first
    return _Candidates(
        torch.cat([best, value], dim=1),
        torch.cat([parent, own], dim=1),
        torch.cat([token, following], dim=1),
        torch.cat([greedy, missing], dim=1),
    )


@dataclass(eq=False)
class _Search:
    """The rules of a search, and what it has found.

    Attributes:
        size: as in `beam_search`.
        length_penalty: likewise.
        count: likewise.
        cap: the most tokens that a hypothesis may have, EOS included.
        found: of each row of the batch, the best `count` hypotheses that are no longer open: those that ended come
            first, the best score first.
    """

    size: int
    length_penalty: float
    count: int
    cap: int
    found: list[list[Hypothesis]]

    def advance(self, beam: _Open, candidates: _Candidates) -> tuple[_Open, Tensor]:
        """Sort candidates into those that ended and those that are open, and leave rows that are done.

        Returns:
            what is open now, and for each the index of the one in `beam` that it prolongs.
        """
        real = candidates.log_probability > -math.inf
        ended = real & (candidates.token == EOS)
        parents = candidates.parent[ended]
        self._find(
            beam.number[beam.row[parents]], beam.tokens[parents], candidates.log_probability[ended], ended=True
        )
        self.cut_off(beam, ~real.any(dim=1)[beam.row])  # nothing can follow, as where a model has diverged
        open_ = real & ~ended
        reach = candidates.log_probability.masked_fill(~open_, -math.inf).amax(dim=1)
        going = [self._may_improve(*pair) for pair in zip(beam.number.tolist(), reach.tolist(), strict=True)]
        open_ &= torch.tensor(going, dtype=torch.bool, device=open_.device)[:, None]
        row, slot = open_.nonzero(as_tuple=True)
        left, row = torch.unique_consecutive(row, return_inverse=True)
        parent = candidates.parent[open_]
        tokens = torch.cat([beam.tokens[parent], candidates.token[open_][:, None]], dim=1)
        following = _Open(
            beam.number[left], row, slot, candidates.greedy[open_], candidates.log_probability[open_], tokens
        )
        return following, parent

    def cut_off(self, beam: _Open, which: Tensor) -> None:
        """Keep some of the open hypotheses, (open,) bool, as they are."""
        numbers = beam.number[beam.row[which]]
        self._find(numbers, beam.tokens[which], beam.log_probability[which], ended=False)

    def _find(self, numbers: Tensor, tokens: Tensor, log_probability: Tensor, ended: bool) -> None:
        found = zip(numbers.tolist(), tokens[:, 1:].tolist(), log_probability.tolist(), strict=True)
        for number, written, value in found:
            score = value / normaliser(len(written) + ended, self.length_penalty)
            every = [*self.found[number], Hypothesis(written, ended, value, score)]
            every.sort(key=lambda one: (one.ended, one.score), reverse=True)
            self.found[number] = every[: self.count]

    def _may_improve(self, number: int, log_probability: float) -> bool:
        """Whether an open hypothesis, whose sum can only fall, can still become one of the best of its row."""
        if log_probability == -math.inf:
            return False
        best = self.found[number]
        bound = log_probability / normaliser(self.cap, self.length_penalty)
        return len(best) < self.count or bound > best[-1].score
