"""What a comparison is to do: which models, on which equal terms, with which seeds.

Two models are compared on equal terms when they have as many parameters, see the same batches in the same order,
as often, and are tested on the same strings. Batches and strings never depend on the model (`data.py`), so what
is left to settle is the number of parameters: a width is solved for each model.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any, Literal

import torch

from lookback import config, schema
from lookback.launcher import Typed
from lookback.overrides import compose_more
from lookback.rules import AtLeastOne, Seed
from lookback.schema import ConfigError, Problem

TOLERANCE = 0.03  # of the baseline's number of parameters
WIDTH = "d_model"
LARGEST_WIDTH = 4096
NAME = r"[^\W_][\w.+-]{0,99}"  # of a folder
TAKEN = (".md", ".csv", ".json", ".png")  # endings of the files beside them

ModelEntry = str | dict[str, list[str]]


@dataclass(frozen=True, kw_only=True)
class ComparisonSettings:
    """What configs/compare.yaml says beside the settings of each run.

    Attributes:
        models: choices of configs/model, or {name: overrides}.
        seeds: every model is trained with each.
        baseline: the name of the model that others are matched to and told apart from; None = the last.
        match: `parameters` solves each model's width; `none` takes models as they are.
        reuse: take finished runs of the same configuration and code.
        runs: folders of runs to compare, instead of training any.
    """

    models: Annotated[list[ModelEntry], AtLeastOne]
    seeds: Annotated[list[Seed], AtLeastOne]
    baseline: str | None
    match: Literal["parameters", "none"]
    reuse: bool
    runs: list[str]


OWN_KEYS = [field.name for field in fields(ComparisonSettings)]


@dataclass(frozen=True)
class Entry:
    """A model of the comparison.

    Attributes:
        name: in tables, figures and folders.
        overrides: what makes it differ from the other models, its width included.
        raw: the configuration of its runs, but for the seed.
        parameters: how many it has.
    """

    name: str
    overrides: tuple[str, ...]
    raw: dict[str, Any]
    parameters: int

    def with_seed(self, seed: int) -> dict[str, Any]:
        """The configuration of one run."""
        return {**self.raw, "seed": seed}


@dataclass(frozen=True)
class Plan:
    """A checked comparison.

    Attributes:
        settings: see `ComparisonSettings`.
        typed: what was typed.
        entries: the models, in order; none if existing runs are compared.
        baseline: the name of one of them.
    """

    settings: ComparisonSettings
    typed: Typed
    entries: list[Entry]
    baseline: str


def run_part(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run, without those of the comparison."""
    return {key: value for key, value in raw.items() if key not in OWN_KEYS}


def plan(raw: Mapping[str, Any], typed: Typed) -> Plan:
    """Check a comparison and solve the widths.

    Args:
        raw: the composed configuration of configs/compare.yaml.
        typed: what was typed, to compose each model's.

    Raises:
        ConfigError: naming every problem.
    """
    own = {key: raw[key] for key in OWN_KEYS if key in raw}
    common = [*OWN_KEYS, "task", *config.CLOSED]
    problems = [
        Problem(key, schema.unknown(key, common), raw[key]) for key in raw if key not in [*common, "model", "seed"]
    ]
    problems += schema.problems("", schema.keywords(ComparisonSettings), own)
    typed_seed = [text for text in typed.overrides if re.match(r"[+~]*seed=", text)]
    problems += [Problem("seed", "is set by seeds=[...] here", text.partition("=")[2]) for text in typed_seed]
    if problems:
        raise ConfigError(problems)
    settings = ComparisonSettings(**own)
    if settings.runs:
        return Plan(settings, typed, [], settings.baseline or "")
    named = _named(settings)
    configs, problems = {}, []
    for name, overrides in named.items():
        try:
            configs[name] = _composed(name, typed, overrides)
        except ConfigError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    if problems:
        raise ConfigError(problems)
    idle = set.intersection(*(set(typed.overruled(overrides)) for overrides in named.values()))
    if idle:
        raise ConfigError(Problem(key, "does nothing: each of the models sets its own") for key in sorted(idle))
    baseline = settings.baseline or list(named)[-1]
    entries = _entries(settings, configs, named, baseline)
    return Plan(settings, typed, entries, baseline)


