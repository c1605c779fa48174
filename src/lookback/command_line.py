"""The command line: what a person typed, checked, and then handed to Hydra.

All that a person typed is checked before Hydra makes a folder or starts a job, a whole sweep at once. To see
every problem and not only Hydra's first, the check adds unknown keys by force and then refuses them itself.
"""

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lookback import config
from lookback.checkpoint import CheckpointError
from lookback.config import Config
from lookback.launcher import CONFIGS, VERSION_BASE, Typed, choices, compose, own_hydra, plain
from lookback.processes import LostProcessError, started
from lookback.schema import ConfigError, Problem
from lookback.train import NonFiniteLossError

MULTIRUN_FLAGS = ("-m", "--multirun")
SIGNALS = 128  # an exit code is this and the number of the signal that ended the run
FAILURES = (ConfigError, CheckpointError, NonFiniteLossError, LostProcessError, OSError)
Run = Callable[[Any, Path, bool], int]
Build = Callable[[dict[str, Any], Typed], Any]


def build_run(raw: dict[str, Any], typed: Typed) -> Config:
    """What a training needs of a command line: the configuration, checked."""
    return config.build(raw)


def launch(run: Run, name: str, arguments: Sequence[str] | None = None, build: Build = build_run) -> int:
    """Read the command line, check it, and run what it asks for.

    Args:
        run: gets what `build` made, the run folder, and whether to resume there; returns an exit code.
        name: of the primary yaml.
        arguments: without the program's name; those of the process when left out.
        build: makes something checked of a composed configuration and of what was typed, or raises a ConfigError
            that names every problem. Only what `build_run` makes can be swept with -m and resumed.

    Returns:
        the exit code: 0, or 1 for a failed run, 2 for a wrong command line, 130 for Ctrl-C, 143 for SIGTERM.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        if build is not build_run:
            return _launch_once(run, name, arguments, build)
        resumed = [argument for argument in arguments if argument.partition("=")[0].lstrip("+") == "resume"]
        folders = [argument.partition("=")[2].strip("\"'") for argument in resumed]
        arguments = [argument for argument in arguments if argument not in resumed]
        if any(folder not in ("", "null") for folder in folders):
            if len(folders) > 1:
                raise ConfigError([Problem("resume", "must be one run folder", ", ".join(folders))])
            return _resume(run, folders[0], arguments)
        flags = [argument for argument in arguments if argument.startswith("-")]
        if all(flag in MULTIRUN_FLAGS for flag in flags):
            overrides = [argument for argument in arguments if argument not in flags]
            check_overrides(name, overrides, build, multirun=bool(flags))
            arguments = [*flags, *overrides]  # Hydra wants its flags first
        return _run_hydra(run, name, arguments, build)
    except FAILURES as error:
        return _report(error)
    except (HydraException, OmegaConfBaseException) as error:
        return _report(ConfigError([Problem("command line", _first_line(error))]))
    except KeyboardInterrupt:
        return SIGNALS + signal.SIGINT


def reported(work: Callable[[], object]) -> int:
    """Do the work of a process beside the first, and return the exit code; what befalls all the first one tells."""
    try:
        work()
    except (LostProcessError, NonFiniteLossError):
        return 1
    except FAILURES as error:
        return _report(error)
    except KeyboardInterrupt:
        return SIGNALS + signal.SIGINT
    return 0


def _launch_once(run: Run, name: str, arguments: list[str], build: Build) -> int:
    """Launch a program that starts jobs of its own."""
    if started() > 1:
        raise ConfigError([Problem("torchrun", "is for train.py: this program starts its jobs itself", started())])
    flags = [argument for argument in arguments if argument.startswith("-")]
    if any(flag in MULTIRUN_FLAGS for flag in flags):
        raise ConfigError([Problem("-m", "is not for this program: it starts its jobs itself")])
    if not flags:
        check_overrides(name, arguments, build, multirun=False)
    return _run_hydra(run, name, arguments, build)


def _report(error: Exception) -> int:
    print(f"lookback: {error}", file=sys.stderr)
    return 2 if isinstance(error, ConfigError) else 1


def check_overrides(
    name: str, arguments: Sequence[str], build: Build = build_run, *, multirun: bool = False
) -> None:
    """Check what was typed, every job of a sweep.

    Raises:
        ConfigError: naming every problem.
    """
    overrides, problems = _parse(arguments)
    if not multirun:
        swept = [override for override in overrides if override.is_sweep_override()]
        overrides = [override for override in overrides if override not in swept]
        more = "add -m, or " if build is build_run else ""
        rule = f"several values are a sweep: {more}put a list in brackets"
        problems += [Problem(o.key_or_group, rule, (o.input_line or "").partition("=")[2]) for o in swept]
    for job in _jobs(overrides):
        texts, found = _checkable(job)
        try:
            build(compose(name, texts), Typed(name, tuple(texts)))
        except ConfigError as error:
            found += error.problems
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            found.append(Problem("command line", _first_line(error)))
        problems += [problem for problem in found if problem not in problems]
    if problems:
        raise ConfigError(problems)


def compose_more(typed: Typed, arguments: Sequence[str]) -> dict[str, Any]:
    """Compose a configuration with more overrides than were typed, unknown keys kept for a check to refuse.

    Raises:
        ConfigError: if one of them cannot be read, is a sweep, or chooses what there is not.
    """
    overrides, problems = _parse(arguments)
    swept = [override for override in overrides if override.is_sweep_override()]
    problems += [Problem(str(override.input_line), "must be one value, not a sweep") for override in swept]
    texts, found = _checkable([override for override in overrides if override not in swept])
    if problems + found:
        raise ConfigError(problems + found)
    try:
        return typed.compose(*texts)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError([Problem("command line", _first_line(error))]) from error


def _checkable(overrides: Sequence[Override]) -> tuple[list[str], list[Problem]]:
    """Overrides that can be composed, whatever their keys, and what is wrong with the others: no such choice."""
    texts = [_forced(override) for override in overrides if not _check_group(override)]
    return texts, [problem for problem in map(_check_group, overrides) if problem]


def _parse(arguments: Sequence[str]) -> tuple[list[Override], list[Problem]]:
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


def _jobs(overrides: list[Override]) -> Iterable[list[Override]]:
    """The overrides of each job: one job, or one for each combination of swept values."""
    swept = [override for override in overrides if override.is_sweep_override()]
    fixed = [override for override in overrides if override not in swept]
    choices = [[f"{o.get_key_element()}={value}" for value in _swept_values(o)] for o in swept]
    parser = OverridesParser.create()
    return [fixed + parser.parse_overrides(list(choice)) for choice in itertools.product(*choices)]


def _swept_values(override: Override) -> Iterable[str]:
    value: Any = override.value()
    if isinstance(value, Glob):
        return value.filter(choices(override.key_or_group))
    return override.sweep_string_iterator()


def _is_group(key: str) -> bool:
    return (CONFIGS / key).is_dir()


def _check_group(override: Override) -> Problem | None:
    """A group's value must be one of its files."""
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


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])  # what comes after a colon is what matters


