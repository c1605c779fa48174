"""Each test of an exercise fails on the file as it is shipped and on wrong ones, and passes on the solution."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "exercises"
NAMES = {1: "exercise_1_mask", 2: "exercise_2_heads", 3: "exercise_3_two_sentences"}


def read(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"read_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def failures(number: int, learners: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The tests of an exercise that fail on a learner's file, and what each says."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("EXERCISES", str(learners))
    tests = read(FOLDER / f"test_exercise_{number}.py")
    found = {}
    for name, test in list(vars(tests).items()):
        if name.startswith("test_"):
            try:
                test()
            except (pytest.fail.Exception, Exception) as error:
                found[name] = f"{type(error).__name__}: {error}"
    return found


def source(number: int) -> str:
    return (FOLDER / "solutions" / f"{NAMES[number]}.py").read_text(encoding="utf-8")


def replaced(*pairs: tuple[str, str]) -> Callable[[str], str]:
    """A solution with some of its code replaced."""

    def change(text: str) -> str:
        for old, new in pairs:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        return text

    return change


def skip_if_begun(number: int) -> None:
    """A learner's own work is no fault of the tests."""
    if shutil.which("git") is None:
        return
    path = FOLDER / f"{NAMES[number]}.py"
    changed = subprocess.run(
        ["git", "diff", "--quiet", "HEAD", "--", path], cwd=ROOT, capture_output=True, check=False
    )
    if changed.returncode == 1:
        pytest.skip(f"{path.name} has been worked on here")


