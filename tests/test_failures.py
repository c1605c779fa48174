"""Kinds of failure: pairs a person can judge, all short pairs by brute force, and what the two files hold."""

import json
import random
import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from html import unescape
from itertools import product
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from lookback.by_length import LengthScore
from lookback.evaluate import Example
from lookback.failures import (
    AROUND,
    EXAMPLES,
    KINDS,
    LONGEST,
    Failure,
    cell,
    classify,
    gallery,
    leave,
    markdown,
    save,
)


def pair(wanted: Iterable[str], wrote: Iterable[str], *, ended: bool = True) -> Example:
    return Example(list(wanted)[::-1], list(wanted), list(wrote), ended)


def score(length: int, *failures: Example) -> LengthScore:
    example = pair("a", "a")
    return LengthScore(length, 7, 21, True, 0.5, 0.5, 0.5, 0.5, 9.0, example, list(failures))


@pytest.mark.parametrize(
    ("wanted", "wrote", "kind", "first_wrong", "distance"),
    [
        ("abcd", "ab", "stopped early", 3, 2),
        ("abcd", "", "stopped early", 1, 4),
        ("abb", "ab", "stopped early", 3, 1),  # the second b may be the one left out; it shows at the end
        ("abcd", "abcdx", "ran on", 5, 1),
        ("abcd", "abcdcd", "ran on", 5, 2),  # though what follows is a repeat
        ("", "a", "ran on", 1, 1),
        ("abcd", "abbcd", "repeated", 3, 1),
        ("ab", "aab", "repeated", 2, 1),
        ("abcd", "ababcd", "repeated", 3, 2),
        ("abcd", "abcabcd", "repeated", 4, 3),
        ("abcd", "abababcd", "repeated", 3, 4),  # twice
        ("abac", "ababac", "repeated", 4, 2),  # the place is after the a that both have
        ("abcdef", "abbcde", "repeated", 3, 2),  # and one too few at the end
        ("abcdefgh", "abcdcdcdcdcdcd", "repeated", 5, 10),  # a loop
        ("abcd", "abbc", "repeated", 3, 2),
        ("abcd", "acd", "skipped", 2, 1),
        ("abcd", "d", "skipped", 1, 3),
        ("aab", "ab", "skipped", 2, 1),
        ("abcdef", "abdefx", "skipped", 3, 2),
        ("abacd", "aacd", "skipped", 2, 1),  # not a repeat of a: the string is too short for that
        ("abcd", "abdc", "swapped", 3, 2),
        ("abcdef", "bacdfe", "swapped", 1, 4),
        ("abcd", "bacdx", "swapped", 1, 3),
        ("abcdef", "aecdbf", "swapped", 2, 2),  # far apart
        ("aba", "aab", "swapped", 2, 2),
        ("abcd", "abxd", "wrong symbol", 3, 1),
        ("abcd", "abbd", "wrong symbol", 3, 1),  # replaced by what was just written: nothing is put in
        ("abcd", "abxcd", "wrong symbol", 3, 1),
        ("abcd", "xabcd", "wrong symbol", 1, 1),
        ("abcd", "abdx", "wrong symbol", 3, 2),  # two wrong ones explain it as well as a skip and an x
        ("abcd", "axb", "wrong symbol", 2, 3),
        ("abcdef", "dbcaxf", "wrong symbol", 1, 3),  # two exchanged, but another is wrong too
        ("kitten", "sitting", "wrong symbol", 1, 3),
    ],
)
def test_a_person_would_call_it_the_same(
    wanted: str, wrote: str, kind: str, first_wrong: int, distance: int
) -> None:
    example = pair(wanted, wrote)
    assert classify(example) == Failure(kind, len(wanted), first_wrong, distance, example)


