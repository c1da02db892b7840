"""What PyTorch needs for the work that `qassay bench` times: same shapes, graphs of many calls between events, inputs rotated past the L2.

python3 notebooks/python/bench_torch.py [--bench reports/bench-1/bench.csv] [--filter 'fp8 gemm'] [--out both.csv]

With --bench one table has both: its rows, then PyTorch's in the same groups. Exit status 2: PyTorch or a GPU is missing, or a file is.
"""

import argparse
import csv
import statistics
import sys

try:
    import torch
    import torch.nn.functional as nn
except ImportError:
    torch = None

COLUMNS = ["group", "backend", "kernel", "shape", "bytes", "operations", "median_us", "min_us", "max_us", "launches", "gb_per_s", "tflop_per_s"]
ROUNDS = 15
SPAN, WARM_UP = 4e-3, 0.1  # seconds a graph holds at least, and of replays before the first measurement


def stop(why):
    print(f"bench_torch.py: {why}", file=sys.stderr)
    sys.exit(2)


class Timed:
    """A call on one of several sets of inputs, the bytes it must move and its operations."""

    def __init__(self, kernel, shape, make, call, outputs, operations=0):
        first = make()
        self.kernel, self.shape, self.call, self.operations = kernel, shape, call, operations
        self.bytes = sum(t.numel() * t.element_size() for t in first) + outputs
        copies = 2 * torch.cuda.get_device_properties(0).L2_cache_size // max(self.bytes, 1) + 1
        self.inputs = [first] + [make() for _ in range(copies - 1)]

    def graph(self, calls):
        """A graph of so many calls, its results kept inside: what one replay takes, seconds."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(calls):
                self.call(*self.inputs[i % len(self.inputs)])
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def seconds(replays=1):
            begin.record()
            for _ in range(replays):
                graph.replay()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) / 1e3 / replays

        return seconds

    def time(self):
        for inputs in self.inputs[:2] * 2:
            self.call(*inputs)
        torch.cuda.synchronize()
        copies = len(self.inputs)
        first = self.graph(copies)
        first()
        each = first() / copies
        calls = max(1, min(4096, int(SPAN / each) + 1))
        calls += -calls % copies
        replay = self.graph(calls)
        replay(max(1, int(WARM_UP / replay())))
        return sorted(replay() / calls for _ in range(ROUNDS)), calls


def bf16(rows, cols):
    return torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16)


def e4m3(rows, cols):
    return (torch.randn(rows, cols, device="cuda") * 112).clamp(-448, 448).to(torch.float8_e4m3fn)


def half(m, n, k):
    """The f16 product of weights that are f16."""
    make = lambda: [torch.randn(s, k, device="cuda", dtype=torch.float16) for s in (m, n)]
    return Timed("torch.mm f16", f"{m}x{n}x{k}", make, lambda a, b: torch.mm(a, b.t()), 2 * m * n, 2 * m * n * k)


def int8(m, n, k):
    make = lambda: [torch.randint(-127, 128, (s, k), device="cuda", dtype=torch.int8) for s in (m, n)]
    return Timed("torch._int_mm", f"{m}x{n}x{k}", make, lambda a, b: torch._int_mm(a, b.t()), 4 * m * n, 2 * m * n * k)


def fp8(m, n, k, fast):
    make = lambda: [e4m3(m, k), e4m3(n, k), torch.full((), 0.01, device="cuda"), torch.full((), 0.01, device="cuda")]
    call = lambda a, b, x, y: torch._scaled_mm(a, b.t(), scale_a=x, scale_b=y, out_dtype=torch.bfloat16, use_fast_accum=fast)
    return Timed(f"torch._scaled_mm{', fast' if fast else ''}", f"{m}x{n}x{k}", make, call, 2 * m * n, 2 * m * n * k)


def grouped(groups, rows, n, k):
    ends = torch.arange(1, groups + 1, device="cuda", dtype=torch.int32) * (rows // groups)
    scales = lambda *shape: torch.rand(shape, device="cuda") * 0.01 + 0.01
    make = lambda: [e4m3(rows, k), e4m3(groups * n, k).view(groups, n, k), scales(rows), scales(groups, n)]

    def call(a, b, x, y):
        return torch._scaled_grouped_mm(a, b.transpose(-2, -1), x, y, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=True)

    return Timed("torch._scaled_grouped_mm", f"{rows}x{n}x{k}", make, call, 2 * rows * n, 2 * rows * n * k)


def moves(kernel, rows, cols, read, of, outputs):
    """An elementwise call of `of` on bf16 tensors of these widths, compiled to as few kernels as inductor makes of it."""
    compiled = torch.compile(of)
    return Timed(f"torch.compile, {kernel}", f"{rows}x{cols}", lambda: [bf16(rows, c) for c in read], compiled, outputs)


def to_fp8(x, scale=0.37):
    return (x.float() * scale).clamp(-448, 448).to(torch.float8_e4m3fn)


def gated(act, x):
    gate, up = x.float().chunk(2, dim=1)
    return to_fp8(act(gate) * up)


def by_row(x):
    amax = x.abs().amax(dim=1, keepdim=True).float().clamp(min=1e-12)
    return to_fp8(x, 448 / amax), amax / 448


def by_block(x):
    blocks = x.float().view(x.shape[0], -1, 128)
    amax = blocks.abs().amax(dim=2, keepdim=True).clamp(min=1e-12)
    return (blocks * (448 / amax)).clamp(-448, 448).to(torch.float8_e4m3fn), amax / 448


def transposed(x):
    y = to_fp8(x)
    return y, y.t().contiguous()


def work(n=8192):
    """Group of `qassay bench`, and what PyTorch has for it."""
    one = n * n
    yield "mixed int4 x f16, g=64, 3584x16x8192", lambda: half(16, 3584, 8192)
    yield "W4A8, 256x2048x1024", lambda: half(256, 2048, 1024)
    yield "W4A8, 256x2048x1024", lambda: int8(256, 2048, 1024)
    yield "W4A8, 256x128x2048", lambda: half(256, 128, 2048)
    yield "W4A8, 1x8192x8192", lambda: half(1, 8192, 8192)
    for size in (4096, 8192):
        for fast in (True, False):
            yield f"fp8 gemm, per tensor, {size}x{size}x{size}", lambda size=size, fast=fast: fp8(size, size, size, fast)
    yield "fp8 grouped gemm, row-wise, 16 groups, 16384x8192x5120", lambda: grouped(16, 16384, 8192, 5120)
    yield "fp8 grouped gemm, row-wise, 8 groups, 1024x4096x2048", lambda: grouped(8, 1024, 4096, 2048)
    yield "swiglu to fp8, 8192x8192", lambda: moves("silu", n, n, [2 * n], lambda x: gated(nn.silu, x), one)
    gelu = lambda x: nn.gelu(x, approximate="tanh")
    yield "geglu to fp8, 8192x8192", lambda: moves("gelu", n, n, [2 * n], lambda x: gated(gelu, x), one)
    weight = torch.ones(n, device="cuda")
    rms = lambda x: to_fp8(nn.rms_norm(x.float(), (n,), weight, 1e-5))
    layer = lambda x: to_fp8(nn.layer_norm(x.float(), (n,), weight, weight, 1e-5))
    yield "rmsnorm to fp8, 8192x8192", lambda: moves("rms_norm", n, n, [n], rms, one)
    yield "layernorm to fp8, 8192x8192", lambda: moves("layer_norm", n, n, [n], layer, one)
    yield "cast, delayed, 8192x8192", lambda: moves("cast", n, n, [n], to_fp8, one)
    yield "cast_transpose, delayed, 8192x8192", lambda: moves("cast and transpose", n, n, [n], transposed, 2 * one)
    yield "cast, row-wise, 8192x8192", lambda: moves("cast by row", n, n, [n], by_row, one)
    yield "cast, 1x128, 8192x8192", lambda: moves("cast by 1x128", n, n, [n], by_block, one + one // 32)


def measured(group, timed):
    rounds, calls = timed.time()
    median = statistics.median(rounds)
    numbers = [median * 1e6, rounds[0] * 1e6, rounds[-1] * 1e6]
    rates = [timed.bytes / median / 1e9, timed.operations / median / 1e12]
    texts = [f"{x:.5g}" for x in numbers] + [str(calls)] + [f"{x:.5g}" if x else "" for x in rates]
    return dict(zip(COLUMNS, [group, "torch", timed.kernel, timed.shape, str(timed.bytes), str(timed.operations), *texts]))


def table(rows):
    lines = [f"{'group':<56} {'backend':<8} {'kernel':<44} {'us':>9} {'GB/s':>7} {'TFLOP/s':>8}"]
    for r in rows:
        numbers = f"{r['median_us']:>9} {r['gb_per_s']:>7} {r['tflop_per_s']:>8}"
        lines.append(f"{r['group'][:56]:<56} {r['backend']:<8} {r['kernel'][:44]:<44} {numbers}")
    return "\n".join(lines)


def joined(ours, theirs):
    """Rows of `qassay bench`, PyTorch's at the end of each group."""
    groups = list(dict.fromkeys(r["group"] for r in ours + theirs))
    return [r for g in groups for rows in (ours, theirs) for r in rows if r["group"] == g]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bench", help="bench.csv of `qassay bench`, of the same GPU")
    options.add_argument("--filter", default="", help="only groups whose name contains this")
    options.add_argument("--out", help="CSV to write")
    options = options.parse_args()
    try:
        ours = list(csv.DictReader(open(options.bench, newline=""))) if options.bench else []
    except OSError as e:
        stop(f"--bench {options.bench}: {e.strerror}; `qassay bench --out DIR` writes DIR/bench.csv")
    if missing := set(COLUMNS) - set(ours[0] if ours else COLUMNS):
        stop(f"--bench {options.bench}: no column {', '.join(sorted(missing))}; expected the bench.csv of `qassay bench`")
    if torch is None:
        stop("PyTorch is not installed: pip install torch")
    if not torch.cuda.is_available():
        stop("PyTorch sees no CUDA GPU: run it where nvidia-smi lists one, with a torch built for CUDA")
    torch.manual_seed(1)
    theirs = []
    for group, make in work():
        if options.filter in group:
            try:
                theirs.append(measured(group, make()))
            except (RuntimeError, AttributeError, ValueError) as e:
                print(f"{group}: {str(e).splitlines()[0]}", file=sys.stderr)
            torch.cuda.empty_cache()
    if not theirs:
        stop(f"nothing was timed whose group contains {options.filter!r}")
    rows = joined([r for r in ours if options.filter in r["group"]], theirs)
    if options.out:
        with open(options.out, "w", newline="") as f:
            writer = csv.DictWriter(f, COLUMNS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
    print(table(rows))


if __name__ == "__main__":
    main()
