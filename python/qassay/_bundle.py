"""Bundles of qassay from Python: numpy, nothing else. A torch tensor works wherever an array does.

Write one and assay it:

    from qassay_bundle import save
    save("out.safetensors", "gemm", {"a.codes": a8, "a.scale_inv": sa, "b.codes": b8, "b.scale_inv": sb, "out": d},
         kernel="my_gemm", device="NVIDIA H200")                       # then: qassay assay out.safetensors

Answer the cases of a sweep (qassay run smoke --candidate 'python3 my_kernel.py'):

    from qassay_bundle import serve
    def kernel(case): return {"out": my_gemm(case.values("a"), case.values("b"))}
    serve(kernel)

`qassay helper --format` prints the format.
"""

import json
import os
import sys

import numpy as np

# dtype of safetensors: numpy's (bits only where numpy has none), torch's name.
DTYPES = {
    "F64": ("<f8", "float64"), "F32": ("<f4", "float32"), "F16": ("<f2", "float16"), "BF16": ("<u2", "bfloat16"),
    "I64": ("<i8", "int64"), "I32": ("<i4", "int32"), "I16": ("<i2", "int16"), "I8": ("i1", "int8"), "U8": ("u1", "uint8"),
    "F8_E4M3": ("u1", "float8_e4m3fn"), "F8_E5M2": ("u1", "float8_e5m2"), "F8_E8M0": ("u1", "float8_e8m0fnu"),
    "F8_E4M3FNUZ": ("u1", "float8_e4m3fnuz"), "F8_E5M2FNUZ": ("u1", "float8_e5m2fnuz"),
}
BY_NAME = {torch: name for name, (_, torch) in DTYPES.items()}
CODES = {"e4m3": "F8_E4M3", "e5m2": "F8_E5M2", "e4m3fnuz": "F8_E4M3FNUZ", "e5m2fnuz": "F8_E5M2FNUZ", "int8": "I8"}
# format: bits of the mantissa, exponent bias, whether the top exponent is Inf and NaN ("ieee"), only all ones is NaN ("fn"), only the
# code of -0 ("fnuz"), or every code is a number ("none"), bits.
FLOATS = {
    "e4m3": (3, 7, "fn", 8), "e5m2": (2, 15, "ieee", 8), "e4m3fnuz": (3, 8, "fnuz", 8), "e5m2fnuz": (2, 16, "fnuz", 8),
    "e2m1": (1, 1, "none", 4), "e2m3": (3, 1, "none", 6), "e3m2": (2, 3, "none", 6),
}
NF4 = np.array([
    -1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
], np.float32).astype(np.float64)


# Element types that a safetensors file has no dtype for: the format, stored one a byte, or two (low_first).
NARROW = {
    "float4_e2m1fn": ("e2m1", None), "float4_e2m1fn_x2": ("e2m1", "low_first"), "float6_e2m3fn": ("e2m3", None),
    "float6_e3m2fn": ("e3m2", None), "int4": ("int4", None), "uint4": ("uint4", None),
}


class Unsupported(Exception):
    """A case that a kernel does not take: its row is skipped with this reason."""


