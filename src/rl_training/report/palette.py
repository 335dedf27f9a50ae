"""How curves are told apart, on the page and in pictures: by colour, and where they are many by dashes too."""

from typing import Final

# Each pair differs by a CIEDE2000 of 15 or more, for readers who are blind to red, green or blue too, and stands out from its
# background by 3:1 (WCAG, lines): so lightness is spread as widely as that allows.
LIGHT: Final = ("#5088f8", "#a04000", "#005058", "#f030a8", "#a88810", "#3800b8", "#503828", "#787870")
DARK: Final = ("#70a8f8", "#b85010", "#387868", "#f8e0f8", "#e0a000", "#8050d8", "#b8f8b0", "#a8a8a0")
DASHES: Final = ("", "9 4", "2 3", "10 3 2 3", "10 3 2 3 2 3")  # of the first eight curves, the second eight, ...
NAME_DASHES: Final = ("", "5 3")  # of the first and the second kind of curve on one chart, such as training and held out
REFERENCE_DASHES: Final = ("2 4", "10 3 2 3")


def colour_of(group: int) -> int:
    """Return the place of a group's colour among the colours."""
    return group % len(LIGHT)


def dash_of(group: int) -> str:
    """Return the dashes of a group's curves, as SVG has them; empty for a solid line."""
    return DASHES[group // len(LIGHT) % len(DASHES)]


def kind_dash(kind: int) -> str:
    """Return the dashes of a kind of curve where a chart has several kinds."""
    return NAME_DASHES[kind % len(NAME_DASHES)]


def reference_dash(number: int) -> str:
    """Return the dashes of a chart's reference."""
    return REFERENCE_DASHES[number % len(REFERENCE_DASHES)]


def style_sheet() -> str:
    """Return the colours as CSS: `--c0` and the class `c0`, and so on, for a light and a dark page."""
    names = "".join(f"--c{i}:light-dark({light},{dark});" for i, (light, dark) in enumerate(zip(LIGHT, DARK, strict=True)))
    classes = "".join(f".c{i}{{color:var(--c{i})}}" for i in range(len(LIGHT)))
    return f":root{{{names}}}{classes}\n"
