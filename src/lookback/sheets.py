"""The tables and the notes of a comparison: what is in them. `terminal.py` shows them, `compare.py` writes them."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lookback.by_length import few
from lookback.groups import LOGGING, Group, differing, tasks
from lookback.intervals import Estimate, estimate, paired_difference
from lookback.results import Result

NOTHING = "-"


@dataclass(frozen=True)
class Sheet:
    """A table of texts.

    Attributes:
        title: stands above it.
        headings: one a column.
        rows: each begins with a model's name.
        note: stands below it.
    """

    title: str
    headings: list[str]
    rows: list[list[str]]
    note: str = ""

    def markdown(self) -> str:
        """The table as GitHub and TensorBoard read it."""
        lines = [f"**{self.title}**", "", _line(self.headings), _line(["---"] + ["--:"] * (len(self.headings) - 1))]
        lines += [_line(row) for row in self.rows]
        return "\n".join([*lines, "", self.note.replace("*", "\\*").replace("\n", "  \n")]).rstrip() + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def shown(found: Estimate | None, digits: int = 3) -> str:
    """Mean ± half of the 95 % interval; 0.98±.01."""
    if found is None:
        return NOTHING
    text = f"{found.mean:,.{digits}f}"
    if found.half_width == 0 and digits == 0:
        return text  # such as a number of steps, which no seed changes
    return text if found.half_width is None else f"{text}±{found.half_width:,.{digits}f}".replace("±0.", "±.")


def reached(group: Group, measure: str, digits: int) -> str:
    """Steps or seconds to 99 %: a mean with its interval if every seed got there, else how many did."""
    values = group.values(measure)
    if not values:
        return "not reached"
    if len(values) < len(group.results):
        return f"{len(values)} of {len(group.results)} seeds"
    return shown(estimate(values), digits)


def sheets(groups: Sequence[Group], baseline: str) -> list[Sheet]:
    """All tables.

    Args:
        groups: in the order of their lines.
        baseline: the name of the group that the others are told apart from.
    """
    base = next((group for group in groups if group.name == baseline), None)
    return [models(groups), learned(groups, base), *beyond(groups), *by_length(groups), costs(groups)]


def models(groups: Sequence[Group]) -> Sheet:
    """The terms: what was trained, how large, how long."""
    columns = {
        "parameters": ("parameters", ","),
        "d_model": ("d_model", "d"),
        "learning rate": ("learning_rate", "g"),
        "steps": ("steps", ",d"),
        "tokens seen": ("tokens", ",d"),
    }
    named = tasks(groups)
    rows = [
        [
            group.name,
            *([named[group.name]] if named else []),
            f"{len(group.results)}",
            *(_range(group, *column) for column in columns.values()),
        ]
        for group in groups
    ]
    note = "tokens seen: real target tokens, in the run that saw the fewest"
    return Sheet("Models", ["model", *(["task"] if named else []), "seeds", *columns], rows, note)


def learned(groups: Sequence[Group], base: Group | None) -> Sheet:
    """Who learned the longest trained length, how fast, and how far from the baseline."""
    judged = "/".join(sorted({str(result.judged) for group in groups for result in group.results}))
    rows = []
    for group in groups:
        scores = group.by_seed("exact_match")
        rows.append(
            [
                group.name,
                shown(estimate(list(scores.values()))),
                _difference(group, base),
                shown(estimate(group.values("validation_exact_match"))),
                reached(group, "steps_to_99", 0),
                reached(group, "seconds_to_99", 0),
            ]
        )
    headings = ["model", "exact match", "difference", "all lengths", "steps to 99 %", "seconds to 99 %"]
    every = "/".join(sorted({str(group.results[0].raw["train"]["validate_every"]) for group in groups}))
    note = "mean ± half of the 95 % interval over seeds; difference: from the baseline, seed by seed\n"
    note += "all lengths: exact match on validation strings of all trained lengths, where it was best\n"
    note += f"99 %: of validation strings of the longest trained length, looked at every {every} steps"
    where = f"at length {judged}" if judged != "None" else "at the longest trained length (not tested)"
    listed = {result.listed for group in groups for result in group.results}
    if True in listed:
        where = f"{where} of strings, on all pairs of files" if False in listed else "on all pairs"
        note = note.replace("strings of all trained lengths", "pairs").replace(" of the longest trained length", "")
    return Sheet(f"Exact match {where}, decoded freely", headings, rows, note)


def _difference(group: Group, base: Group | None) -> str:
    """Of exact match from the baseline, seed by seed, where both have the same task."""
    if group is base:
        return "baseline"
    if base and group.task != base.task:
        return "other task"
    scores = group.by_seed("exact_match")
    return shown(paired_difference(scores, base.by_seed("exact_match")) if base else None)


def beyond(groups: Sequence[Group]) -> list[Sheet]:
    """Means over the tested lengths beyond training, where there are any."""
    measures = {"exact match": "exact_match_beyond", "token accuracy": "token_accuracy_beyond"}
    have = {title: name for title, name in measures.items() if any(group.values(name) for group in groups)}
    if not have:
        return []
    rows = [
        [
            group.name,
            _range(group, "lengths_beyond", "d"),
            *(shown(estimate(group.values(name))) for name in have.values()),
        ]
        for group in groups
    ]
    trained = "/".join(sorted({str(result.longest) for group in groups for result in group.results}))
    note = (
        f"mean over the tested lengths above {trained}, each counting alike; ± half of the 95 % interval over seeds"
    )
    return [Sheet("Beyond training", ["model", "lengths", *have], rows, note)]


def _range(group: Group, measure: str, form: str) -> str:
    """A value that the runs of a group have in common, or the lowest."""
    values = group.values(measure)
    return format(type(group.results[0].row()[measure])(min(values)), form) if values else NOTHING


def by_length(groups: Sequence[Group]) -> list[Sheet]:
    """Exact match and token accuracy by length, or at some of many; those beyond the trained range are marked."""
    tested = sorted({length for group in groups for length in group.lengths})
    lengths = few(tested)
    trained = max((result.longest for group in groups for result in group.results), default=0)
    headings = ["model", *(f"{length}{'' if length <= trained else '*'}" for length in lengths)]
    notes = []
    if lengths and lengths[-1] > trained:
        notes.append(f"* longer than any training string; the longest had {trained} symbols")
    if len(lengths) < len(tested):
        notes.append(f"{len(lengths)} of {len(tested)} lengths; all are in results.csv")
    note = "\n".join(notes)
    found = []
    for measure, title in (("exact_match", "Exact match"), ("token_accuracy", "Token accuracy")):
        if not any(group.values(f"{measure}/{length}") for group in groups for length in lengths):
            continue  # not measured
        rows = [
            [group.name, *(shown(estimate(group.values(f"{measure}/{length}")), 2) for length in lengths)]
            for group in groups
        ]
        found.append(Sheet(f"{title} by length, decoded freely", headings, rows, note))
    return found


def costs(groups: Sequence[Group]) -> Sheet:
    """What models cost: speed, memory, and the steps that more cores cannot shorten."""
    columns = {
        "training tokens/s": ("training_tokens_per_second", 0),
        "decoding tokens/s": ("decoding_tokens_per_second", 0),
        "training seconds": ("train_seconds", 0),
        "sequential steps": ("sequential_steps", 0),
        "peak memory MiB": ("peak_memory_mib", 0),
    }
    rows = [
        [group.name, *(shown(estimate(group.values(measure)), digits) for measure, digits in columns.values())]
        for group in groups
    ]
    note = "training, decoding: real target tokens; an output that runs on costs its model time\n"
    note += (
        "sequential steps: layer applications that wait for one another, in a training pass at the longest length\n"
    )
    note += "peak memory: of the whole process, Python and torch included"
    return Sheet("Cost", ["model", *columns], rows, note)


def plain(group: Group) -> dict[str, object]:
    """A group for results.json: the mean and the interval of every column with numbers, by its name."""
    columns = dict.fromkeys(name for result in group.results for name in result.row())
    found: dict[str, object] = {}
    for column in columns:
        values = [result.row().get(column, "") for result in group.results]
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            row = estimate(values)
            found[column] = row and {"mean": row.mean, "half_width": row.half_width, "count": row.count}
    return {"name": group.name, "seeds": [result.seed for result in group.results], "columns": found}


def notes(groups: Sequence[Group], aside: Sequence[Result], expected: Mapping[str, Sequence[int]]) -> list[str]:
    """What a reader must know before comparing.

    Args:
        groups: what is in the tables.
        aside: runs that are not.
        expected: name -> seeds that were asked for; empty where existing runs are compared.
    """
    runs = [result for group in groups for result in group.results]
    found = [f"NOT COUNTED: {run.name} seed {run.seed}: {run.problem} ({run.folder})" for run in aside]
    found += _uneven(groups, expected)
    kept = sum(run.reused for run in runs)
    if kept:
        found.append(
            f"{kept} of {len(runs)} runs were there already, with the same configuration and code: reused."
        )
    for key, values in differing({group.name: group.results[0].raw for group in groups}).items():
        if key.startswith("task."):
            continue  # the table of models says it
        own = {json.dumps(value) for value in values.values() if value is not None}
        shared = not key.startswith("model.") or len(own) > 1  # a setting that only some models have is their own
        if shared and key not in ("seed", "model._target_", "model.d_model") and not key.startswith(LOGGING):
            listed = ", ".join(f"{name}: {value}" for name, value in values.items() if value is not None)
            found.append(f"DIFFERS: {key} ({listed})")
    for what in ("code_version", "threads", "processor", "device", "torch", "python", "split"):
        values = Counter(str(run.row()[what]) for run in runs)
        if len(values) > 1:
            listed = ", ".join(f"{value or 'unknown'}: {count} runs" for value, count in values.items())
            found.append(f"DIFFERS: {what.replace('_', ' ')} ({listed})")
    return found + _other_strings(runs)


def _other_strings(runs: Sequence[Result]) -> list[str]:
    """Seeds whose runs of one task did not see the same strings."""
    digests: dict[int, dict[str, set[str]]] = {}
    for run in runs:
        task = json.dumps(run.task, sort_keys=True)
        digests.setdefault(run.seed, {}).setdefault(task, set()).add(run.row()["data_digest"])
    differ = [seed for seed in sorted(digests) if any(len(found) > 1 for found in digests[seed].values())]
    return [f"DIFFERS: runs of seed {seed} did not see the same strings" for seed in differ]


def _uneven(groups: Sequence[Group], expected: Mapping[str, Sequence[int]]) -> list[str]:
    """Seeds that are missing from some model's mean."""
    have = {group.name: {result.seed for result in group.results} for group in groups}
    wanted = {name: set(seeds) for name, seeds in expected.items()}
    everyone = set().union(*have.values()) if have else set()
    found = []
    for name in dict.fromkeys([*wanted, *have]):
        missing = wanted.get(name, everyone) - have.get(name, set())
        if missing:
            found.append(f"MISSING: {name} has no finished run of seed {', '.join(map(str, sorted(missing)))}")
    return found
