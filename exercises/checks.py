"""What the tests of the exercises share: whose files they test, and what they say when something is wrong."""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

CLOSE = 1e-9


def load(name: str) -> ModuleType:
    """Read an exercise: the learner's file, or with EXERCISES=solutions the one to compare with."""
    path = Path(__file__).parent / os.environ.get("EXERCISES", "") / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_to_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(holds: object, message: str) -> None:
    """Fail with this message alone, unless it holds."""
    if not holds:
        pytest.fail(message, pytrace=False)


def pair(what: str, found: object) -> tuple[Any, Any]:
    """Two things that a function should return."""
    check(
        isinstance(found, tuple) and len(found) == 2, f"{what} must return two arrays, but returned {_kind(found)}"
    )
    return found  # type: ignore[return-value]


def shape(what: str, found: object, expected: Sequence[int], axes: str) -> None:
    """An array of this shape."""
    came = f"an array of shape {found.shape}" if isinstance(found, np.ndarray) else _kind(found)
    fits = isinstance(found, np.ndarray) and found.shape == tuple(expected)
    check(fits, f"{what} must have shape {tuple(expected)} = ({axes}), but is {came}")


def same(what: str, found: Any, expected: Any, hint: str) -> None:
    """The same numbers, but for rounding."""
    found, expected = np.asarray(found), np.asarray(expected)
    fits = found.shape == expected.shape and np.allclose(found, expected, rtol=0, atol=CLOSE)
    shown = [np.array2string(part, precision=3, suppress_small=True) for part in (expected, found)]
    check(
        fits,
        f"{what}: {hint}\nexpected, of shape {expected.shape}:\n{shown[0]}\n"
        f"but found, of shape {found.shape}:\n{shown[1]}",
    )


def _kind(found: object) -> str:
    return "nothing (is there a return?)" if found is None else f"a {type(found).__name__}"
