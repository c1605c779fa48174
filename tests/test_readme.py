"""README says what is there."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lookback import claim_report, comparison, config, examine, intervals, launcher, nodes
from lookback.claim_report import Examined
from lookback.claims.base import Claim

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def general(tag: str) -> str:
    """A tag with its numbers as in README's example: length 20, layer 0, head 0, kind cross."""
    tag = re.sub(r"length/\d+", "length/20", tag).removesuffix("/text_summary")
    return re.sub(
        r"(attention|alignment|attention_sheets)/\w+/layer\d+", r"\1/cross/layer0", re.sub(r"head\d+", "head0", tag)
    )


def test_every_tag_of_a_run_is_explained(tiny_run: Path) -> None:
    read = EventAccumulator(str(tiny_run))
    read.Reload()
    tags = read.Tags()
    found = {general(tag) for kind in ("scalars", "images", "tensors") for tag in tags[kind]}
    assert len(found) == 20
    for tag in found:
        assert f"`{tag}`" in README


def test_every_entry_of_the_summary_is_named(tiny_run: Path) -> None:
    for name in json.loads((tiny_run / "summary.json").read_text()):
        assert f"`{name}`" in README


def test_every_file_is_on_the_map() -> None:
    files = (ROOT / "src" / "lookback").glob("*.py")  # tasks, models and positions need no entry
    names = [path.stem for path in files if path.stem != "__init__"]
    missing = [name for name in names if not re.search(rf"`([\w/]*/)?{name}(\.py)?`", README)]
    assert missing == [], f"not on README's map: {missing}"


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert len(links) >= 4
    for link in links:
        assert (ROOT / link).exists(), link


def test_the_first_link_after_the_other_language_is_the_formula() -> None:
    chinese, first, *_ = re.findall(r"\]\(([^)]+)\)", README)
    assert (chinese, first) == ("README.zh.md", "src/lookback/attention.py")


def test_the_board_command_shows_every_image() -> None:
    assert "--samples_per_plugin images=500" in README
    assert "--samples_per_plugin images=500" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_every_dependency_has_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    decisions = README[README.index("## Decisions") :]
    for name in re.findall(r'^    "([a-z-]+)[>=]', text, re.MULTILINE):
        assert name in decisions, name


@pytest.mark.parametrize("path", sorted((ROOT / "runs" / "reference").rglob("summary.json")), ids=str)
def test_reference_results_are_of_finished_runs(path: Path) -> None:
    assert json.loads(path.read_text())["status"] == "finished"


def test_the_table_of_results_is_what_the_reference_runs_found() -> None:
    rows = re.findall(r"^\| (copy|reverse) \| (\d) \| (.*) \| (\d+) \|$", README, re.MULTILINE)
    assert len(rows) == 6
    for number, (task, seed, cells, seconds) in enumerate(rows):
        found = json.loads((ROOT / f"runs/reference/defaults/{number}/summary.json").read_text())
        assert (found["task"], str(found["seed"])) == (task, seed)
        assert [f"{value:.2f}" for value in found["exact_match"].values()] == cells.split(" | ")
        assert f"{found['train_seconds']:.0f}" == seconds


def sheet(folder: str, title: str) -> list[str]:
    """The lines of a table of a comparison, from its heading on."""
    lines = (ROOT / f"runs/reference/{folder}/table.md").read_text(encoding="utf-8").splitlines()
    start = lines.index(f"**{title}**") + 2
    return lines[start : lines.index("", start)]


BY_LENGTH = "Exact match by length, decoded freely"
QUOTED = [
    *(
        (f"compare/{task}", title)
        for task in ("reverse", "copy")
        for title in ("Exact match at length 20, decoded freely", BY_LENGTH)
    ),
    ("compare/reverse", "Models"),
    ("compare/reverse", "Cost"),
    *((f"far/{name}", BY_LENGTH) for name in ("far", "ablations", "both")),
    ("far/chomsky", "Beyond training"),
]


@pytest.mark.parametrize(("folder", "title"), QUOTED)
def test_the_tables_of_comparisons_are_those_of_their_reports(folder: str, title: str) -> None:
    assert "\n".join(sheet(folder, title)) in README


def together(language: str, file: str = "ensemble.txt") -> float:
    """The word error rate in percent of runs that predict together."""
    lines = (ROOT / f"runs/reference/pairs/{language}/{file}").read_text(encoding="utf-8").splitlines()
    return next(100 * float(line.split()[3]) for line in lines if line.split()[:1] == ["all"])


