"""Files of pairs: a source, a tab and a target on each line.

UTF-8; a byte-order mark at the start is dropped. LF and CRLF end a line, nothing else does; the last line may lack
its end. Quotes are plain characters.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lookback.symbols import Normal, Unit, count, normalised, tidy

SHOWN = 3  # bad lines
BOM = b"\xef\xbb\xbf"
OTHER_FILES = {
    b"\x1f\x8b": "it is compressed with gzip",
    b"\xff\xfe": "it is UTF-16 or UTF-32, not UTF-8",
    b"\xfe\xff": "it is UTF-16, not UTF-8",
}


class PairFileError(ValueError):
    """A file that cannot be used, or a line that is no pair; its text names the file and what was found."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a file is read.

    Attributes:
        source_unit: what a symbol of a source is.
        target_unit: what a symbol of a target is.
        normalise: Unicode normal form of all text, or none.
        max_length: symbols that a side may have.
        on_error: stop at lines that are no pairs, or skip and list them.
    """

    source_unit: Unit
    target_unit: Unit
    normalise: Normal
    max_length: int
    on_error: Literal["stop", "skip"]


@dataclass(frozen=True, eq=False)
class PairFile:
    """The pairs of a file.

    Attributes:
        path: where they are from.
        sources: texts, normalised if that was asked for, and with one space between words: equal where a model
            reads the same symbols.
        targets: the same.
        lines: the line of each pair, from 1.
        skipped: line and what is wrong with it, for lines that were left out.
    """

    path: Path
    sources: list[str]
    targets: list[str]
    lines: NDArray[np.int64]
    skipped: list[tuple[int, str]]

    def some(self, numbers: Sequence[int]) -> "PairFile":
        """The pairs of these numbers alone."""
        return PairFile(
            self.path,
            [self.sources[number] for number in numbers],
            [self.targets[number] for number in numbers],
            self.lines[np.asarray(numbers, dtype=np.int64)],
            self.skipped,
        )


def read_pairs(path: Path, reading: Reading) -> PairFile:
    """Read a file.

    Raises:
        PairFileError: if it cannot be read, has no pair, or has a line that is none and is not to be skipped.
    """
    sources, targets, numbers, bad = list[str](), list[str](), list[int](), list[tuple[int, str]]()
    for number, line in enumerate(_lines(path), start=1):
        try:
            source, target = _pair(line, reading)
        except PairFileError as error:
            bad.append((number, str(error)))
            continue
        sources.append(source)
        targets.append(target)
        numbers.append(number)
    if bad and reading.on_error == "stop":
        raise PairFileError("\n  ".join(f"{path}, {line}" for line in _told(bad)))
    if not sources:
        raise PairFileError("\n  ".join([f"{path}: no line is a pair", *_told(bad)]))
    return PairFile(path, sources, targets, np.array(numbers), bad)


def _told(bad: Sequence[tuple[int, str]]) -> list[str]:
    """The first bad lines, and how many there are besides."""
    more = [f"and {len(bad) - SHOWN:,} more lines that are no pairs"] if len(bad) > SHOWN else []
    return [*(f"line {number}: {what}" for number, what in bad[:SHOWN]), *more]


def read_once(path: Path, reading: Reading) -> PairFile:
    """The same, read again only if the file has changed since it was last read."""
    return _kept(path, reading, stamp(path))


def stamp(path: Path) -> tuple[int, int] | None:
    """What changes with a file; None if there is none.

    Raises:
        PairFileError: if nobody can tell.
    """
    try:
        found = path.stat() if path.is_file() else None
    except OSError as error:  # such as a name that is too long
        raise PairFileError(f"{str(path)[:80]}: cannot be read ({error.strerror})") from error
    return found and (found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=8)
def _kept(path: Path, reading: Reading, when: object) -> PairFile:
    return read_pairs(path, reading)


def _lines(path: Path) -> list[bytes]:
    """The lines of a file without their ends."""
    if path.is_dir():
        raise PairFileError(f"{path}: must be a file, but is a folder")
    if path.exists() and not path.is_file():
        raise PairFileError(f"{path}: must be a plain file that can be read again, but is a pipe or a device")
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise PairFileError(f"{path}: no such file") from error
    except OSError as error:
        raise PairFileError(f"{path}: cannot be read ({error.strerror})") from error
    for start, what in OTHER_FILES.items():
        if content.startswith(start):
            raise PairFileError(f"{path}: must be plain UTF-8 text, but {what}")
    if content[:200].count(0) > len(content[:200]) // 4:  # every second byte of plain letters
        raise PairFileError(f"{path}: must be plain UTF-8 text, but it looks like UTF-16")
    content = content.removeprefix(BOM)
    if not content:
        raise PairFileError(f"{path}: is empty")
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    lines = [line.removesuffix(b"\r") for line in lines]
    if not any(line.strip() for line in lines):
        raise PairFileError(f"{path}: has only blank lines")
    return lines


def _pair(line: bytes, reading: Reading) -> tuple[str, str]:
    """The two sides of a line.

    Raises:
        PairFileError: saying what is wrong with it.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        byte, place = line[error.start], error.start + 1
        raise PairFileError(f"must be UTF-8, but byte {place} is {byte:#04x}") from error
    tabs = text.count("\t")
    if tabs != 1:
        found = "is blank" if not text.strip() else f"has {tabs or 'none'}"
        found += " (a comma is not one)" if not tabs and text.count(",") == 1 else ""
        raise PairFileError(f"must have one tab, but {found}")
    source, target = normalised(text, reading.normalise).split("\t")
    _check_side("source", source, reading.source_unit, reading)
    _check_side("target", target, reading.target_unit, reading)
    return tidy(source, reading.source_unit), tidy(target, reading.target_unit)


