"""Frames of a terminal as one SVG that moves: Rich draws each different line once, a strip of frames refers to them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from tools.pictures.terminal import HEIGHT, WIDTH, Frame

LINE = 24.4
"""Rich's distance between lines, in pixels."""
_SEPARATOR = "\n%%\n"
_PARTS = ("styles", "matrix", "chrome", "width", "height", "terminal_x", "terminal_y", "backgrounds")
_TEXT = re.compile(r'<text (?P<said>[^>]*?) y="[\d.]+"(?P<more>[^>]*?) clip-path="url\(#film-line-(?P<line>\d+)\)">')
_SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">
<style>
text {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 20px; }}
.film-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
#strip {{ animation: film {seconds:.2f}s step-end infinite; }}
@keyframes film {{ {keys} }}
@media (prefers-reduced-motion: reduce) {{ #strip {{ animation: none; transform: translateY(-{last}px); }} }}
</style>
<defs>
<clipPath id="film-clip-terminal"><rect width="{text_width}" height="{frame_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({x}, {y})" clip-path="url(#film-clip-terminal)"><g id="strip">
{strip}
</g></g>
</svg>
"""


def svg(frames: Sequence[Frame], title: str, label: str) -> str:
    """The film, as text."""
    different = list(dict.fromkeys(line for frame in frames for line in frame.lines if line))
    names = {line: f"l{number}" for number, line in enumerate(different)}
    text, window = _drawn(different, title), _drawn([""] * HEIGHT, title)
    tall = HEIGHT * LINE
    return _SVG.format(
        **{name: window[name] for name in ("width", "height", "chrome")},
        x=window["terminal_x"],
        y=window["terminal_y"],
        label=label,
        styles=text["styles"],
        seconds=sum(frame.seconds for frame in frames),
        keys=_keys(frames, tall),
        last=_short((len(frames) - 1) * tall),
        text_width=_short(WIDTH * 12.2),
        frame_height=_short(tall),
        lines="\n".join(_lines(text["matrix"])),
        strip="\n".join(_strip(frames, names, tall)),
    )


def _drawn(lines: Iterable[str], title: str) -> dict[str, str]:
    """Parts of the picture that Rich draws of these lines."""
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False
    )
    for line in lines:
        console.print(Text.from_ansi(line), no_wrap=True, overflow="crop", crop=True)
    form = _SEPARATOR.join(f"{{{name}}}" for name in _PARTS)
    drawn = console.export_svg(title=title, code_format=form, unique_id="film")
    parts = dict(zip(_PARTS, drawn.split(_SEPARATOR), strict=True))
    if parts["backgrounds"].strip():
        raise ValueError("the program paints backgrounds, which the film can't show")
    return parts


def _lines(matrix: str) -> Iterable[str]:
    """A named group for each line, of which Rich draws each run of one style by itself."""
    groups: dict[str, list[str]] = {}
    for drawn in matrix.splitlines():
        for part in re.findall(r"<text.*?</text>", drawn):
            if (place := _TEXT.match(part)) is None:
                raise ValueError(f"Rich draws text differently now: {part}")
            said = f'<text {place["said"]} y="20"{place["more"]}>{part[place.end() :]}'
            if part[place.end() : -len("</text>")].replace("&#160;", "").strip():
                groups.setdefault(place["line"], []).append(said)
    return (f'<g id="l{number}">{"".join(parts)}</g>' for number, parts in groups.items())


def _keys(frames: Sequence[Frame], tall: float) -> str:
    """At which percentage of the film which frame begins."""
    whole, at, keys = sum(frame.seconds for frame in frames), 0.0, []
    for number, frame in enumerate(frames):
        keys.append(f"{100 * at / whole:.3f}% {{ transform: translateY(-{_short(number * tall)}px) }}")
        at += frame.seconds
    return " ".join(keys)


def _strip(frames: Sequence[Frame], names: dict[str, str], tall: float) -> Iterable[str]:
    for number, frame in enumerate(frames):
        used = [
            f'<use href="#{names[line]}" y="{_short(number * tall + row * LINE)}"/>'
            for row, line in enumerate(frame.lines)
            if line
        ]
        yield "".join(used)


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