@pytest.mark.parametrize(
    ("wanted", "wrote", "kind", "first_wrong", "distance"),
    [
        ("abc", "abc", "ran on", 4, 0),  # only the end is missing
        ("abc", "abcab", "ran on", 4, 2),
        ("", "", "ran on", 1, 0),
        ("abc", "ab", "stopped early", 3, 1),
        ("abcd", "abcabcabc", "repeated", 4, 6),
        ("abc", "abx", "wrong symbol", 3, 1),
    ],
)
def test_an_output_that_is_cut_off_has_its_first_fault_too(
    wanted: str, wrote: str, kind: str, first_wrong: int, distance: int
) -> None:
    found = classify(pair(wanted, wrote, ended=False))
    assert (found.kind, found.first_wrong, found.distance) == (kind, first_wrong, distance)


def test_the_length_is_that_of_the_source() -> None:
    assert classify(Example(["p", "q", "r"], ["x"], ["y"], True)).length == 3


def test_symbols_are_compared_whole() -> None:
    found = classify(pair(["ab", "c", "d"], ["a", "bc", "d"]))
    assert (found.kind, found.first_wrong, found.distance) == ("wrong symbol", 1, 2)
    assert classify(pair(["ten", "two", "six"], ["two", "ten", "six"])).kind == "swapped"


def test_a_right_output_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^example must be a wrong output, but is right: 'abc'$"):
        classify(pair("abc", "abc"))


Edits = tuple[str, ...]


@cache
def shortest(wanted: str, wrote: str) -> frozenset[Edits]:
    """All shortest sequences of edits that make `wrote` of `wanted`, tried one by one."""
    if not wanted and not wrote:
        return frozenset([()])
    found: list[Edits] = []
    if wanted:
        found += [("left out", *rest) for rest in shortest(wanted[1:], wrote)]
    if wrote:
        found += [("put in", *rest) for rest in shortest(wanted, wrote[1:])]
    if wanted and wrote:
        name = "kept" if wanted[0] == wrote[0] else "replaced"
        found += [(name, *rest) for rest in shortest(wanted[1:], wrote[1:])]
    if wanted[:2] == wrote[:2][::-1] and len(wanted) > 1 and wanted[0] != wanted[1]:
        found += [("exchanged", *rest) for rest in shortest(wanted[2:], wrote[2:])]
    cost = min(len(edits) - edits.count("kept") for edits in found)
    return frozenset(edits for edits in found if len(edits) - edits.count("kept") == cost)


def by_brute_force(wanted: str, wrote: str) -> str:
    """The kind by the rules of the module's docstring, read off all shortest sequences of edits."""
    place = 0
    while place < min(len(wanted), len(wrote)) and wanted[place] == wrote[place]:
        place += 1
    before, wanted, wrote = wrote[:place], wanted[place:], wrote[place:]
    if not wanted or not wrote:
        return "stopped early" if wanted else "ran on"
    ways = shortest(wanted, wrote)
    firsts = {edits[0] for edits in ways}
    wrong = [number for number, symbol in enumerate(wanted) if wrote[number : number + 1] != symbol]
    two = len(wanted) == len(wrote) and len(wrong) == 2
    if "exchanged" in firsts or (two and wanted[wrong[0]] == wrote[wrong[1]] and wanted[wrong[1]] == wrote[0]):
        return "swapped"
    for size in range(1, len(before) + 1):
        if any(edits[:size] == ("put in",) * size for edits in ways) and before.endswith(wrote[:size]):
            return "repeated"
    return "skipped" if "left out" in firsts and "replaced" not in firsts else "wrong symbol"


@pytest.mark.parametrize(("letters", "longest"), [("ab", 6), ("abc", 4)])
def test_all_short_pairs_have_the_kind_that_brute_force_finds(letters: str, longest: int) -> None:
    texts = ["".join(text) for size in range(longest + 1) for text in product(letters, repeat=size)]
    seen = set()
    for wanted, wrote in product(texts, repeat=2):
        if wanted != wrote:
            seen.add(by_brute_force(wanted, wrote))
            assert classify(pair(wanted, wrote)).kind == by_brute_force(wanted, wrote), (wanted, wrote)
    assert seen == set(KINDS)


