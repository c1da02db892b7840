"""Writes many bundles of one shape at once: the header of a safetensors file is built once for the batch, then each file is header + bytes."""

import json

import numpy as np

NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
         "uint8": "U8", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
         "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ"}


class Results:
    """Right results of one kernel on a batch: `tensors` have a leading axis of the batch; `label` says how they were computed."""

    def __init__(self, label, op, tensors, meta):
        self.label, self.op, self.tensors = label, op, {k: np.ascontiguousarray(v) for k, v in tensors.items()}
        self.meta = {"qassay.bundle": "1", "op": op, "kernel": label, **{k: str(v) for k, v in meta.items() if v is not None}}
        sizes = {len(v) for v in self.tensors.values()}
        assert len(sizes) == 1, (label, {k: v.shape for k, v in self.tensors.items()})
        self.count = sizes.pop()

    def elements(self):
        """Judged elements of one result."""
        out = self.tensors.get("out", self.tensors.get("out.codes"))
        return int(np.prod(out.shape[1:]))

    def write(self, stem, only=None):
        """One file a result, `stem`-<item>.safetensors; the paths."""
        header, parts, at = {"__metadata__": self.meta}, [], 0
        for name, x in sorted(self.tensors.items()):
            size = x[0].nbytes
            header[name] = {"dtype": NAMES[x.dtype.name], "shape": list(x.shape[1:]), "data_offsets": [at, at + size]}
            at += size
            parts.append(np.frombuffer(x.tobytes(), np.uint8).reshape(self.count, size))
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        head = len(text).to_bytes(8, "little") + text
        rows = np.concatenate(parts, 1)
        paths = []
        for i in range(self.count):
            if only is None or i == only:
                paths.append(f"{stem}-{i}.safetensors")
                with open(paths[-1], "wb") as f:
                    f.write(head + rows[i].tobytes())
        return paths
