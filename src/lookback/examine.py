"""From the names of claims to a report: each claim's experiment, its numbers kept, its verdict, and then the next.

Numbers are kept a claim at a time. The same command goes on with the first claim that is not there yet, and takes
numbers that this very code has found before for the same settings.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from lookback import claim_report, command_line, config, nodes, schema
from lookback.bench import Bench, RunError, StoppedError, make_plan
from lookback.claim_report import Examined
from lookback.claims.base import Claim
from lookback.comparison import Plan
from lookback.console import SteadyConsole
from lookback.files import write_whole
from lookback.launcher import Typed, choices, compose
from lookback.machine import code_version, machine
from lookback.rules import AtLeastOne, Seed
from lookback.schema import ConfigError, Problem
from lookback.stop import SIGNALS
from lookback.terminal import shown_path

RUNS = Path("runs/claims")  # where earlier numbers are looked for
KEPT = "claim.json"  # in a claim's folder
LAUNCHER = ("hydra/launcher", "hydra.launcher")  # what trainings are told of what was typed


@dataclass(frozen=True, kw_only=True)
class ClaimsSettings:
    """What configs/claims.yaml says.

    Attributes:
        claims: choices of configs/claim, in this order.
        quick: smaller experiments of fewer seeds.
        seeds: of every training, in place of those of its experiment; None leaves them.
        reuse: take numbers and runs that the same code has found before.
    """

    claims: Annotated[list[str], AtLeastOne]
    quick: bool
    seeds: Annotated[list[Seed], AtLeastOne] | None
    reuse: bool


@dataclass(frozen=True)
class Planned:
    """One claim that is to be examined: its name, itself, what it trains, and what its numbers depend on."""

    name: str
    claim: Claim
    plan: Plan | None
    digest: str


@dataclass(frozen=True)
class ClaimsPlan:
    """What was asked for, checked."""

    settings: ClaimsSettings
    typed: Typed
    claims: list[Planned]


def main() -> int:
    """The command `python scripts/claims.py`."""
    return command_line.launch(run, "claims", build=plan)


def plan(raw: Mapping[str, Any], typed: Typed) -> ClaimsPlan:
    """Check what was asked for, the training of every claim included.

    Raises:
        ConfigError: naming every problem.
    """
    kinds = schema.keywords(ClaimsSettings)
    own = {key: value for key, value in raw.items() if key in kinds}
    problems = [Problem(key, schema.unknown(key, list(kinds)), raw[key]) for key in raw if key not in kinds]
    problems += schema.problems("", kinds, own)
    if problems:
        raise ConfigError(problems)
    settings = ClaimsSettings(**own)
    there = choices("claim")
    for name in dict.fromkeys(settings.claims):
        if name not in there:
            problems.append(Problem("claims", f"no such claim; choose from: {', '.join(there)}", name))
        elif settings.claims.count(name) > 1:
            problems.append(Problem("claims", "every claim counts once", name))
    if problems:
        raise ConfigError(problems)
    return ClaimsPlan(settings, typed, [_planned(name, settings, typed) for name in settings.claims])


def _planned(name: str, settings: ClaimsSettings, typed: Typed) -> Planned:
    node = compose(f"claim/{name}")["claim"]
    claim = nodes.build_node(f"claim.{name}", node, Claim)
    assert isinstance(claim, Claim)
    found: Plan | None = None
    if claim.experiment is not None:
        passed = [text for text in typed.overrides if text.lstrip("+~").startswith(LAUNCHER)]
        passed += [] if settings.seeds is None else [f"seeds={settings.seeds}".replace(" ", "")]
        passed += [] if settings.reuse else ["reuse=false"]
        found = make_plan(claim.experiment + ("_quick" if settings.quick else ""), passed)
    depends = {
        "code": code_version(),
        "claim": node,
        "quick": settings.quick,
        "runs": found and [{**entry.raw, "seed": found.settings.seeds} for entry in found.entries],
    }
    return Planned(name, claim, found, config.digest(depends))


def run(plan: ClaimsPlan, folder: Path, resume: bool) -> int:
    """Examine each claim, and write the report after each.

    Args:
        plan: what was asked for.
        folder: of the report.
        resume: never asked for; going on needs no folder.

    Returns:
        the exit code: 0, whatever the verdicts; 1 if a claim could not be examined; 128 + a signal that stopped it.
    """
    console = SteadyConsole(highlight=False)
    console.print(f"claims       {shown_path(folder)}", soft_wrap=True, markup=False)
    console.print("Ctrl-C saves and stops; the same command goes on")
    done: list[Examined] = []
    code = 0
    for number, one in enumerate(plan.claims, start=1):
        console.print(
            f"\n{number}/{len(plan.claims)}  {one.name}: {one.claim.sentence}", soft_wrap=True, markup=False
        )
        try:
            found = _examine(one, plan.settings, folder / one.name, console)
        except StoppedError as stopped:
            code = stopped.code
        except RunError as error:
            found, code = Examined(one.name, one.claim, {}, 0.0, f"not examined: {error}"), 1
        if code > SIGNALS:
            break
        done.append(found)
        again = f" (numbers of {shown_path(found.taken)})" if found.taken else f" ({found.seconds:.0f} s)"
        console.print(f"{number}/{len(plan.claims)}  {one.name}: {found.verdict}{again}", markup=False)
        claim_report.write(folder, done, plan.settings.quick, plan.typed.overrides)
    if code > SIGNALS:
        console.print("stopped; what is done is kept, and the same command goes on", soft_wrap=True)
    if done:
        claim_report.show(console, done, folder)
    return code


def _examine(one: Planned, settings: ClaimsSettings, folder: Path, console: SteadyConsole) -> Examined:
    """The numbers of one claim: those that are there, or new ones."""
    earlier = _earlier(one, [folder, *(sorted(RUNS.glob(f"*/{one.name}")) if settings.reuse else [])])
    folder.mkdir(parents=True, exist_ok=True)
    if earlier is not None:
        path, kept = earlier
        taken = None if path.resolve() == folder.resolve() else path
        found = Examined(
            one.name, one.claim, kept["numbers"], kept["seconds"], taken=taken, machine=kept["machine"]
        )
    else:
        started = time.perf_counter()
        bench = Bench(folder, settings.quick, one.plan, console)
        numbers = one.claim.measure(bench)
        found = Examined(one.name, one.claim, numbers, time.perf_counter() - started, machine=machine())
    content = {
        "digest": one.digest,
        "seconds": found.seconds,
        "machine": found.machine,
        "verdict": found.verdict,
        "numbers": found.numbers,
    }
    write_whole(folder / KEPT, (json.dumps(content, indent=1) + "\n").encode())
    return found


def _earlier(one: Planned, folders: Sequence[Path]) -> tuple[Path, dict[str, Any]] | None:
    """Numbers of the same digest, and where they are."""
    for folder in folders:
        try:
            kept = json.loads((folder / KEPT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(kept, dict) and kept.get("digest") == one.digest and isinstance(kept.get("numbers"), dict):
            return folder, kept
    return None