def array(x, name="array"):
    """`x` on this machine, flat and contiguous, as bytes; its dtype's name and its shape. No copy where none is needed.

    Takes numpy and ml_dtypes arrays, torch tensors of any device (torch is never imported here), and what has `__dlpack__`."""
    if hasattr(x, "detach"):  # torch
        layout, device = str(getattr(x, "layout", "torch.strided")), str(getattr(x, "device", "cpu"))
        if layout != "torch.strided" or device == "meta":
            found = f"layout {layout}" if device != "meta" else "a tensor without data (device meta)"
            raise TypeError(f"{name}: found {found}, expected a dense tensor with data")
        dtype, shape = str(x.dtype).removeprefix("torch."), [int(n) for n in x.shape]
        x = x.detach()
        for resolve in ("resolve_conj", "resolve_neg"):
            x = getattr(x, resolve)() if hasattr(x, resolve) else x
        flat = x.cpu().contiguous().reshape(-1)
        if 0 in shape:
            return np.zeros(0, np.uint8), dtype, shape
        torch = sys.modules.get("torch") or sys.modules[type(flat).__module__]
        return flat.view(torch.uint8).numpy(), dtype, shape
    if not isinstance(x, (np.ndarray, np.generic)) and hasattr(x, "__dlpack__"):
        x = np.from_dlpack(x)
    x = np.asarray(x)
    dtype, shape = x.dtype.name, list(x.shape)  # ml_dtypes has bfloat16, float8_e4m3fn, ... under these names
    if x.dtype.byteorder == ">" or (x.dtype.byteorder == "=" and sys.byteorder == "big"):
        x = x.astype(x.dtype.newbyteorder("<"))
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8), dtype, shape


def raw(x, name="array"):
    """Bytes, dtype and shape of an array or a torch tensor, as a file stores them."""
    data, dtype, shape = array(x, name)
    return data, kept_as(dtype, name), shape


def kept_as(dtype, name):
    """The dtype that a file stores elements of this name as."""
    found = "U8" if dtype in NARROW else BY_NAME.get(dtype)
    if found is None or found == "F64":
        remedy = "; round it to float32 first" if found or dtype in ("longdouble", "float128") else ""
        known = ", ".join(n for n in [*BY_NAME, *NARROW] if n != "float64")
        raise TypeError(f"{name}: found dtype {dtype}, expected one of {known}{remedy}")
    return found


def blob(tensors, metadata):
    """The parts of a safetensors file: `tensors` by name as (bytes, dtype, shape), `metadata` of strings."""
    header, data, at = {"__metadata__": metadata}, [], 0
    for name, (part, dtype, shape) in sorted(tensors.items()):
        size = part.nbytes if hasattr(part, "nbytes") else len(part)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
        data.append(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *data]


def save(path, op, tensors, metadata=None, **words):
    """Writes a bundle: `tensors` by the names of the contract, metadata as keywords (`a_granularity` is `a.granularity`) or a dict."""
    meta = {"qassay.bundle": "1", **({"op": op} if op else {}), **(metadata or {})}
    for key, value in words.items():
        x, _, rest = key.partition("_")
        meta[f"{x}.{rest}" if x in ("a", "b", "out") and rest else key] = value
    held = {}
    for name, x in tensors.items():
        if isinstance(x, Raw):
            held[name] = (x.bytes, x.dtype, x.shape)
        else:
            held[name] = raw(x, name)
    with open(path, "wb") as f:
        f.writelines(blob(held, {k: _word(v) for k, v in meta.items()}))


