"""README.zh.md is in step with README.md; and what `in_step.py` finds, on texts that are broken by hand."""

from pathlib import Path

import pytest

from in_step import LANGUAGES, Block, anchors, blocks, counted, differences, links, sections

ROOT = Path(__file__).parents[1]
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md")}


def test_the_chinese_readme_says_what_the_english_one_says() -> None:
    found = differences(TEXTS["README.md"], TEXTS["README.zh.md"])
    assert not found, "bring README.zh.md in step:\n" + "\n".join(found)


@pytest.mark.parametrize("name", TEXTS)
def test_every_anchor_is_in_its_own_file(name: str) -> None:
    wanted = [link[1:] for link in links(TEXTS[name]) if link.startswith("#")]
    assert [anchor for anchor in wanted if anchor not in anchors(TEXTS[name])] == []


def test_each_readme_links_to_the_other_under_its_title() -> None:
    assert tuple(text.splitlines()[2] for text in TEXTS.values()) == LANGUAGES


def test_all_of_both_files_is_compared() -> None:
    for text in TEXTS.values():
        kept = [block.text for section in sections(text) for block in section]
        whole = [line for line in text.splitlines() if line.strip() and line not in LANGUAGES]
        assert [line for text in kept for line in text.splitlines() if line.strip()] == whole


ENGLISH = """# small

[中文](README.zh.md)

With `make see` two heads
take 1,200 steps, -0.5 a step: [one](a.md#first), ![a map](b.png).

## Some parts

```
make see    # in 3 seconds
make see ARGS="--language zh"
python run.py
```

```
loss  1.25
```

| name | in words | by |
|---|--:|---|
| all `x` | 1.5 times (1.4 to 1.6) | `y` |
| not there | **0.25** | - |

- An item
  of 7.

The end, see `by`.
"""
CHINESE = """# small

[English](README.md)

用 `make see` 看两个头，每步 -0.5，一共 1,200 步：[其一](a.md#甲)，![一张图](b.png)。

## 几个部分

```
make see ARGS="--language zh"
make see    # 要 3 秒
python run.py
```

```
loss  1.25
```

| 名字 | 文字 | 出处 |
|---|--:|---|
| 全部 `x` | 1.5 倍（1.4 到 1.6） | `y` |
| 没有 | **0.25** | - |

- 一项，7 个。

最后见 `出处`。
"""
FIRST = "# small (# small), lines 5 and 5: "
SECOND = "## Some parts (## 几个部分), lines "
BROKEN = [
    ("1,200", "1,300", FIRST + "numbers only in README.md: 1,200; only in README.zh.md: 1,300"),
    (" -0.5", " 0.5", FIRST + "numbers only in README.md: -0.5; only in README.zh.md: 0.5"),
    ("`make see` 看", "`make sea` 看", FIRST + "code only in README.md: make see; only in README.zh.md: make sea"),
    ("两个头", "三个头", FIRST + "'two' in README.md, no 两二 in README.zh.md"),
    (
        "a.md#甲",
        "c.md#甲",
        FIRST + "links ['a.md', 'b.png'] in README.md, ['c.md', 'b.png'] in README.zh.md",
    ),
    (
        "头，每步",
        "头，\n每步",
        FIRST + "more than one line in README.zh.md: a line break would be shown as a space",
    ),
    ("看两个头", "看两个 head, one that no one of us put", "left in English: head, one that no one of us put"),
    ("看两个头", "看, 两个头", FIRST + "no space between Chinese and Latin, or a narrow mark: '用 ` 看,'"),
    ("看两个头", "看两个head", FIRST + "no space between Chinese and Latin, or a narrow mark: '用 ` 看两个h'"),
    ("一共 1,200 步", "一共 1,200步", FIRST + "no space between Chinese and Latin, or a narrow mark: "),
    (
        "## 几个部分",
        "### 几个部分",
        "headings of README.md: # small | ## Some parts; of README.zh.md: # small | ###",
    ),
    (
        "## 几个部分",
        "## Some parts",
        "## Some parts (## Some parts), lines 8 and 7: left in English: ## Some parts",
    ),
    ("python run.py", "python ran.py", "10 and 9: 'python run.py' in README.md, 'python ran.py' in README.zh.md"),
    ("python run.py\n", "", SECOND + "10 and 9: 'python run.py' in README.md, '```' in README.zh.md"),
    (
        "要 3 秒",
        "要 4 秒",
        "10 and 9: comment of 'make see': numbers only in README.md: 3; only in README.zh.md: 4",
    ),
    ("要 3 秒", "in 3 s", SECOND + "10 and 9: comment of 'make see': left in English: in 3 s"),
    ("    # 要 3 秒", "", "'make see    # in 3 seconds' in README.md, 'make see' in README.zh.md"),
    ("loss  1.25", "loss  1.26", SECOND + "16 and 15: 'loss  1.25' in README.md, 'loss  1.26' in README.zh.md"),
    ("loss  1.25", "损失  1.25", SECOND + "16 and 15: 'loss  1.25' in README.md, '损失  1.25' in README.zh.md"),
    ("**0.25**", "0.25", SECOND + "20 and 19: row 'not there', cell '**0.25**': README.zh.md has '0.25'"),
    ("1.4 到 1.6", "1.6 到 1.4", "cell '1.5 times (1.4 to 1.6)': README.zh.md has '1.5 倍（1.6 到 1.4）'"),
    ("| `y` |", "| `z` |", "cell '`y`': code only in README.md: y; only in README.zh.md: z"),
    ("| 没有 |", "| not there |", SECOND + "20 and 19: row 'not there', cell 'not there': left in English"),
    ("| 名字 |", "| name |", SECOND + "20 and 19: row 'name', cell 'name': left in English"),
    ("| 没有 | **0.25** | - |\n", "", "cells of the rows of the table: [3, 3, 3, 3] in README.md, [3, 3, 3] in"),
    ("- 一项，7 个", "- an item, 7", SECOND + "25 and 24: left in English: - an item, 7"),
    (
        "- 一项，7 个",
        "一项，7 个",
        SECOND + "25 and 24: item '- An item\n  of 7.' in README.md, paragraph '一项，7 个。' in",
    ),
    ("最后见 `出处`。\n", "", SECOND + "28 and 0: paragraph 'The end, see `by`.' in README.md, the end '' in"),
    ("最后见 `出处`", "最后", SECOND + "28 and 26: code only in README.md: 出处; only in README.zh.md: none"),
]