def test_each_wrong_pair_has_one_kind_and_its_first_wrong_place() -> None:
    random_numbers = random.Random(5)
    for _ in range(2000):
        wanted = random_numbers.choices("abcd", k=random_numbers.randrange(9))
        common = wanted[: random_numbers.randrange(9)]
        wrote = [*common, *random_numbers.choices("abcd", k=random_numbers.randrange(6))]
        example = pair(wanted, wrote, ended=random_numbers.random() < 0.7)
        if example.right:
            continue
        found = classify(example)
        there = found.first_wrong - 1
        assert found.kind in KINDS
        assert wrote[:there] == wanted[:there]
        assert [*wrote, "end" if example.ended else "cut"][there] != [*wanted, "end"][there]


Change = Callable[[list[str], int, int, str], tuple[list[str], int]]
CHANGES: dict[str, tuple[str, Change]] = {
    "a deletion": ("skipped", lambda row, at, size, new: ([*row[:at], *row[at + size :]], at)),
    "a repeat": ("repeated", lambda row, at, size, new: ([*row[:at], *row[at - size : at], *row[at:]], at)),
    "neighbours": ("swapped", lambda row, at, size, new: ([*row[:at], row[at + 1], row[at], *row[at + 2 :]], at)),
    "two far apart": (
        "swapped",
        lambda row, at, size, new: (
            [*row[:at], row[at + size], *row[at + 1 : at + size], row[at], *row[at + size + 1 :]],
            at,
        ),
    ),
    "a substitution": ("wrong symbol", lambda row, at, size, new: ([*row[:at], new, *row[at + 1 :]], at)),
    "an insertion": ("wrong symbol", lambda row, at, size, new: ([*row[:at], new, *row[at:]], at)),
    "a truncation": ("stopped early", lambda row, at, size, new: (row[:at], at)),
    "an extension": ("ran on", lambda row, at, size, new: ([*row, *row[:size]], len(row))),
}


@pytest.mark.parametrize(("kind", "change"), CHANGES.values(), ids=CHANGES)
def test_one_fault_alone_is_named_as_what_it_is(kind: str, change: Change) -> None:
    random_numbers = random.Random(11)
    words = [f"word{number}" for number in range(1000)]
    for _ in range(200):
        new, *wanted = random_numbers.sample(words, 24)
        size = random_numbers.randrange(1, 7)
        wrote, place = change(wanted, random_numbers.randrange(size, len(wanted) - size), size, new)
        found = classify(pair(wanted, wrote))
        assert (found.kind, found.first_wrong) == (kind, place + 1)


def test_the_gallery_is_sorted_by_kind_then_length_then_as_decoded() -> None:
    swapped, early, again, one = (pair("abc", wrote) for wrote in ("acb", "ab", "abd", "xbc"))
    long = pair("abcde", "abcxe")
    found = gallery([score(5, long), score(3, again, swapped, early, one)])
    assert [failure.example for failure in found] == [early, swapped, again, one, long]


def test_a_failure_has_the_length_that_was_evaluated_even_if_its_source_has_a_mark_on_top() -> None:
    found = gallery([score(3, Example(list("<abc"), list("cba"), list("cbb"), True))])
    assert [failure.length for failure in found] == [3]
    assert rows(markdown(found, {3: 7}, 0))[1][:3] == ["3", "7", "1"]


def test_an_output_that_only_reads_right_is_not_in_the_gallery() -> None:
    assert gallery([score(3, pair("abc", "abc"))]) == []


def by_tensorboard(text: str) -> str:
    with warnings.catch_warnings(action="ignore"):  # its own copy of html5lib is old
        from tensorboard.plugin_util import markdown_to_safe_html

    return str(markdown_to_safe_html(text))


def rows(text: str) -> list[list[str]]:
    """The cells of all tables of a page, as TensorBoard makes it."""
    found = re.findall(r"<tr>(.*?)</tr>", by_tensorboard(text), re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in found]


