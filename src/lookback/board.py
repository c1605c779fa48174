"""What a run shows while it trains: TensorBoard events, and the same scalars as lines of metrics.jsonl.

This is the only room that knows TensorBoard. README lists every tag.
"""

import html
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from matplotlib.image import imread, imsave
from numpy.typing import NDArray

from lookback.attention import Maps
from lookback.checkpoint import write_whole
from lookback.data import Batch, collate, held_out
from lookback.decode import evaluating
from lookback.evaluate import Example
from lookback.figures import MapPicture, Panel
from lookback.models.base import Seq2Seq
from lookback.rules import DrawnLengths, NonNegativeInt, PositiveInt
from lookback.tasks.base import Ids, Task

AXES = {
    "encoder_self": ("symbol that looks", "symbol looked at"),
    "decoder_self": ("symbol being written", "symbol written before"),
    "cross": ("symbol being written", "symbol of the source"),
}


def board_arguments(folder: str) -> str:
    """TensorBoard's arguments for a folder; without the last one it shows only ten images a tag."""
    return f"--logdir {folder} --samples_per_plugin images=500"


@dataclass(frozen=True, kw_only=True)
class BoardSettings:
    """What is logged during training.

    Attributes:
        scalars_every: steps between writings of scalars; each step is a point of its own all the same.
        images_every: steps between attention images; 0 = none.
        probe_lengths: one validation string of each length is drawn, side by side.
    """

    scalars_every: PositiveInt
    images_every: NonNegativeInt
    probe_lengths: DrawnLengths


@dataclass(frozen=True)
class Probe:
    """One fixed string, on whose maps the training can be watched.

    Attributes:
        batch: the string and its answer, alone in a batch, so that no map has pads.
        read: the symbols of the source, marks included.
        written: the symbols of the target up to EOS; row t of a map belongs to the t-th.
        alignment: for each written symbol but EOS, the column of a cross-attention map that it comes from;
            None where the task does not say.
    """

    batch: Batch
    read: list[str]
    written: list[str]
    alignment: Ids | None

    def watch(self, model: Seq2Seq) -> dict[str, NDArray[np.float32]]:
        """Run the model on the probe by teacher forcing.

        Returns:
            place, such as `cross/layer0` -> weights (heads, query, key).
        """
        maps: Maps = {}
        batch = self.batch.to(next(model.parameters()).device)
        with evaluating(model):
            model(batch.source, batch.source_lengths, batch.decoder_input, maps)
        return {place: weights[0].float().cpu().numpy() for place, weights in maps.items()}

    def panel(self, place: str) -> Panel:
        """The frame for a map of this place."""
        rows, columns = {
            "encoder_self": (self.read, self.read),
            "decoder_self": (self.written, ["<bos>", *self.written[:-1]]),
            "cross": (self.written, self.read),
        }[place.split("/", maxsplit=1)[0]]
        return Panel("".join(self.read[1:-1]), rows, columns, *AXES[place.split("/", maxsplit=1)[0]])


def make_probe(task: Task, length: int) -> Probe:
    """The first validation string of this length."""
    source = held_out(task, length, 1, "validation")[0]
    batch = collate(task, [source])
    read = task.source_vocabulary.decode(batch.source[0].tolist())
    written = task.target_vocabulary.decode(batch.labels[0].tolist())
    alignment = task.alignment(source)
    return Probe(batch, read, written, None if alignment is None else alignment + 1)  # 1 for BOS


def clearest_head(maps: Mapping[str, NDArray[np.floating]], alignment: Ids | None) -> tuple[str, int, float] | None:
    """The cross-attention head that looks most where the answer stands.

    Args:
        maps: place -> (heads, query, key).
        alignment: as in `Probe`; without it, the head whose rows are most concentrated.

    Returns:
        place, head, and its mean weight there; None if no place is cross-attention.
    """
    found = []
    for place, weights in maps.items():
        if place.startswith("cross/"):
            if alignment is None:
                shares = weights.max(axis=-1).mean(axis=-1)
            else:
                shares = weights[:, np.arange(len(alignment)), alignment].mean(axis=-1)  # (heads,)
            found += [(float(share), place, head) for head, share in enumerate(shares)]
    if not found:
        return None
    share, place, head = max(found)
    return place, head, share


