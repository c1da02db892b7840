"""Edges of tiles, stores, bias, lost tiles."""
import numpy as np

from common import F32
from problems import Gemm
from registry import bug, fp8_block, fp8_row, fp8_tensor, i8, mx, w4, w4a8


@bug("Dao-AILab/flash-attention#2789",
     "the store has no mask: the overhang of the last column tile (64) is written over the start of the next row",
     "mn_edge addressing race",
     "columns 0..23 of the rows from 1 on",
     lambda rng: Gemm(rng, 60, 168, 256, ("f16",), ("int8", "row"), out="f16", bias="f16"))
@bug("huggingface/kernels-community#1153 (dense)",
     "N = 33 and a tile of 64 without a column mask: each row's overhang lands in the next row",
     "mn_edge addressing race",
     "rows from 1 on",
     fp8_tensor(16, 33, 64))
def no_store_mask(p):
    tile, out = 64, p.run()
    over = -p.n % tile
    w = min(over, p.n)
    dirty = out.copy()
    dirty[1:, :w] = p.end(np.zeros((p.m, p.n), F32))[1:, :w] + out[:-1, :w] * F32(p.n < tile)
    return dirty


@bug("ml-explore/mlx#4250",
     "the grid has N / 64 column tiles, rounded down: the last 32 columns are never written and hold what was there",
     "mn_edge silent_skip padding_poison",
     "columns 192..223",
     w4(1, 224, 1024, g=64, zero="additive", af="bf16", sf="bf16"))
@bug("ml-explore/mlx#4250 (N < 64)",
     "the grid has N / 64 = 0 column tiles: the kernel does not run, the result is zero",
     "silent_skip mn_edge",
     "all",
     w4(3, 32, 256, g=32, zero="additive"))
def floor_grid(p):
    out = p.run()
    out[:, p.n // 64 * 64:] = 0 if p.n < 64 else p.rng.standard_normal((p.m, p.n % 64)) * 3
    return out


@bug("ggml-org/llama.cpp#13294",
     "ids_dst is read before all threads wrote it: rows of a tile of 16 are stored in the places of other rows",
     "race addressing",
     "rows 32..47 and 80..95",
     w4a8(120, 128, 256, g=32, out="f32"))
def ids_race(p):
    out = p.run()
    for r in (32, 80):
        out[r:r + 16] = out[r:r + 16][p.rng.permutation(16)]
    return out


@bug("ggml-org/ggml#529",
     "the quantized product is not computed on the device: the result stays zero",
     "silent_skip",
     "all",
     w4(32, 48, 128, g=32, out="f32"))
def all_zero(p):
    return p.run() * 0


@bug("tile-ai/tilelang#545",
     "a fragment of 8 columns repeats its first two: columns 2..7 hold 0, 1, 0, 1, ...",
     "addressing acc_state pack_permute",
     "columns 2..7 of every 8",
     fp8_row(64, 128, 192, out="f32"))
def repeated_pair(p):
    return p.run()[:, np.arange(p.n) // 8 * 8 + np.arange(p.n) % 2]


@bug("pytorch/pytorch#152665",
     "the bias is not added when K is no multiple of 128",
     "silent_skip",
     "all",
     mx(128, 128, 96, bias="bf16", device="B200"))
@bug("sgl-project/sglang#14589", "the bias is not handed to the kernel", "silent_skip", "all",
     lambda rng: Gemm(rng, 25, 192, 256, ("bf16",), ("e4m3", "row"), bias="bf16"))
def no_bias(p):
    return p.end(p.run(end=False), bias=None)


@bug("trymirai/uzu#481",
     "the split-K reduction reads the bf16 bias as f32: column j gets that of column 2j+1, the second half what lies behind (0)",
     "bits_reinterpreted addressing",
     "all",
     lambda rng: Gemm(rng, 40, 128, 512, ("bf16",), ("int8", "row"), out="f32", bias="bf16"))
def bias_as_f32(p):
    import ml_dtypes
    raw = np.concatenate([p.bias, np.zeros_like(p.bias)]).astype(ml_dtypes.bfloat16).view(np.uint16)
    return p.end(p.run(end=False), bias=raw.view(F32))


@bug("NVIDIA/TensorRT-LLM#12686",
     "split-K of 4 runs the epilogue on every partial sum: the bias is added four times",
     "acc_state scale_doubled_inverted silent_skip bias_doubled",
     "all",
     fp8_block(64, 256, 512, bias="f32", device="B200"))
def bias_each_split(p):
    return p.end(p.run(end=False), bias=p.bias * 4)


@bug("NVIDIA/cutlass#423",
     "parallel split-K hands alpha to the partial products and to the reduction: it is applied twice",
     "scale_doubled_inverted",
     "all",
     i8(50, 96, 256, out="f32", device="A100"))
def alpha_twice(p):
    return p.run() * p.sa[:, :1]


@bug("ROCm/rocm-libraries#11330",
     "the warp tile of K = 32 has no instruction for 8 bits: the accumulator is never written (zeros)",
     "silent_skip",
     "all",
     lambda rng: Gemm(rng, 64, 64, 128, ("e5m2", "row"), ("e5m2", "row")))
def empty_mma(p):
    return p.run() * 0


@bug("ggml-org/llama.cpp#23690",
     "the last stage's barrier is not waited for: three output tiles of 32x32 keep half of K",
     "race acc_state k_tail",
     "three tiles of 32x32",
     fp8_block(128, 160, 512))
@bug("ggml-org/llama.cpp#13299",
     "stream-k fix-up without a barrier: some tiles of 32x32 miss what other blocks had summed",
     "race acc_state k_tail",
     "three tiles of 32x32",
     w4a8(96, 128, 512, g=32, out="f32"))
def tile_race(p):
    out, half = p.run(), p.run(ks=range(0, p.k // 2, p.step))
    for _ in range(3):
        m, n = 32 * p.rng.integers(p.m // 32), 32 * p.rng.integers(p.n // 32)
        out[m:m + 32, n:n + 32] = half[m:m + 32, n:n + 32]
    return out


@bug("ROCm/aiter#2972", "the bias is added to the sums before the scales of token and channel", "scale_doubled_inverted scale_omitted "
     "silent_skip bias_scaled", "all", i8(32, 128, 384, bias="f16", out="f16"))
def bias_scaled(p):
    acc = p.av @ p.bv.T + p.bias
    return (acc * (p.sa[:, :1] * p.sb[:, 0])).astype(F32)