def _word(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


class Raw:
    """One stored tensor."""

    def __init__(self, data, dtype, shape):
        self.bytes, self.dtype, self.shape = bytes(memoryview(data)), dtype, list(shape)

    def numpy(self):
        """As numpy holds it: bf16 widened to float32, float8 as its codes."""
        x = np.frombuffer(self.bytes, DTYPES[self.dtype][0]).reshape(self.shape)
        return (x.astype(np.uint32) << 16).view(np.float32) if self.dtype == "BF16" else x


def decode(codes, format):
    """Values of codes, one a byte."""
    if format == "int8":
        return codes.view(np.int8).astype(np.float64)
    if format == "int4":
        return ((codes.astype(np.int8) ^ 8) - 8).astype(np.float64) if codes.dtype == np.uint8 else codes.astype(np.float64)
    if format in ("uint4", "uint6", "u8"):
        return codes.astype(np.float64)
    if format == "nf4":
        return NF4[codes]
    mantissa, bias, special, bits = FLOATS[format]
    c = np.arange(1 << bits)
    e, m = (c >> mantissa) & ((1 << (bits - 1 - mantissa)) - 1), c & ((1 << mantissa) - 1)
    values = np.where(e == 0, m * 2.0 ** (1 - bias - mantissa), (1 + m * 2.0**-mantissa) * 2.0 ** (e.astype(float) - bias))
    values = np.where(c >> (bits - 1), -values, values)
    top = e == (1 << (bits - 1 - mantissa)) - 1
    if special == "ieee":
        values = np.where(top, np.where(m == 0, np.copysign(np.inf, values), np.nan), values)
    elif special == "fn":
        values = np.where((c & 0x7F) == 0x7F, np.nan, values)
    elif special == "fnuz":
        values = np.where(c == 0x80, np.nan, values)
    return values[codes.view(np.uint8)]


class Bundle:
    """A bundle that was read: `meta`, the stored tensors, and operands as numbers."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self._parse(f.read())

    def _parse(self, blob):
        start = 8 + int.from_bytes(blob[:8], "little")
        header = json.loads(blob[8:start])
        self.meta = header.pop("__metadata__", {})
        part = lambda t: blob[start + t["data_offsets"][0] : start + t["data_offsets"][1]]
        self.tensors = {name: Raw(part(t), t["dtype"], t["shape"]) for name, t in header.items()}
        self.op = self.meta.get("op")

    def __contains__(self, name):
        return name in self.tensors

    def format(self, x):
        """The format of `a`, `b` or `out`."""
        if f"{x}.format" in self.meta:
            return self.meta[f"{x}.format"]
        stored = self.tensors.get(f"{x}.codes") or self.tensors[x]
        names = {v: k for k, v in CODES.items()} | {"F32": "f32", "F16": "f16", "BF16": "bf16"}
        return names[stored.dtype]

    def granularity(self, x):
        return self.meta.get(f"{x}.granularity", "tensor")

    def codes(self, x):
        """Codes one a byte (int8 for I8), unpacked."""
        codes = self.tensors[f"{x}.codes"].numpy()
        packing = self.meta.get(f"{x}.packing", "none")
        if packing == "none":
            return codes
        low, high = codes & 15, codes >> 4
        pair = (low, high) if packing == "low_first" else (high, low)
        return np.stack(pair, -1).reshape(*codes.shape[:-1], -1)

    def scale_inv(self, x):
        """float32 scales in their own shape, without the global one."""
        stored = self.tensors[f"{x}.scale_inv"]
        format = self.meta.get(f"{x}.scale_format")
        if stored.dtype == "F8_E8M0" or format == "e8m0":
            code = stored.numpy().astype(np.float64)
            return np.where(code == 255, np.nan, 2.0 ** (code - 127)).astype(np.float32)
        if stored.dtype == "F8_E4M3" or format == "e4m3":
            return decode(stored.numpy(), "e4m3").astype(np.float32)
        return stored.numpy().astype(np.float32)

    def spread(self, x, grid):
        """One entry of a scale grid (float64) for each element of operand x."""
        shape = self.codes(x).shape
        granularity = self.granularity(x)
        if granularity == "tensor":
            return np.broadcast_to(grid.reshape(grid.shape[:-1] + (1, 1)) if grid.ndim > 1 else grid.reshape(1, 1), shape)
        if granularity == "row":
            return np.broadcast_to(grid[..., None], shape)
        kind, size = granularity.split(":")
        rows, cols = (1, int(size)) if kind == "group" else map(int, size.split("x"))
        wide = np.repeat(np.repeat(grid, rows, -2), cols, -1)
        return wide[..., : shape[-2], : shape[-1]]

    def above(self, x, name, grid):
        """A grid times its second level, where there is one."""
        if f"{x}.{name}" not in self.tensors:
            return grid
        level, granularity = self.tensors[f"{x}.{name}"].numpy().astype(np.float64), self.meta.get(f"{x}.global_granularity", "tensor")
        if granularity == "tensor":
            return grid * level.ravel()[0]
        kind, size = granularity.split(":")
        rows, cols = (1, int(size)) if kind == "group" else map(int, size.split("x"))
        return grid * np.repeat(np.repeat(level, rows, 0), cols, 1)[: grid.shape[0], : grid.shape[1]]

    def values(self, x):
        """The unquantized values where there are no codes, else what the codes stand for; float64."""
        if f"{x}.codes" not in self.tensors:
            return self.tensors[x].numpy().astype(np.float64)
        codes = decode(self.codes(x), self.format(x))
        scale = self.spread(x, self.above(x, "global_scale_inv", self.scale_inv(x).astype(np.float64)))
        kind = self.meta.get(f"{x}.zero", "none")
        if kind == "none":
            return codes * scale
        zero = self.tensors[f"{x}.zero_point"].numpy().astype(np.float64)
        zero = self.spread(x, self.above(x, "global_zero_point", zero))
        return (codes - zero) * scale if kind == "integer" else codes * scale + zero

    def vector(self, name):
        """bias, gamma, beta, offs; None where it is not there."""
        return self.tensors[name].numpy() if name in self.tensors else None

    def torch(self, name, device="cpu"):
        """A stored tensor in torch's own dtype."""
        import torch

        stored = self.tensors[name]
        flat = torch.frombuffer(bytearray(stored.bytes), dtype=torch.uint8)
        return flat.view(getattr(torch, DTYPES[stored.dtype][1])).reshape(stored.shape).to(device)


def rounded(x, format):
    """float values as a stored tensor of `format` (f32, f16, bf16), to nearest even."""
    x32 = np.asarray(x, np.float32)
    if format == "f32":
        return x32
    if format == "f16":
        with np.errstate(over="ignore"):
            return x32.astype(np.float16)
    bits = x32.view(np.uint32).astype(np.uint64)
    up = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return Raw(np.where(np.isnan(x32), 0x7FC0, up).astype("<u2").tobytes(), "BF16", x32.shape)


def encode(x, format):
    """Codes of float32 values, to nearest even, saturating; NaN as the format has it. Halves of the spacing go to even codes."""
    x = np.asarray(x, np.float64)
    if format in ("int8", "int4", "uint4"):
        low, high = {"int8": (-128, 127), "int4": (-8, 7), "uint4": (0, 15)}[format]
        return np.clip(np.rint(x), low, high).astype(np.int8).view(np.uint8)
    mantissa, bias, special, bits = FLOATS[format]
    table = decode(np.arange(1 << (bits - 1), dtype=np.uint8), format)
    table = table[np.isfinite(table)]
    size = np.minimum(np.abs(x), table[-1])
    at = np.clip(np.searchsorted(table, np.nan_to_num(size)), 1, len(table) - 1)
    below, above = size - table[at - 1], table[at] - size
    code = np.where((below < above) | ((below == above) & ((at - 1) % 2 == 0)), at - 1, at)
    sign = np.signbit(x) & ~((code == 0) & (special == "fnuz"))
    code = code | np.where(sign, 1 << (bits - 1), 0)
    nan = {"fn": 0x7F, "ieee": 0x7F, "fnuz": 0x80, "none": len(table) - 1}[special]
    return np.where(np.isnan(x), nan, code).astype(np.uint8)


def stored(codes, format):
    """Codes as a stored tensor of their own dtype."""
    return Raw(codes.tobytes(), CODES.get(format, "U8"), codes.shape)


def serve(kernel, /, **words):
    """Answers cases until the input ends. `kernel(case)` returns the output tensors by name, and perhaps a dict of metadata behind
    them; it raises Unsupported for a case it does not take. What it prints goes to standard error: standard output is the answers'."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        try:
            tensors = kernel(Bundle(request["input"]))
            tensors, meta = tensors if isinstance(tensors, tuple) else (tensors, {})
            save(request["output"], None, tensors, metadata={**words, **meta})
            answer = {"status": "done"}
        except Unsupported as e:
            answer = {"status": "unsupported", "reason": str(e)}
        except Exception as e:  # noqa: BLE001 - whatever a kernel raises is this case's error
            answer = {"status": "error", "reason": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), file=answers, flush=True)
