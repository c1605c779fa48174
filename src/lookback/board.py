"""What a run shows while it trains: TensorBoard events, and the same scalars as lines of metrics.jsonl.

This is the only room that knows TensorBoard. README lists every tag.
"""

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from matplotlib.image import imread

from lookback.evaluate import Example
from lookback.failures import cell
from lookback.figures import MapPicture, Panel, Picture
from lookback.files import write_whole
from lookback.probes import PlaceMaps, Probe, heads_panels, kind
from lookback.rules import DrawnLengths, NonNegativeInt, PositiveInt
from lookback.symbols import BETWEEN

LINE = re.compile(rb'\{"step": ([0-9]{1,18}), "[^{}]*\}\n')  # of metrics.jsonl, as `scalars` writes it


def board_arguments(folder: str) -> str:
    """TensorBoard's arguments for a folder; without the last one it shows only ten images a tag."""
    return f"--logdir {folder} --samples_per_plugin images=500"


@dataclass(frozen=True, kw_only=True)
class BoardSettings:
    """What is logged during training.

    Attributes:
        scalars_every: steps between writings of scalars; each step is a point of its own all the same.
        alignment_every: steps between measurements of how every head looks; 0 = none.
        images_every: steps between attention images; 0 = none.
        snapshots_every: steps between weights kept for looking at any string, 50 of them at most; 0 = none.
        probe_lengths: one validation string of each length is drawn, side by side.
    """

    scalars_every: PositiveInt
    alignment_every: NonNegativeInt
    images_every: NonNegativeInt
    snapshots_every: NonNegativeInt
    probe_lengths: DrawnLengths


class Board:
    """Writes a run's scalars, pictures and texts. Use as a context: it is flushed and closed on every way out.

    Where TensorBoard's events cannot be written, that is told once, and the rest is written all the same.

    Args:
        folder: of the run.
        start: steps that an earlier process has logged and that stay; later ones are dropped.
    """

    def __init__(self, folder: Path, start: int) -> None:
        path = folder / "metrics.jsonl"
        self._logged = drop_later_lines(path, start)
        self._lines = path.open("a", encoding="utf-8", buffering=1)  # a comparison reads along
        self._writer = _make_writer(folder, start)
        self._pictures: dict[str, MapPicture] = {}
        self._charted = False

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Log numbers at a step, counted in updates done; what an earlier process logged there stays as it is."""
        values = {tag: value for tag, value in values.items() if (step, tag) not in self._logged}
        if not values:
            return
        self._lines.write(json.dumps({"step": step, **values}) + "\n")
        self._add(lambda writer: [writer.add_scalar(tag, value, step) for tag, value in values.items()])

    def samples(self, step: int, examples: Sequence[Example]) -> None:
        """Log decoded strings as a table, wrong symbols in bold."""
        rows = ["| source | wanted | wrote | |", "|---|---|---|---|"]
        for example in examples:
            apart, between = (BETWEEN[unit] for unit in (example.source_unit, example.target_unit))
            wrote = between.join(f"**{cell([s])}**" if wrong else cell([s]) for s, wrong in example.marked())
            cells = [cell(example.source, apart), cell(example.wanted, between)]
            rows.append(f"| {cells[0]} | {cells[1]} | {wrote} | {example.verdict()} |")
        self._add(lambda writer: writer.add_text("samples/val", "\n".join(rows), step))

    def attention(self, step: int, probes: Sequence[Probe], maps: Sequence[PlaceMaps]) -> None:
        """Log the maps of every layer and head.

        One image a head, the probes side by side; and one image a layer, all its heads on the last probe.

        Args:
            step: updates done.
            probes: strings with frames for their maps.
            maps: of each probe.
        """
        if not self._writer:
            return
        for place in maps[0]:
            heads = range(len(maps[0][place]))
            picture = self._picture(kind(place), [probe.panel(place) for probe in probes])
            for head in heads:
                drawn = picture.draw([found[place][head] for found in maps])
                self._add_picture(f"attention/{place}/head{head}", drawn, step)
            sheet = self._picture(f"{kind(place)} sheet of {len(heads)}", heads_panels(probes[-1], place, heads))
            drawn = sheet.draw(list(maps[-1][place]))
            self._add_picture(f"attention_sheets/{place}", drawn, step)

    def charts(self, charts: Mapping[str, Sequence[str]]) -> None:
        """Lay out the Custom Scalars tab: each chart shows several scalars together; title -> their tags."""
        if self._writer and not self._charted:
            self._charted = True
            lines = {
                title: ["Multiline", [f"^{re.escape(tag)}$" for tag in tags]] for title, tags in charts.items()
            }
            self._add(lambda writer: writer.add_custom_scalars({"alignment": lines}))

    def film(self, step: int, picture: Picture) -> None:
        """Log the film of a run."""
        self._add_picture("film", picture, step)

    def failures(self, step: int, table: str) -> None:
        """Log what was written wrongly, as markdown."""
        self._add(lambda writer: writer.add_text("failures", table, step))

    def _picture(self, name: str, panels: Sequence[Panel]) -> MapPicture:
        """A frame, drawn at the first call with its name."""
        if name not in self._pictures:
            self._pictures[name] = MapPicture(panels)
        return self._pictures[name]

    def flush(self) -> None:
        """Make sure that all logged so far can be read."""
        self._lines.flush()
        self._add(lambda writer: writer.flush())

    def __enter__(self) -> "Board":
        self._excepthook, threading.excepthook = threading.excepthook, self._on_thread_error
        return self

    def _on_thread_error(self, found: threading.ExceptHookArgs) -> None:
        """What ends the writer's own thread is told by `_add`, in a line."""
        if not type(found.thread).__module__.startswith("tensorboard."):
            self._excepthook(found)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._add(lambda writer: writer.close())
            self._lines.close()
        finally:
            threading.excepthook = self._excepthook

    def _add_picture(self, tag: str, picture: Picture, step: int) -> None:
        self._add(lambda writer: _add_picture(writer, tag, picture, step))

    def _add(self, write: Callable[[Any], object]) -> None:
        """Let TensorBoard's writer do something; once it fails, it is told, and all else goes on without it."""
        if not self._writer:
            return
        try:
            write(self._writer)
        except Exception as error:  # of a disk, mostly; the writer's thread hands on whatever ended it
            print(f"no TensorBoard log from here on: {type(error).__name__}: {error}", file=sys.stderr)
            with suppress(Exception):
                self._writer.close()
            self._writer = None


