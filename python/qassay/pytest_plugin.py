"""The pytest plugin: cases of a sweep as tests, a report of a session's assays, and the audit of the asserts that are there.

    @pytest.mark.qassay("smoke", op="gemm", match="e4m3")
    def test_mine(qassay_case):
        qassay_case.check(my_gemm(qassay_case.numpy("a.codes"), ...))

`--qassay-report DIR` writes every failed bundle and a page; `--qassay-audit` asks what the asserts people already have are worth.
"""

from __future__ import annotations

import csv
import os
import re
import subprocess
from typing import Any

import pytest

import qassay as module

from . import _audit, _bundle, _checks
from ._errors import HIDE, InputError
from ._process import ask, program
from ._result import Result

CASE = "qassay_case"
COLUMNS = ("test", "label", "verdict", "suspect", "bound_ratio", "bundle", "reason")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("qassay", "assays of quantized kernels")
    group.addoption("--qassay-report", metavar="DIR", help="write every failed bundle, assays.csv and index.html there")
    group.addoption("--qassay-keep", action="store_true", help="with --qassay-report: the bundles that pass too")
    group.addoption("--qassay-audit", action="store_true", help="ask each numeric assertion that passed which wrong results it would let pass")
    group.addoption("--qassay-audit-budget", metavar="SECONDS", type=float, default=0.5, help="time for each assertion that is asked (0.5)")
    group.addoption("--qassay-audit-report", metavar="FILE", help="write what was found as JSON, and as HTML where it ends in .html")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    if early_config.known_args_namespace.qassay_audit:
        _audit.before_modules(early_config)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "qassay(sweep, op=None, match=()): one test for each case of a sweep, as argument qassay_case")
    config.stash[SESSION] = session = Session(config)
    _checks.LISTENERS.append(session.collect)
    if config.getoption("--qassay-audit"):
        config.pluginmanager.register(_audit.Plugin(config), "qassay-audit")


def pytest_unconfigure(config: pytest.Config) -> None:
    session = config.stash.get(SESSION, None)
    if session is not None and session.collect in _checks.LISTENERS:
        _checks.LISTENERS.remove(session.collect)


# -- cases ------------------------------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("qassay")
    where = metafunc.definition.nodeid
    if mark is None:
        return
    if CASE not in metafunc.fixturenames:
        raise pytest.UsageError(f"{where}: mark qassay without an argument {CASE}; add it")
    if len(mark.args) != 1 or not set(mark.kwargs) <= {"op", "match"}:
        raise pytest.UsageError(f'{where}: found qassay{mark.args}, expected qassay("sweep", op="gemm", match="e4m3")')
    match = mark.kwargs.get("match", ())
    try:
        head, _ = ask("cases", sweep=mark.args[0], match=[match] if isinstance(match, str) else list(match))
    except InputError as e:
        raise pytest.UsageError(f"{where}: {e}") from None
    cases = [c for c in head["cases"] if mark.kwargs.get("op") in (None, c["op"])]
    if not cases:
        raise pytest.UsageError(f"{where}: no case of {mark.args[0]} has op={mark.kwargs.get('op')!r} and match={match!r}")
    marks = lambda c: [pytest.mark.skip(reason=c["skip"])] if c["skip"] else []
    metafunc.parametrize(CASE, [pytest.param((mark.args[0], c["id"]), id=c["id"], marks=marks(c)) for c in cases], indirect=True)


@pytest.fixture(name=CASE)
def _case(request: pytest.FixtureRequest) -> "Case":
    """One case of the sweep that the test's mark names."""
    if not hasattr(request, "param"):
        raise pytest.UsageError(f'{request.node.nodeid}: argument {CASE} without @pytest.mark.qassay("sweep")')
    return Case(*request.param)


