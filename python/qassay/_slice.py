"""What a plain `assert cosine > 0.99` compares: the assignments between the nearest arrays and the scalar, ready to run again."""

from __future__ import annotations

import ast
import builtins
import re
import types
from collections.abc import Callable
from typing import Any

from . import _mutants

METRIC = re.compile(r"diff|err|cos|sim|mse|rms|norm|snr|psnr|close|dist|metric|loss|corr|dev|match|accuracy", re.I)
ACTUAL = re.compile(r"^(out|outs|output|actual|got|res|result|y|o|c|d|pred|test|mine|fused|quant|fp8|kernel|tri)", re.I)
EXPECTED = re.compile(r"ref|expect|desired|want|gold|target|true|exact|baseline|torch_out", re.I)
BUILTINS = {"abs", "float", "max", "min", "sum", "len", "bool", "all", "any", "int", "round", "pow", "zip", "range", "enumerate"}
METHODS = set(
    "abs all allclose amax amin any argmax astype clone conj copy cpu cuda detach dot double eq flatten float ge gt half isclose isfinite isnan "
    "item le log log10 lt max mean min ne norm numel numpy pow prod ravel real reshape size sqrt square squeeze std sub sum to tolist type "
    "unsqueeze var view".split()
)
#: Of libraries: never anything with a state, and nothing that starts work of its own.
REFUSED = re.compile(r"random|seed|cuda|save|load|compile|empty|linalg\.(?!norm)|rand|manual")
COMPARE = {"assertLess": ast.Lt, "assertLessEqual": ast.LtE, "assertGreater": ast.Gt, "assertGreaterEqual": ast.GtE}


class Place:
    """One assert, or call of unittest's, in its blocks."""

    def __init__(self, test: ast.expr, before: list[ast.stmt]) -> None:
        self.test, self.before = test, before


def places(source: str) -> dict[int, Place]:
    """Every assert of a file by its line, with the statements that ran before it in its function, in order."""
    found: dict[int, Place] = {}

    def walk(body: list[ast.stmt], before: list[ast.stmt]) -> None:
        seen = list(before)
        for statement in body:
            test = compared(statement)
            if test is not None:
                found[statement.lineno] = Place(test, list(seen))
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                walk(statement.body, [])
            else:
                for part in ("body", "orelse", "finalbody"):
                    inner = getattr(statement, part, None)
                    if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
                        walk(inner, seen)
            # What a `with` computes is there after it; a branch may not have run.
            seen.extend(statement.body if isinstance(statement, ast.With) else [statement])

    walk(ast.parse(source).body, [])
    return found


def compared(statement: ast.stmt) -> ast.expr | None:
    if isinstance(statement, ast.Assert):
        return statement.test
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if isinstance(call.func, ast.Attribute) and call.func.attr in COMPARE and len(call.args) >= 2:
            compare = ast.Compare(left=call.args[0], ops=[COMPARE[call.func.attr]()], comparators=[call.args[1]])
            return ast.fix_missing_locations(ast.copy_location(compare, call))
    return None


def names(node: ast.AST) -> list[str]:
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]


def bound(node: ast.AST) -> set[str]:
    """Names that a comprehension or lambda inside binds itself."""
    own = {n.id for c in ast.walk(node) if isinstance(c, ast.comprehension) for n in ast.walk(c.target) if isinstance(n, ast.Name)}
    return own | {a.arg for c in ast.walk(node) if isinstance(c, ast.Lambda) for a in c.args.args}