def test_the_word_error_rates_are_those_of_the_reference_runs() -> None:
    languages = ("ady", "gre", "ice", "ita", "khm")
    means = []
    for language in languages:
        cells = []
        for model, count in (("transformer", 5), ("rnn_bahdanau", 10)):
            found = (ROOT / f"runs/reference/pairs/{language}").glob(f"**/{model}/seed*/summary.json")
            rates = [100 * (1 - json.loads(path.read_text())["overall"]["exact_match"]) for path in sorted(found)]
            mean = intervals.estimate(rates)
            assert len(rates) == count
            assert mean is not None
            cells.append(f"{mean.mean:.1f}±{mean.half_width:.1f}")
            means.append(mean.mean)
        cells.append(f"{together(language):.0f}")
        row = re.escape(f" | {' | '.join(cells)} |")
        assert re.search(rf"\| {language} \| \d+{row}", README)
    both = sum(together(language, "ensemble_of_both.txt") for language in languages) / 5
    all_together = sum(map(together, languages)) / 5
    assert (
        f"| mean | 21.6 | {sum(means[0::2]) / 5:.1f} | {sum(means[1::2]) / 5:.1f} | {all_together:.1f} |" in README
    )
    assert f"`ensemble_of_both.txt`: {both:.1f} on average" in README


def of_pairs(folder: str, model: str, count: int) -> tuple[float, float]:
    """Exact match over all pairs, by the seeds of a model: the mean, and half of its interval."""
    found = [json.loads(path.read_text()) for path in (ROOT / folder / model).glob("seed*/summary.json")]
    assert len(found) == count
    assert {summary["pairs_digest"] for summary in found} == {found[0]["pairs_digest"]}
    estimate = intervals.estimate([summary["overall"]["exact_match"] for summary in found])
    assert estimate is not None
    assert estimate.half_width is not None
    return estimate.mean, estimate.half_width


def test_the_word_error_rates_of_hungarian_are_those_of_the_reference_runs() -> None:
    line = next(line for line in README.splitlines() if line.startswith("Hungarian"))
    for model in ("transformer", "rnn_bahdanau"):
        mean, half = of_pairs("runs/reference/pairs/hun", model, 5)
        rate = f"{100 * (1 - mean):.1f}±{100 * half:.1f}".replace("0.", ".")
        assert f"`{model}` {rate}" in line
    assert f"five of these together {together('hun'):.1f}" in line


def test_exact_match_on_scan_is_that_of_the_reference_runs() -> None:
    line = next(line for line in README.splitlines() if line.startswith("SCAN"))
    for model in ("transformer", "rnn", "rnn_bahdanau"):
        mean, half = of_pairs("runs/reference/pairs/scan", model, 3)
        share = f"{mean:.3f}±{half:.3f}".replace("0.", ".")
        assert f"`{model}` {share}" in line


def unwatched(raw: dict[str, Any]) -> dict[str, Any]:
    """A configuration without what is logged, on which no result depends."""
    return {key: value for key, value in raw.items() if key != "board"}


MADE = {
    "compare/reverse": "task=reverse",
    "compare/copy": "task=copy",
    "far/far": "experiment=far",
    "far/encodings": "experiment=far_encodings",
    "far/ablations": "experiment=far_ablations",
    "far/chomsky": "experiment=chomsky",
    "far/both": "experiment=far_both",
}


@pytest.mark.parametrize(("made", "argument"), MADE.items())
def test_comparisons_were_made_with_the_configuration_of_today(made: str, argument: str) -> None:
    typed = launcher.Typed("compare", (argument,))
    plan = comparison.plan(typed.compose(), typed)
    for entry in plan.entries:
        for seed in plan.settings.seeds:
            folder = ROOT / "runs/reference" / made / comparison.run_folder(entry, seed)
            assert unwatched(config.read(folder / "config.yaml")) == unwatched(entry.with_seed(seed))


@pytest.mark.parametrize("task", ["reverse", "copy"])
def test_attention_is_what_the_longest_strings_need_with_intervals_that_do_not_touch(task: str) -> None:
    found = json.loads((ROOT / f"runs/reference/compare/{task}/results.json").read_text(encoding="utf-8"))
    groups = {group["name"]: group["columns"]["exact_match"] for group in found["groups"]}
    plain = groups.pop("rnn")
    assert set(groups) == {"rnn_luong", "rnn_bahdanau", "transformer"}
    for row in groups.values():
        assert row["count"] == plain["count"] == 3
        assert row["mean"] >= 0.95
        assert row["mean"] - row["half_width"] > plain["mean"] + plain["half_width"]


