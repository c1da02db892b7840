#!/usr/bin/env python3
"""Writes elsewhere.csv beside this file: what the libraries themselves read out of stored blocks of make.py's results.

Needs numpy, ml_dtypes, gguf (Q4_K) and the shared library of bitsandbytes (NF4; its Python part and PyTorch are not loaded).
Usage: python3 elsewhere.py
"""

import csv
import ctypes
import importlib.util
import os

import gguf
import make
import numpy as np


def q4_k(r):
    """The bytes of block_q4_K of ggml-common.h, and gguf's values."""
    blocks, n = bytearray(), len(r.glob) // 2
    codes = r.codes.reshape(n, 256)
    for i in range(n):
        packed = [0] * 12
        for j in range(8):
            s, m = int(r.scale_inv[8 * i + j]), int(r.zero[8 * i + j])
            if j < 4:
                packed[j], packed[j + 4] = s, m
            else:
                packed[j + 4] = (s & 15) | (m & 15) << 4
                packed[j - 4] |= (s >> 4) << 6
                packed[j] |= (m >> 4) << 6
        blocks += np.array([r.glob[i], -r.glob[n + i]], np.float16).tobytes() + bytes(packed)
        for half in codes[i].reshape(4, 2, 32):
            blocks += (half[0] | half[1] << 4).tobytes()
    stored = np.frombuffer(bytes(blocks), np.uint8)
    return stored, gguf.dequantize(stored.reshape(n, 144), gguf.GGMLQuantizationType.Q4_K).ravel()


def nf4(r):
    """Two codes a byte, the first in the high nibble, and the values by bitsandbytes' C++."""
    folder = os.path.dirname(importlib.util.find_spec("bitsandbytes").origin)
    read = ctypes.CDLL(os.path.join(folder, "libbitsandbytes_cpu.so")).cdequantize_blockwise_cpu_nf4_fp32
    flat = r.codes.ravel()
    stored, absmax = flat[::2] << 4 | flat[1::2], np.array(r.scale_inv, np.float32)
    values = np.empty(flat.size, np.float32)
    read(*(x.ctypes.data_as(ctypes.c_void_p) for x in (stored, absmax, values)), *map(ctypes.c_longlong, (64, *r.codes.shape)))
    return stored, values


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    out = csv.writer(open(os.path.join(here, "elsewhere.csv"), "w", newline=""), lineterminator="\n")
    out.writerow("tensor recipe stored values by".split())
    for name, kind, dtype, rows, cols, seed in make.TENSORS:
        x = make.generate(kind, dtype, rows, cols, seed)
        if not np.isfinite(x.astype(np.float32)).all():
            continue
        made = []
        if cols % 256 == 0:
            made.append(("gguf_q4_k", "gguf 0.19.0", q4_k(make.q4_k(x))))
        if cols % 64 == 0:
            made.append(("bnb_nf4", "bitsandbytes 0.50.2", nf4(make.nf4(x, 64))))
        for recipe, by, (stored, values) in made:
            out.writerow([name, recipe, make.digest(stored.tobytes()), make.digest(make.words(values).tobytes()), by])


main()
