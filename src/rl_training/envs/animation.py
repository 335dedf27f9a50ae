"""Pictures in a grid, and animations of them: GIF by Pillow, MP4 by ffmpeg."""

import io
import itertools
import math
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from rl_training.errors import ConfigError, StorageError
from rl_training.output import return_text
from rl_training.storage import replace_file, storage_error

if TYPE_CHECKING:
    from PIL.Image import Image

Frame = NDArray[np.uint8]  # (height, width, 3)
Picture: TypeAlias = "Image"

INSTALL = 'pip install "rl-training[render]"'
_MOST_CELL, _MOST_WIDTH = 480, 960  # pixels, where no width is asked for
_GAP = 2  # pixels between columns
_BAR, _TEXT = (32, 32, 32), (255, 255, 255)
_LEVELS = [round(31 * value / 255) * 255 // 31 for value in range(256)]  # 32 of them: a palette is then rarely too small
_LOST_COLOUR, _LOST_SHARE = 24, 5e-4  # a palette lacks colours if more than this share of the values is off by more than that


class Grid:
    """Frames of equal size beside and below each other, each with a bar above it where there are labels."""

    def __init__(self, count: int, labels: Sequence[str] = (), width: int | None = None) -> None:
        self._labels, self._width = labels, width
        self._columns = count if count <= 3 else math.ceil(math.sqrt(count))
        self._rows = math.ceil(count / self._columns)
        self.size = (0, 0)  # known with the first picture

    def picture(self, frames: Sequence[Frame], values: Sequence[float] | NDArray[np.float64]) -> Picture:
        """Return the frames as one picture, with `label: value` above each."""
        from PIL import Image

        (width, height), bar = self._cell(frames[0])
        self.size = (self._columns * (width + _GAP) - _GAP, self._rows * (height + bar))
        picture = Image.new("RGB", self.size, _BAR)
        for index, frame in enumerate(frames):
            row, column = divmod(index, self._columns)
            left, top = column * (width + _GAP), row * (height + bar)
            if self._labels:
                _write(picture, f"{self._labels[index]}: {return_text(values[index])}", (left, top, width, bar))
            shown = Image.fromarray(np.ascontiguousarray(frame))
            same = shown.size == (width, height)
            picture.paste(shown if same else shown.resize((width, height), Image.Resampling.BILINEAR), (left, top + bar))
        return picture

    def _cell(self, frame: Frame) -> tuple[tuple[int, int], int]:
        """Size of a frame in the picture and height of the bar above it, all even, as video needs them."""
        height, width = frame.shape[:2]
        room = ((self._width or _MOST_WIDTH) + _GAP) // self._columns - _GAP
        shown = _even(room if self._width else min(width, _MOST_CELL, room))
        return (shown, _even(shown * height / width)), _even(max(16, shown / 14)) if self._labels else 0


def _even(value: float) -> int:
    return max(2, 2 * int(value / 2))


def _write(picture: Picture, text: str, box: tuple[int, int, int, int]) -> None:
    """Write a line into a box (left, top, width, height), smaller where it would not fit."""
    from PIL import ImageDraw, ImageFont

    left, top, width, height = box
    draw, size, margin = ImageDraw.Draw(picture), 0.7 * height, height / 4
    length = draw.textlength(text, ImageFont.load_default(size))
    font = ImageFont.load_default(size * min(1.0, (width - 2 * margin) / length))
    draw.text((left + margin, top + height / 2), text, _TEXT, font, anchor="lm")


def check_target(path: Path, *, overwrite: bool) -> None:
    """Raise a ConfigError unless an animation can be written to this path with what is installed."""
    if path.suffix.lower() not in (".gif", ".mp4"):
        raise ConfigError(f"{path}: an animation is a .gif or a .mp4 file; name one (--out swing.gif)")
    if path.is_symlink() or (path.exists() and not (overwrite and path.is_file())):
        raise ConfigError(
            f"{path}: already exists; choose another path, or replace a file by --overwrite (in Python overwrite=True)"
        )
    if find_spec("PIL") is None:
        raise ConfigError(f"{path}: animations need Pillow: {INSTALL}")
    if path.suffix.lower() == ".mp4" and shutil.which("ffmpeg") is None:
        raise ConfigError(f"{path}: MP4 needs the program `ffmpeg` on PATH; install it, or write a GIF")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(path, 0, error) from error


def write_animation(path: Path, pictures: Iterator[Picture], rate: float) -> int:
    """Write pictures of one size at `rate` per second, completely or not at all; return how many there were."""
    count = 0

    def counted() -> Iterator[Picture]:
        nonlocal count
        for picture in pictures:
            count += 1
            yield picture

    replace_file(path, _gif(counted(), rate) if path.suffix.lower() == ".gif" else _mp4(counted(), rate))
    return count


def _gif(pictures: Iterator[Picture], rate: float) -> bytes:
    """A GIF that repeats forever; its delays are whole hundredths of a second that add up to the exact time."""
    frames, data = _with_palettes(pictures, rate), io.BytesIO()
    next(frames).save(data, "GIF", save_all=True, append_images=frames, loop=0)
    return data.getvalue()


def _with_palettes(pictures: Iterator[Picture], rate: float) -> Iterator[Picture]:
    """Pictures of 256 colours: a palette is kept, so that nothing flickers, until a picture has colours that it lacks."""
    palette: Picture | None = None
    for number, picture in enumerate(pictures):
        rounded = picture.point(_LEVELS * 3)
        if palette is None or _loses_colours(rounded, palette):
            palette = rounded.quantize(256)
        drawn = _in_colours(rounded, palette)
        drawn.info["duration"] = 10 * (round(100 * (number + 1) / rate) - round(100 * number / rate))
        yield drawn


def _in_colours(picture: Picture, palette: Picture) -> Picture:
    from PIL.Image import Dither

    return picture.quantize(palette=palette, dither=Dither.NONE)


def _loses_colours(picture: Picture, palette: Picture) -> bool:
    from PIL import ImageChops

    apart = np.asarray(ImageChops.difference(picture, _in_colours(picture, palette).convert("RGB")))
    return bool((apart > _LOST_COLOUR).mean() > _LOST_SHARE)


def _mp4(pictures: Iterator[Picture], rate: float) -> bytes:
    """An MP4 file, encoded by ffmpeg from the raw pictures."""
    first = next(pictures)
    size = f"{first.width}x{first.height}"
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", f"{rate:.6f}", "-i", "-"]
    with tempfile.TemporaryDirectory(prefix="rl-training-") as folder, tempfile.TemporaryFile() as errors:
        target = Path(folder) / "animation.mp4"
        command = ["ffmpeg", "-loglevel", "error", *source, "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(target)]
        ffmpeg = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors)  # noqa: S603
        try:
            failed = not _feed(ffmpeg, first, pictures)
        except BaseException:
            ffmpeg.kill()
            ffmpeg.wait()
            raise
        if ffmpeg.wait() or failed:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines() or ["it says nothing"]
            raise StorageError(f"ffmpeg cannot write the animation: {lines[-1]}")
        return target.read_bytes()


def _feed(ffmpeg: "subprocess.Popen[bytes]", first: Picture, more: Iterator[Picture]) -> bool:
    """Send pictures to ffmpeg; False if it stopped reading."""
    try:
        with cast("IO[bytes]", ffmpeg.stdin) as stream:
            for picture in itertools.chain([first], more):
                stream.write(picture.tobytes())
    except BrokenPipeError:
        return False
    return True
