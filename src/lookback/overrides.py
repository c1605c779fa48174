"""What was typed: read, and checked before Hydra makes a folder or starts a job, a whole sweep at once.

To see every problem and not only Hydra's first, the check adds unknown keys by force and then refuses them itself.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lookback import config
from lookback.config import Config
from lookback.launcher import CONFIGS, Typed, choices, compose, launchers
from lookback.schema import ConfigError, Problem

Build = Callable[[dict[str, Any], Typed], Any]
EXTRAS = {
    "ray": "ray",
    "ray_cluster": "ray",
    "submitit_local": "slurm",
    "submitit_slurm": "slurm",
    "slurm": "slurm",
}


def build_run(raw: dict[str, Any], typed: Typed) -> Config:
    """What a training needs of a command line: the configuration, checked."""
    return config.build(raw)


def check_overrides(
    name: str, arguments: Sequence[str], build: Build = build_run, *, multirun: bool = False
) -> None:
    """Check what was typed, every job of a sweep.

    Raises:
        ConfigError: naming every problem.
    """
    overrides, problems = parse(arguments)
    if not multirun:
        swept = [override for override in overrides if override.is_sweep_override()]
        overrides = [override for override in overrides if override not in swept]
        more = "add -m, or " if build is build_run else ""
        rule = f"several values are a sweep: {more}put a list in brackets"
        problems += [Problem(o.key_or_group, rule, (o.input_line or "").partition("=")[2]) for o in swept]
    for override in [one for one in overrides if re.match(r"hydra[./]sweeper", one.key_or_group)]:
        rule = "does nothing here: the values of a sweep stand on the command line, as in -m seed=0,1"
        problems.append(Problem(override.key_or_group, rule, override.value()))
    for job in jobs(overrides):
        texts, found = _checkable(job)
        try:
            build(compose(name, texts), Typed(name, tuple(texts)))
        except ConfigError as error:
            found += error.problems
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            found.append(Problem("command line", first_line(error)))
        problems += [problem for problem in found if problem not in problems]
    if problems:
        raise ConfigError(_of_other_program(problems) if build is build_run else problems)


def _of_other_program(problems: Sequence[Problem]) -> list[Problem]:
    """The same, where settings of a comparison are told as what they are: its experiments are not for one run."""
    of_compare = set(OmegaConf.load(CONFIGS / "compare.yaml")) - set(OmegaConf.load(CONFIGS / "settings.yaml"))
    other = [str(problem.key) for problem in problems if problem.key in of_compare]
    if not other:
        return list(problems)
    rule = "is for scripts/compare.py, and so is an experiment that sets it"
    return [Problem(", ".join(other), rule), *(problem for problem in problems if problem.key not in other)]


def compose_more(typed: Typed, arguments: Sequence[str]) -> dict[str, Any]:
    """Compose a configuration with more overrides than were typed, unknown keys kept for a check to refuse.

    Raises:
        ConfigError: if one of them cannot be read, is a sweep, or chooses what there is not.
    """
    overrides, problems = parse(arguments)
    swept = [override for override in overrides if override.is_sweep_override()]
    problems += [Problem(str(override.input_line), "must be one value, not a sweep") for override in swept]
    texts, found = _checkable([override for override in overrides if override not in swept])
    if problems + found:
        raise ConfigError(problems + found)
    try:
        return typed.compose(*texts)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError([Problem("command line", first_line(error))]) from error


def _checkable(overrides: Sequence[Override]) -> tuple[list[str], list[Problem]]:
    """Overrides that can be composed, whatever their keys, and what is wrong with the others: no such choice."""
    texts = [_forced(override) for override in overrides if not _check_group(override)]
    return texts, [problem for problem in map(_check_group, overrides) if problem]


def parse(arguments: Sequence[str]) -> tuple[list[Override], list[Problem]]:
    """Read overrides, and name those that cannot be read."""
    parser = OverridesParser.create()
    parsed, problems = [], []
    for argument in arguments:
        try:
            parsed += parser.parse_overrides([argument])
        except HydraException:
            rule = "must read key=value; put a value with spaces or any of = , # { in quotes: 'key=\"a value\"'"
            problems.append(Problem(argument, rule))
    return parsed, problems


def jobs(overrides: list[Override]) -> Iterable[list[Override]]:
    """The overrides of each job: one job, or one for each combination of swept values."""
    swept = [override for override in overrides if override.is_sweep_override()]
    fixed = [override for override in overrides if override not in swept]
    choices = [[f"{o.get_key_element()}={value}" for value in _swept_values(o)] for o in swept]
    parser = OverridesParser.create()
    return [fixed + parser.parse_overrides(list(choice)) for choice in itertools.product(*choices)]


def swept_jobs(overrides: Sequence[Override]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """What all jobs of a sweep have in common, and each one's own values."""
    fixed = [override for override in overrides if not override.is_sweep_override()]
    each = [job[len(fixed) :] for job in jobs(list(overrides))]
    return _texts(fixed), [_texts(job) for job in each]


def _texts(overrides: Iterable[Override]) -> tuple[str, ...]:
    return tuple(override.input_line or "" for override in overrides)


def _swept_values(override: Override) -> Iterable[str]:
    value: Any = override.value()
    if isinstance(value, Glob):
        return value.filter(choices(override.key_or_group))
    return override.sweep_string_iterator()


def _is_group(key: str) -> bool:
    return (CONFIGS / key).is_dir() and not key.startswith("hydra")


def _check_group(override: Override) -> Problem | None:
    """A group's value must be one of its files, and a launcher one that is installed."""
    if override.key_or_group == "hydra/launcher" and override.value() in EXTRAS:
        extra = EXTRAS[str(override.value())]
        if any(EXTRAS.get(name) == extra for name in launchers()):
            return None
        return Problem("hydra/launcher", f"is not installed: pip install 'lookback[{extra}]'", override.value())
    if override.is_delete() or not _is_group(override.key_or_group):
        return None
    there = choices(override.key_or_group)
    value = override.value()
    if override.is_add():
        rule = f"is chosen in the defaults already: write {override.key_or_group}={value}, without +"
        return Problem(override.key_or_group, rule)
    if value in there:
        return None
    return Problem(override.key_or_group, f"no such choice; choose from: {', '.join(there)}", value)


def _forced(override: Override) -> str:
    """The same override, adding its key if there is none, so that the check can refuse it with all others."""
    text = override.input_line or ""
    if override.is_delete() or _is_group(override.key_or_group) or override.key_or_group.startswith("hydra"):
        return text
    return "++" + text.lstrip("+")


def first_line(error: Exception) -> str:
    """What an error says first, and what comes after a colon there."""
    lines = str(error).strip().splitlines()
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])
