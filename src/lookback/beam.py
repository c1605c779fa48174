"""Beam search: several outputs are kept at each step; one that ends leaves its place in the beam empty.

As in Sutskever et al. 2014, section 3.2: a beam of one is greedy decoding, and a finished output is never lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lookback.decode import evaluating, greedy, never_unwritable
from lookback.models.base import Seq2Seq
from lookback.tokens import BOS, EOS


def normaliser(length: int, length_penalty: float) -> float:
    """What a log-probability is divided by: length ** length_penalty, the length counted with its EOS.

    0 leaves the sum, which favours short outputs; 1 makes the mean of a token. Wu et al. 2016 (section 7) have a
    smoother one, ((5 + length) / 6) ** penalty.
    """
    return float(length**length_penalty)


@dataclass(frozen=True)
class Hypothesis:
    """One output.

    Attributes:
        tokens: ids without BOS and EOS.
        ended: whether it wrote EOS; False = it was cut off at the cap.
        log_probability: natural logarithm, of all tokens and the EOS together.
        score: log_probability by `normaliser`.
    """

    tokens: tuple[int, ...]
    ended: bool
    log_probability: float
    score: float


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
    """The likeliest outputs that a beam finds. The greedy output is always among those that are compared.

    A row is done when its beam is empty, or when no unfinished output can get among its best `count` any more: a
    log-probability only falls, so an unfinished output scores at most what it has now by the normaliser of the cap.

    Args:
        model: any model.
        source: (batch, source), ids.
        lengths: (batch,), real symbols of each row, marks included.
        max_tokens: the cap; the model's own max_length, if lower, takes its place.
        size: outputs that are kept a row, finished and unfinished together.
        length_penalty: see `normaliser`; 0 or more.
        count: outputs that are returned a row, at most `size`.

    Returns:
        for each row its best outputs, different ones, the best first; those that were cut off come last.

    Raises:
        ValueError: if count is above size, or length_penalty below 0.
    """
    if not 1 <= count <= size:
        raise ValueError(f"count must be 1 to size, but is {count} with size {size}")
    if length_penalty < 0:
        raise ValueError(f"length_penalty must not be below 0, but is {length_penalty}")
    search = _Search(model, source, lengths, max_tokens, size, length_penalty, count)
    with evaluating(model):
        search.run()
        search.add_greedy()
    return [_best(found, count) for found in search.found]


def _best(found: Sequence[Hypothesis], count: int) -> list[Hypothesis]:
    distinct = {(one.tokens, one.ended): one for one in found}.values()
    return sorted(distinct, key=lambda one: (not one.ended, -one.score))[:count]


class _Search:
    """The state of one search: (row, beam) pairs stand one after another in the model's batch."""

    def __init__(
        self,
        model: Seq2Seq,
        source: Tensor,
        lengths: Tensor,
        max_tokens: int,
        size: int,
        penalty: float,
        count: int,
    ) -> None:
        self.model, self.source, self.lengths = model, source, lengths
        self.size, self.penalty, self.count = size, penalty, count
        self.cap = max_tokens if model.max_length is None else min(max_tokens, model.max_length)
        self.found: list[list[Hypothesis]] = [[] for _ in range(len(lengths))]

    def run(self) -> None:
        """Search until every row is done."""
        device, size = self.lengths.device, self.size
        state = self.model.start(self.model.encode(self.source, self.lengths), self.cap)
        rows = torch.arange(len(self.lengths), device=device)  # those that are not done
        state = state.keep(rows.repeat_interleave(size))
        token = torch.full((len(rows) * size,), BOS, device=device)
        scores = torch.full((len(rows), size), -torch.inf, device=device)  # log-probabilities
        scores[:, 0] = 0.0  # at first all beams of a row are the same
        empty = torch.zeros_like(rows)  # places of each row's beam
        written = token.new_empty(len(rows) * size, 0)
        for step in range(self.cap):
            logits = torch.log_softmax(self.model.step(token, state).float(), dim=-1)
            symbols = logits.shape[-1]
            total = scores[..., None] + never_unwritable(logits).view(len(rows), size, symbols)
            best, at = total.flatten(1).topk(size, dim=1)  # (row, size)
            best = best.masked_fill(torch.arange(size, device=device) >= size - empty[:, None], -torch.inf)
            beam, symbol = at // symbols, at % symbols
            ends = (symbol == EOS) & best.isfinite()
            self._collect(rows, best, beam, ends, written)
            scores, empty = best.masked_fill(ends, -torch.inf), empty + ends.sum(dim=1)
            places = (torch.arange(len(rows), device=device)[:, None] * size + beam).flatten()
            token = symbol.flatten()
            written = torch.cat([written[places], token[:, None]], dim=1)
            if step + 1 == self.cap:
                self._cut_off(rows, scores, written)
                return
            going = torch.tensor(self._going(rows, scores), device=device)
            if not going.any():
                return
            rows, scores, empty = rows[going], scores[going], empty[going]
            kept = going.repeat_interleave(size)
            token, written = token[kept], written[kept]
            state = state.keep(places[kept])

    def _collect(self, rows: Tensor, best: Tensor, beam: Tensor, ends: Tensor, written: Tensor) -> None:
        """Note the outputs that end at this step."""
        for row, place in ends.nonzero().tolist():
            tokens = written[row * self.size + int(beam[row, place])].tolist()
            self._note(int(rows[row]), tokens, True, float(best[row, place]))

    def _cut_off(self, rows: Tensor, scores: Tensor, written: Tensor) -> None:
        """Note what is unfinished at the cap."""
        for row in range(len(rows)):
            for place in range(self.size):
                if scores[row, place].isfinite():
                    tokens = written[row * self.size + place].tolist()
                    self._note(int(rows[row]), tokens, False, float(scores[row, place]))

    def _note(self, row: int, tokens: list[int], ended: bool, log_probability: float) -> None:
        score = log_probability / normaliser(len(tokens) + ended, self.penalty)
        self.found[row].append(Hypothesis(tuple(tokens), ended, log_probability, score))

    def _going(self, rows: Tensor, scores: Tensor) -> list[bool]:
        """Whether an unfinished output of each row can still get among its best."""
        bounds = (scores.amax(dim=1) / normaliser(self.cap, self.penalty)).tolist()
        going = []
        for row, bound in zip(rows.tolist(), bounds, strict=True):
            ended = sorted((one.score for one in self.found[row] if one.ended), reverse=True)
            going.append(bound > (ended[self.count - 1] if len(ended) >= self.count else -torch.inf))
        return going

    def add_greedy(self) -> None:
        """Note what greedy decoding writes, with its log-probability by teacher forcing."""
        decoded = greedy(self.model, self.source, self.lengths, self.cap).tokens
        read = torch.cat([torch.full_like(decoded[:, :1], BOS), decoded[:, :-1]], dim=1)
        logits = self.model(self.source, self.lengths, read).float()
        each = torch.log_softmax(logits, dim=-1).gather(2, decoded[..., None])[..., 0]
        for row, tokens in enumerate(decoded.tolist()):
            ended = EOS in tokens
            length = tokens.index(EOS) if ended else len(tokens)
            self._note(row, tokens[:length], ended, float(each[row, : length + ended].sum()))
