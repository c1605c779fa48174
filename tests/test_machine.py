"""What results depend on besides the configuration."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from lookback import machine


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small package that stands where ours is."""
    folder = tmp_path / "package"
    (folder / "models").mkdir(parents=True)
    (folder / "one.py").write_text("1\n")
    (folder / "models" / "two.py").write_text("22\n")
    monkeypatch.setattr(machine, "PACKAGE", folder)
    machine.code_version.cache_clear()
    yield folder
    machine.code_version.cache_clear()


def version() -> str:
    machine.code_version.cache_clear()
    return machine.code_version()


def test_the_code_version_is_the_same_for_the_same_code_wherever_it_is(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = version()
    assert len(first) == 12
    assert int(first, 16) >= 0
    shutil.copytree(package, package.parent / "elsewhere" / "other name")
    monkeypatch.setattr(machine, "PACKAGE", package.parent / "elsewhere" / "other name")
    assert version() == first


def test_the_code_version_changes_with_every_source_file_and_nothing_else(package: Path) -> None:
    versions = [version()]
    (package / "models" / "two.py").write_text("23\n")
    versions.append(version())
    (package / "one.py").write_text("1\n\n")
    versions.append(version())
    (package / "one.py").rename(package / "three.py")
    versions.append(version())
    (package / "empty.py").touch()
    versions.append(version())
    assert len(set(versions)) == 5
    (package / "notes.txt").write_text("of no effect")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "one.cpython-311.pyc").write_bytes(b"1")
    assert version() == versions[-1]


def test_what_moves_from_one_file_to_the_next_is_another_version(package: Path) -> None:
    (package / "a.py").write_text("x = 1\n")
    (package / "b.py").write_text("y = 2\n")
    first = version()
    (package / "a.py").write_text("")
    (package / "b.py").write_text("x = 1\ny = 2\n")
    assert version() != first


def test_the_code_version_is_ours_and_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine.code_version.cache_clear()
    first = machine.code_version()
    assert (machine.PACKAGE / "models" / "rnn.py").is_file()
    monkeypatch.setattr(machine, "PACKAGE", Path("/nowhere"))
    assert machine.code_version() == first


def test_peak_memory_can_be_forgotten() -> None:
    machine.forget_peak_memory()
    before = machine.peak_memory_mib()
    block = np.ones(2**27 // 8)  # 128 MiB, on top of all that is held
    grown = machine.peak_memory_mib()
    assert grown > before + 120
    del block
    assert machine.peak_memory_mib() == grown
    if Path("/proc/self/clear_refs").exists():
        machine.forget_peak_memory()
        assert machine.peak_memory_mib() < grown - 100


def test_where_the_system_cannot_forget_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError("read-only")

    monkeypatch.setattr(Path, "write_text", refuse)
    machine.forget_peak_memory()


def test_the_machine_is_told_with_its_threads() -> None:
    found = machine.machine()
    assert found["threads"] == torch.get_num_threads()
    assert found["torch"] == torch.__version__
    assert found["processor"]