def _make_writer(folder: Path, start: int) -> Any:  # noqa: ANN401 (TensorBoard may be missing)
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 (slow, and training can do without)
    except ImportError as error:
        print(f"no TensorBoard log: {error} (pip install 'tensorboard>=2.21')", file=sys.stderr)
        return None
    _wait_for_a_later_name(folder)
    try:
        # always: TensorBoard takes the first such mark for the start of a run, and purges at later ones alone
        return SummaryWriter(str(folder), purge_step=start + 1)
    except OSError as error:
        print(f"no TensorBoard log: {error}", file=sys.stderr)
        return None


def _wait_for_a_later_name(folder: Path) -> None:
    """Files of events are named by the second, and read in the order of their names: two of one second may swap."""
    seconds = [path.name.split(".")[3] for path in folder.glob("events.out.tfevents.*")]
    now = time.time()
    if str(int(now)) in seconds:
        time.sleep(int(now) + 1 - now)


def _add_picture(writer: Any, tag: str, picture: Picture, step: int) -> None:  # noqa: ANN401
    """What `add_image` does, without its way through RGB, which takes three times as long."""
    from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415 (it may be missing, see above)

    height, width = picture.pixels.shape
    image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=picture.png())
    writer.file_writer.add_summary(Summary(value=[Summary.Value(tag=tag, image=image)]), step)


def save_pictures(folder: Path, pictures: Mapping[str, Path]) -> None:
    """Show PNG files on the board of a folder, by tag."""
    writer = _make_writer(folder, 0)
    if writer:
        for tag, path in pictures.items():
            writer.add_image(tag, imread(path)[..., :3], 0, dataformats="HWC")
        writer.close()


def drop_later_lines(path: Path, start: int) -> set[tuple[int, str]]:
    """Keep the lines up to a step, and return what is logged at that very step."""
    if not path.exists():
        return set()
    kept, logged = [], set()
    for line in path.read_bytes().splitlines(keepends=True):
        found = LINE.fullmatch(line)  # reading a million lines as JSON would take seconds
        if found and int(found[1]) < start:
            kept.append(line)
            continue
        with suppress(ValueError, KeyError, TypeError):  # a line that a kill or a full disk cut short
            values = json.loads(line.decode(errors="replace"))
            if line.endswith(b"\n") and values["step"] <= start:
                kept.append(line)
                logged |= {(start, tag) for tag in values if values["step"] == start}
    write_whole(path, b"".join(kept))
    return logged