def _check_side(name: str, text: str, unit: Unit, reading: Reading) -> None:
    if not text or text.isspace():
        raise PairFileError(f"{name} must have a symbol at least, but is {'blank' if text else 'empty'}")
    length = count(text, unit)
    if length > reading.max_length:
        raise PairFileError(f"{name} must have 1 to {reading.max_length:,} symbols, but has {length:,}")


def digest(files: Mapping[str, PairFile]) -> str:
    """The same for the same pairs in the same order under the same names, however their lines end."""
    found = hashlib.blake2b(digest_size=6)
    for name, file in files.items():
        for part in (name, *file.sources, *file.targets):
            found.update(part.encode() + b"\n")
    return found.hexdigest()


def duplicates(file: PairFile) -> int:
    """How many pairs repeat an earlier one."""
    return len(file.sources) - len(set(zip(file.sources, file.targets, strict=True)))


def conflicts(file: PairFile) -> int:
    """How many sources have more than one target."""
    if len(file.sources) - len(set(file.sources)) == duplicates(file):
        return 0
    counts = Counter(source for source, _ in set(zip(file.sources, file.targets, strict=True)))
    return sum(count > 1 for count in counts.values())


def overlap(train: PairFile, other: PairFile) -> tuple[int, int]:
    """How many pairs of another file are in this one, and of how many the source is."""
    known = set(train.sources).intersection(other.sources)
    pairs = {pair for pair in zip(train.sources, train.targets, strict=True) if pair[0] in known}
    return (
        sum(pair in pairs for pair in zip(other.sources, other.targets, strict=True)),
        sum(source in known for source in other.sources),
    )


def counted(number: int, what: str) -> str:
    """1 pair, 2 pairs."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def described(name: str, file: PairFile, train: PairFile | None) -> list[str]:
    """What a person should know of a file, a line each.

    Args:
        name: of the file.
        file: any.
        train: the pairs that are learned from, if the file is another one.
    """
    repeated, several = duplicates(file), conflicts(file)
    line = f"{name}: {counted(len(file.sources), 'pair')}"
    line += f", {repeated:,} repeated" if repeated else ""
    line += f", {counted(several, 'source')} with several targets" if several else ""
    if train is not None:
        pairs, sources = overlap(train, file)
        both = f"{counted(sources, 'source')} and {counted(pairs, 'pair')}"
        line += f"; WARNING: {both} in train too" if sources else ""
    left_out = [f"  line {number} is left out: {what}" for number, what in file.skipped[:SHOWN]]
    more = len(file.skipped) - len(left_out)
    return [line, *left_out, *([f"  and {more:,} more lines"] if more else [])]


def split_off(file: PairFile, share: float) -> tuple[PairFile, PairFile]:
    """Keep a share of the sources out of training; all pairs of a source stay together.

    Which ones depends on their content alone: those whose hash is lowest.

    Args:
        file: of at least two different sources.
        share: above 0 and below 1; at least one source is on each side.

    Returns:
        the pairs to train on, and those that are kept out.

    Raises:
        PairFileError: if there is only one source.
    """
    distinct = sorted(set(file.sources), key=lambda source: hashlib.blake2b(source.encode()).digest())
    if len(distinct) < 2:
        left = f", {counted(len(file.skipped), 'line')} left out" if file.skipped else ""
        rule = f"must have two different sources to be split, but has {len(distinct)}{left}"
        raise PairFileError("\n  ".join([f"{file.path}: {rule}", *_told(file.skipped)]))
    count = min(len(distinct) - 1, max(1, round(share * len(distinct))))
    out = set(distinct[:count])
    numbers = range(len(file.sources))
    kept = file.some([number for number in numbers if file.sources[number] in out])
    return (
        file.some([number for number in numbers if file.sources[number] not in out]),
        replace(kept, skipped=[]),  # they are told once
    )