def test_texts_that_say_the_same_differ_in_nothing() -> None:
    assert differences(ENGLISH, CHINESE) == []


@pytest.mark.parametrize(("right", "wrong", "message"), BROKEN)
def test_what_was_changed_in_one_of_them_is_found_and_nothing_else(right: str, wrong: str, message: str) -> None:
    assert CHINESE.count(right) == 1
    [found] = differences(ENGLISH, CHINESE.replace(right, wrong))
    assert message in found


def test_what_was_changed_in_the_english_one_is_found() -> None:
    [found] = differences(ENGLISH.replace("1,200", "1,400"), CHINESE)
    assert found == FIRST + "numbers only in README.md: 1,400; only in README.zh.md: 1,200"


def test_a_section_that_has_no_partner_is_told() -> None:
    [found] = differences(ENGLISH + "\n## More\n", CHINESE)
    assert found.startswith("headings of README.md: # small | ## Some parts | ## More; of README.zh.md: # small |")


def test_blocks_begin_on_their_lines_and_code_keeps_what_looks_like_others() -> None:
    text = "## A\nsome\nwords\n- item\n  goes on\n- next\n```\n# no heading\n\n| no table\n```\n| a |\n|---|\nend"
    assert list(blocks(text)) == [
        Block("heading 2", 1, "## A"),
        Block("paragraph", 2, "some\nwords"),
        Block("item", 4, "- item\n  goes on"),
        Block("item", 6, "- next"),
        Block("code", 7, "```\n# no heading\n\n| no table\n```"),
        Block("table", 12, "| a |\n|---|"),
        Block("paragraph", 14, "end"),
    ]


def test_counted_tells_how_often() -> None:
    assert list(counted("signs", "aab", "abc")) == ["signs only in README.md: a; only in README.zh.md: c"]
    assert list(counted("signs", "aab", "baa")) == []


def test_anchors_are_made_by_the_rule_of_github() -> None:
    text = (
        "# What if?\n\n## The `run` folder, part 2\n\n## 看注意力：d_k\n\n## [Links](a.md) & more\n\n## What if?\n"
    )
    assert anchors(text) == {"what-if", "the-run-folder-part-2", "看注意力d_k", "links--more", "what-if-1"}
