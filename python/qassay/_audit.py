"""`pytest --qassay-audit`: what the asserts people already have are worth.

After an assertion passed, it is asked again with the actual value changed as wrong kernels change it. No outcome changes: the assertion's
own answer came first, and only it counts.
"""

from __future__ import annotations

import functools
import html
import importlib
import json
import os
import shlex
import shutil
import sys
import tempfile
import threading
import time
import unittest
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pytest

from . import _mutants, _slice

#: module, function, names of actual and expected, whether the answer is returned (or raised).
TARGETS = [
    ("numpy.testing", "assert_allclose", ("actual", "desired"), False),
    ("numpy.testing", "assert_array_almost_equal", ("actual", "desired"), False),
    ("numpy.testing", "assert_almost_equal", ("actual", "desired"), False),
    ("numpy", "allclose", ("a", "b"), True),
    ("torch.testing", "assert_close", ("actual", "expected"), False),
    ("torch", "allclose", ("input", "other"), True),
]
#: Calls that are asked at one place.
CALLS = 3
#: Elements of an array that is asked; larger ones cost too much.
LARGEST = 1 << 24


def before_modules(config: pytest.Config) -> None:
    """pytest's hook for asserts that pass must be on before a test module is rewritten, and no module may come from a cache that was
    written without it."""
    config._inicache["enable_assertion_pass_hook"] = True
    sys.pycache_prefix = tempfile.mkdtemp(prefix="qassay-audit-")


@dataclass
class Found:
    """What one assertion lets pass."""

    file: str
    line: int
    how: str
    source: str
    test: str
    calls: int = 0
    #: Largest and smallest gain that pass; inf and 0 where no gain is caught.
    gain_up: float = 1.0
    gain_down: float = 1.0
    #: Energy of the largest fault that passes, over the output's.
    energy: float = 0.0
    passes: list[str] = field(default_factory=list)
    caught: list[str] = field(default_factory=list)

    def badness(self) -> tuple[bool, float, float, float]:
        gain = max(self.gain_up, 1.0 / self.gain_down if self.gain_down else float("inf"))
        return ("zeros" in self.passes, self.energy, gain, float(len(self.passes)))

    def gains(self) -> str:
        if self.gain_up == self.gain_down == 1.0:
            # The step of the bisection.
            return f"none beyond ×{2 ** 2.0**-_mutants.STEPS:.5g}"
        up = "any" if self.gain_up == float("inf") else f"×{self.gain_up:.4g}"
        down = "×0" if self.gain_down == 0.0 else f"×{self.gain_down:.4g}"
        return "any gain" if (up, down) == ("any", "×0") else f"{down} to {up if up != 'any' else 'any'}"

    def line_of(self) -> str:
        energy = "any energy" if self.energy == float("inf") else f"{100 * self.energy:.3g} % of the energy"
        words = [self.gains() if self.gains() == "any gain" else f"gains {self.gains()}", energy]
        if "zeros" in self.passes:
            words.insert(0, "an all-zero output passes")
        others = [p for p in self.passes if p != "zeros"]
        if others:
            words.append("also " + ", ".join(others))
        return "; ".join(words)


