"""What the keys do, and what the words mean."""

from __future__ import annotations

from rich.text import Text

from agent.commands.top.screen.look import BOLD, DIM, HEAD, STYLES, Look
from exporters.markup import Tone

WORDS = (
    ("behind", Tone.WARN, "does far less than the busiest GPU of its job"),
    ("waits", Tone.WARN, "100% busy at a fraction of its power: it spins for a peer"),
    ("throttled", Tone.BAD, "heat or the power supply lowers its clocks"),
    ("slow", Tone.WARN, "low clocks for which the driver gives no reason"),
    ("no answer", Tone.BAD, "the driver does not answer for it; lost: it is gone"),
    ("link down", Tone.BAD, "one of its NVLinks is inactive"),
    ("XID", Tone.WARN, "the driver reported an error in the last hour"),
)


def help_lines(look: Look) -> list[Text]:
    """The page, from top to bottom."""
    arrows, enter = look.glyphs.arrows, look.glyphs.enter
    keys = (
        (f"{arrows} j k", "select a GPU (also: click, wheel)"),
        (f"{enter} or click", "zoom into the selected GPU; Esc: back"),
        ("g", "only the GPUs of this GPU's job, on all nodes shown"),
        ("s, r", "sort by the next column; reverse"),
        ("/", "filter by words: node, state, model, job, user; Esc clears"),
        ("space", "freeze the picture; sampling goes on"),
        ("m", "mouse off and on (off: the terminal selects text)"),
        ("?, q", "this page; quit"),
    )
    lines = [look.line(("coldplate top: keys", HEAD))]
    lines += [look.line((look.pad(f"  {name}", 14), BOLD), f" {what}") for name, what in keys]
    lines += [look.line(""), look.line(("States, the worst first on the screen", HEAD))]
    lines += [look.line((look.pad(f"  {word}", 14), STYLES[tone]), f" {what}") for word, tone, what in WORDS]
    lines += [look.line(""), look.line(("- stands where there is no value. Any key: back", DIM))]
    return lines
