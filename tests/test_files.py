"""Files are whole or not there, and a folder has one worker."""

import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from lookback import files


def test_two_processes_that_write_one_file_at_once_each_write_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, fsync = tmp_path / "results.json", os.fsync

    def other_process_writes(handle: int) -> None:
        fsync(handle)
        monkeypatch.setattr(os, "fsync", fsync)
        files.write_whole(path, b"the other")
        assert path.read_bytes() == b"the other"

    monkeypatch.setattr(os, "fsync", other_process_writes)
    files.write_whole(path, b"the first")
    assert path.read_bytes() == b"the first"
    assert list(tmp_path.iterdir()) == [path]


def test_what_killed_processes_left_unfinished_is_removed_and_nothing_else(tmp_path: Path) -> None:
    left, written, foreign, folder = (
        tmp_path / f"{name}{files.PARTIAL}" for name in ("0123456789abcdef", "a" * 16, "notes", "f" * 16)
    )
    for path in (left, written, foreign):
        path.write_bytes(b"half")
    folder.mkdir()
    with written.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as a process does that is writing it
        files.write_whole(tmp_path / "a", b"whole")
    assert {path.name for path in tmp_path.iterdir()} == {"a", written.name, foreign.name, folder.name}


def test_a_file_that_is_taken_for_a_leftover_before_it_is_locked_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock
    taken: list[Path] = []

    def late(file: Any, how: int) -> None:
        if not taken:
            taken.extend(tmp_path.glob(f"*{files.PARTIAL}"))
            taken[0].unlink()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    files.write_whole(tmp_path / "a", b"whole")
    assert len(taken) == 1
    assert (tmp_path / "a").read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


@pytest.mark.parametrize("links", [True, False])
def test_the_file_before_is_kept_under_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def none_here(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    if not links:
        monkeypatch.setattr(Path, "hardlink_to", none_here)
    path, before = tmp_path / "last", tmp_path / "previous"
    for content in (b"one", b"two", b"three"):
        files.write_whole(path, content, before)
    assert (path.read_bytes(), before.read_bytes()) == (b"three", b"two")
    assert sorted(tmp_path.iterdir()) == [path, before]


def test_one_file_under_both_names_is_replaced_under_one_of_them(tmp_path: Path) -> None:
    path, before = tmp_path / "last", tmp_path / "previous"
    files.write_whole(path, b"one")
    before.hardlink_to(path)  # a kill between keeping the old file and writing the new one
    files.write_whole(path, b"two", before)
    assert (path.read_bytes(), before.read_bytes()) == (b"two", b"one")
    assert sorted(tmp_path.iterdir()) == [path, before]


def test_a_full_disk_while_the_file_before_is_kept_loses_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, before = tmp_path / "last", tmp_path / "previous"
    for content in (b"one", b"two"):
        files.write_whole(path, content, before)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "hardlink_to", full)
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_whole(path, b"three", before)
    assert (path.read_bytes(), before.read_bytes()) == (b"two", b"one")
    assert sorted(tmp_path.iterdir()) == [path, before]


def test_a_written_file_can_be_read_by_those_who_may_read_others(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    files.write_whole(tmp_path / "whole", b"")
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_is_synced_after_the_renaming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync, synced = os.fsync, []

    def watch(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").resolve().name)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watch)
    files.write_whole(tmp_path / "a", b"whole")
    assert len(synced) == 2
    assert synced[0].endswith(files.PARTIAL)
    assert synced[1] == tmp_path.name


def test_a_link_is_written_through_and_a_device_or_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    files.write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "folder"):
        (tmp_path / "folder").mkdir(exist_ok=True)
        with pytest.raises(OSError, match="is no file that can be written anew"):
            files.write_whole(tmp_path / name, b"")
        with pytest.raises(ValueError, match=r"--json must be a"):
            files.writable("--json", tmp_path / name)
    assert (tmp_path / "pipe").is_fifo()


def test_a_file_that_is_read_is_never_replaced_by_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_bytes(b"a\tb\n")
    (tmp_path / "link").symlink_to("pairs.tsv")
    for name in ("pairs.tsv", "link"):
        with pytest.raises(ValueError, match=r"--json would replace .*, which is read"):
            files.writable("--json", tmp_path / name, tmp_path / "pairs.tsv")
    assert files.writable("--json", tmp_path / "new", tmp_path / "pairs.tsv") == tmp_path / "new"


def test_a_place_where_nothing_can_be_written_is_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"--json: /proc/x.json cannot be written"):
        files.writable("--json", Path("/proc/x.json"))
