"""Writes every bundle and the manifest: python make.py FOLDER [reserve].

Each bundle has a seed of its own; the numbers are in a random but fixed order.

With `reserve` the kernels named in RESERVE are written instead: a second, smaller set of wrong ones."""
import importlib
import json
import os
import random
import sys
import zlib

import numpy as np

import registry
from common import F32, save

for name in ("scale", "zero", "depth", "edge", "grouped", "cast", "norm"):
    importlib.import_module("bugs_" + name)
for name in ("doubles", "rights", "rights_more"):
    importlib.import_module(name)

RESERVE = """pytorch/FBGEMM#6159 (256-wide blocks); ROCm/rocm-libraries#6663 (split-K); intel/torch-xpu-ops#4765; ROCm/rocm-libraries#11724;
huggingface/transformers#47030 (weights only); vllm-project/vllm#54683; ROCm/AMDMIGraphX#2533; openvinotoolkit/openvino#32144;
ROCm/AMDMIGraphX#2628; zxypro1/algolocal#86; tile-ai/tilelang#2381 (one block); ROCm/composable_kernel#3387; microsoft/onnxruntime#16105;
ml-explore/mlx#4250 (N < 64); huggingface/kernels-community#1153 (dense); ROCm/rocm-libraries#11330; ggml-org/llama.cpp#23690;
sgl-project/sglang#14589; ROCm/aiter#2972; NVIDIA/TensorRT-LLM#10778; deepseek-ai/DeepGEMM#15; vllm-project/vllm-ascend#2348;
ModelTC/LightLLM#1369; flashinfer-ai/flashinfer#3547; NVIDIA/TransformerEngine#2971; vllm-project/vllm#12696; pytorch/ao#4477;
ARM-software/ComputeLibrary#1033; 1bit-MONSTER/1bit-MONSTER#1207; openvinotoolkit/openvino#25525; ml-explore/mlx#3912;
ggml-org/llama.cpp#13294; huggingface/kernels-community#1153; AI-Hypercomputer/maxtext#5036; ggml-org/ggml#529;
1bit-MONSTER/1bit-MONSTER#1273; casper-hansen/AutoAWQ#101; dropbox/gemlite#38; vllm-project/vllm#45361; NVIDIA/Megatron-LM#442;
microsoft/onnxruntime#32452; unslothai/unsloth#1867; openvinotoolkit/openvino#36587; ROCm/aiter#2853; vllm-project/vllm#29273;
NVIDIA/TransformerEngine#1083 (scale); amd/IRON#139 (epsilon); ROCm/aiter#3212; NVIDIA/TransformerEngine#786; pytorch/ao#1471;
ml-explore/mlx-lm#767"""
RESERVE = {t.strip() for t in RESERVE.replace("\n", " ").split(";")}


def fresh(row):
    """The problem of a row, from its own seed."""
    make = row[2] if len(row) == 3 else row[5]
    key = (row[1] if len(row) == 3 else row[1] + row[0].__name__).encode()
    p = make(np.random.default_rng(zlib.crc32(key)))
    if getattr(p, "outf", "") in ("e4m3", "e5m2") and getattr(p, "oscale", 0) is None:
        p.oscale = F32(300.0 / np.abs(p.right()).max())
    return p


def wrong(row, double):
    """The manifest's entry of a wrong bundle."""
    return {"verdict": "wrong", "thread": row[1].split(" (")[0], "what": row[2], "class": row[3], "place": row[4], "double": double}


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    rows, low, reserve = [], [], sys.argv[2:] == ["reserve"]
    unknown = RESERVE - {row[1] for row in registry.WRONG}
    assert not unknown, unknown
    for row in registry.WRONG:
        if (row[1] in RESERVE) != reserve:
            continue
        p = fresh(row)
        right = p.right()
        y = row[0](p)
        q, share = p.ratio(y, right)
        rows.append((p.bundle(y), wrong(row, False)))
        print(f"{q:12.4g} {share:7.4f} {row[0].__name__} {row[1]}")
        if q < 4:
            low.append(row[0].__name__)
    for row in [] if reserve else registry.DOUBLE:
        ys = {}
        for one in (False, True):
            for other in (False, True):
                p = fresh(row)
                ys[one, other] = row[0](p, one, other)
        both, one, other, none = (True, True), (True, False), (False, True), (False, False)
        pairs = [(both, other), (both, one), (both, none), (one, none), (other, none)]
        qs = [p.ratio(ys[a], ys[b])[0] for a, b in pairs]
        base = p.ratio(ys[False, False], p.right())[0]
        rows.append((p.bundle(ys[True, True]), wrong(row, True)))
        print("double", " ".join(f"{q:.4g}" for q in qs), f"(both off: {base:.3g})", row[0].__name__)
        if min(qs) < 4 or base > 2:
            low.append(row[0].__name__)
    for row in [] if reserve else registry.RIGHT:
        p = fresh(row)
        y = row[0](p)
        q, share = p.ratio(y, p.right())
        rows.append((p.bundle(y), {"verdict": "right", "thread": "", "what": row[1], "class": [], "place": "", "double": False}))
        print(f"right {q:10.3g} {share:7.4f} {row[0].__name__} {row[1]}")
    order = list(range(1, len(rows) + 1))
    random.Random(20261123).shuffle(order)
    manifest = []
    for number, ((tensors, meta), entry) in zip(order, rows):
        name = f"{'r' if reserve else 'i'}{number:03d}"
        save(os.path.join(folder, name + ".safetensors"), tensors, meta)
        manifest.append({"id": name, "file": name + ".safetensors", **entry})
    manifest.sort(key=lambda e: e["id"])
    with open(os.path.join(folder, "manifest.json"), "w") as f:
        json.dump(manifest, f, indent=1)
    count = [(e["verdict"], e["double"]) for e in manifest]
    print({c: count.count(c) for c in sorted(set(count))}, "too close:", low)


if __name__ == "__main__":
    main()