def _run_hydra(run: Run, name: str, arguments: Sequence[str], build: Build) -> int:
    codes: list[int] = []
    started = time.time()

    def job(node: DictConfig) -> None:
        hydra_node = HydraConfig.get()
        folder = Path(hydra_node.runtime.output_dir)
        typed = Typed(name, (*hydra_node.overrides.hydra, *hydra_node.overrides.task))
        try:
            codes.append(run(build(plain(node), typed), folder, False))
        except FAILURES as error:
            codes.append(_report(error))
            _remove_empty(folder, started)
        if codes[-1] > SIGNALS:
            raise KeyboardInterrupt  # ends a sweep, too

    argv, sys.argv = sys.argv, [sys.argv[0], *arguments]
    full_error, os.environ["HYDRA_FULL_ERROR"] = os.environ.get("HYDRA_FULL_ERROR", "0"), "1"  # raise, do not print
    try:
        with own_hydra():
            hydra.main(version_base=VERSION_BASE, config_path=str(CONFIGS), config_name=name)(job)()
    except KeyboardInterrupt:
        codes.append(SIGNALS + signal.SIGINT)
    finally:
        sys.argv, os.environ["HYDRA_FULL_ERROR"] = argv, full_error
    signals = [code for code in codes if code > SIGNALS]
    return signals[0] if signals else max(codes, default=0)


def _remove_empty(folder: Path, started: float) -> None:
    """Take back a folder that was made since we started, if nothing was put into it."""
    with suppress(OSError):
        if folder.stat().st_ctime >= started:
            folder.rmdir()


def _resume(run: Run, folder_text: str, arguments: Sequence[str]) -> int:
    """Go on in a run folder, with its own configuration; what was typed may change how, not what, is trained."""
    folder = Path(os.path.expandvars(folder_text)).expanduser().resolve()
    node = OmegaConf.create(config.read(folder / "config.yaml"))
    overrides, problems = _parse([argument for argument in arguments if not argument.startswith("-")])
    problems += [Problem(a, "cannot be used when resuming") for a in arguments if a.startswith("-")]
    for override in overrides:
        key, value = override.key_or_group, override.value()
        if override.is_delete():
            problems.append(Problem(key, "cannot be removed when resuming: give it a value"))
        elif override.is_sweep_override():
            problems.append(Problem(key, "several values are a sweep, and resuming is one run"))
        elif key.partition(".")[0] not in ("train", "evaluate", "board"):
            problems.append(Problem(key, "cannot change when resuming; only train, evaluate and board can", value))
        else:
            OmegaConf.update(node, key, value, force_add=True)
    if problems:
        raise ConfigError(problems)
    return run(config.build(plain(node)), folder, True)