class Audit:
    """Asks, and keeps what was found."""

    def __init__(self, budget: float, root: str) -> None:
        self.budget, self.root = budget, root
        self.found: dict[tuple[str, int], Found] = {}
        self.inside = threading.local()
        self.test = ""
        self.seconds = 0.0
        self.parsed: dict[str, dict[int, _slice.Place]] = {}
        self.replaced: list[tuple[Any, str, Any]] = []
        self.originals: dict[int, Any] = {}
        self.homes: set[str] = set()

    # -- wrapping -----------------------------------------------------------------------------------------------------

    def wrap(self) -> None:
        """Puts a wrapper wherever a module holds one of the functions, also by `from … import`."""
        # numpy loads this when somebody first writes np.testing: that may be inside of a test.
        importlib.import_module("numpy.testing")
        self.homes = self.loaded()
        for module, name, words, returns in TARGETS:
            home = sys.modules.get(module)
            original = getattr(home, name, None)
            if original is None:
                continue
            wrapper = original if getattr(original, "qassay_original", None) else self.wrapper(original, f"{module}.{name}", words, returns)
            plain = getattr(wrapper, "qassay_original", original)
            for holder in list(sys.modules.values()):
                space = getattr(holder, "__dict__", None)
                if not isinstance(space, dict):
                    continue
                for key in [k for k, v in list(space.items()) if v is plain]:
                    space[key] = wrapper
                    self.replaced.append((space, key, plain))
        for name in _slice.COMPARE:
            original = getattr(unittest.TestCase, name)
            if not getattr(original, "qassay_original", None):
                setattr(unittest.TestCase, name, self.compared(original))
                self.replaced.append((unittest.TestCase, name, original))

    def unwrap(self) -> None:
        for holder, key, original in reversed(self.replaced):
            setattr(holder, key, original) if isinstance(holder, type) else holder.__setitem__(key, original)
        self.replaced.clear()

    @staticmethod
    def loaded() -> set[str]:
        return {module for module, *_ in TARGETS if module in sys.modules}

    def late(self) -> None:
        """A test may have imported torch: the next ones are asked."""
        if self.loaded() != self.homes:
            self.wrap()

    def wrapper(self, original: Callable, how: str, words: tuple[str, str], returns: bool) -> Callable:
        @functools.wraps(original)
        def asked(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if getattr(self.inside, "yes", False):
                return original(*args, **kwargs)
            self.inside.yes = True
            try:
                answer = original(*args, **kwargs)
                if not returns or (isinstance(answer, (bool, np.bool_)) and answer):
                    self.quietly(self.call, sys._getframe(1), how, original, words, returns, args, kwargs)
                return answer
            finally:
                self.inside.yes = False

        asked.qassay_original = original
        return asked

    def compared(self, original: Callable) -> Callable:
        @functools.wraps(original)
        def asked(case: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            answer = original(case, *args, **kwargs)
            self.plain(sys._getframe(1), sys._getframe(1).f_lineno)
            return answer

        asked.qassay_original = original
        return asked

    def quietly(self, f: Callable, *args: Any) -> None:
        """Whatever goes wrong in asking is nobody's failure; warnings are the mutants'."""
        started = time.perf_counter()
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                f(*args)
        except Exception:  # noqa: BLE001 - an assertion that cannot be asked is left out
            pass
        finally:
            self.seconds += time.perf_counter() - started

    # -- asking -------------------------------------------------------------------------------------------------------

    def call(self, frame: Any, how: str, original: Callable, words: tuple[str, str], returns: bool, args: tuple, kwargs: dict) -> None:
        """A call of one of the wrapped functions."""
        values = []
        for i, word in enumerate(words):
            values.append(args[i] if i < len(args) else kwargs.get(word, kwargs.get("xy"[i])))
        actual, expected = values
        if not _mutants.is_float(actual):
            return

        def ask(changed: Any) -> bool:
            if args:
                answer = original(changed, *args[1:], **kwargs)
            else:
                key = words[0] if words[0] in kwargs else "x"
                answer = original(**{**kwargs, key: changed})
            return bool(answer) if returns else True

        self.ask(frame.f_code.co_filename, frame.f_lineno, how, actual, expected, ask)

    def plain(self, frame: Any, line: int) -> None:
        """A plain assert, or unittest's comparison, of a number that was computed from two arrays."""
        if getattr(self.inside, "yes", False) or (frame.f_code.co_filename, line) in self.found and self.full(frame.f_code.co_filename, line):
            return
        self.inside.yes = True
        try:
            self.quietly(self.compare, frame, line)
        finally:
            self.inside.yes = False

    def compare(self, frame: Any, line: int) -> None:
        file = frame.f_code.co_filename
        if file not in self.parsed:
            with open(file, encoding="utf-8") as f:
                self.parsed[file] = _slice.places(f.read())
        place = self.parsed[file].get(line)
        if place is None or self.full(file, line):
            return
        part = _slice.Slice(place, frame)
        names = part.pair() if part.good else None
        if names is None:
            return
        actual, expected = part.value(names[0]), part.value(names[1])
        # What does not give the same answer again cannot be asked.
        if not part.ask(names[0], actual):
            return
        self.ask(file, line, "assert", actual, expected, _slice.asker(names[0], part))

    def full(self, file: str, line: int) -> bool:
        found = self.found.get((file, line))
        return found is not None and found.calls >= CALLS

    def ask(self, file: str, line: int, how: str, actual: Any, expected: Any, ask: Callable[[Any], bool]) -> None:
        key = (file, line)
        if self.full(file, line):
            return
        x = _mutants.Actual(actual)
        if x.values.size < 2 or x.values.size > LARGEST or not np.isfinite(x.values).any():
            return
        # A residual near zero is as good with any sign and any gain.
        wanted = _mutants.Actual(expected).values if _mutants.is_float(expected) else np.asarray(expected, np.float64)
        if not np.any(wanted) or not np.any(x.values):
            return
        end = time.perf_counter() + self.budget

        def passes(values: np.ndarray) -> bool | None:
            if time.perf_counter() > end:
                return None
            try:
                return bool(ask(x.like(values)))
            except Exception:  # noqa: BLE001 - any complaint catches the fault
                return False

        passed, caught, energy = [], [], 0.0
        for name, values in _mutants.mutants(x.values):
            seen = x.seen(values)
            if np.array_equal(seen, x.values, equal_nan=True):
                continue
            verdict = passes(values)
            if verdict is None:
                break
            (passed if verdict else caught).append(name)
            if verdict and np.isfinite(seen).all():
                energy = max(energy, _mutants.share(x.values, seen))
        up = _mutants.largest_gain(lambda g: passes(x.values * g))
        down = _mutants.smallest_gain(lambda g: passes(x.values * g))
        # Not a comparison of these values at all: nothing moves it.
        if not caught and up == float("inf"):
            return
        for g in (up, down):
            energy = max(energy, (g - 1.0) ** 2 if g != float("inf") else float("inf"))
        self.keep(key, how, passed, caught, energy, up, down)

    def keep(self, key: tuple[str, int], how: str, passed: list[str], caught: list[str], energy: float, up: float, down: float) -> None:
        found = self.found.get(key)
        if found is None:
            file, line = key
            try:
                with open(file, encoding="utf-8") as f:
                    source = f.read().splitlines()[line - 1].strip()
            except (OSError, IndexError, UnicodeDecodeError):
                source = ""
            shown = os.path.relpath(file, self.root) if file.startswith(self.root + os.sep) else short(file)
            found = self.found[key] = Found(shown, line, how, source, self.test)
        found.calls += 1
        # Of several calls, the most that any of them let pass.
        found.gain_up, found.gain_down = max(found.gain_up, up), min(found.gain_down, down)
        found.energy = max(found.energy, energy)
        found.passes = sorted({*found.passes, *passed})
        found.caught = sorted({*found.caught, *caught} - set(found.passes))


def short(file: str) -> str:
    """A path without the folders of the machine: from site-packages on."""
    head, mark, tail = file.rpartition("site-packages" + os.sep)
    return tail if mark else os.path.join(*file.split(os.sep)[-3:])


class Plugin:
    """The audit as a plugin of one session."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.audit = Audit(config.getoption("--qassay-audit-budget"), str(config.rootpath))
        self.audit.wrap()
        self.rows: list[dict[str, Any]] = []
        self.tests = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self) -> None:
        self.audit.wrap()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self.tests += 1
        self.audit.late()
        self.audit.test = item.nodeid

    def pytest_assertion_pass(self, item: pytest.Item, lineno: int, orig: str, expl: str) -> None:
        frame = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("_pytest", "pluggy", "pytest", "qassay"):
            frame = frame.f_back
        if frame is not None:
            self.audit.plain(frame, lineno)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.audit.unwrap()
        rows = [asdict(f) for f in self.audit.found.values()]
        output = getattr(self.config, "workeroutput", None)
        if output is not None:
            output["qassay_audit"] = json.dumps([self.tests, rows])
        else:
            self.rows += rows
            if sys.pycache_prefix and os.path.basename(sys.pycache_prefix).startswith("qassay-audit-"):
                shutil.rmtree(sys.pycache_prefix, ignore_errors=True)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        tests, rows = json.loads(getattr(node, "workeroutput", {}).get("qassay_audit", "[0, []]"))
        self.tests += tests
        self.rows += rows

    def places(self) -> list[Found]:
        """One for each place, worst first."""
        merged: dict[tuple[str, int], Found] = {}
        for row in self.rows:
            found = Found(**row)
            before = merged.setdefault((found.file, found.line), found)
            if before is not found:
                before.calls += found.calls
                before.gain_up, before.gain_down = max(before.gain_up, found.gain_up), min(before.gain_down, found.gain_down)
                before.energy = max(before.energy, found.energy)
                before.passes = sorted({*before.passes, *found.passes})
                before.caught = sorted({*before.caught, *found.caught} - set(before.passes))
        return sorted(merged.values(), key=lambda f: (f.badness(), f.file, -f.line), reverse=True)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if hasattr(self.config, "workeroutput"):
            return
        places = self.places()
        zeros = sum("zeros" in f.passes for f in places)
        write = terminalreporter.write_line
        terminalreporter.section("qassay audit: what these assertions let pass, worst first")
        write(f"{self.tests} tests, {len(places)} numeric assertions; an all-zero output passes {zeros} of them")
        for f in places[:20]:
            write(f"{f.file}:{f.line}: {f.source}")
            write(f"    {f.line_of()}")
        if len(places) > 20:
            write(f"… {len(places) - 20} more: --qassay-audit-report FILE has them all")
        path = self.config.getoption("--qassay-audit-report")
        if path:
            text = page(self.tests, places, ran=ran()) if path.endswith(".html") else json.dumps(
                {"tests": self.tests, "assertions": [{**asdict(f), "gain_up": finite(f.gain_up), "energy": finite(f.energy)} for f in places]}, indent=1
            )
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)


def finite(x: float) -> float | None:
    """JSON has no infinity: null is any."""
    return x if x != float("inf") else None


def ran() -> str:
    """When, by which version and command."""
    from . import __version__

    command = shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]])
    return f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}, qassay {__version__}: {command}"


def answer(tests: int, places: list[Found]) -> str:
    """The result in two sentences."""
    zeros = sum("zeros" in f.passes for f in places)
    gains = sum(f.gain_up >= 1.01 or f.gain_down <= 1 / 1.01 for f in places)
    return (f"{tests} tests, {len(places)} numeric assertions: an all-zero output passes {zeros or 'none'} of them, a result that is 1 % "
            f"too large or too small passes {gains or 'none'}.")


def page(tests: int, places: list[Found], title: str = "qassay audit", ran: str = "") -> str:
    """The report as one file; `ran` says when, by which version and command."""
    rows = []
    for f in places:
        zeros = "<b>zeros pass</b>" if "zeros" in f.passes else ""
        energy = "any" if f.energy == float("inf") else f"{100 * f.energy:.3g} %"
        cells = [f"{html.escape(f.file)}:{f.line}".replace("/", "/<wbr>"), f"<code>{html.escape(f.source)}</code>", zeros, html.escape(f.gains()), energy,
                 html.escape(", ".join(p for p in f.passes if p != "zeros")), str(f.calls)]
        rows.append("<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>")
    heads = ["place", "assertion", "all-zero output", "gains that pass", "energy of the largest fault that passes", "also passes", "calls asked"]
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:1400px;padding:0 1.5em;color:#1f2328;background:#fff}"
        ".wide{overflow-x:auto}table{border-collapse:collapse;--line:#d0d7de}td,th{border-top:1px solid var(--line);padding:.4em .7em;"
        "text-align:left;vertical-align:top}table{font-size:14px}td:nth-child(4){min-width:8em}td:nth-child(5){white-space:nowrap}td:nth-child(6){min-width:15em}code{font-size:13px}b{color:#cf222e}"
        ".ran{font-size:14px;margin:.2em 0;opacity:.8;overflow-wrap:anywhere}.answer{font-size:1.15em;font-weight:600}"
        "@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}table{--line:#30363d}b{color:#ff7b72}}"
        # On a phone an assertion is a few lines, not a row.
        "@media(max-width:640px){body{margin:0;padding:.8em}h1{font-size:1.4em}h2{font-size:1.15em}thead{display:none}"
        "table,tbody,tr,td{display:block}tr{border-top:1px solid var(--line);padding:.5em 0}td{border:0;padding:0;font-size:14px;"
        "overflow-wrap:anywhere}td:empty{display:none}td:first-child{font-weight:600}td:nth-child(4)::before{content:'gains that pass: '}"
        "td:nth-child(5)::before{content:'energy of the largest fault that passes: '}td:nth-child(6)::before{content:'also passes: '}"
        "td:nth-child(7)::before{content:'calls asked: '}}"
    )
    said = f"<p class=ran>{html.escape(ran)}</p>" if ran else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{style}</style></head><body><h1>{html.escape(title)}</h1>"
        f"{said}<p class=answer>{answer(tests, places)}</p>"
        f"<p>Each assertion that passed was asked again with the actual value changed. What it still let pass is listed, worst first.</p>"
        f'<div class="wide" tabindex="0" role="region" aria-label="Assertions"><table><thead>'
        f"<tr>{''.join(f'<th>{h}</th>' for h in heads)}</tr></thead><tbody>{''.join(rows)}</tbody></table></div></body></html>\n"
    )
