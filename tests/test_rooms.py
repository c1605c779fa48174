"""The house rules: imports only go down, and each outside library has one room."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "lookback"
FILES = sorted(SOURCE.rglob("*.py"))

LEVELS = {
    "lesson": 0,
    "tokens": 0,
    "masks": 0,
    "rules": 0,
    "flat": 0,
    "packing": 1,
    "machine": 0,
    "stop": 0,
    "console": 0,
    "walk_words": 0,
    "walk_parts": 1,
    "walk": 2,
    "walk_page": 3,
    "positions.base": 1,
    "view": 1.5,
    "attention": 2,
    "positions": 2,
    "tasks.base": 1,
    "tasks.synthetic": 1.5,
    "tasks": 2,
    "data": 2,
    "metrics": 2,
    "files": 0,
    "fonts": 0,
    "processes": 0,
    "checkpoint": 2,
    "figures": 2,
    "models.base": 3,
    "models.ensemble": 5,
    "models.recurrent": 4,
    "models.layers": 4,
    "models": 5,
    "decode": 4,
    "evaluate": 5,
    "by_length": 5.5,
    "alignment": 5,
    "peers": 6,
    "peers_rnn": 7,
    "peers_x": 6,
    "implementations": 7,
    "leaks": 8,
    "equivalence": 9,
    "verdicts": 10,
    "student_file": 0,
    "faults": 1,
    "diagnosis": 2,
    "trials": 2,
    "judges": 3,
    "student": 4,
    "probes": 6,
    "failures": 6,
    "interventions": 6,
    "train": 6,
    "board": 7,
    "album": 7,
    "contrast": 7,
    "explorer": 7,
    "observer": 8,
    "schema": 1,
    "nodes": 2,
    "symbols": 0.5,
    "pair_file": 1,
    "pair_lists": 1.5,
    "text_ids": 1,
    "beam": 5,
    "predictor": 14,
    "error_rates": 6,
    "predict": 15,
    "score_file": 16,
    "config": 8,
    "intervals": 0,
    "results": 9,
    "groups": 10,
    "sheets": 11,
    "charts": 11,
    "heatmap": 3,
    "terminal": 11,
    "scoreboard": 12,
    "watch": 13,
    "report": 13,
    "launcher": 9,
    "overrides": 9.5,
    "command_line": 10,
    "comparison": 11,
    "learner": 11,
    "follow": 12,
    "session": 12,
    "summary": 9,
    "experiment": 13,
    "timing": 11,
    "contestants": 13,
    "races": 14,
    "costs": 15,
    "flops": 15,
    "decoding_race": 14,
    "learning_race": 14,
    "growth": 14,
    "run_folder": 3,
    "load": 15.5,
    "benchmark": 16,
    "compare": 15,
    "subjects": 14,
    "questions": 15,
    "lookups": 7,
    "explanation": 15,
    "explain": 16,
    "look": 16,
    "plots": 12,
    "bench": 16,
    "claims.base": 17,
    "claims": 18,
    "claim_report": 19,
    "examine": 20,
}
ONLY_IN = {
    "tensorboard": {"board"},
    "hydra": {"launcher", "overrides", "command_line"},
    "omegaconf": {"config", "launcher", "overrides", "command_line"},
    "pydantic": {"schema"},
    "annotated_types": {"rules"},
    "matplotlib": {"figures", "fonts", "board", "charts", "plots"},
    "plotly": {"explorer"},
    "PIL": {"figures"},
    "rapidfuzz": {"failures", "error_rates"},
    "scipy": {"intervals", "growth"},
    "x_transformers": {"peers_x"},
    "rich": {
        "predict",
        "score_file",
        "console",
        "walk_page",
        "terminal",
        "heatmap",
        "scoreboard",
        "benchmark",
        "questions",
        "look",
        "verdicts",
        "claim_report",
    },
}


def room(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def level(name: str) -> float:
    return LEVELS[name] if name in LEVELS else LEVELS[name.split(".", maxsplit=1)[0]]


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides where it goes"
            assert node.module is not None
            if node.module in ("lookback", "torch.utils"):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
            else:
                found.add(node.module)
    return found


@pytest.mark.parametrize("path", FILES, ids=room)
def test_imports_only_go_down(path: Path) -> None:
    if path.name == "__init__.py":
        assert not imports(path)
        return
    for name in imports(path):
        if name.startswith("lookback."):
            target = name.removeprefix("lookback.")
            assert level(target) < level(room(path)), f"{room(path)} must not import {target}"


@pytest.mark.parametrize("path", FILES, ids=room)
def test_each_outside_library_stays_in_its_room(path: Path) -> None:
    for name in imports(path):
        package = "tensorboard" if "tensorboard" in name else name.split(".")[0]
        if package in ONLY_IN:
            assert room(path) in ONLY_IN[package], f"{room(path)} must not import {package}"


def test_the_lesson_needs_only_numpy() -> None:
    outside = {name.split(".")[0] for name in imports(SOURCE / "lesson.py")} - set(sys.stdlib_module_names)
    assert outside == {"numpy"}


def test_tasks_never_import_models() -> None:
    for path in (SOURCE / "tasks").glob("*.py"):
        assert not any("models" in name for name in imports(path))


def test_no_positions_are_told_apart_by_name() -> None:
    for name in ("attention.py", "models/transformer.py"):
        text = (SOURCE / name).read_text(encoding="utf-8").lower()
        for kind in ("sinusoidal", "rotary", "alibi", "relative", "learned"):
            code = [line for line in text.splitlines() if kind in line and "if " in line]
            assert not code


@pytest.mark.parametrize("path", FILES, ids=room)
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 280
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60, node.name


@pytest.mark.parametrize("path", sorted((ROOT / "scripts").glob("*.py")), ids=lambda path: path.name)
def test_scripts_are_thin(path: Path) -> None:
    assert path.read_text(encoding="utf-8").count("\n") <= 60


def test_the_formula_stands_first_in_its_file() -> None:
    for name, first in (("attention.py", "attend"), ("lesson.py", "softmax")):
        nodes = ast.parse((SOURCE / name).read_text(encoding="utf-8")).body
        functions = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        assert functions[0] == first
