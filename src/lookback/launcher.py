"""Hydra: composing a configuration, and running jobs by the launcher that it names.

Beside this room only `command_line.py` knows Hydra.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from lookback import config

HERE = Path(__file__).resolve().parent
CONFIGS = next(path for path in (HERE / "configs", HERE.parents[1] / "configs") if path.is_dir())
VERSION_BASE = "1.3"


MOST_LENGTHS = 100_000


def between(*ends: object) -> list[int]:
    """What `${lengths:41,500}` in a yaml stands for: all whole numbers from the first to the last.

    Raises:
        ValueError: if they are not two whole numbers in this order, or too far apart.
    """
    first, last = ends if len(ends) == 2 else (None, None)
    if not (isinstance(first, int) and isinstance(last, int) and first <= last):
        shown = " and ".join(map(str, ends)) or "nothing"
        raise ValueError(f"lengths must be two whole numbers, the lower one first, but are {shown}")
    if last - first >= MOST_LENGTHS:
        raise ValueError(f"lengths must be at most {MOST_LENGTHS:,} apart, but are {first} and {last}")
    return list(range(first, last + 1))


OmegaConf.register_new_resolver("lengths", between, replace=True)


def choices(group: str) -> list[str]:
    """The choices of a group of configs/, in the order of the alphabet."""
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


def launchers() -> list[str]:
    """The launchers that are installed, by the names under which Hydra knows them."""
    with own_hydra(), hydra.initialize_config_dir(str(CONFIGS), version_base=VERSION_BASE):
        engine = GlobalHydra.instance().hydra
        assert engine is not None
        sources = engine.config_loader.get_sources()
        found = {name for source in sources for name in _listed(source)}
    return sorted(found)


def _listed(source: Any) -> list[str]:  # noqa: ANN401 (its class has no public name)
    """What a source of configurations has of launchers; not this project's, which only settle those of others."""
    if source.scheme() != "structured" or not source.is_group("hydra/launcher"):
        return []
    names: list[str] = source.list("hydra/launcher", results_filter=None)
    return names


