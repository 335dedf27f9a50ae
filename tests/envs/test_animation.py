"""Pictures in a grid with labels, and animations whose time and colours are right."""

import subprocess

import numpy as np
import pytest
from PIL import Image

from rl_training.envs.animation import Grid, check_target, write_animation
from rl_training.errors import ConfigError, StorageError

WHITE, RED, GREEN = (255, 255, 255), (204, 77, 77), (20, 200, 20)


def frame(colour=WHITE, width=60, height=40):
    return np.full((height, width, 3), colour, dtype=np.uint8)


def picture(colour, corner=WHITE, size=(40, 20)):
    drawn = Image.new("RGB", size, colour)
    drawn.paste(corner, (0, 0, size[0] // 2, size[1] // 2))
    return drawn


def read_gif(path):
    """Every picture of a GIF with its delay in milliseconds."""
    found = []
    with Image.open(path) as gif:
        assert gif.info["loop"] == 0
        for number in range(gif.n_frames):
            gif.seek(number)
            found.append((gif.convert("RGB"), gif.info["duration"]))
    return found


@pytest.mark.parametrize(
    ("count", "labels", "width", "size"),
    [
        (1, False, None, (60, 40)),
        (2, True, None, (60 + 2 + 60, 16 + 40)),
        (3, False, None, (3 * 60 + 2 * 2, 40)),
        (5, True, None, (3 * 60 + 2 * 2, 2 * (16 + 40))),
        (1, False, 30, (30, 20)),
        (2, True, 602, (300 + 2 + 300, 20 + 200)),  # the bar is 300 / 14, even
        (1, False, 31, (30, 20)),  # video needs even sizes
    ],
)
def test_the_size_of_a_grid(count, labels, width, size):
    grid = Grid(count, [f"seed {k}" for k in range(count)] if labels else (), width)
    drawn = grid.picture([frame()] * count, [0.0] * count)
    assert drawn.size == grid.size == size


def test_large_frames_are_made_smaller():
    assert Grid(1).picture([frame(width=1000, height=500)], [0.0]).size == (480, 240)
    assert Grid(4).picture([frame(width=1000, height=500)] * 4, [0.0] * 4).size == (2 * 478 + 2, 2 * 238)


def test_each_member_has_its_place_and_its_label():
    labels = ["seed 3", "seed 4 (expectile=0.7, beta=10, actor_learning_rate=0.0003)"]
    drawn = Grid(2, labels).picture([frame(RED), frame(GREEN)], [1.0, 0.0])
    assert drawn.getpixel((30, 30)) == RED
    assert drawn.getpixel((92, 30)) == GREEN
    bar = np.asarray(drawn)[:16, :, 0]
    assert bar[:, :60].max() > 150  # letters
    assert bar[:, 62:].max() > 32
    assert (bar[:, -4:] == 32).all()  # a long label is written smaller
    changed = Grid(2, labels).picture([frame(RED), frame(GREEN)], [7.0, 0.0])
    assert (np.asarray(changed)[:16, :60] != np.asarray(drawn)[:16, :60]).any()  # the return is part of it


def test_delays_add_up_to_the_exact_time_and_equal_pictures_are_one(tmp_path):
    shown = [picture((0, 120 * (number % 2), 12 * number)) for number in range(20)]
    assert write_animation(tmp_path / "a.gif", iter([*shown, *[shown[-1]] * 10]), 30.0) == 30
    found = read_gif(tmp_path / "a.gif")
    assert [delay for _, delay in found[:6]] == [30, 40, 30, 30, 40, 30]
    assert sum(delay for _, delay in found) == 1000
    assert len(found) == 20


def test_the_background_never_flickers_and_a_late_colour_is_shown(tmp_path):
    """A picture has hundreds of shades, so its palette is full when the new colour comes."""
    ramp = np.arange(128, dtype=np.uint8)
    shades = np.stack(np.broadcast_arrays(ramp[:, None] + 100, ramp[None, :] + 100, ramp[:, None] // 2 + 100), axis=2)
    pictures = []
    for colour in (RED, RED, RED, GREEN, RED):
        drawn = Image.new("RGB", (160, 160), WHITE)
        drawn.paste(Image.fromarray(shades), (0, 0))
        drawn.paste(colour, (140, 140, 160, 160))
        pictures.append(drawn)
    write_animation(tmp_path / "a.gif", iter(pictures), 10.0)
    found = read_gif(tmp_path / "a.gif")
    assert len(found) == 3  # the first three are the same
    for (drawn, _), colour in zip(found, (RED, GREEN, RED), strict=True):
        assert drawn.getpixel((150, 20)) == WHITE
        assert np.abs(np.subtract(drawn.getpixel((150, 150)), colour)).max() <= 10


@pytest.fixture
def ffmpeg(tmp_path, monkeypatch):
    """A stand-in for ffmpeg that writes its arguments and what it was sent."""

    def install(script):
        program = tmp_path / "bin" / "ffmpeg"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/bash\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")

    return install


def test_ffmpeg_gets_the_raw_pictures(tmp_path, ffmpeg):
    ffmpeg(r'printf "%s " "${@:1:$#-1}" > "${!#}"; cat >> "${!#}"')
    path = tmp_path / "a.mp4"
    check_target(path, overwrite=False)
    pictures = [picture(RED), picture(GREEN)]
    assert write_animation(path, iter(pictures), 12.5) == 2
    source = "-loglevel error -f rawvideo -pix_fmt rgb24 -s 40x20 -r 12.500000 -i - "
    raw = b"".join(one.tobytes() for one in pictures)
    assert path.read_bytes() == f"{source}-pix_fmt yuv420p -movflags +faststart ".encode() + raw


@pytest.mark.parametrize("script", ["exec 0<&-; echo no room >&2; exit 1", "cat > /dev/null; echo no room >&2; exit 1"])
def test_a_failure_of_ffmpeg_is_one_line(tmp_path, ffmpeg, script):
    ffmpeg(script)
    pictures = [picture(RED, size=(400, 400))] * 20
    with pytest.raises(StorageError, match=r"ffmpeg cannot write the animation: no room$"):
        write_animation(tmp_path / "a.mp4", iter(pictures), 30.0)
    assert not (tmp_path / "a.mp4").exists()


@pytest.mark.parametrize("name", ["a.gif", "a.mp4"])
def test_a_failure_while_drawing_leaves_no_file_and_no_program(tmp_path, ffmpeg, name, monkeypatch):
    ffmpeg('exec cat > "${!#}"')
    started, start = [], subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **how: started.append(start(*given, **how)) or started[-1])

    def pictures():
        yield picture(RED)
        yield picture(GREEN)
        raise ConfigError("the environment failed")

    with pytest.raises(ConfigError, match="the environment failed"):
        write_animation(tmp_path / name, pictures(), 30.0)
    assert not (tmp_path / name).exists()
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]
    assert [one.returncode is not None for one in started] == ([True] if name == "a.mp4" else [])


def test_what_cannot_be_written_is_said_before_anything_is_drawn(tmp_path, monkeypatch):
    check_target(tmp_path / "new" / "a.GIF", overwrite=False)
    with pytest.raises(ConfigError, match=r"a\.webp: an animation is a \.gif or a \.mp4 file"):
        check_target(tmp_path / "a.webp", overwrite=False)
    (tmp_path / "a.gif").touch()
    with pytest.raises(ConfigError, match=r"a\.gif: already exists; choose another path, or replace a file by --overwrite"):
        check_target(tmp_path / "a.gif", overwrite=False)
    check_target(tmp_path / "a.gif", overwrite=True)
    (tmp_path / "folder.gif").mkdir()
    with pytest.raises(ConfigError, match="already exists"):
        check_target(tmp_path / "folder.gif", overwrite=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"a\.mp4: MP4 needs the program `ffmpeg` on PATH; install it, or write a GIF"):
        check_target(tmp_path / "a.mp4", overwrite=False)
    monkeypatch.setattr("rl_training.envs.animation.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r'animations need Pillow: pip install "rl-training\[render\]"'):
        check_target(tmp_path / "b.gif", overwrite=False)
