"""What was found of one run of one kernel."""

from __future__ import annotations

import html
import os
import re
import textwrap
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ._errors import HIDE, KernelFailure, NoPower

_SCIENTIFIC = re.compile(r"-?\d+(?:\.\d+)?e-?\d+")


def plain(text: str) -> str:
    """Numbers as people write them: `-2.6875e0` is -2.6875. No digit is lost."""

    def one(match: re.Match[str]) -> str:
        x = Decimal(match[0])
        return f"{x:f}" if x == 0 or -5 <= x.adjusted() <= 8 else match[0]

    return _SCIENTIFIC.sub(one, text)


@dataclass(frozen=True)
class Finding:
    """A fault that explains the error."""

    fault: str
    variant: str
    operand: str | None
    #: Share of the error's energy that is gone when the fault is undone, 0 to 1.
    explains: float | None
    detail: str
    look: str

    def __str__(self) -> str:
        where = f" {self.operand}" if self.operand and self.operand not in self.detail.split() else ""
        share = f", explains {100 * self.explains:.2f} %" if self.explains is not None else ""
        return f"{self.variant or self.fault}{where}{share}: {self.detail}"


class Result:
    """Verdict and numbers of one assay.

    It is neither true nor false: `verdict` is "pass", "fail" or "no_power", and `check()` raises unless it is a pass.
    """

    #: "pass", "fail" or "no_power".
    verdict: str
    #: A pass outside the probable bound, inside the certain one.
    suspect: bool
    #: Where, what was found, what was expected.
    reason: str
    #: What explains a failure, best first.
    diagnosis: list[Finding]
    #: The arithmetic that the result was held to, and why that one.
    model: str
    #: {"kernel", "quantization", "total"}: error statistics, or None where the unquantized values are not known.
    errors: dict[str, Any]
    #: The smallest faults that would have been caught.
    power: dict[str, Any]
    #: Elements whose bits differ from the device model's; None without a model.
    mismatches: int | None
    #: Largest error over its certain bound; None where it is not finite.
    bound_ratio: float | None
    #: What part of the result was judged; None: all of it.
    sample: str | None
    #: Where the f64 products that a large result was held to were computed: "cpu" or "gpu".
    products: str

    def __init__(self, answer: dict[str, Any], label: str, parts: list, sample: str | None = None) -> None:
        self.verdict, self.suspect = answer["verdict"], answer["suspect"]
        self.reason, self.model = plain(answer["reason"]), answer["model"]
        self.diagnosis = [Finding(**{k: d.get(k) for k in Finding.__dataclass_fields__}) for d in answer["diagnosis"]]
        self.errors, self.power = answer["errors"], answer["power"]
        self.mismatches, self.bound_ratio = answer["mismatches"], answer["bound_ratio"]
        self.sample, self.products = sample, answer.get("products", "cpu")
        self.text, self.map, self.label = plain(answer["text"]), answer["map"], label
        self._card = plain(answer["card"])
        self._parts, self._path = parts, None

    def __bool__(self) -> bool:
        raise TypeError('a Result is neither true nor false: compare result.verdict with "pass", or call result.check()')

    def __str__(self) -> str:
        sample = f"  {'sample':<13}{self.sample}\n" if self.sample else ""
        return self.text + sample

    def __repr__(self) -> str:
        return f"<qassay.Result {self.verdict}{' (suspect)' if self.suspect else ''}: {self.reason or self.model}>"

    def __reduce__(self):
        answer = {
            "verdict": self.verdict, "suspect": self.suspect, "reason": self.reason, "model": self.model,
            "diagnosis": [vars(d) for d in self.diagnosis], "errors": self.errors, "power": self.power,
            "mismatches": self.mismatches, "bound_ratio": self.bound_ratio, "text": self.text, "card": self._card, "map": self.map,
        }
        return type(self), (answer, self.label, [bytes(memoryview(p)) for p in self._parts], self.sample)

    def card(self) -> str:
        """The failure in a few lines; the first says it all."""
        lines = [self._card.rstrip("\n")]
        if self.verdict == "no_power":
            lines.append('      give data that can show them, or power="ignore"')
        indent = {"initial_indent": " " * 6, "subsequent_indent": " " * 8, "break_long_words": False, "break_on_hyphens": False}
        lines += textwrap.wrap(f"held to: {self.model}", 100, **indent)
        if self.sample:
            lines.append(f"      sample: {self.sample}")
        if self._path:
            lines.append(f"      again: qassay assay {self._path}")
        else:
            lines.append("      again: error.result.save('fail.safetensors'), then qassay assay fail.safetensors")
        return "\n".join(lines)

    def check(self, power: str = "require", suspect: str = "fail") -> "Result":
        """Itself when it is a pass. Raises KernelFailure, or NoPower unless `power` is "ignore".

        A suspect result raises too, unless `suspect` is "ignore": every element is inside its certain bound, but right arithmetic makes
        errors this large for one tensor in 10⁹ at most.
        """
        __tracebackhide__ = HIDE
        for name, value, choices in (("power", power, ("require", "ignore")), ("suspect", suspect, ("fail", "ignore"))):
            if value not in choices:
                raise TypeError(f'{name} is {value!r}, expected "{choices[0]}" or "{choices[1]}"')
        if self.verdict == "fail" or (self.suspect and suspect == "fail"):
            raise KernelFailure(self.card(), self)
        if self.verdict == "no_power" and power == "require":
            raise NoPower(self.card(), self)
        return self

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes the bundle: `qassay assay PATH` judges it again, anywhere."""
        with open(path, "wb") as f:
            f.writelines(self._parts)
        self._path = os.fspath(path)
        return self._path

    def html(self) -> str:
        """A page of its own: every number, the map of the error."""
        from ._process import ask

        head, _ = ask("page", self._parts, label=self.label)
        return head["page"]

    def _repr_html_(self) -> str:
        """The card, as everywhere else, then the numbers and the map."""
        kind = "suspect" if self.suspect else self.verdict
        colour = {"pass": "#2b9348", "suspect": "#b7791f", "fail": "#e5484d", "no_power": "#8b5cf6"}[kind]
        head, *lines = _paragraphs(self._card)
        word, title, name = (re.split(r"\s{2,}", head) + ["", ""])[:3]
        name = f" <code>{html.escape(name)}</code>" if name else ""
        said = [f'<b style="color:{colour}">{word.lower().replace("_", " ")}</b> <b>{html.escape(title)}</b>{name}']
        # What a diagnosis found comes first, where there is one.
        said += [f"<b>{html.escape(line)}</b>" if name and i == 0 else html.escape(line) for i, line in enumerate(lines)]
        said.append(html.escape(f"held to: {self.model}"))
        rows = []
        if self.bound_ratio is not None:
            rows.append(f"largest error / bound {self.bound_ratio:.4g}")
        if self.mismatches is not None:
            rows.append(f"{self.mismatches} elements with other bits than the device model's")
        if self.power.get("gain") is not None:
            more = self.power["gain"] - 1
            rows.append("would have caught a gain of " + (f"×(1 + {more:.3g})" if more < 1e-3 else f"×{1 + more:.4g}"))
        if self.sample:
            rows.append(f"sample: {self.sample}")
        said.append(html.escape("; ".join(rows)))
        body = "".join(f'<div style="margin:.15em 0;overflow-wrap:anywhere">{line}</div>' for line in said if line)
        return f'<div style="border-left:4px solid {colour};padding-left:.8em;max-width:60em">{body}{self._map()}</div>'

    def _map(self) -> str:
        """Error over bound, a square for each tile: pale is near the bound, red is over it. Nothing where every element is exact."""
        cells, side = self.map["cells"], 10
        if not any(ratio is None or ratio != 0 for row in cells for ratio in row):
            return ""
        squares = []
        for i, row in enumerate(cells):
            for j, ratio in enumerate(row):
                over = ratio is None or not ratio <= 1.0
                fill = "#e03131" if over else f"hsl(210 62% {27 + 58 * ratio:.0f}%)"
                what = "not finite" if ratio is None else f"{ratio:.4g}"
                place = f"rows {i * self.map['tile_rows']}…, columns {j * self.map['tile_cols']}…: {what}"
                squares.append(f'<rect x="{j * side}" y="{i * side}" width="{side}" height="{side}" fill="{fill}"><title>{place}</title></rect>')
        width, height = len(cells[0]) * side, len(cells) * side
        see = (f"error / bound: dark 0, pale 1, red over it; rows downwards, columns across, "
               f"a square is {self.map['tile_rows']} × {self.map['tile_cols']} elements")
        return (f'<div style="margin:.5em 0 .2em;opacity:.8">{see}</div><svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
                f'style="max-width:100%;height:auto" xmlns="http://www.w3.org/2000/svg" role="img" aria-label="error over bound">{"".join(squares)}</svg>')


def _paragraphs(card: str) -> list[str]:
    """The lines of a card, each whole: what was indented further goes on with the line before."""
    lines: list[str] = []
    for line in card.rstrip("\n").split("\n"):
        if line.startswith(" " * 8) and len(lines) > 1:
            lines[-1] += " " + line.strip()
        else:
            lines.append(line.strip())
    return lines