@pytest.mark.parametrize("number", range(6))
def test_reference_runs_were_made_with_the_defaults_of_today(number: int) -> None:
    task, seed = ("copy", "reverse")[number // 3], number % 3
    made = config.read(ROOT / f"runs/reference/defaults/{number}/config.yaml")
    assert unwatched(made) == unwatched(launcher.compose("train", [f"task={task}", f"seed={seed}"]))


def test_the_what_if_table_is_what_the_script_found() -> None:
    found = json.loads((ROOT / "runs/reference/looking/what_if.json").read_text(encoding="utf-8"))
    scores = {row["name"]: row["exact_match"] for row in found["interventions"]}
    scores["as trained"] = found["as_trained"]
    table = re.search(r"^\| changed \|(.*)\|\n\|.*\n((?:\|.*\n)+)", README, re.MULTILINE)
    assert table is not None
    lengths, rows = table[1].split(" | "), table[2].strip().splitlines()
    assert len(rows) >= 5
    for row in rows:
        name, *cells = row.strip("| ").split(" | ")
        assert cells == [f"{scores[name][length.strip()]:.2f}" for length in lengths], name


@pytest.mark.parametrize("model", ["transformer", "rnn_bahdanau"])
def test_the_runs_that_are_looked_at_were_made_with_the_defaults_of_today(model: str) -> None:
    made = config.read(ROOT / f"runs/reference/looking/{model}/config.yaml")
    assert made == launcher.compose("train", [f"model={model}"])


def test_the_head_that_learned_to_reverse_is_the_one_that_readme_names() -> None:
    found = json.loads((ROOT / "runs/reference/looking/transformer/summary.json").read_text(encoding="utf-8"))
    learned = found["learned_by"]
    score = found["alignment"][learned["head"]]
    where = f"weight largest where the answer stands in {score['largest']:.0%} of rows, {score['weight']:.2f} on"
    assert f"{learned['head']} has learned the task, since step {learned['since_step']}: {where}" in README


def report_rows() -> dict[tuple[str, str, str], dict[str, Any]]:
    """The rows of the benchmark's report by what was measured, unit and peer; the fastest one is not marked."""
    report = json.loads((ROOT / "runs/reference/benchmark/report.json").read_text(encoding="utf-8"))
    assert report["failures"] == {}
    return {(row["name"], row["unit"], row["against"].removesuffix(" (fastest)")): row for row in report["rows"]}


def times(row: dict[str, Any], inverted: bool = True) -> str:
    """A ratio and its range as README gives them; inverted: how many times as fast as the peer."""
    values = [1 / row[key] if inverted else row[key] for key in ("ratio", "ratio_min", "ratio_max")]
    digits = 1 if values[0] >= 3 else 2
    low, high = sorted(values[1:])
    return f"{values[0]:.{digits}f} times ({low:.{digits}f} to {high:.{digits}f})"


def test_the_figures_of_the_benchmark_are_those_of_its_report() -> None:
    rows, text = report_rows(), " ".join(README.split())
    torch_peer, x_peer = "nn.Transformer", "x-transformers"
    fastest = {name: f"{name}: to all right" for name in ("two-ended", "sinusoidal")}
    goals = {
        "seconds to exact match 1.00": times(rows[fastest["two-ended"], "s", torch_peer]),
        "the same with sinusoidal positions": times(rows[fastest["sinusoidal"], "s", torch_peer]),
        "useful training tokens": f"{times(rows['real tokens', 'per second', torch_peer], False)}; at d_model 256 "
        + times(rows["wide real tokens", "per second", torch_peer], False),
        "decoding 200 symbols": times(rows["decoding 200, batch 64", "ms/token", f"{torch_peer}, no cache"]),
        "decoding against": "; ".join(
            f"{name}: {times(rows[f'decoding {name}, batch {batch}', 'ms/token', f'{x_peer}, cached'])}"
            for name, batch in (("20", 64), ("200", 64), ("1,000", 4))
        ),
    }
    for figure, measured in goals.items():
        assert re.search(rf"^\| {figure}[^|]*\|[^|]*\| {re.escape(measured)} \|", README, re.MULTILINE), figure
    for peer in (torch_peer, x_peer):
        assert rows["training step", "ms", peer]["ratio"] <= 1.0
    rnn = rows["rnn training step", "ms", "bare nn.GRU"]
    assert f"{rnn['ratio']:.2f} of the time of a bare loop around `nn.GRU` ({rnn['ratio_min']:.2f} to" in text
    assert rnn["ratio"] <= 1.1
    watched = rows["training step, watched", "ms", "nobody watches"]
    spread = f"({watched['ratio_min']:.3f} to {watched['ratio_max']:.3f})"
    assert f"makes a training {watched['ratio']:.3f} times as long {spread}" in text
    assert watched["ratio"] <= 1.05
    maps = rows["forward pass with maps", "ms", "without maps"]
    assert f"{maps['ratio']:.2f} times as long" in text


def test_what_much_reading_takes_is_what_the_benchmark_found() -> None:
    found = json.loads((ROOT / "runs/reference/benchmark/load.json").read_text())["rows"]
    assert len(found) == 5
    for row in found:
        assert f"{row['name']} takes {row['ours']:.2f} s" in README
        assert 8 < row["ratio"] < 13  # in proportion


@pytest.mark.parametrize("name", ["copy", "reverse"])
def test_every_string_of_ten_thousand_letters_was_right(name: str) -> None:
    found = sorted((ROOT / "runs/reference/far/far" / name).glob("seed*/summary.json"))
    assert len(found) == 5
    for path in found:
        summary = json.loads(path.read_text(encoding="utf-8"))
        assert summary["exact_match"]["10000"] == 1.0
        assert summary["strings"]["10000"] >= 8
        assert summary["parameters"] < 50_000
        assert summary["peak_memory_mib"] < 2048


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:python|yaml)\n(.*?)```", CONTRIBUTING, re.DOTALL)


def test_the_worked_example_is_the_task_that_is_shipped() -> None:
    assert BLOCKS[0] == (ROOT / "src/lookback/tasks/sort.py").read_text(encoding="utf-8")
    assert BLOCKS[1] == (ROOT / "configs/task/sort.yaml").read_text(encoding="utf-8")


def test_the_example_of_an_encoding_works_as_it_is_written() -> None:
    [code] = [block for block in BLOCKS if "class Ramp" in block]
    names: dict[str, Any] = {}
    exec(code, names)
    ramp = names["Ramp"](8, 2, slope=0.5)
    added = ramp.embed(torch.zeros(3, 5, 8), torch.arange(5))
    assert torch.equal(added[2, :, 7], torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0]))
    packed = ramp.embed(torch.zeros(2, 4, 8), torch.tensor([[0, 1, 2, 0], [0, 0, 1, 2]]))
    assert torch.equal(packed[:, :, 3], torch.tensor([[0.0, 0.5, 1.0, 0.0], [0.0, 0.0, 0.5, 1.0]]))


CLAIMS = ROOT / "runs/reference/claims"


def kept_claims() -> list[Examined]:
    """The claims of the reference report, from the numbers that were kept."""
    found = []
    for name in launcher.compose("claims")["claims"]:
        kept = json.loads((CLAIMS / name / "claim.json").read_text(encoding="utf-8"))
        claim = nodes.build_node(name, launcher.compose(f"claim/{name}")["claim"], Claim)
        assert isinstance(claim, Claim)
        found.append(Examined(name, claim, kept["numbers"], kept["seconds"], machine=kept["machine"]))
        assert found[-1].verdict == kept["verdict"]
    return found


def test_the_report_of_the_claims_is_what_the_rules_of_today_say_of_its_numbers() -> None:
    report = (CLAIMS / "report.md").read_text(encoding="utf-8")
    assert report == claim_report.markdown(kept_claims(), False, ["reuse=false"])


def test_the_verdicts_are_those_of_the_report() -> None:
    rows = [row.replace("(#", "(runs/reference/claims/report.md#") for row in claim_report.verdicts(kept_claims())]
    assert "\n".join(rows) in README


def test_every_trained_claim_has_three_seeds_and_the_configuration_of_today() -> None:
    for name in launcher.compose("claims")["claims"]:
        planned = examine.plan(
            {"claims": [name], "quick": False, "seeds": None, "reuse": False}, launcher.Typed("claims", ())
        ).claims[0]
        if planned.plan is None:
            continue
        assert len(planned.plan.settings.seeds) >= 3
        for entry in planned.plan.entries:
            for seed in planned.plan.settings.seeds:
                stored = config.read(CLAIMS / name / comparison.run_folder(entry, seed) / "config.yaml")
                assert unwatched(stored) == unwatched(entry.with_seed(seed))