@pytest.mark.parametrize("number", NAMES)
def test_the_solution_passes(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert failures(number, FOLDER / "solutions", monkeypatch) == {}


@pytest.mark.parametrize("number", NAMES)
def test_every_test_fails_on_the_file_that_is_shipped(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_if_begun(number)
    found = failures(number, FOLDER, monkeypatch)
    code = (FOLDER / f"test_exercise_{number}.py").read_text(encoding="utf-8")
    assert list(found) == re.findall(r"^def (test_\w+)", code, re.MULTILINE)
    assert all(said.startswith("NotImplementedError: TODO: ") for said in found.values())


WRONG: dict[str, tuple[int, Callable[[str], str], str]] = {
    "the mask turned": (1, replaced(("where(mask,", "where(~mask,")), "True must mean 'may look'"),
    "masked after the softmax": (
        1,
        replaced(
            ("        scores = np.where(mask, scores, -np.inf)\n", "        pass\n"),
            ("weights = softmax(scores)\n", "weights = softmax(scores) * (1 if mask is None else mask)\n"),
        ),
        "mask before the softmax",
    ),
    "a hidden score of 0": (1, replaced(("-np.inf", "0.0")), "hide scores before the softmax"),
    "no mask at all": (
        1,
        replaced(("np.where(mask, scores, -np.inf)", "scores")),
        "must be 0 where the mask is False",
    ),
    "softmax over the queries": (
        1,
        replaced(("x.max(axis=-1", "x.max(axis=0"), ("e.sum(axis=-1", "e.sum(axis=0")),
        "over the keys (last axis)",
    ),
    "a causal mask that shows the future": (
        1,
        replaced(("np.tri(tokens, dtype=np.bool_)", "np.tri(tokens, dtype=np.bool_).T")),
        "token 0 may look at tokens [0]",
    ),
    "a causal mask that hides the token itself": (
        1,
        replaced(("np.tri(tokens,", "np.tri(tokens, k=-1,")),
        "token 0 may look at tokens [0] (itself and earlier), but the mask shows []",
    ),
    "a causal mask of numbers": (1, replaced((", dtype=np.bool_)", ")")), "its dtype is float64"),
    "weights alone": (1, replaced(("return weights @ V, weights", "return weights")), "must return two arrays"),
    "heads of other tokens' numbers": (
        2,
        replaced(
            ("x.reshape(tokens, n_heads, d_model // n_heads).swapaxes(0, 1)", "x.reshape(n_heads, tokens, -1)")
        ),
        "columns 0 to 1 of every token",
    ),
    "every third column a head": (
        2,
        replaced(
            (
                "x.reshape(tokens, n_heads, d_model // n_heads).swapaxes(0, 1)",
                "x.reshape(tokens, d_model // n_heads, n_heads).transpose(2, 0, 1)",
            )
        ),
        "columns 0 to 1 of every token",
    ),
    "tokens before heads": (
        2,
        replaced(("d_model // n_heads).swapaxes(0, 1)", "d_model // n_heads)")),
        "must have shape (3, 5, 2) = (heads, tokens, d_k), but is an array of shape (5, 3, 2)",
    ),
    "joined without swapping": (
        2,
        replaced(("x.swapaxes(0, 1).reshape", "x.reshape")),
        "each token must get its own numbers back",
    ),
    "scaled by d_model": (2, replaced(("np.sqrt(Q.shape[-1])", "np.sqrt(X.shape[-1])")), "sqrt(d_k) = sqrt(2)"),
    "not scaled": (2, replaced((" / np.sqrt(Q.shape[-1])", "")), "sqrt(d_k) = sqrt(2)"),
    "softmax over the heads": (
        2,
        replaced(("x.max(axis=-1", "x.max(axis=0"), ("e.sum(axis=-1", "e.sum(axis=0")),
        "weights must sum to 1 over the keys",
    ),
    "no Wo": (2, replaced((" @ Wo, weights", ", weights")), "and then times Wo"),
    "the heads' mean": (
        2,
        replaced(
            ("return join_heads(weights @ V) @ Wo, weights", "return join_heads(weights @ V) @ Wo, weights.mean(0)")
        ),
        "weights must have shape (3, 5, 5) = (heads, query, key), but is an array of shape (5, 5)",
    ),
    "row sums over the queries": (
        3,
        replaced(("weights.sum(axis=-1)", "weights.sum(axis=0)")),
        "sum over the keys",
    ),
    "a difference with a sign": (3, replaced(("np.abs(first - second)", "(first - second)")), "has no sign"),
    "outputs compared": (
        3,
        replaced(("attention.forward(X)[1] for X", "attention.forward(X)[0] for X")),
        "shapes must be",
    ),
    "matrices not copied": (3, replaced(("W.copy() for W", "W for W")), "copy them before the first pass"),
    "nothing measured": (
        3,
        replaced(("max(float(np.abs(weights.sum(axis=-1) - 1).max()) for weights in (first, second))", "0.0")),
        "one row of one map sums to 0.95",
    ),
    "only the first sentence's rows": (
        3,
        replaced(("for weights in (first, second))", "for weights in (first,))")),
        "0.95",
    ),
    "the most seen query": (
        3,
        replaced(
            ("first.argmax(axis=-1)", "first.argmax(axis=0)"), ("second.argmax(axis=-1)", "second.argmax(axis=0)")
        ),
        "in another column",
    ),
    "rows alone in order": (3, replaced(("weights[order][:, order]", "weights[order]")), "both are put in order"),
    "the order turned around": (
        3,
        replaced(("weights[order][:, order]", "weights[np.argsort(order)][:, np.argsort(order)]")),
        "row t and column s must be row order[t]",
    ),
    "the new order's map twice": (
        3,
        replaced(("again, weights[order][:, order]", "again, again")),
        "not of a pass",
    ),
    "an entry forgotten": (3, replaced(('"moved": int', '"mowed": int')), "['moved'] are missing"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_typical_wrong_answer_fails_and_is_told_why(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, change, hint = WRONG[name]
    (tmp_path / f"{NAMES[number]}.py").write_text(change(source(number)), encoding="utf-8")
    found = failures(number, tmp_path, monkeypatch)
    assert hint in "\n".join(found.values()), found


@pytest.mark.parametrize("number", NAMES)
def test_there_are_wrong_answers_to_each_exercise(number: int) -> None:
    assert sum(number == at for at, _, _ in WRONG.values()) >= 2


@pytest.mark.parametrize("number", NAMES)
def test_an_exercise_needs_only_numpy_and_has_a_line_of_chinese(number: int) -> None:
    skip_if_begun(number)
    for path in (FOLDER / f"{NAMES[number]}.py", FOLDER / "solutions" / f"{NAMES[number]}.py"):
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)) <= {"numpy", "typing"}
        assert len(re.findall(f"^练习 {number}：.*$", text, re.MULTILINE)) == 1
        assert text.count("\n") <= 85


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call make as if the environment were set up."""
    done = ["--assume-old=.venv/bin/python", "--assume-old=.venv/installed", "--assume-old=.venv/installed-dev"]
    return subprocess.run(
        ["make", f"BIN={Path(sys.executable).parent}", *done, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


@needs_make
def test_make_tests_the_learners_file_and_says_what_is_missing() -> None:
    skip_if_begun(2)
    stub = make("exercise", "N=2")
    assert stub.returncode != 0
    assert "NotImplementedError: TODO: cut the width; each head has all tokens" in stub.stdout


@needs_make
def test_make_tests_the_solution_if_it_is_asked_to() -> None:
    solved = make("exercise", "N=3", "SOLUTION=1")
    assert (solved.returncode, solved.stderr) == (0, "")
    assert "5 passed" in solved.stdout


@needs_make
def test_make_says_which_exercises_there_are() -> None:
    for arguments in ((), ("N=4",), ("N=1 2",), ("N=%",), ("N=1 1",), ("N=2 x",), ("N= ",)):
        unknown = make("--dry-run", "exercise", *arguments)
        assert unknown.returncode != 0, arguments
        assert "N must be 1, 2 or 3, as in: make exercise N=1" in unknown.stderr


@needs_make
def test_make_takes_the_solution_for_1_alone() -> None:
    for arguments, found in (
        ((), False),
        (("SOLUTION=",), False),
        (("SOLUTION=0",), False),
        (("SOLUTION=1",), True),
    ):
        command = make("--dry-run", "exercise", "N=2 ", *arguments)
        assert ("EXERCISES=solutions " in command.stdout) is found, arguments
        assert " exercises/test_exercise_2.py " in command.stdout
    for wrong in ("no", "0 1", "1 1", "%"):
        refused = make("--dry-run", "exercise", "N=2", f"SOLUTION={wrong}")
        assert refused.returncode != 0
        assert f"SOLUTION must be 0 or 1, but is {wrong}" in refused.stderr


def test_the_usual_tests_do_not_collect_them(pytestconfig: pytest.Config) -> None:
    paths: Any = pytestconfig.getini("testpaths")
    assert paths == ["tests"]
    assert not list((ROOT / "tests").rglob("test_exercise_*.py"))