def test_the_counts_stand_by_length_and_kind_with_a_total() -> None:
    failures = gallery(
        [score(2, pair("ab", "ba")), score(3, *[pair("abc", wrote) for wrote in ("a", "acb", "ac")])]
    )
    assert rows(markdown(failures, {2: 7, 3: 11, 5: 13}, 0)) == [
        ["length", "strings", "wrong", *KINDS],
        ["2", "7", "1", "0", "0", "0", "0", "1", "0"],
        ["3", "11", "3", "1", "0", "0", "1", "1", "0"],
        ["5", "13", "0", "0", "0", "0", "0", "0", "0"],
        ["all", "31", "4", "1", "0", "0", "1", "2", "0"],
    ]


def shown(*failures: Example, examples: int = 3) -> list[list[str]]:
    found = gallery([score(len(failure.source), failure) for failure in failures])
    return rows(markdown(found, {}, examples))[-min(examples, len(failures)) :]


def test_an_example_has_its_first_wrong_symbol_in_bold() -> None:
    assert shown(Example(list("dcba"), list("abcd"), list("abxx"), True)) == [
        ["wrong symbol", "4", "3", "dcba", "abcd", "ab<strong>x</strong>x"]
    ]


@pytest.mark.parametrize(
    ("wrote", "ended", "cells"),
    [
        ("a", True, "a<strong>&lt;eos&gt;</strong>"),
        ("", True, "<strong>&lt;eos&gt;</strong>"),
        ("abab", True, "ab<strong>a</strong>b"),
        ("abab", False, "ab<strong>a</strong>b (cut off)"),
        ("ab", False, "ab<strong> (cut off)</strong>"),
    ],
)
def test_an_end_at_the_wrong_place_and_a_missing_end_are_shown(wrote: str, ended: bool, cells: str) -> None:
    assert shown(pair("ab", wrote, ended=ended))[0][5] == cells


def test_words_stand_apart_and_characters_do_not() -> None:
    words = replace(pair(["one", "a", "b"], ["one", "a", "<pad>"]), source_unit="word", target_unit="word")
    assert shown(words) == [["wrong symbol", "3", "3", "b a one", "one a b", "one a <strong>&lt;pad&gt;</strong>"]]
    assert shown(replace(words, source_unit="character"))[0][3:5] == ["baone", "one a b"]
    assert shown(pair("ab", ["a", "<pad>"]))[0][5] == "a<strong>&lt;pad&gt;</strong>"


NASTY = [
    "|",
    "*",
    "**",
    "_a_",
    "`",
    "<script>",
    "&amp;",
    "\\",
    "[x](y)",
    "![x](y)",
    "~~",
    "http://a.b",
    ":x:",
    "#1",
]


def by_markdown_it(text: str) -> str:
    return str(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))


@pytest.mark.parametrize("render", [by_tensorboard, by_markdown_it], ids=["tensorboard", "commonmark"])
def test_whatever_a_symbol_is_it_stays_text(render: Callable[[str], str]) -> None:
    plain = f"| a | b |\n|---|---|\n| {cell(NASTY, ' ')} | {cell([*NASTY, *NASTY])} |\n"
    found = re.findall(r"<td>(.*?)</td>", render(plain))
    assert [unescape(text) for text in found] == [" ".join(NASTY), "".join([*NASTY, *NASTY])]
    for symbol in NASTY:
        text = render(markdown(gallery([score(3, pair("abc", ["a", symbol, "c"]))]), {3: 7}, 1))
        bold = re.findall(r"<td>a ?<strong>(.*?)</strong> ?c</td>", text)
        assert [unescape(part) for part in bold] == [symbol]


def test_a_space_and_what_cannot_be_printed_can_be_seen() -> None:
    assert unescape(cell(["a", " ", "\n", "\t", "é", "\ud800"])) == r"a␣\n\té\ud800"


def test_a_long_string_is_cut_around_its_first_wrong_place() -> None:
    letters = [chr(ord("a") + number % 26) for number in range(1000)]
    wrote = [*letters[:500], "X", *letters[501:]]
    _, length, first_wrong, source, wanted, written = shown(Example(letters, letters, wrote, True))[0]
    text = "".join(letters)
    assert (length, first_wrong) == ("1000", "501")
    assert source == text[:AROUND] + "..." + text[-AROUND:]
    assert wanted == "..." + text[500 - AROUND : 501 + AROUND] + "..."
    assert written == wanted.replace(text[480:501], text[480:500] + "<strong>X</strong>")


