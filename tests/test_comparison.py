"""What a comparison is to do: every problem at once, and widths that make models equally large."""

import json
from collections.abc import Callable
from functools import cache

import pytest

from lookback import comparison, config, launcher, learner
from lookback.comparison import Plan, solve_width
from lookback.launcher import Typed
from lookback.schema import ConfigError

SMOKE = "experiment=smoke"
NAMES = "a name has up to 100 letters, digits and _ . + -, and no file's ending"


def models(*entries: str | dict[str, list[str]]) -> str:
    """What one types to compare these."""
    return "models=" + json.dumps(entries).replace('{"', "{").replace('": [', ":[")


def plan(*overrides: str) -> Plan:
    typed = Typed("compare", (SMOKE, *overrides))
    return comparison.plan(typed.compose(), typed)


def problems(*overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        plan(*overrides)
    return [str(problem) for problem in caught.value.problems]


@cache
def all_models() -> Plan:
    shipped = sorted(path.stem for path in (launcher.CONFIGS / "model").glob("*.yaml"))
    assert len(shipped) >= 4
    return plan(models(*shipped), "baseline=transformer")


def test_every_shipped_model_gets_as_many_parameters_as_the_transformer_within_three_percent() -> None:
    counts = {}
    for entry in all_models().entries:
        _, model = learner.build(config.build(entry.with_seed(3)))
        counts[entry.name] = sum(weights.numel() for weights in model.parameters())
        assert entry.parameters == counts[entry.name]
    assert len(set(counts.values())) > 2  # widths are whole numbers, so counts are near one another, not equal
    for count in counts.values():
        assert abs(count - counts["transformer"]) <= 0.03 * counts["transformer"]


def test_an_entry_has_its_width_in_its_overrides_and_its_configuration() -> None:
    for entry in all_models().entries:
        width = entry.raw["model"]["d_model"]
        if entry.name == "transformer":
            assert entry.overrides == ("model=transformer",)
        else:
            assert entry.overrides == (f"model={entry.name}", f"model.d_model={width}")
        typed = launcher.compose("compare", [SMOKE, *comparison.run_overrides(entry, 7)])
        assert comparison.run_part(typed) == entry.with_seed(7)
        assert config.check(entry.with_seed(7)) == []


def test_a_run_has_no_setting_of_the_comparison() -> None:
    found = set(all_models().entries[0].raw)
    assert found == {"seed", "task", "model", "data", "train", "evaluate", "board"}


def test_models_as_they_are_shipped_have_equally_many_within_three_percent() -> None:
    names = [entry.name for entry in all_models().entries]
    counts = {name: comparison.parameters_at(launcher.compose("train", [f"model={name}"])) for name in names}
    assert max(abs(count / counts["transformer"] - 1) for count in counts.values()) <= 0.03


def test_without_matching_models_keep_their_widths() -> None:
    found = plan(models({"narrow": ["model=rnn", "model.d_model=18"]}, "rnn_luong"), "match=none")
    assert [entry.raw["model"]["d_model"] for entry in found.entries] == [18, 126]
    assert found.entries[0].overrides == ("model=rnn", "model.d_model=18")
    assert found.entries[0].parameters != found.entries[1].parameters


def test_the_baseline_is_the_last_model_unless_it_is_named() -> None:
    small = {"small": ["model=rnn", "model.d_model=14"]}
    assert plan(models("rnn_luong", small), "match=none").baseline == "small"
    named = plan(models(small, "rnn_luong"), "baseline=small", "seeds=[4,2]")
    assert named.baseline == "small"
    assert named.settings.seeds == [4, 2]
    sizes = {entry.name: entry.parameters for entry in named.entries}
    assert sizes["rnn_luong"] == pytest.approx(sizes["small"], rel=0.03)
    assert named.entries[0].raw["model"]["d_model"] == 14


def test_a_width_that_was_typed_is_the_baseline_s_and_the_others_are_solved() -> None:
    found = plan(models("rnn", "rnn_luong"), "model.d_model=16")
    widths = {entry.name: entry.raw["model"]["d_model"] for entry in found.entries}
    assert widths["rnn_luong"] == 16
    assert widths["rnn"] != 16


@pytest.mark.parametrize(
    ("overrides", "sentences"),
    [
        (
            [
                models("rnn", "rnn", {"..": ["model=rnn"]}, {"a/b": ["model=rnn"]}, {"x.csv": []}),
                "seeds=[5,6,5]",
                "baseline=x",
            ],
            [
                "models = rnn: every model needs a name of its own",
                *(f"models = {name}: {NAMES}" for name in ("..", "a/b", "x.csv")),
                "seeds = 5: every seed counts once",
                "baseline = x: must be one of rnn, rnn, .., a/b, x.csv",
            ],
        ),
        (
            [
                models(
                    {"a": ["model=rnn", "model.d_model=12"]},
                    {"b": ["model=rnn"]},
                    {"c": ["model=rnn", "train.steps=60"]},
                    "transformer",
                )
            ],
            [
                "models.a: match=parameters solves model.d_model; leave it out, or take match=none",
                "models = b, c: these are the same configuration",
            ],
        ),
        (
            ["match=width", "seeds=[]", "models=[]"],
            [
                "models = []: must be a list of at least 1 item",
                "seeds = []: must be a list of at least 1 item",
                "match = width: must be 'parameters' or 'none'",
            ],
        ),
        (["seeds=[-1]"], ["seeds.0 = -1: must be greater than or equal to 0"]),
        (
            [models({"a": ["model=rnn", "train.steps=-5", "data.batch_size=0"]}, "transformer")],
            ["a: data.batch_size = 0: must be greater than 0", "a: train.steps = -5: must be greater than 0"],
        ),
    ],
)
def test_every_problem_is_told_at_once(overrides: list[str], sentences: list[str]) -> None:
    assert sorted(problems(*overrides)) == sorted(sentences)


def test_what_is_not_one_model_s_to_set_is_refused() -> None:
    texts = ["seed=3", "++seed=3", "hydra.run.dir=x", "hydra/launcher=basic", "runs=[x]", "models=[rnn]", "~reuse"]
    entries = [{f"mine{number}": ["model=rnn", text]} for number, text in enumerate(texts)]
    assert problems(models(*entries, "transformer")) == [
        f"models.mine{number} = {text}: is not one model's to set" for number, text in enumerate(texts)
    ]


def test_every_wrong_model_and_key_is_told_at_once() -> None:
    wrong = {"mine": ["model=rnn", "model.d_modle=3"]}
    assert problems(models("transfomer", wrong, "rnm", "rnn")) == [
        "transfomer: model = transfomer: no such choice; choose from: rnn, rnn_bahdanau, rnn_luong, transformer",
        "mine: model.d_modle = 3: no such key; the nearest is model.d_model",
        "rnm: model = rnm: no such choice; choose from: rnn, rnn_bahdanau, rnn_luong, transformer",
    ]


def test_an_override_that_cannot_be_read_is_told_with_its_model() -> None:
    [sentence] = problems(models({"mine": ["model=rnn", "train steps"]}, "rnn"))
    assert sentence.startswith("mine: train steps: must read key=value")
    [sentence] = problems(models({"mine": ["model=rnn", "train.steps=7,8"]}, "rnn"))
    assert sentence == "mine: train.steps=7,8: must be one value, not a sweep"


def test_a_seed_that_is_typed_is_refused_because_there_are_seeds() -> None:
    assert problems("seed=3") == ["seed = 3: is set by seeds=[...] here"]


def test_a_key_that_only_begins_like_one_of_those_is_fine() -> None:
    found = plan(models({"mine": ["model=rnn", "model.source_order=reversed"]}, "rnn"), "match=none")
    assert found.entries[0].raw["model"]["source_order"] == "reversed"


def test_a_width_that_cannot_be_matched_is_refused_with_the_nearest() -> None:
    micro = {
        "micro": ["model=transformer", "model.d_model=4", "model.num_heads=2", "model.num_layers=1", "model.d_ff=1"]
    }
    [sentence] = problems(models("transformer", micro))
    assert sentence == (
        "models.transformer: cannot have the 682 parameters of micro: 10,168 at d_model 4 are nearest"
    )


def test_widths_that_a_model_cannot_have_are_passed_over() -> None:
    heads = {"heads": ["model=transformer", "model.num_heads=8", "model.d_ff=160"]}  # only multiples of 8
    found = plan(models(heads, {"base": ["model=rnn", "model.d_model=95"]}))
    assert found.entries[0].raw["model"]["d_model"] == 56
    assert found.entries[0].parameters == pytest.approx(found.entries[1].parameters, rel=0.03)


def test_models_that_are_the_same_but_for_their_names_are_refused_without_matching_too() -> None:
    texts = problems(models({"one": ["model=rnn"]}, "rnn", "rnn_luong"), "match=none")
    assert texts == ["models = one, rnn: these are the same configuration"]


def test_runs_that_exist_need_no_plan_for_models() -> None:
    found = plan("runs=[somewhere]", "baseline=rnn")
    assert (found.entries, found.baseline) == ([], "rnn")
    assert plan("runs=[somewhere]").baseline == ""


def test_each_run_has_a_folder_of_its_own() -> None:
    folders = [comparison.run_folder(entry, seed) for entry in all_models().entries for seed in (0, 13)]
    assert len(set(folders)) == len(folders)
    assert folders[:2] == ["rnn/seed0", "rnn/seed13"]


@pytest.mark.parametrize(
    ("count", "wanted", "answer"),
    [
        (lambda width: width**2, 50, (7, 49)),  # 49 is nearer than 64
        (lambda width: width**2, 57, (8, 64)),  # 64 is nearer than 49
        (lambda width: 10 * width, 45, (4, 40)),  # as near as 50: the smaller width
        (lambda width: 10 * width, 40, (4, 40)),
        (lambda width: 3 * width + 100, 5, (1, 103)),  # the least there is
        (lambda width: width, 10**9, (4095, 4095)),  # the most there is
        (lambda width: width if width % 4 == 0 else None, 11, (12, 12)),
        (lambda width: width if width % 4 == 0 else None, 9, (8, 8)),
        (lambda width: width if width in (64, 900) else None, 300, (64, 64)),
        (lambda width: width if width in (64, 900) else None, 700, (900, 900)),
        (lambda width: width if width == 64 else None, 3000, (64, 64)),
    ],
)
def test_a_width_is_solved_by_hand(
    count: Callable[[int], int | None], wanted: int, answer: tuple[int, int]
) -> None:
    assert solve_width(count, wanted) == answer


@pytest.mark.parametrize("step", [1, 2, 7, 48, 130])
def test_no_width_is_nearer_than_the_one_found(step: int) -> None:
    def count(width: int) -> int | None:
        return 3 * width**2 + 5 * width + 11 if width % step == 0 else None

    every = [(width, number) for width in range(1, 4096) if (number := count(width)) is not None]
    for wanted in (1, 20, 999, 4_444, 123_456, 7_000_000, 10**8):
        nearest = min(every, key=lambda pair: (abs(pair[1] - wanted), pair[0]))
        assert solve_width(count, wanted) == nearest


def test_solving_asks_for_few_widths() -> None:
    asked = []

    def count(width: int) -> int:
        asked.append(width)
        return width

    solve_width(count, 137)
    assert len(asked) <= 13  # halving 4096


def test_what_is_typed_and_each_model_sets_itself_does_nothing_and_is_refused() -> None:
    pair = models({"copy": ["task=copy"]}, {"reverse": ["task=reverse", "train.steps=9"]})
    assert problems(pair, "task=sort") == ["task: does nothing: each of the models sets its own"]


def test_what_is_typed_and_one_model_sets_itself_stands_for_the_others() -> None:
    pair = models({"copy": ["task=copy"]}, {"reverse": ["task=reverse", "train.steps=9"]})
    found = plan(pair, "train.steps=7")
    assert [entry.raw["train"]["steps"] for entry in found.entries] == [7, 9]
    assert [found.typed.overruled(entry.overrides) for entry in found.entries] == [{}, {"train.steps": "9"}]
    assert found.typed.overruled(["+train.steps=7", "++train.steps=8"]) == {"train.steps": "8"}
