"""How a text is cut into symbols, put together again, and shown on one line."""

import unicodedata
from collections.abc import Sequence
from typing import Literal

Unit = Literal["character", "word"]
Normal = Literal["none", "NFC"]
SPACE = "␣"
SHORT_SYMBOL = 4  # letters, accents counted
SPACED = 0.8  # share of texts
BETWEEN: dict[Unit, str] = {"character": "", "word": " "}  # what stands between two symbols in a text


def split(text: str, unit: Unit) -> list[str]:
    """The symbols of a text.

    Args:
        text: any.
        unit: characters are Unicode code points. Words stand between spaces (U+0020), of which several in a row, or
            at the ends, count as one or none; any other kind of space is part of a word.
    """
    if unit == "character":
        return list(text)
    words = text.split(" ")
    return [word for word in words if word] if "" in words else words


def count(text: str, unit: Unit) -> int:
    """How many symbols a text has."""
    if unit == "character":
        return len(text)
    if not text or "  " in text or text[0] == " " or text[-1] == " ":
        return len(split(text, unit))
    return text.count(" ") + 1


def tidy(text: str, unit: Unit) -> str:
    """The one text of the same symbols that has a space between words, and none around them."""
    loose = unit == "word" and ("  " in text or text[:1] == " " or text[-1:] == " ")
    return join(split(text, unit), unit) if loose else text


def join(symbols: Sequence[str], unit: Unit) -> str:
    """The text of some symbols."""
    return BETWEEN[unit].join(symbols)


def normalised(text: str, form: Normal) -> str:
    """A text in this Unicode normal form; as it is for `none`.

    NFC writes a letter and its accent as one character where Unicode has such a one, so that two spellings that
    look alike are alike.
    """
    return text if form == "none" else unicodedata.normalize(form, text)


def looks_spaced(texts: Sequence[str]) -> str:
    """The first text, if nearly all look like symbols of a letter or two between spaces; else nothing."""
    words = [text.split(" ") for text in texts[:1000]]
    spaced = sum(len(found) > 1 and max(map(len, found)) <= SHORT_SYMBOL for found in words)
    long_enough = [text for text, found in zip(texts, words, strict=False) if len(found) > 1]
    return long_enough[0] if spaced >= SPACED * len(words) and long_enough else ""


def plain(text: str) -> str:
    """A text as one line that any encoding of Unicode can show: line breaks and the like become �."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def seen(symbol: str) -> str:
    """A symbol as a label, on one line; spaces alone as ␣, which would not be seen."""
    return SPACE * len(symbol) if symbol and not symbol.strip(" ") else plain(symbol)