def test_a_long_string_that_is_wrong_near_an_end_is_cut_on_one_side() -> None:
    letters = [chr(ord("a") + number % 26) for number in range(LONGEST + 10)]
    early, late = shown(pair(letters, ["X", *letters[1:]]), pair(letters, letters[:-1]))[::-1]
    assert early[4] == "".join(letters[: AROUND + 1]) + "..."
    assert late[5] == "..." + "".join(letters[-1 - AROUND : -1]) + "<strong>&lt;eos&gt;</strong>"
    assert shown(pair(letters[:LONGEST], ["X", *letters[1:LONGEST]]))[0][4] == "".join(letters[:LONGEST])


def test_the_examples_of_a_kind_are_spread_over_its_lengths() -> None:
    failures = [pair("abcdefgh"[:size], "X" + "abcdefgh"[1:size]) for size in range(1, 9)]
    assert [row[1] for row in shown(*failures, examples=4)] == ["1", "3", "5", "7"]


def test_the_files_hold_all_failures_and_nothing_is_lost(tmp_path: Path) -> None:
    failures = gallery([score(3, *[replace(pair("abc", "a|"), source=["<b>", "\n", str(n)]) for n in range(9)])])
    text = save(tmp_path / "failures", failures, {3: 13})
    lines = (tmp_path / "failures" / "failures.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 9
    assert json.loads(lines[2]) == {
        "kind": "wrong symbol",
        "length": 3,
        "first_wrong": 2,
        "distance": 2,
        "source": ["<b>", "\n", "2"],
        "wanted": ["a", "b", "c"],
        "wrote": ["a", "|"],
        "ended": True,
    }
    assert (tmp_path / "failures" / "failures.md").read_text(encoding="utf-8") == text
    assert text == markdown(failures, {3: 13}, EXAMPLES)


def test_of_many_lengths_twelve_have_a_line_and_the_last_line_counts_all() -> None:
    failures = gallery([score(length, pair("abc", "abd")) for length in range(1, 31)])
    text = markdown(failures, dict.fromkeys(range(1, 31), 7), 0)
    assert [row[0] for row in rows(text)[1:13]][:: 12 - 1] == ["1", "30"]
    assert rows(text)[13][:3] == ["all", "210", "30"]
    assert "12 of 30 lengths are shown; all are counted in the last line." in text


def test_outputs_that_were_left_are_counted_and_not_sorted(tmp_path: Path) -> None:
    save(tmp_path, gallery([score(3, pair("abc", "abd"))]), {3: 13})
    left = replace(score(3), strings=8, exact_match=0.25, token_accuracy=None)
    text = leave(tmp_path, [left, replace(left, length=5, exact_match=0.5)])
    assert text.startswith("10 of 16 outputs are wrong. Each was left at its first wrong token")
    assert (tmp_path / "failures.md").read_text() == text
    assert (tmp_path / "failures.jsonl").read_bytes() == b""
    assert leave(tmp_path, [replace(left, exact_match=1.0)]) == "no wrong outputs in 8 decoded strings\n"
    whole = [score(3, pair("abc", "abd"))]
    assert leave(tmp_path, whole) == markdown(gallery(whole), {3: 7}, EXAMPLES)


def test_old_results_do_not_stay_when_nothing_is_wrong_any_more(tmp_path: Path) -> None:
    save(tmp_path, gallery([score(3, pair("abc", "abd"))]), {3: 13})
    assert save(tmp_path, [], {3: 13, 5: 4}) == "no wrong outputs in 17 decoded strings\n"
    assert (tmp_path / "failures.jsonl").read_bytes() == b""
    assert (tmp_path / "failures.md").read_text() == "no wrong outputs in 17 decoded strings\n"
    assert len(list(tmp_path.iterdir())) == 2
