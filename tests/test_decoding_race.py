"""Everybody decodes the same strings to the same length, and the same weights write the same."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lookback import contestants, decoding_race, peers_x
from lookback.benchmark import measure
from lookback.config import build
from lookback.contestants import never_end
from lookback.data import Batch
from lookback.decode import greedy
from lookback.decoding_race import Race, check_same, liven, redecode
from lookback.evaluate import validation_batch
from lookback.launcher import compose
from lookback.peers import copy_weights
from lookback.timing import Work
from lookback.tokens import EOS

SMALL = ["model.d_model=12", "model.num_heads=3", "model.d_ff=20"]
X = ["x-transformers, cached"] if peers_x.version() else []


def models() -> tuple[Any, Any, Batch]:
    """Ours, nn.Transformer with the same weights, and a batch of lengths 3 and 6 in three rows."""
    loaded = build(compose("train", SMALL))
    ours, theirs = contestants.ours(loaded), contestants.of_torch(loaded)
    copy_weights(ours, theirs)
    return ours, theirs, validation_batch(loaded.task(), [3, 6, 6])


@pytest.mark.parametrize("bias", [False, True])
def test_the_end_is_never_the_likeliest(bias: bool) -> None:
    output = nn.Linear(5, 7, bias=bias)
    before = [parameter.clone() for parameter in output.parameters()]
    never_end(output)
    logits = output(torch.randn(500, 5))
    others = torch.cat([logits[:, :EOS], logits[:, EOS + 1 :]], dim=1)
    torch.testing.assert_close(logits[:, EOS], others.mean(dim=1))
    assert not bool((logits.argmax(dim=-1) == EOS).any())
    for old, new in zip(before, output.parameters(), strict=True):
        torch.testing.assert_close(new[[0, 1, 3, 4, 5, 6]], old[[0, 1, 3, 4, 5, 6]], rtol=0, atol=0)


def test_decoding_the_whole_prefix_again_writes_what_cached_decoding_writes() -> None:
    ours, theirs, batch = models()
    liven(ours)
    never_end(ours.output)
    copy_weights(ours, theirs)
    expected = greedy(ours, batch.source, batch.source_lengths, 9).tokens
    written = redecode(theirs, batch.source, batch.source_lengths, 9)
    assert written.shape == (3, 9)
    assert torch.equal(written, expected)
    assert len(set(written.flatten().tolist())) > 3


def test_every_step_reads_one_token_more_and_the_sources_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, theirs, batch = models()
    read: list[int] = []
    encode, decode = theirs.encode, theirs.decode

    def listen(target: Tensor, *arguments: Tensor) -> Tensor:
        assert not torch.is_grad_enabled()
        read.append(target.shape[1])
        return decode(target, *arguments)  # type: ignore[no-any-return]

    def listen_to_source(*arguments: Tensor) -> Tensor:
        read.append(0)
        return encode(*arguments)  # type: ignore[no-any-return]

    monkeypatch.setattr(theirs, "encode", listen_to_source)
    monkeypatch.setattr(theirs, "decode", listen)
    redecode(theirs, batch.source, batch.source_lengths, 4)
    assert read == [0, 1, 2, 3, 4]


def test_every_race_has_a_row_against_each_peer_with_no_more_rounds_than_it_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoding_race, "RACES", (Race(5, 4, 3), Race(7, 2, 1)))
    found = measure(2, 1, SMALL, ["decoding"]).rows
    peers = ["nn.Transformer, no cache", *X]
    assert [(row.name, row.unit, row.against, len(row.rounds)) for row in found] == [
        *(("decoding 5, batch 4", "ms/token", peer, 2) for peer in peers),
        *(("decoding 7, batch 2", "ms/token", peer, 1) for peer in peers),
    ]


def test_milliseconds_are_those_of_a_token_of_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours takes 10 seconds for 5 tokens, nn.Transformer 20."""
    now = 0.0

    def spend(amount: float, write: Any) -> Any:
        def work(*arguments: object) -> object:
            nonlocal now
            now += amount
            return write(*arguments)

        return work

    monkeypatch.setattr("time.perf_counter", lambda: now)
    monkeypatch.setattr(peers_x, "version", lambda: None)
    monkeypatch.setattr(decoding_race, "RACES", (Race(5, 4, 3),))
    monkeypatch.setattr(decoding_race, "greedy", spend(10.0, greedy))
    monkeypatch.setattr(decoding_race, "redecode", spend(20.0, redecode))
    [found] = measure(2, 1, SMALL, ["decoding"]).rows
    assert found.rounds == [(2000.0, 4000.0)] * 2


def test_a_peer_that_writes_something_else_ends_the_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_race, "RACES", (Race(5, 4, 3),))
    monkeypatch.setattr(decoding_race, "copy_weights", lambda ours, theirs: never_end(theirs.output))
    reason = measure(1, 1, SMALL, ["decoding"]).failures["decoding"]
    assert re.match(r"ours and nn.Transformer must write the same, but at place \d of", reason)


def test_a_peer_that_stops_early_ends_the_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_race, "RACES", (Race(5, 4, 3),))
    monkeypatch.setattr(decoding_race, "redecode", lambda *arguments: redecode(*arguments)[:, :4])
    reason = measure(1, 1, SMALL, ["decoding"]).failures["decoding"]
    assert reason == "nn.Transformer must write 5 tokens without EOS, but ended earlier"


def test_only_a_tie_at_the_first_difference_is_forgiven() -> None:
    ours, _, batch = models()
    written = greedy(ours, batch.source, batch.source_lengths, 5).tokens
    other = written.clone()
    token = int(written[1, 2])
    twin = 4 if token != 4 else 5
    other[1, 2] = twin
    other[1, 3:] = 6  # what follows is another text
    with pytest.raises(ArithmeticError, match=rf"at place 2 of row 1 they wrote {token} and {twin}, whose logits"):
        check_same(ours, batch, written, other)
    with torch.no_grad():
        ours.output.weight[twin] = ours.output.weight[token]
    check_same(ours, batch, written, other)
    check_same(ours, batch, written, written)


def test_nothing_of_a_model_is_left_changed_for_the_next_section() -> None:
    work = Work.of(1, 1, SMALL)
    never_end(contestants.ours(work.config).output)
    weight = contestants.ours(work.config).output.weight
    others = [token for token in range(len(weight)) if token != EOS]
    assert not torch.allclose(weight[EOS], weight[others].mean(dim=0))