class Case(_bundle.Bundle):
    """What a kernel is given for one case: `meta`, `numpy(name)`, `torch(name, device)`, `values(x)`; `check(out)` judges the result."""

    def __init__(self, sweep: str, id: str) -> None:
        head, body = ask("case", sweep=sweep, id=id)
        self._parse(body)
        self.id, self.sweep = id, sweep
        #: Shape of the result.
        self.out_shape = tuple(head["out_shape"])
        #: numpy's name of the result's type; a float8 format where codes are asked for.
        self.out_dtype = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}.get(self.meta.get("out.format", ""), self.meta.get("out.format"))

    def numpy(self, name: str):
        """A tensor as numpy holds it (ml_dtypes' float8 and bfloat16 where it is installed)."""
        return _checks.native(self.tensors[name])

    def check(self, actual: Any, *, amax: Any = None, **how: Any) -> Result:
        """Judges `actual`, the result of the case; raises KernelFailure."""
        __tracebackhide__ = HIDE
        _checks.refuse_unknown("check", how)
        held = _checks.Held(self.op, how)
        held.meta |= self.meta
        held.tensors = {n: (raw.bytes, raw.dtype, raw.shape) for n, raw in self.tensors.items()}
        if amax is not None:
            held.scalar("out.amax", amax, "amax")
        if hasattr(actual, "codes") and hasattr(actual, "scale_inv"):
            sub = _checks.Held(self.op, how)
            sub.operand("out", actual, None)
            held.tensors |= sub.tensors
            held.meta |= {k: v for k, v in sub.meta.items() if k.startswith("out.")}
        else:
            part = held.put("out", actual)
            if part[1] not in ("F32", "F16", "BF16"):
                held.tensors["out.codes"] = held.tensors.pop("out")
        # What the case asks for, where its result says it itself.
        if "out" in held.tensors:
            held.tensors.pop("out.scale", None)
        parts = _bundle.blob(held.tensors, held.meta)
        timeout = float(how.get("timeout", 60.0))
        head, _ = ask("assay", parts, timeout, label=self.id, seconds=min(20.0, timeout / 2))
        result = Result(head["answer"], self.id, parts)
        for listener in _checks.LISTENERS:
            listener(result)
        return result.check(how.get("power", "require"), how.get("suspect", "fail"))


# -- the session's assays ---------------------------------------------------------------------------------------------


class Session:
    """Every assay of a session, and where its bundle is."""

    def __init__(self, config: pytest.Config) -> None:
        self.folder = config.getoption("--qassay-report")
        self.keep = config.getoption("--qassay-keep")
        self.worker = os.environ.get("PYTEST_XDIST_WORKER", "")
        self.item: pytest.Item | None = None
        self.results: list[Result] = []
        self.rows: list[dict[str, Any]] = []
        if self.folder:
            os.makedirs(os.path.join(self.folder, "bundles"), exist_ok=True)
            if not self.worker:
                for name in os.listdir(self.folder):
                    if name.startswith("assays-"):
                        os.remove(os.path.join(self.folder, name))

    def collect(self, result: Result) -> None:
        node = self.item.nodeid if self.item else "outside a test"
        self.results.append(result)
        if self.item:
            self.item.user_properties.append(("qassay", result.verdict))
        if not self.folder:
            return
        path = ""
        if self.keep or result.verdict != "pass":
            name = re.sub(r"[^\w.\-]+", "_", node)[-120:]
            path = os.path.join(self.folder, "bundles", f"{name}-{len(self.results)}.safetensors")
            result.save(path)
        row = (node, result.label, result.verdict, result.suspect, result.bound_ratio, path, result.reason)
        self.rows.append(dict(zip(COLUMNS, row)))

    def finish(self) -> None:
        """Each worker's rows are a file of its own; the controller joins them."""
        if not self.folder:
            return
        with open(os.path.join(self.folder, f"assays-{self.worker or 'main'}.csv"), "w", newline="") as f:
            writer = csv.DictWriter(f, COLUMNS)
            writer.writeheader()
            writer.writerows(self.rows)
        if not self.worker:
            self.join()

    def join(self) -> None:
        rows, parts = [], sorted(n for n in os.listdir(self.folder) if n.startswith("assays-"))
        for name in parts:
            path = os.path.join(self.folder, name)
            with open(path, newline="") as f:
                rows += list(csv.DictReader(f))
            os.remove(path)
        with open(os.path.join(self.folder, "assays.csv"), "w", newline="") as f:
            writer = csv.DictWriter(f, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
        bundles = [r["bundle"] for r in rows if r["bundle"]]
        if bundles:
            page = os.path.join(self.folder, "index.html")
            subprocess.run([program(), "assay", *bundles, "--html", page], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        self.said = f"{len(rows)} assays, {len(bundles)} bundles in {self.folder}"


SESSION = pytest.StashKey[Session]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None):
    session = item.config.stash[SESSION]
    session.item = item
    yield
    session.item = None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    session.config.stash[SESSION].finish()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    said = getattr(config.stash[SESSION], "said", None)
    if said:
        terminalreporter.write_line(f"qassay: {said}")


class Collector:
    """The module, with the results of this test in `results`."""

    def __init__(self, session: Session) -> None:
        self._session, self._from = session, len(session.results)

    @property
    def results(self) -> list[Result]:
        return self._session.results[self._from :]

    def __getattr__(self, name: str) -> Any:
        return getattr(module, name)


@pytest.fixture
def qassay(request: pytest.FixtureRequest) -> Collector:
    """qassay's functions; `results` has every assay of this test."""
    return Collector(request.config.stash[SESSION])