def _named(settings: ComparisonSettings) -> dict[str, list[str]]:
    """Each model's name and overrides."""
    pairs: list[tuple[str, list[str]]] = []
    for entry in settings.models:
        pairs += [(entry, [f"model={entry}"])] if isinstance(entry, str) else list(entry.items())
    if not pairs:
        raise ConfigError([Problem("models", "must name a model at least")])
    names = [name for name, _ in pairs]
    problems = [
        Problem("models", "every model needs a name of its own", name)
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    problems += [
        Problem("models", "a name has up to 100 letters, digits and _ . + -, and no file's ending", name)
        for name in names
        if not re.fullmatch(NAME, name) or name.endswith(TAKEN)
    ]
    problems += [
        Problem("seeds", "every seed counts once", seed)
        for seed in dict.fromkeys(settings.seeds)
        if settings.seeds.count(seed) > 1
    ]
    if settings.baseline is not None and settings.baseline not in names:
        problems.append(Problem("baseline", f"must be one of {', '.join(names)}", settings.baseline))
    if problems:
        raise ConfigError(problems)
    return dict(pairs)


def _composed(name: str, typed: Typed, overrides: list[str]) -> dict[str, Any]:
    """The checked configuration of a model's runs."""
    bad = [text for text in overrides if re.match(r"[+~]*(seed|hydra|" + "|".join(OWN_KEYS) + r")\b", text)]
    if bad:
        raise ConfigError(Problem(f"models.{name}", "is not one model's to set", text) for text in bad)
    try:
        raw = run_part(compose_more(typed, overrides))
        problems = config.check(raw)
    except ConfigError as error:
        problems = error.problems
    if problems:
        raise ConfigError(Problem(f"{name}: {problem.key}", problem.rule, problem.value) for problem in problems)
    return raw


def _entries(
    settings: ComparisonSettings, configs: dict[str, dict[str, Any]], named: dict[str, list[str]], baseline: str
) -> list[Entry]:
    wanted = parameters_at(configs[baseline])
    entries, problems = [], []
    for name, raw in configs.items():
        entry = Entry(name, tuple(named[name]), raw, parameters_at(raw))
        try:
            if settings.match == "parameters" and name != baseline:
                entry = _matched(entry, wanted, baseline)
            entries.append(entry)
        except ConfigError as error:
            problems += error.problems
    for entry in entries:
        twins = [other.name for other in entries if other.raw == entry.raw]
        if len(twins) > 1 and twins[0] == entry.name:
            problems.append(Problem("models", "these are the same configuration", ", ".join(twins)))
    if problems:
        raise ConfigError(problems)
    return entries


def _matched(entry: Entry, wanted: int, baseline: str) -> Entry:
    """The same model at the width that gives it the baseline's number of parameters."""
    if any(re.match(rf"[+~]*model\.{WIDTH}=", text) for text in entry.overrides):
        rule = f"match=parameters solves model.{WIDTH}; leave it out, or take match=none"
        raise ConfigError([Problem(f"models.{entry.name}", rule)])
    if WIDTH not in entry.raw["model"]:
        rule = f"has no {WIDTH} to solve; take match=none"
        raise ConfigError([Problem(f"models.{entry.name}", rule)])
    width, found = solve_width(partial(_count, entry.raw), wanted)
    if abs(found - wanted) > TOLERANCE * wanted:
        rule = f"cannot have the {wanted:,} parameters of {baseline}: {found:,} at {WIDTH} {width} are nearest"
        raise ConfigError([Problem(f"models.{entry.name}", rule)])
    raw = {**entry.raw, "model": {**entry.raw["model"], WIDTH: width}}
    return Entry(entry.name, (*entry.overrides, f"model.{WIDTH}={width}"), raw, found)


def parameters_at(raw: Mapping[str, Any]) -> int:
    """How many parameters a configuration's model has; nothing is drawn, no memory taken."""
    _, make_model = config.build_parts(raw)
    with torch.device("meta"):
        return sum(weights.numel() for weights in make_model().parameters())


def _count(raw: Mapping[str, Any], width: int) -> int | None:
    """The same at another width; None where the model cannot have it."""
    try:
        return parameters_at({**raw, "model": {**raw["model"], WIDTH: width}})
    except ValueError:
        return None


def solve_width(count: Callable[[int], int | None], wanted: int) -> tuple[int, int]:
    """The width whose number of parameters is nearest to a wanted one.

    Args:
        count: width -> number of parameters, which grows with the width; None = there is no such width.
        wanted: number of parameters.

    Returns:
        the width and its number of parameters.
    """
    found: dict[int, int] = {}

    def at_or_above(width: int) -> int:
        """The next width that there is, from here on."""
        while width < LARGEST_WIDTH and (number := count(width)) is None:
            width += 1
        found[width] = number if width < LARGEST_WIDTH and number is not None else 2**62
        return width

    low, high = 0, LARGEST_WIDTH  # the answer's upper neighbour lies in (low, high]
    while high - low > 1:
        middle = (low + high) // 2
        width = at_or_above(middle)
        if found[width] >= wanted:
            high = middle
        else:
            low = width
    width = min(found, key=lambda width: (abs(found[width] - wanted), width))
    return width, found[width]


def run_overrides(entry: Entry, seed: int) -> tuple[str, ...]:
    """What a job adds to what was typed."""
    return (*entry.overrides, f"seed={seed}")


def run_folder(entry: Entry, seed: int) -> str:
    """A run's folder below that of the comparison."""
    return f"{entry.name}/seed{seed}"
