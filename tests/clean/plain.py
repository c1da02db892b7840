"""Products of operands that are not quantized: f16 and bf16 on tensor cores and on ordinary cores, f32 on ordinary cores."""

import numpy as np

import data
import orders
import tensorcore
from arith import F, fma, to
from bundle import Results
from epilogue import finish, told, with_bias

# Where a format begins and how far sums of K products may go without leaving f32.
TINY = {"f16": -22, "bf16": -70, "f32": -70}
LARGE = {"f16": 5, "bf16": 50, "f32": 50}


def operands(rng, fmt, kind, size):
    x, y = data.pair(rng, kind, *size)
    if kind == "overflow":  # sums of some orders leave f32 on the way
        return tuple(to((v * 2.0**62).astype(F), fmt) for v in (x, y))
    shift = {"subnormal": TINY[fmt] if fmt == "f16" else int(rng.integers(-72, -60)), "huge": LARGE[fmt]}.get(kind, int(rng.integers(-2, 3)))
    top = 2.0**7 if fmt == "f16" else 2.0**55
    x, y = (np.clip(v * 2.0**shift, -top, top).astype(F) for v in (x, y))
    return to(x, fmt), to(y, fmt)


def tensor_core(rng, fmt, k):
    """(device, Order) of a kernel on a tensor core; K tiles of 32 or 64."""
    device = str(rng.choice([d for d in tensorcore.UNITS_16 if not (d == "V100" and fmt == "bf16")]))
    unit = tensorcore.UNITS_16[device]
    name = f"T{unit}"
    order = orders.Order(rng, k, (name, lambda a, b: tensorcore.chain(a, b, (fmt, fmt), unit)), int(rng.choice([32, 64])))
    return device, order.declared(rng, {"device_model": tensorcore.MODELS_16[device]})


def batches(rng):
    fmt, kind = str(rng.choice(["f16", "bf16", "f32"], p=[0.4, 0.4, 0.2])), str(rng.choice(data.KINDS))
    kind = "overflow" if fmt != "f16" and rng.random() < 0.03 else kind
    size = data.shape(rng)
    b, m, n, k = size
    x, y = operands(rng, fmt, kind, size)
    for _ in range(5):
        device = None
        if fmt != "f32" and kind != "overflow" and rng.random() < 0.65:
            device, order = tensor_core(rng, fmt, k)
        else:
            order = orders.Order(rng, k, orders.cuda_core(rng, k), int(rng.choice([1, 16, 64])))
            device = str(rng.choice(list(tensorcore.UNITS_16))) if rng.random() < 0.4 else None
        p = order.join(order.parts(x.astype(F), y.astype(F)))
        bias, label = with_bias(rng, b, n), f"{order.name} {order.model.get('device_model', '')} {device} {kind}"
        held = {"a": x, "b": y}
        if bias is not None:
            held["bias"] = bias
            p = p + bias[:, None, :].astype(F)
        out, result, meta = finish(rng, p, kind != "overflow")
        yield Results(f"plain {fmt} {label} {out}", "gemm", held | result, meta | order.model | {"device": told(rng, device)})
