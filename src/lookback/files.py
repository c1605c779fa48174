"""How files are written: whole or not at all, synced, and a run folder by one process at a time."""

import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PARTIAL = ".lookback-partial"  # how the name of an unfinished file ends


class LockedError(OSError):
    """A folder in which another process works."""


def write_whole(path: Path, content: bytes, before: Path | None = None) -> None:
    """Write a file so that `path` always holds a whole one: to a file beside it, synced, then renamed.

    The file beside it has a name of its own, so that several processes may write at once. Those of processes that
    were killed are removed by the next writing into the same folder.

    Args:
        path: where it goes; its folder is made.
        content: of the file.
        before: where what was at `path` is kept, in the same folder; None = it is not.

    Raises:
        OSError: if it cannot be written, or is a device or a folder; what was there is there still.
    """
    path = path.resolve()  # through links, which stay
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is no file that can be written anew")
    path.parent.mkdir(parents=True, exist_ok=True)
    clear(path.parent)
    with _beside(path) as beside:
        beside.write_bytes(content)
        _sync(beside)
        if before is not None and path.exists():
            _keep(path, before)
        beside.replace(path)
    with suppress(OSError):  # not every system can sync a folder
        _sync(path.parent)


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A new file in the folder of another, locked while it is ours, and gone afterwards."""
    while True:
        beside = path.parent / f"{secrets.token_hex(8)}{PARTIAL}"
        with beside.open("xb") as file:
            try:
                with suppress(OSError):  # not every file system has locks
                    fcntl.flock(file, fcntl.LOCK_EX)
                if os.fstat(file.fileno()).st_nlink:  # else it was taken for a leftover before it was locked
                    yield beside
                    return
            finally:
                beside.unlink(missing_ok=True)


def _keep(path: Path, before: Path) -> None:
    """Let a file be at a second place as well, whole at any moment."""
    with _beside(before) as beside:
        beside.unlink()
        try:
            beside.hardlink_to(path)
        except OSError:  # not every file system has links
            shutil.copyfile(path, beside)
            _sync(beside)
        beside.replace(before)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def clear(folder: Path) -> None:
    """Remove what killed processes left unfinished in a folder: nobody has locked it."""
    for path in folder.glob(f"*{PARTIAL}"):
        if re.fullmatch("[0-9a-f]{16}", path.name.removesuffix(PARTIAL)) and path.is_file():
            with suppress(OSError), path.open("rb") as file:  # another process may do the same
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def writable(option: str, path: Path, *read: Path) -> Path:
    """A file that can be written at the end; found out before there is anything to lose.

    Args:
        option: that names it.
        path: of the file.
        read: files that it must not replace.

    Raises:
        ValueError: if it is a folder, a device or one of those that are read, or cannot be written.
    """
    if path.is_dir():
        raise ValueError(f"{option} must be a file, but {path} is a folder")
    if path.exists() and not path.is_file():
        raise ValueError(f"{option} must be a plain file, but {path} is none")
    if not path.parent.is_dir():
        raise ValueError(f"{option}: no such folder: {path.parent}")
    if path.resolve() in [one.resolve() for one in read]:
        raise ValueError(f"{option} would replace {path}, which is read")
    try:
        with tempfile.TemporaryFile(dir=path.resolve().parent):
            return path
    except OSError as error:
        raise ValueError(f"{option}: {path} cannot be written ({error.strerror})") from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from working in a folder; the lock goes with the process, however it ends.

    Raises:
        LockedError: if another process has it.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise LockedError(f"{folder}: another process is working in this run folder") from error
    finally:
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Whether another process is working in a folder."""
    try:
        with locked(folder):
            return False
    except LockedError:
        return True
