"""tokens.py: four control ids that no text can yield."""

import pytest

from lookback.tokens import BOS, CONTROL_NAMES, EOS, FIRST_SYMBOL, PAD, UNK, Vocabulary

CONTROLS = {"<pad>": PAD, "<bos>": BOS, "<eos>": EOS, "<unk>": UNK}


def test_the_control_tokens_have_four_distinct_ids_below_every_symbol() -> None:
    assert len({PAD, BOS, EOS, UNK}) == 4
    assert all(0 <= token < FIRST_SYMBOL for token in (PAD, BOS, EOS, UNK))
    assert FIRST_SYMBOL == 4


@pytest.mark.parametrize(("name", "token"), CONTROLS.items())
def test_each_control_id_reads_as_its_own_name(name: str, token: int) -> None:
    assert CONTROL_NAMES[token] == name
    assert Vocabulary("xyz").decode([token]) == [name]


def test_symbols_are_numbered_in_their_given_order_after_the_control_ids() -> None:
    assert Vocabulary(["sea", "air", "tea"]).encode(["tea", "sea", "air"]) == [6, 4, 5]


def test_the_length_counts_symbols_and_control_tokens_so_that_the_last_id_is_in_range() -> None:
    vocabulary = Vocabulary(["sea", "air", "tea"])
    assert len(vocabulary) == 7
    assert max(vocabulary.encode(["sea", "air", "tea"])) == len(vocabulary) - 1


def test_decoding_gives_back_the_text_that_was_encoded() -> None:
    text = ["b", "d", "a", "a", "c"]
    vocabulary = Vocabulary("abcd")
    assert vocabulary.decode(vocabulary.encode(text)) == text


def test_a_symbol_that_the_vocabulary_lacks_becomes_unk() -> None:
    assert Vocabulary("abc").encode(["b", "w", "B", "", " b"]) == [5, UNK, UNK, UNK, UNK]


@pytest.mark.parametrize("name", CONTROLS)
def test_text_that_reads_as_a_control_token_is_an_unknown_word_like_any_other(name: str) -> None:
    assert Vocabulary("abc").encode([name]) == Vocabulary("abc").encode(["never seen"]) == [UNK]


@pytest.mark.parametrize("name", CONTROLS)
def test_a_symbol_that_reads_as_a_control_token_gets_an_id_of_its_own(name: str) -> None:
    vocabulary = Vocabulary(["a", name])
    assert vocabulary.encode([name]) == [FIRST_SYMBOL + 1]
    assert vocabulary.decode([FIRST_SYMBOL + 1]) == [name]


def test_symbols_that_occur_twice_are_refused_and_named() -> None:
    with pytest.raises(ValueError, match=r"distinct, but these occur twice: \['b', 'd'\]$"):
        Vocabulary(["d", "b", "a", "b", "d"])


@pytest.mark.parametrize("wrong", [-1, 6])
def test_an_id_that_does_not_exist_is_refused(wrong: int) -> None:
    with pytest.raises(ValueError, match=f"^an id must be 0 to 5, but is {wrong}$"):
        Vocabulary("ab").decode([4, wrong])
