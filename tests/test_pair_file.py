"""Files of pairs: what is a line, what is a pair, and what each kind of bad line is told."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lookback.pair_file import (
    PairFile,
    PairFileError,
    Reading,
    conflicts,
    digest,
    duplicates,
    overlap,
    read_once,
    read_pairs,
    split_off,
)
from lookback.symbols import Unit, join, normalised, split
from lookback.text_ids import count_symbols, encode, make_vocabulary
from lookback.tokens import BOS, EOS, FIRST_SYMBOL, PAD, UNK, Vocabulary


def reading(**changes: Any) -> Reading:
    values: dict[str, Any] = {
        "source_unit": "character",
        "target_unit": "word",
        "normalise": "none",
        "max_length": 9,
        "on_error": "stop",
    }
    return Reading(**{**values, **changes})


def read(folder: Path, content: bytes, **changes: Any) -> PairFile:
    path = folder / "pairs.tsv"
    path.write_bytes(content)
    return read_pairs(path, reading(**changes))


def pairs(file: PairFile) -> list[tuple[str, str]]:
    return list(zip(file.sources, file.targets, strict=True))


PLAIN = "cat\tk æ t\nöl\tø l\n".encode()


@pytest.mark.parametrize(
    "content",
    [
        PLAIN,
        PLAIN.removesuffix(b"\n"),
        b"\xef\xbb\xbf" + PLAIN,
        PLAIN.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + PLAIN.replace(b"\n", b"\r\n").removesuffix(b"\r\n"),
    ],
    ids=["plain", "no last newline", "BOM", "CRLF", "BOM and CRLF and no last newline"],
)
def test_the_same_pairs_come_out_of_every_kind_of_file(tmp_path: Path, content: bytes) -> None:
    file = read(tmp_path, content)
    assert pairs(file) == [("cat", "k æ t"), ("öl", "ø l")]
    assert file.lines.tolist() == [1, 2]
    assert file.skipped == []


@pytest.mark.parametrize(
    "text", ["a\u2028b", "a\x85b", "a\x0bb", "a\x0cb", "a\rb", "a\x00b", "a\x1cb", '"a', "a''b", "a\\tb", "\ufeffa"]
)
def test_only_newlines_end_lines_and_only_tabs_end_sides(tmp_path: Path, text: str) -> None:
    first = "z\tx y\n"  # a BOM that is not the file's first character is a character
    assert pairs(read(tmp_path, f"{first}{text}\tx y\n".encode())) == [("z", "x y"), (text, "x y")]
    assert pairs(read(tmp_path, f"{first}ab\t{text}\n".encode()))[1] == ("ab", text)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"cat", "must have one tab, but has none"),
        (b"cat\tk\tt", "must have one tab, but has 2"),
        (b"cat\tk t\t", "must have one tab, but has 2"),
        (b"", "must have one tab, but is blank"),
        (b"  ", "must have one tab, but is blank"),
        (b"\t\t", "must have one tab, but is blank"),
        (b"\tk", "source must have a symbol at least, but is empty"),
        (b"cat\t", "target must have a symbol at least, but is empty"),
        (b"  \tk", "source must have a symbol at least, but is blank"),
        (b"cat\t   ", "target must have a symbol at least, but is blank"),
        (b"cat\t\xc2\xa0", "target must have a symbol at least, but is blank"),
        (b"c\xd2t\tk", "must be UTF-8, but byte 2 is 0xd2"),
        (b"\xc3\xb6l\t\xed\xa0\x80", "must be UTF-8, but byte 5 is 0xed"),  # half of a surrogate pair
        (b"abcdefghij\tk", "source must have 1 to 9 symbols, but has 10"),
        (b"cat\ta b c d e f g h i j", "target must have 1 to 9 symbols, but has 10"),
    ],
)
def test_each_kind_of_bad_line_is_named_with_file_and_line(tmp_path: Path, line: bytes, what: str) -> None:
    content = b"cat\tk t\n" + line + b"\n" + b"dog\td g\n"
    with pytest.raises(PairFileError) as error:
        read(tmp_path, content)
    assert str(error.value) == f"{tmp_path / 'pairs.tsv'}, line 2: {what}"
    file = read(tmp_path, content, on_error="skip")
    assert pairs(file) == [("cat", "k t"), ("dog", "d g")]
    assert file.lines.tolist() == [1, 3]
    assert file.skipped == [(2, what)]


def test_of_many_bad_lines_the_first_is_told_and_how_many_more(tmp_path: Path) -> None:
    content = b"cat\tk t\n" + b"no tab\n" * 1234
    with pytest.raises(
        PairFileError,
        match=r"(?s)line 2: must have one tab, but has none\n.*line 4: .*and 1,231 more lines that are no",
    ):
        read(tmp_path, content)


def test_bad_lines_of_several_kinds_are_each_told_with_their_own_fault(tmp_path: Path) -> None:
    with pytest.raises(PairFileError) as error:
        read(tmp_path, b"a\tb\nc,d\n\tx\n")
    path = tmp_path / "pairs.tsv"
    assert str(error.value).splitlines() == [
        f"{path}, line 2: must have one tab, but has none (a comma is not one)",
        f"  {path}, line 3: source must have a symbol at least, but is empty",
    ]


def test_a_limit_counts_symbols_not_bytes(tmp_path: Path) -> None:
    longest = "កខគឃងចឆជឈ"  # nine characters of three bytes
    assert pairs(read(tmp_path, f"{longest}\ta  bc d e f g h i j\n".encode()))[0][0] == longest
    with pytest.raises(PairFileError, match="source must have 1 to 9 symbols, but has 10"):
        read(tmp_path, f"{longest}ញ\tk\n".encode())


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"\n\n \n", "has only blank lines"),
        (b"\r\n", "has only blank lines"),
        (b"\x1f\x8b\x08\x00", "must be plain UTF-8 text, but it is compressed with gzip"),
        ("a\tb\n".encode("utf-16"), "must be plain UTF-8 text, but it is UTF-16 or UTF-32, not UTF-8"),
        ("a\tb\n".encode("utf-16-le"), "must be plain UTF-8 text, but it looks like UTF-16"),
        ("a\tb\n".encode("utf-16-be"), "must be plain UTF-8 text, but it looks like UTF-16"),
    ],
)
def test_a_file_without_pairs_says_what_it_is(tmp_path: Path, content: bytes, what: str) -> None:
    for on_error in ("stop", "skip"):
        with pytest.raises(PairFileError) as error:
            read(tmp_path, content, on_error=on_error)
        assert str(error.value) == f"{tmp_path / 'pairs.tsv'}: {what}"


def test_no_file_and_a_folder_and_nothing_left_say_so(tmp_path: Path) -> None:
    with pytest.raises(PairFileError, match=r"nothing\.tsv: no such file$"):
        read_pairs(tmp_path / "nothing.tsv", reading())
    with pytest.raises(PairFileError, match=r"must be a file, but is a folder$"):
        read_pairs(tmp_path, reading())
    with pytest.raises(PairFileError, match=r"no line is a pair\n  line 1: must have one tab, but has none\n"):
        read(tmp_path, b"cat\ndog\n", on_error="skip")


def test_normalising_makes_two_spellings_one_and_is_off_by_default(tmp_path: Path) -> None:
    content = "o\u0308l\tx\n\u00f6l\tx\n".encode()
    assert read(tmp_path, content).sources == ["o\u0308l", "\u00f6l"]
    assert read(tmp_path, content, normalise="NFC").sources == ["\u00f6l", "\u00f6l"]
    assert normalised("o\u0308", "none") == "o\u0308"


@pytest.mark.parametrize(
    ("text", "unit", "symbols"),
    [
        ("a b", "character", ["a", " ", "b"]),
        ("👩‍🚀", "character", ["👩", "\u200d", "🚀"]),
        ("go  left ", "word", ["go", "left"]),
        (" a\u00a0b\u3000c d\x0b", "word", ["a\u00a0b\u3000c", "d\x0b"]),
    ],
)
def test_symbols_are_code_points_or_what_stands_between_spaces(text: str, unit: Unit, symbols: list[str]) -> None:
    assert split(text, unit) == symbols
    assert split(join(symbols, unit), unit) == symbols


def test_duplicates_and_conflicts_are_counted(tmp_path: Path) -> None:
    file = read(tmp_path, b"a\tx\na\tx\na\ty\nb\tx\nb\tx\nb\tx\nc\tz\nd\tz\nd\ty\n")
    assert duplicates(file) == 1 + 2
    assert conflicts(file) == 2  # a and d
    assert conflicts(read(tmp_path, b"a\tx\na\tx\nb\tx\n")) == 0


def test_a_digest_is_of_names_and_pairs_and_not_of_line_ends(tmp_path: Path) -> None:
    one = digest({"train": read(tmp_path, b"a\tx\nb\ty\n")})
    assert digest({"train": read(tmp_path, b"\xef\xbb\xbfa\tx\r\nb\ty")}) == one
    others = [b"a\tx\nb\tz\n", b"a\tx\nc\ty\n", b"b\ty\na\tx\n", b"a\tx\n", b"a\ty\nb\tx\n"]
    found = {digest({"train": read(tmp_path, content)}) for content in others}
    assert len(found | {one, digest({"test": read(tmp_path, b"a\tx\nb\ty\n")})}) == len(others) + 2


def test_overlap_counts_pairs_and_sources_of_the_other_file(tmp_path: Path) -> None:
    train = read(tmp_path, b"a\tx\nb\ty\nc\tz\n")
    other = read(tmp_path, b"a\tx\na\tx\nb\tother\nd\tx\n")
    assert overlap(train, other) == (2, 3)
    assert overlap(other, train) == (1, 2)


def content_of(sources: list[str]) -> bytes:
    return "".join(f"{source}\tx{number}\n" for number, source in enumerate(sources)).encode()


def test_a_split_keeps_equal_sources_together_and_depends_on_content_alone(tmp_path: Path) -> None:
    sources = [f"w{number}" for number in range(50)] * 2
    train, held = split_off(read(tmp_path, content_of(sources)), 0.2)
    assert len(set(held.sources)) == 10
    assert len(held.sources) == 20
    assert not set(train.sources) & set(held.sources)
    assert sorted(train.sources + held.sources) == sorted(sources)
    random.Random(3).shuffle(sources)
    assert set(split_off(read(tmp_path, content_of(sources)), 0.2)[1].sources) == set(held.sources)
    more = split_off(read(tmp_path, content_of([*sources, "new", "newer"])), 0.2)[1]
    assert len(set(more.sources) - set(held.sources)) <= 2


def test_pairs_keep_their_lines_and_targets_through_a_split(tmp_path: Path) -> None:
    for part in split_off(read(tmp_path, content_of([f"w{number}" for number in range(9)])), 0.4):
        assert [f"w{line - 1}" for line in part.lines.tolist()] == part.sources
        assert [f"x{line - 1}" for line in part.lines.tolist()] == part.targets


@pytest.mark.parametrize("share", [0.001, 0.999])
def test_a_split_leaves_a_source_on_each_side(tmp_path: Path, share: float) -> None:
    train, held = split_off(read(tmp_path, b"a\tx\na\ty\nb\tx\nc\tx\n"), share)
    assert {len(set(train.sources)), len(set(held.sources))} == {1, 2}
    with pytest.raises(PairFileError, match=r"must have two different sources to be split, but has 1$"):
        split_off(read(tmp_path, b"a\tx\na\ty\n"), share)
    with pytest.raises(
        PairFileError, match=r"but has 1, 1 line left out\n  line 2: must have one tab, but has none$"
    ):
        split_off(read(tmp_path, b"a\tx\nb\n", on_error="skip"), share)


def test_a_split_is_no_prefix_of_the_alphabet_and_of_the_nearest_size(tmp_path: Path) -> None:
    sources = [f"w{number:03d}" for number in range(137)]
    _, held = split_off(read(tmp_path, content_of(sources)), 0.2)
    assert len(held.sources) == 27  # 27.4
    assert held.sources != sources[:27]
    assert 40 < sum(int(source[1:]) for source in held.sources) / 27 < 96  # as if drawn; of all, 68 is the mean
    assert len(split_off(read(tmp_path, content_of(sources[:8])), 0.2)[1].sources) == 2  # 1.6


@pytest.mark.parametrize("unit", ["character", "word"])
def test_symbols_are_counted_as_by_hand(unit: Unit) -> None:
    counts = count_symbols(["ab a", " b", "🚀 ab  "], unit)
    words = {"ab": 2, "a": 1, "b": 1, "🚀": 1}
    assert counts == (words if unit == "word" else {"a": 3, "b": 3, " ": 5, "🚀": 1})


def test_a_vocabulary_has_the_frequent_first_and_then_by_code_point() -> None:
    counts = {"z": 2, "b": 5, "ä": 2, "a": 2, "rare": 1}
    assert make_vocabulary(counts, 1).symbols == ("b", "a", "z", "ä", "rare")
    assert make_vocabulary(counts, 2).symbols == ("b", "a", "z", "ä")
    rule = "min_count must leave a symbol, but is 6, and none occurs more often than 5"
    with pytest.raises(ValueError, match=rule):
        make_vocabulary(counts, 6)


@pytest.mark.parametrize("unit", ["character", "word"])
def test_ids_are_those_of_the_vocabulary_row_by_row(unit: Unit) -> None:
    texts = ["b a", "c", "a  b d"]
    vocabulary = Vocabulary(["a", "b", " "])
    ragged = encode(texts, unit, vocabulary)
    a, b, space = FIRST_SYMBOL, FIRST_SYMBOL + 1, FIRST_SYMBOL + 2
    rows = {
        "word": [[b, a], [UNK], [a, b, UNK]],
        "character": [[b, space, a], [UNK], [a, space, space, b, space, UNK]],
    }
    assert [row.tolist() for row in ragged] == rows[unit]
    assert ragged.lengths.tolist() == [len(row) for row in rows[unit]]
    assert (len(ragged), ragged.unknown) == (3, 2)
    assert ragged[1].dtype == np.int64


def test_text_can_never_become_a_control_symbol() -> None:
    texts = ["<pad> <bos> <eos> <unk> <s>"]
    known = encode(texts, "word", make_vocabulary(count_symbols(texts, "word"), 1))
    unknown = encode(texts, "word", Vocabulary(["other"]))
    assert not {PAD, BOS, EOS, UNK} & set(known[0].tolist())
    assert unknown[0].tolist() == [UNK] * 5


def test_the_order_of_a_vocabulary_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from lookback.text_ids import *; texts = ['the cat sat on the mat', 'a b c d e f g']\n"
        "print([make_vocabulary(count_symbols(texts, unit), 1).symbols for unit in ('word', 'character')])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout
    assert runs[0].stdout.startswith(b"[('the', 'a',")


def test_a_line_of_a_megabyte_is_a_line(tmp_path: Path) -> None:
    file = read(tmp_path, b"a" * 1_000_000 + b"\tx\n", max_length=1_000_000)
    assert [len(source) for source in file.sources] == [1_000_000]


def test_a_pipe_is_refused_for_it_cannot_be_read_again(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PairFileError, match="must be a plain file that can be read again"):
        read_pairs(tmp_path / "pipe", reading())


def test_a_name_that_is_too_long_is_one_line() -> None:
    with pytest.raises(PairFileError, match=r"a+: cannot be read \(File name too long\)$"):
        read_once(Path("a" * 300), reading())
