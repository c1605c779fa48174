"""Whether a README in Chinese says what the English one says: all that differs, with its section and lines."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

LANGUAGES = ("[中文](README.zh.md)", "[English](README.md)")
TRANSLATED = {"by": "出处"}  # code that is a word: the heading of a column
# Numbers in words, and the signs of which one must stand in the Chinese; "one" and "half" may go unsaid there.
WORDS = {"two": "两二", "three": "三", "four": "四", "five": "五", "six": "六", "seven": "七", "eight": "八"}
WORDS |= {"nine": "九", "ten": "十", "twelve": "二", "thirty": "三", "forty": "四"}
NUMBER = re.compile(r"(?:(?<!\w)-)?[\d.,]*\d", re.ASCII)
SIGN, LATIN = r"[\u4e00-\u9fff]", r"[A-Za-z0-9`]"
NARROW = re.compile(rf"{SIGN}(?:{LATIN}|[,;:?!()])|(?:{LATIN}|[%,;:?!()]){SIGN}")  # lacks a space or a wide mark
ENGLISH_WORDS = re.compile(r"(?:[A-Za-z'-]+[ ,;]+){6,}[A-Za-z'-]+")  # so many in a row are left in English
SHARES = {"heading 1": 0.0, "paragraph": 0.25, "item": 0.25}  # of Chinese signs among the letters, at least
BEGINNINGS = {"code": r"```", "table": r"\|", "item": r"\s*(?:[-*+]|\d+\.) ", "heading": r"#{1,6} ", "": r"\s*$"}


@dataclass(frozen=True)
class Block:
    """A heading, paragraph, list item, table or block of code.

    Attributes:
        kind: of the block; that of a heading has its level.
        line: on which it begins.
        text: as it is in the file.
    """

    kind: str
    line: int
    text: str


def beginning(line: str) -> str:
    """The kind of block that a line may begin; "" if it is empty."""
    return next((kind for kind, sign in BEGINNINGS.items() if re.match(sign, line)), "paragraph")


def blocks(text: str) -> Iterator[Block]:
    """All blocks but the link to the other language."""
    kind, first, lines = "", 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        begins = beginning(line)
        fenced = kind == "code" and (len(lines) == 1 or lines[-1] != "```")
        lazy = begins == "paragraph" and kind in ("paragraph", "item")
        if fenced or lazy or begins == kind == "table":
            lines.append(line)
            continue
        if kind and "\n".join(lines) not in LANGUAGES:
            level = f" {lines[0].index(' ')}" if kind == "heading" else ""
            yield Block(kind + level, first, "\n".join(lines))
        kind, first, lines = begins, number, [line]


def sections(text: str) -> list[list[Block]]:
    """The blocks of each section, its heading first."""
    found: list[list[Block]] = []
    for block in blocks(text):
        if block.kind.startswith("heading"):
            found.append([])
        found[-1].append(block)
    return found


def anchors(text: str) -> set[str]:
    """GitHub's anchors of headings: no capitals, no punctuation, hyphens for spaces, a count where repeated."""
    seen: Counter[str] = Counter()
    found = set()
    for block in blocks(text):
        if block.kind.startswith("heading"):
            title = re.sub(r"\]\([^)]*\)", "", block.text.lstrip("#").strip()).lower()
            slug = re.sub(r"[^\w -]", "", title).replace(" ", "-")
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return found


def links(text: str) -> list[str]:
    """Targets of links and images, in order."""
    return re.findall(r"\]\(([^)]+)\)", text)


def code(text: str) -> list[str]:
    """What stands in backticks."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]


def plain(text: str) -> str:
    """The words: ` stands for code and for targets of links."""
    return re.sub(r"\]\([^)]+\)", "]`", re.sub(r"`[^`]+`", "`", text)).replace("**", "")


def counted(what: str, english: Iterable[str], chinese: Iterable[str]) -> Iterator[str]:
    """What only one of them has, in any order."""
    ours, theirs = Counter(english), Counter(chinese)
    if ours != theirs:
        surplus = [", ".join((one - other).elements()) or "none" for one, other in ((ours, theirs), (theirs, ours))]
        yield f"{what} only in README.md: {surplus[0]}; only in README.zh.md: {surplus[1]}"


