"""Rates by hand."""

import pytest

from lookback.error_rates import Scored, by_length, error_rates, worst


def one(wanted: str, wrote: str, ended: bool = True, source: str = "abc") -> Scored:
    return Scored(source, wanted.split(), wrote.split(), ended, len(source))


OUTPUTS = [
    one("k ae t", "k ae t"),
    one("d o g", "d a", source="dogs"),  # one replaced, one left out
    one("o", "o o", source="dogs"),  # one put in
    one("aː b", "aː b", ended=False),  # all is there, but it ran on
]


def test_rates_count_words_alike_and_tokens_alike() -> None:
    found = error_rates(OUTPUTS)
    assert (found.pairs, found.exact_match, found.word_error_rate) == (4, 0.25, 0.75)
    assert found.token_error_rate == pytest.approx((0 + 2 + 1 + 0) / (3 + 3 + 1 + 2))


def test_more_symbols_than_wanted_can_pass_one() -> None:
    assert error_rates([one("a", "b c d")]).token_error_rate == 3.0


def test_each_length_has_its_own() -> None:
    found = by_length(OUTPUTS)
    assert list(found) == [3, 4]
    assert (found[3].pairs, found[3].exact_match, found[4].token_error_rate) == (2, 0.5, 3 / 4)


def test_the_worst_are_the_farthest_off_and_wrong() -> None:
    assert worst(OUTPUTS, 9) == [OUTPUTS[1], OUTPUTS[2], OUTPUTS[3]]
    assert worst(OUTPUTS, 1) == [OUTPUTS[1]]


def test_nothing_has_no_rate() -> None:
    with pytest.raises(ValueError, match=r"^outputs must be at least one, but there are none$"):
        error_rates([])
