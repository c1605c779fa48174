"""The wheel has all it needs, away from the source tree."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from conftest import TINY

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_wheel_trains_from_an_empty_folder(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)],
        check=True,
        capture_output=True,
    )
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.endswith(".yaml")}
        assert "lookback/outputs/prompt-attention-explainer.md" in archive.namelist()
    shipped = {f"lookback/{path.relative_to(ROOT)}" for path in (ROOT / "configs").rglob("*.yaml")}
    assert packed == shipped
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    code = f"import sys; sys.path.insert(0, {str(site)!r}); from lookback.experiment import main; sys.exit(main())"
    for arguments in (["--help"], [*TINY, "train.steps=2"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=empty,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(site)},
        )
        assert done.returncode == 0, done.stderr
    assert [path.name for path in empty.iterdir()] == ["runs"]