def in_words(english: str, chinese: str, share: float) -> Iterator[str]:
    """How running text differs; share: of Chinese signs among the letters, at least."""
    ours, theirs = plain(english), plain(chinese)
    yield from counted("numbers", NUMBER.findall(ours), NUMBER.findall(theirs))
    yield from counted("code", (TRANSLATED.get(span, span) for span in code(english)), code(chinese))
    targets = [[link.partition("#")[0] for link in links(text)] for text in (english, chinese)]
    if targets[0] != targets[1]:
        yield f"links {targets[0]} in README.md, {targets[1]} in README.zh.md"
    for word in sorted(WORDS.keys() & set(re.findall(r"\w+", ours.lower()))):
        if not set(WORDS[word]) & set(theirs):
            yield f"'{word}' in README.md, no {WORDS[word]} in README.zh.md"
    signs, latin = (len(re.findall(kind, theirs)) for kind in (SIGN, "[A-Za-z]"))
    left = ENGLISH_WORDS.search(theirs)
    if left or signs < share * (signs + latin):
        yield f"left in English: {left[0] if left else chinese}"
    if narrow := NARROW.search(theirs):
        yield f"no space between Chinese and Latin, or a narrow mark: '{theirs[: narrow.end()][-20:]}'"
    if "\n" in chinese:
        yield "more than one line in README.zh.md: a line break would be shown as a space"


def in_code(english: str, chinese: str) -> Iterator[str]:
    """Commands are the same but for their comments, those in Chinese may come first; all other code is the same."""
    commands = re.match(r"```\w*\n(?:make|python|source|torchrun) ", english)
    lines = [text.splitlines() for text in (english, chinese)]
    if commands:
        lines = [sorted(block, key=lambda line: "--language zh" not in line) for block in lines]
    for ours, theirs in zip_longest(*lines, fillvalue=""):
        split = [re.split(r"\s+# |$", line, maxsplit=1) if commands else [line, ""] for line in (ours, theirs)]
        (command, said), (same, says) = split
        if command != same or bool(said) != bool(says):
            yield f"'{ours}' in README.md, '{theirs}' in README.zh.md"
            if len(lines[0]) != len(lines[1]):
                return  # the lines that follow have no partner
        else:
            yield from (f"comment of '{command}': {what}" for what in in_words(said, says, share=0.02))


def in_cell(english: str, chinese: str, heads: bool) -> Iterator[str]:
    """The cells are the same, or have the same numbers in the same order between other words."""
    numbers = [NUMBER.findall(plain(cell)) for cell in (english, chinese)]
    if numbers[0] != numbers[1] or (english != chinese and not re.search("[A-Za-z]", english)):
        yield f"README.zh.md has '{chinese}'"
    words = r"[a-z ]+" if heads else r".*(?<![\w/])[a-z]+ [a-z]+(?![\w/]).*"
    if english == chinese and re.fullmatch(words, plain(english)):
        yield "left in English"
    yield from in_words(english, chinese, share=0)


def in_table(english: str, chinese: str) -> Iterator[str]:
    """As many rows and columns, and cells that agree."""
    tables = [[row.strip()[1:-1].split("|") for row in text.splitlines()] for text in (english, chinese)]
    shapes = [[len(row) for row in table] for table in tables]
    if shapes[0] != shapes[1]:
        yield f"cells of the rows of the table: {shapes[0]} in README.md, {shapes[1]} in README.zh.md"
        return
    for number, rows in enumerate(zip(*tables, strict=True)):
        for cells in zip(*rows, strict=True):
            ours, theirs = (cell.strip() for cell in cells)
            where = f"row '{rows[0][0].strip()}', cell '{ours}'"
            yield from (f"{where}: {what}" for what in in_cell(ours, theirs, heads=number == 0))


def between(ours: Block, theirs: Block) -> Iterator[str]:
    """How two blocks differ."""
    if ours.kind != theirs.kind:
        yield f"{ours.kind} '{ours.text[:60]}' in README.md, {theirs.kind} '{theirs.text[:60]}' in README.zh.md"
    elif ours.kind == "code":
        yield from in_code(ours.text, theirs.text)
    elif ours.kind == "table":
        yield from in_table(ours.text, theirs.text)
    else:
        yield from in_words(ours.text, theirs.text, share=SHARES.get(ours.kind, 0.1))


def differences(english: str, chinese: str) -> list[str]:
    """All that differs, each with its section."""
    parts = sections(english), sections(chinese)
    headings = [[section[0] for section in part] for part in parts]
    if [heading.kind for heading in headings[0]] != [heading.kind for heading in headings[1]]:
        names = [" | ".join(heading.text for heading in titles) for titles in headings]
        return [f"headings of README.md: {names[0]}; of README.zh.md: {names[1]}"]
    found = []
    for section, translated in zip(*parts, strict=True):
        for ours, theirs in zip_longest(section, translated, fillvalue=Block("the end", 0, "")):
            where = f"{section[0].text} ({translated[0].text}), lines {ours.line} and {theirs.line}"
            found += [f"{where}: {what}" for what in between(ours, theirs)]
            if ours.kind != theirs.kind:
                break  # the others of this section have no partner
    return found