@dataclass(frozen=True)
class Typed:
    """What was typed after a program's name.

    Attributes:
        name: of the primary yaml.
        overrides: such as `task=copy`; the flags are not among them.
    """

    name: str
    overrides: tuple[str, ...]

    def compose(self, *more: str) -> dict[str, Any]:
        """The resolved configuration, with more overrides after those that were typed."""
        return compose(self.name, [*self.overrides, *more])

    def overruled(self, more: Sequence[str]) -> dict[str, str]:
        """Of such overrides, key and value of those in whose place another value was typed."""
        typed, later = ({_key(text): text.partition("=")[2] for text in texts} for texts in (self.overrides, more))
        return {key: value for key, value in later.items() if typed.get(key, value) != value}


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def compose(name: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Compose a configuration as the command line would. Leaves Hydra's global state as it was.

    Args:
        name: of the primary yaml.
        overrides: such as `task=copy`.

    Returns:
        the resolved configuration, unchecked.
    """
    with own_hydra(), hydra.initialize_config_dir(str(CONFIGS), version_base=VERSION_BASE):
        return plain(hydra.compose(name, list(overrides)))


@contextmanager
def own_hydra() -> Iterator[None]:
    """Hydra keeps global state; inside it is ours, afterwards that of the program around us."""
    hydra_before, config_before = GlobalHydra.instance().hydra, HydraConfig.instance().cfg
    GlobalHydra.instance().clear()
    try:
        yield
    finally:
        GlobalHydra.instance().hydra, HydraConfig.instance().cfg = hydra_before, config_before


def plain(node: DictConfig, here: Path | None = None) -> dict[str, Any]:
    """A composed configuration as plain dictionaries, lists, numbers and text.

    Args:
        node: as composed.
        here: where relative paths begin; the working folder if left out.
    """
    found = cast(dict[str, Any], OmegaConf.to_container(node, resolve=True, throw_on_missing=True))
    found.pop("resume", None)
    return config.with_paths(found, here or Path.cwd())


def quoted(text: object) -> str:
    """A text as the value of an override, whatever it holds."""
    escaped = str(text).replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\${")
    return f"'{escaped}'"


@dataclass(frozen=True)
class Job:
    """One job: its overrides, and its folder below the sweep's; None = what the configuration says."""

    overrides: tuple[str, ...]
    subfolder: str | None = None

    @property
    def place(self) -> tuple[str, ...]:
        """The override that says where its folder is."""
        return () if self.subfolder is None else (f"hydra.sweep.subdir={quoted(self.subfolder)}",)


@dataclass(frozen=True)
class Outcome:
    """How a job ended: its exit code, and the error that it did not handle."""

    code: int
    error: str = ""


def run_jobs(
    typed: Typed, folder: Path, jobs: Sequence[Job], run: Callable[[dict[str, Any], Path], int]
) -> list[Outcome]:
    """Run jobs by the launcher that the configuration names: one after another, side by side, or on a cluster.

    Args:
        typed: what all jobs have in common.
        folder: the sweep's; job folders are below it.
        jobs: in the order in which they start.
        run: gets a job's resolved configuration and folder, and returns an exit code. Launchers with processes of
            their own send it there, so it must be a function of a module, or a partial of one. It may be called
            again for a job that has ended, if the launcher breaks down over another: the jobs run one by one then.

    Returns:
        one outcome a job, in the same order. A job that raises leaves the others as they are.
    """
    try:
        return _launch(typed, folder, jobs, run)
    except Exception as error:  # of the launcher itself, such as a worker that was killed, and all others with it
        if len(jobs) == 1:
            return [Outcome(1, f"{type(error).__name__}: {error}".strip().splitlines()[0])]
    return [outcome for job in jobs for outcome in run_jobs(typed, folder, [job], run)]


@contextmanager
def _sweeping(typed: Typed, folder: Path | None) -> Iterator[tuple[Any, DictConfig]]:
    """Hydra, and the configuration that all jobs of a sweep have in common."""
    common = [*typed.overrides, *([f"hydra.sweep.dir={quoted(folder)}"] if folder else [])]
    with own_hydra(), hydra.initialize_config_dir(str(CONFIGS), version_base=VERSION_BASE):
        engine = GlobalHydra.instance().hydra
        assert engine is not None
        yield engine, engine.compose_config(config_name=typed.name, overrides=common, run_mode=RunMode.MULTIRUN)


def sweep_of(typed: Typed) -> tuple[Path, bool]:
    """Where the folders of a sweep go, and whether its jobs run in this process, one after another."""
    with _sweeping(typed, None) as (_, node):
        one_by_one = str(node.hydra.launcher._target_).endswith(".BasicLauncher")
        return Path(str(node.hydra.sweep.dir)).absolute(), one_by_one


def _launch(
    typed: Typed, folder: Path, jobs: Sequence[Job], run: Callable[[dict[str, Any], Path], int]
) -> list[Outcome]:
    own = [text for text in typed.overrides if not text.lstrip("+~").startswith("hydra")]  # Hydra repeats its own
    lists = [[*own, *job.overrides, *job.place] for job in jobs]
    with _sweeping(typed, folder) as (engine, node):
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=HydraContext(config_loader=engine.config_loader, callbacks=_callbacks(node)),
            task_function=partial(_job, run),
            config=node,
        )
        return [_outcome(found) for found in launcher.launch(lists, initial_job_idx=0)]


def _callbacks(node: DictConfig) -> Any:  # noqa: ANN401 (its class has no public name)
    from hydra._internal.callbacks import Callbacks  # noqa: PLC0415 (Hydra has no public name for it)

    return Callbacks(node)


def _job(run: Callable[[dict[str, Any], Path], int], node: DictConfig) -> Outcome:
    runtime = HydraConfig.get().runtime
    folder = Path(runtime.output_dir)
    try:
        return Outcome(run(plain(node, Path(runtime.cwd)), folder))
    except Exception as error:  # told as text: not every error can be sent from one process to another
        with suppress(OSError):
            folder.rmdir()  # if nothing was put into it
        return Outcome(1, f"{type(error).__name__}: {error}")


def _outcome(found: JobReturn) -> Outcome:
    if found.status is JobStatus.COMPLETED:
        outcome: Outcome = found.return_value
        return outcome
    error = found._return_value  # the public name raises it
    return Outcome(1, f"{type(error).__name__}: {error}")