class Slice:
    """A comparison that can be asked again with one array changed."""

    def __init__(self, place: Place, frame: types.FrameType) -> None:
        self.globals, self.locals = frame.f_globals, dict(frame.f_locals)
        self.file = frame.f_code.co_filename
        self.roots: list[str] = []
        self.steps: list[ast.stmt] = []
        self.good = self.collect(place)
        if not self.good:
            return
        body = [*self.steps]
        self.code = compile(ast.Module(body=body, type_ignores=[]), self.file, "exec")
        self.test = compile(ast.Expression(place.test), self.file, "eval")

    def value(self, name: str) -> Any:
        if name in self.locals:
            return self.locals[name]
        return self.globals.get(name, getattr(builtins, name, None))

    def collect(self, place: Place) -> bool:
        """Fills roots and steps. False: not a comparison of arrays that can be run again."""
        if not self.safe(place.test):
            return False
        wanted = [n for n in names(place.test) if n not in bound(place.test)]
        done: set[str] = set()
        chosen: dict[int, ast.stmt] = {}
        while wanted:
            name = wanted.pop(0)
            if name in done:
                continue
            done.add(name)
            at, made = self.definition(name, place.before)
            x = self.value(name)
            if _mutants.is_float(x) and not (made is not None and difference(made) and self.safe(made)):
                self.roots.append(name)
            elif made is not None and name in self.locals and self.safe(made) and not callable(x):
                chosen[at] = place.before[at]
                wanted += [n for n in names(made) if n not in bound(made)]
        self.steps = [chosen[i] for i in sorted(chosen)]
        return len(self.roots) >= 2

    def definition(self, name: str, before: list[ast.stmt]) -> tuple[int, ast.expr | None]:
        """The last assignment to a name; none where something else changed it later."""
        for at in range(len(before) - 1, -1, -1):
            s = before[at]
            if isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(s.targets[0], ast.Name) and s.targets[0].id == name:
                return at, s.value
            if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name) and s.target.id == name and s.value is not None:
                return at, s.value
            if any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(s)):
                return at, None
        return -1, None

    def safe(self, node: ast.AST) -> bool:
        """Only what can be computed again without a trace: arithmetic, numpy, torch, math, and metrics of the same file."""
        for n in ast.walk(node):
            if isinstance(n, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)):
                return False
            if isinstance(n, ast.Call) and not self.safe_call(n.func):
                return False
        return True

    def safe_call(self, func: ast.expr) -> bool:
        if isinstance(func, ast.Name):
            f = self.value(func.id)
            if f is getattr(builtins, func.id, None):
                return func.id in BUILTINS
            return self.safe_function(f, func.id)
        if isinstance(func, ast.Attribute):
            path, root = [func.attr], func.value
            while isinstance(root, ast.Attribute):
                path.insert(0, root.attr)
                root = root.value
            owner = self.value(root.id) if isinstance(root, ast.Name) else None
            if isinstance(owner, types.ModuleType):
                dotted = ".".join([owner.__name__, *path])
                if owner.__name__.partition(".")[0] in ("numpy", "torch", "math", "scipy"):
                    return not REFUSED.search(dotted.partition(".")[2])
                f: Any = owner
                for part in path:
                    f = getattr(f, part, None)
                return self.safe_function(f, func.attr)
            return func.attr in METHODS
        return False

    def safe_function(self, f: Any, name: str) -> bool:
        module = getattr(f, "__module__", "") or ""
        if module.partition(".")[0] in ("numpy", "torch", "math"):
            return not REFUSED.search(name)
        code = getattr(f, "__code__", None)
        return code is not None and METRIC.search(name) is not None

    def pair(self) -> tuple[str, str] | None:
        """The names of the actual and the expected array: of one shape."""
        shape = lambda n: tuple(getattr(self.value(n), "shape", ()))
        pairs = [(p, q) for p in self.roots for q in self.roots if p != q and shape(p) == shape(q)]
        if not pairs:
            return None

        def rank(pair: tuple[str, str]) -> tuple[bool, bool, int]:
            p, q = pair
            return (bool(EXPECTED.search(p)), not ACTUAL.search(p), self.roots.index(p))

        return min(pairs, key=rank)

    def ask(self, name: str, value: Any) -> bool:
        """What the assert says with `name` changed."""
        env = {**self.locals, name: value}
        scope = {**self.globals, **env}
        exec(self.code, scope)
        return bool(eval(self.test, scope))


def difference(node: ast.expr) -> bool:
    """A comparison's intermediate, not an output: it subtracts or divides."""
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, (ast.Sub, ast.Div)) for n in ast.walk(node)) or any(
        isinstance(n, ast.Attribute) and n.attr in ("sub", "subtract", "isclose", "div", "divide") for n in ast.walk(node)
    )


def asker(name: str, part: Slice) -> Callable[[Any], bool]:
    return lambda value: part.ask(name, value)


