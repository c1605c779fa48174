"""Trained runs, read back to be looked at: what each writes for a string and where it looks, step by step."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from lookback import checkpoint, config, schema
from lookback.alignment import Head, HeadScore, clearest, learned_since, scores_of_maps
from lookback.checkpoint import CheckpointError
from lookback.evaluate import EvaluateSettings
from lookback.models.base import Seq2Seq
from lookback.observer import Finding
from lookback.pair_file import PairFileError
from lookback.probes import Look, Story, kind, look
from lookback.rules import NonNegativeInt, PositiveInt, Seed
from lookback.run_folder import checkpoint_path, class_name, snapshots
from lookback.schema import ConfigError
from lookback.session import other_run
from lookback.symbols import join, plain
from lookback.tasks.base import Ids, Task
from lookback.tokens import UNK

DEFAULT_LENGTH = 10  # symbols of a string that nobody typed
TRIED = 50  # such strings


@dataclass(frozen=True)
class Subject:
    """A run, ready to be looked at.

    Attributes:
        folder: of the run.
        name: its model and seed, and its folder where another run has the same.
        task: that it learned.
        model: with its best weights; the last ones while there are no best.
        step: of these weights.
        evaluate: how it was evaluated.
        longest: the longest trained length.
        raw: its configuration.
    """

    folder: Path
    name: str
    task: Task
    model: Seq2Seq
    step: int
    evaluate: EvaluateSettings
    longest: int
    raw: Mapping[str, Any]

    def shown(self, looks: Sequence[Look]) -> Look:
        """The look of the weights that it has now."""
        return next(found for found in looks if found.step == self.step)


def subject(folder: Path) -> Subject:
    """Read a run back.

    Raises:
        CheckpointError: if there is no run that can be read.
    """
    which = "best" if checkpoint_path(folder, "best").exists() else "last"
    path = checkpoint_path(folder, which)
    if not path.exists():
        below = sorted(str(found.parent) for found in folder.glob("*/checkpoints"))[-1:]
        hint = f"; there is one in {below[0]}" if below else ""
        raise CheckpointError(f"{folder}: no run is there (neither checkpoints/best.pt nor last.pt){hint}")
    content = checkpoint.load(path)  # once: a run that goes on training writes another one at any time
    task, model = restored(content, path)
    with checkpoint.reading(path, "is not of a run"):
        raw = config.upgraded(content["config"])
        step = (content["best"] if which == "best" else content["trainer"])["step"]
        values = {"seed": raw["seed"], "step": step, "max_length": raw["data"]["max_length"]}
        problems = schema.problems("", {"seed": Seed, "step": NonNegativeInt, "max_length": PositiveInt}, values)
        problems += schema.problems("evaluate", schema.keywords(EvaluateSettings), raw["evaluate"])
        if problems:
            raise ConfigError(problems)
        name = f"{class_name(raw['model'])} seed {raw['seed']}"
        evaluate = EvaluateSettings(**raw["evaluate"])
    return Subject(folder, name, task, model, step, evaluate, values["max_length"], raw)


def restored(content: Mapping[str, Any], path: Path) -> tuple[Task, Seq2Seq]:
    """The task and the model of a checkpoint that was read, ready to predict.

    Args:
        content: of the checkpoint.
        path: where it was read from.

    Raises:
        CheckpointError: if they cannot be made of it.
    """
    with checkpoint.reading(path, "is not of a run"):
        raw, weights = content["config"], content["model"]
        task, make_model = config.build_parts(raw, content.get("task"))
        with torch.random.fork_rng(devices=[]):  # weights are drawn first and then replaced
            model = make_model()
    checkpoint.load_weights(model, weights, path)
    return task, model.eval()


def subjects(folders: Sequence[Path]) -> list[Subject]:
    """Read several runs, each under a name of its own, which is one line that can be printed."""
    found = [subject(folder) for folder in folders]
    names = [one.name for one in found]
    folders = [folder.resolve() for folder in folders]
    short = len({folder.name for folder in folders}) == len(folders)
    return [
        replace(one, name=f"{one.name} ({plain(str(folder.name if short else one.folder))})")
        if names.count(one.name) > 1
        else one
        for one, folder in zip(found, folders, strict=True)
    ]


def follow(one: Subject, source: Ids, left_out: Callable[[str], object] = print) -> list[Look]:
    """What a run wrote for a string, and where it looked, at every step whose weights were kept and at its best.

    Args:
        one: the run.
        source: ids without marks.
        left_out: told of each step whose weights cannot be read, are gone by now, or are of another run.
    """
    steps = [step for step in snapshots(one.folder) if step != one.step]
    looks = [look(one.model, one.task, source, one.step, one.evaluate.extra_tokens)]
    for step in steps:
        path = checkpoint_path(one.folder, step)
        try:
            content = checkpoint.load(path)
            others = other_run(content.get("config"), one.raw)
            if others:
                raise CheckpointError(f"{path}: is of another run (another {', another '.join(others)})")
            _, model = restored(content, path)
        except CheckpointError as error:
            left_out(f"step {step} is left out: {error}")
            continue
        looks.append(look(model, one.task, source, step, one.evaluate.extra_tokens))
    return sorted(looks, key=lambda found: found.step)


def thinned(one: Subject, looks: Sequence[Look], cells: int) -> list[Look]:
    """As many looks, evenly spread, as have at most so many cells in all their maps; in any case the shown one."""
    shown = one.shown(looks)
    count = max(1, cells // max(1, sum(weights.size for weights in shown.maps.values())))
    every = math.ceil(len(looks) / count)
    return [found for at, found in enumerate(reversed(looks)) if at % every == 0 or found is shown][::-1]


def narrowed(one: Subject, looks: Sequence[Look], cells: int) -> list[Look]:
    """Looks with as many places as have at most so many cells in the shown look; cross-attention stays longest.

    At least one place stays in any case.
    """
    maps = one.shown(looks).maps
    room, kept = cells, set[str]()
    for place in sorted(maps, key=lambda place: kind(place) != "cross"):
        room -= maps[place].size
        if room < 0 and kept:
            break
        kept.add(place)
    if len(kept) == len(maps):
        return list(looks)
    return [
        replace(found, maps={place: found.maps[place] for place in found.maps if place in kept}) for found in looks
    ]


def page_story(one: Subject, looks: Sequence[Look], name: str, cells: int) -> tuple[Story, list[str]]:
    """What of some looks goes onto the page.

    Args:
        one: the run.
        looks: in order.
        name: of the story.
        cells: that all maps may have together.

    Returns:
        the story, and a line for each kind of thing that it leaves out.
    """
    narrow = narrowed(one, looks, cells // min(len(looks), 2))  # the shown look and the last one stay in any case
    kept, shown, notes = thinned(one, narrow, cells), one.shown(narrow), []
    if len(kept) < len(looks):
        notes.append(f"the page has {len(kept)} of {len(looks)} steps: the maps are large")
    left = [place for place in one.shown(looks).maps if place not in shown.maps]
    if left:
        notes.append(f"the page leaves out {', '.join(left)}: the maps are large (see the pictures)")
    return Story(f"{name}, step {one.step}", kept, kept.index(shown)), notes


def common_string(found: Sequence[Subject]) -> str:
    """A validation string of a middle length that all runs can read.

    Raises:
        ValueError: if there is none.
    """
    length = min(DEFAULT_LENGTH, *(one.longest for one in found))
    texts = []
    for one in found:
        try:
            drawn = one.task.probe_pairs([length] * TRIED)
        except PairFileError as error:  # the files of a run may be gone by now, or changed
            raise PairFileError(f"{error}; give a string with --source TEXT") from error
        known = [source for source, _ in drawn if UNK not in source]
        texts += [
            join(one.task.source_vocabulary.decode(source.tolist()), one.task.source_unit) for source in known
        ]
    for text in texts:
        if all(_takes(one.task, text) for one in found):
            return text
    names = ", ".join(f"{one.name} ({type(one.task).__name__})" for one in found)
    raise ValueError(f"the runs must have a string that all can read, but there is none for {names}")


def _takes(task: Task, text: str) -> bool:
    """Whether a task has an answer to a string."""
    try:
        return task.answer(task.spell(text)) is not None
    except ValueError:
        return False


def look_scores(found: Look) -> dict[str, list[HeadScore]]:
    """How every head looks in one look: place -> a score for each of its heads."""
    maps = {place: torch.from_numpy(weights)[None] for place, weights in found.maps.items()}
    return scores_of_maps(maps, found.probe.batch, torch.from_numpy(found.probe.right)[None])


def heads(one: Subject, looks: Sequence[Look]) -> list[tuple[Head, int | None]]:
    """How each head of cross-attention looks on a string, and since which look it has learned the task.

    Steps after the one that is shown do not count: they have other weights.
    """
    scores = {found.step: look_scores(found) for found in looks if found.step <= one.step}
    rows = []
    for place, row in scores[one.step].items():
        for number, score in enumerate(row if kind(place) == "cross" else []):
            history = ((step, at[place][number].largest or 0.0) for step, at in scores.items())
            rows.append((Head(place, number, score), learned_since(history)))
    return rows


def finding(one: Subject, looks: Sequence[Look]) -> Finding:
    """Which head is clearest on a string, and since which look it has learned the task."""
    scores = look_scores(one.shown(looks))
    head = clearest(scores)
    return Finding(scores, head, next((since for row, since in heads(one, looks) if row == head), None))