class Board:
    """Writes a run's scalars, pictures and texts. Use as a context: it is flushed and closed on every way out.

    Args:
        folder: of the run.
        start: steps that an earlier process has logged and that stay; later ones are dropped.
    """

    def __init__(self, folder: Path, start: int) -> None:
        path = folder / "metrics.jsonl"
        self._logged = _drop_later_lines(path, start)
        self._lines = path.open("a", encoding="utf-8", buffering=1)  # a comparison reads along
        self._writer = _make_writer(folder, start)
        self._pictures: dict[str, MapPicture] = {}

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Log numbers at a step, counted in updates done; what an earlier process logged there stays as it is."""
        values = {tag: value for tag, value in values.items() if (step, tag) not in self._logged}
        if not values:
            return
        self._lines.write(json.dumps({"step": step, **values}) + "\n")
        if self._writer:
            for tag, value in values.items():
                self._writer.add_scalar(tag, value, step)

    def samples(self, step: int, examples: Sequence[Example]) -> None:
        """Log decoded strings as a table, wrong symbols in bold."""
        rows = ["| source | wanted | wrote | |", "|---|---|---|---|"]
        for example in examples:
            wrote = "".join(f"**{_cell([s])}**" if wrong else _cell([s]) for s, wrong in example.marked())
            cells = [_cell(example.source), _cell(example.wanted)]
            rows.append(f"| {cells[0]} | {cells[1]} | {wrote} | {example.verdict()} |")
        if self._writer:
            self._writer.add_text("samples/val", "\n".join(rows), step)

    def attention(self, step: int, model: Seq2Seq, probes: list[Probe]) -> None:
        """Log the maps of every layer and head: one image a head, the probes side by side."""
        if not self._writer:
            return
        watched = [probe.watch(model) for probe in probes]
        for place in watched[0]:
            kind = place.split("/")[0]
            if kind not in self._pictures:
                self._pictures[kind] = MapPicture([probe.panel(place) for probe in probes])
            for head in range(len(watched[0][place])):
                picture = self._pictures[kind].draw([maps[place][head] for maps in watched])
                self._writer.add_image(f"attention/{place}/head{head}", picture, step, dataformats="HWC")

    def flush(self) -> None:
        """Make sure that all logged so far can be read."""
        self._lines.flush()
        if self._writer:
            self._writer.flush()

    def __enter__(self) -> "Board":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.close()
        if self._writer:
            self._writer.close()


def _make_writer(folder: Path, start: int) -> Any:  # noqa: ANN401 (TensorBoard may be missing)
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 (slow, and training can do without)
    except ImportError as error:
        print(f"no TensorBoard log: {error} (pip install 'tensorboard>=2.21')", file=sys.stderr)
        return None
    return SummaryWriter(str(folder), purge_step=start + 1 if start else None)


def save_pictures(folder: Path, pictures: Mapping[str, Path]) -> None:
    """Show PNG files on the board of a folder, by tag."""
    writer = _make_writer(folder, 0)
    if writer:
        for tag, path in pictures.items():
            writer.add_image(tag, imread(path)[..., :3], 0, dataformats="HWC")
        writer.close()


def _cell(symbols: Sequence[str]) -> str:
    """Symbols as a cell of a markdown table, whatever they are."""
    return html.escape("".join(symbols)).replace("|", "&#124;").replace("*", "&#42;")


def _drop_later_lines(path: Path, start: int) -> set[tuple[int, str]]:
    """Keep the lines up to a step, and return what is logged at that very step."""
    if not path.exists():
        return set()
    kept, logged = [], set()
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
        with suppress(ValueError, KeyError, TypeError):  # a line that a kill or a full disk cut short
            values = json.loads(line)
            if line.endswith("\n") and values["step"] <= start:
                kept.append(line)
                logged |= {(start, tag) for tag in values if values["step"] == start}
    write_whole(path, "".join(kept).encode())
    return logged


def save_maps(folder: Path, model: Seq2Seq, probes: list[Probe]) -> None:
    """Leave the final maps in `folder`: one PNG a probe and place, its heads side by side, and all in maps.npz."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    for number, probe in enumerate(probes):
        arrays[f"probe{number}/read"] = np.array(probe.read)
        arrays[f"probe{number}/written"] = np.array(probe.written)
        for place, weights in probe.watch(model).items():
            arrays[f"probe{number}/{place}"] = weights
            frame = probe.panel(place)
            panels = [replace(frame, title=f"head {head} on {frame.title}") for head in range(len(weights))]
            picture = MapPicture(panels).draw(list(weights))
            name = f"probe{number}_{place.replace('/', '_')}.png"
            imsave(folder / name, picture)
    np.savez_compressed(folder / "maps.npz", **arrays)
