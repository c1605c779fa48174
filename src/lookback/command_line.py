"""The command line: what a person typed, checked by `overrides.py`, and then run: once, as a sweep, or resumed."""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lookback import config
from lookback.checkpoint import CheckpointError
from lookback.launcher import CONFIGS, VERSION_BASE, Job, Outcome, Typed, own_hydra, plain, run_jobs, sweep_of
from lookback.overrides import Build, build_run, check_overrides, first_line, parse, swept_jobs
from lookback.processes import LostProcessError, started
from lookback.schema import ConfigError, Problem
from lookback.stop import SIGNALS, Stop, passed_on
from lookback.train import NonFiniteLossError

MULTIRUN_FLAGS = ("-m", "--multirun")
STOP_FILE = ".stop"  # in the folder of a sweep or comparison, while its jobs are to stop
FAILURES = (ConfigError, CheckpointError, NonFiniteLossError, LostProcessError, OSError)
Run = Callable[[Any, Path, bool], int]
Work = Callable[[Path, bool, dict[str, Any], Path], int]


def launch(
    run: Run,
    name: str,
    arguments: Sequence[str] | None = None,
    build: Build = build_run,
    work: Work | None = None,
) -> int:
    """Read the command line, check it, and run what it asks for.

    Args:
        run: gets what `build` made, the run folder, and whether to resume there; returns an exit code.
        name: of the primary yaml.
        arguments: without the program's name; those of the process when left out.
        build: makes something checked of a composed configuration and of what was typed, or raises a ConfigError
            that names every problem. Only what `build_run` makes can be swept with -m and resumed.
        work: one job of a sweep, which may be sent to another process: gets the file that says stop, whether to
            print nothing, a composed configuration and a folder; returns an exit code. `run` when left out.

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
        return _launch_fresh(run, name, arguments, work or partial(_once, run))
    except FAILURES as error:
        return _report(error)
    except (HydraException, OmegaConfBaseException) as error:
        return _report(ConfigError([Problem("command line", first_line(error))]))
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


def _launch_fresh(run: Run, name: str, arguments: Sequence[str], work: Work) -> int:
    """Launch a run, a sweep, or one of Hydra's own services, such as --help."""
    flags = [argument for argument in arguments if argument.startswith("-")]
    overrides = [argument for argument in arguments if argument not in flags]
    if all(flag in MULTIRUN_FLAGS for flag in flags):
        check_overrides(name, overrides, build_run, multirun=bool(flags))
        if flags:
            return _sweep(name, overrides, work)
    return _run_hydra(run, name, arguments, build_run)


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


def _sweep(name: str, arguments: Sequence[str], work: Work) -> int:
    """Run every combination of swept values, by the launcher that the configuration names."""
    fixed, swept = swept_jobs(parse(arguments)[0])
    typed = Typed(name, fixed)
    folder, one_by_one = sweep_of(typed)
    if started() > 1 and not one_by_one:
        raise ConfigError([Problem("hydra/launcher", "must be basic where torchrun starts the processes")])
    folder.mkdir(parents=True, exist_ok=True)
    flag = folder / STOP_FILE
    flag.unlink(missing_ok=True)
    with Stop() as stop, passed_on(stop, flag):
        outcomes = run_jobs(typed, folder, [Job(texts) for texts in swept], partial(work, flag, not one_by_one))
    flag.unlink(missing_ok=True)
    codes = [outcome.code for outcome in outcomes]
    signals = [SIGNALS + stop.signal] if stop.signal else [code for code in codes if code > SIGNALS]
    _report_sweep(folder, swept, outcomes, bool(signals))
    return signals[0] if signals else max(codes, default=0)


def _once(run: Run, flag: Path, quiet: bool, raw: dict[str, Any], folder: Path) -> int:
    """A job of a sweep that only runs."""
    if flag.exists():
        return SIGNALS + Stop.DEFAULT
    code = run(config.build(raw), folder, False)
    if code > SIGNALS:
        flag.touch()
    return code


def _report_sweep(folder: Path, swept: Sequence[Sequence[str]], outcomes: Sequence[Outcome], stopped: bool) -> None:
    """Tell which jobs have failed and why, and how to go on."""
    where = os.path.relpath(folder)
    failed = [(at, one) for at, one in enumerate(outcomes) if one.error or 0 < one.code <= SIGNALS]
    print(f"{len(outcomes)} jobs under {where}, {len(failed)} failed")
    for at, outcome in failed:
        why = outcome.error or f"exit code {outcome.code}"
        print(f"lookback: job {at} ({' '.join(swept[at])}) failed: {why}", file=sys.stderr)
    if stopped:
        print(f"stopped; the same command with hydra.sweep.dir={where} goes on")


def _run_hydra(run: Run, name: str, arguments: Sequence[str], build: Build) -> int:
    codes: list[int] = []
    started = time.time()

    def job(node: DictConfig) -> None:
        hydra_node = HydraConfig.get()
        folder = Path(hydra_node.runtime.output_dir)
        typed = Typed(name, (*hydra_node.overrides.hydra, *hydra_node.overrides.task))
        try:
            codes.append(run(build(plain(node, Path(hydra_node.runtime.cwd)), typed), folder, False))
        except FAILURES as error:
            codes.append(_report(error))
            _remove_empty(folder, started)

    argv, sys.argv = sys.argv, [sys.argv[0], *arguments]
    full_error, os.environ["HYDRA_FULL_ERROR"] = os.environ.get("HYDRA_FULL_ERROR", "0"), "1"  # raise, do not print
    try:
        with own_hydra():
            hydra.main(version_base=VERSION_BASE, config_path=str(CONFIGS), config_name=name)(job)()
    finally:
        sys.argv, os.environ["HYDRA_FULL_ERROR"] = argv, full_error
    return max(codes, default=0)


def _remove_empty(folder: Path, started: float) -> None:
    """Take back a folder that was made since we started, if nothing was put into it."""
    with suppress(OSError):
        if folder.stat().st_ctime >= started:
            folder.rmdir()


def _resume(run: Run, folder_text: str, arguments: Sequence[str]) -> int:
    """Go on in a run folder, with its own configuration; what was typed may change how, not what, is trained."""
    folder = Path(os.path.expandvars(folder_text)).expanduser().resolve()
    node = OmegaConf.create(config.read(folder / "config.yaml"))
    overrides, problems = parse([argument for argument in arguments if not argument.startswith("-")])
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
