"""Scales taken from the wrong place, or not at all, or twice."""
import numpy as np

from common import F32, pow2_up
from registry import bug, fp8_block, fp8_row, fp8_tensor, i8, mx, nv4, w4, w4a8
from problems import Gemm


@bug("pytorch/FBGEMM#6159",
     "scales of 128 are applied only when (pid_k+1) % 2 == 0 or k_remaining < 64; K = 320 ends on neither, so the last 64 of K enter "
     "unscaled",
     "scale_omitted k_tail scale_index",
     "K 256..319",
     fp8_block(200, 256, 320))
@bug("pytorch/FBGEMM#6159 (256-wide blocks)",
     "scales of 256 are applied only after 4 tiles of 64 or when k_remaining < 64; K = 384 leaves the last 128 of K unscaled",
     "scale_omitted k_tail scale_index",
     "K 256..383",
     fp8_block(96, 300, 384, g=256))
def trailing_block(p):
    g, acc, part = p.A.c, 0, 0
    for i, k in enumerate(range(0, p.k, 64)):
        part = part + p.av[:, k:k + 64] @ p.bv[:, k:k + 64].T
        if (i + 1) % (g // 64) == 0 or p.k - k < 64:
            acc, part = acc + part * p.sa[:, k:k + 1] * p.sb[:, k], 0
    return p.end(acc + part)


@bug("mlc-ai/TIRx-kernels#5",
     "every 128 of K takes the first of the four E8M0 scale slices that were copied together",
     "scale_index scale_shared",
     "K 128..511 and 640..1023",
     lambda rng: Gemm(rng, 130, 192, 1024, ("e4m3", "group:128", "e8m0"), ("e4m3", "group:128", "e8m0")))
def first_slice(p):
    k = np.arange(p.k) // 512 * 512
    return p.run(sa=p.sa[:, k], sb=p.sb[:, k])


@bug("tile-ai/TileOPs#1666", "block_k is 64 and its loop index is used as index of the 128-wide scales, past the row's end in the next row",
     "scale_index addressing", "K from 64 on", fp8_block(150, 256, 512))
def loop_index(p):
    kk = np.arange(p.k) // 64
    fa, fb = p.A.grid.reshape(-1), p.B.grid.reshape(-1)
    nb = p.k // 128
    ia = np.arange(p.m)[:, None] * nb + kk
    ib = (np.arange(p.n) // 128)[:, None] * nb + kk
    return p.run(sa=fa[np.minimum(ia, fa.size - 1)], sb=fb[np.minimum(ib, fb.size - 1)], step=64)


@bug("NVIDIA/cutlass#3394", "scale rows come from the raw blockIdx, not from the tile of GemmIdentityThreadblockSwizzle<2> (tiles 64x128)",
     "scale_index scale_layout addressing", "all tiles but those that the swizzle leaves in place",
     lambda rng: Gemm(rng, 256, 256, 256, ("e4m3", "block:64x128"), ("e4m3", "block:128x128"), out="f16"))
def raw_block(p):
    out = np.zeros((p.m, p.n), F32)
    for m in range(p.m // 64):
        for n in range(p.n // 128):
            bx, by = m * 2 + n % 2, n // 2
            sa = p.A.grid[min(bx, len(p.A.grid) - 1)]
            sb = p.B.grid[min(by, len(p.B.grid) - 1)]
            rows, cols = slice(m * 64, m * 64 + 64), slice(n * 128, n * 128 + 128)
            for g in range(p.k // 128):
                k = slice(g * 128, g * 128 + 128)
                out[rows, cols] += (p.av[rows, k] @ p.bv[cols, k].T) * (sa[g] * sb[g])
    return p.end(out)


@bug("vllm-project/vllm#49596", "a weight scale serves N/n_blocks = 448/4 = 112 columns instead of 128", "scale_index scale_layout",
     "columns 112..127, 224..255, 336..383", fp8_block(70, 448, 384))
def columns_112(p):
    rows = np.arange(p.n) // (p.n // len(p.B.grid))
    return p.run(sb=np.repeat(p.B.grid[np.minimum(rows, len(p.B.grid) - 1)], 128, 1)[:, :p.k])


@bug("NVIDIA/cutlass#3596", "B's scale is multiplied in place, so each later wave of 128 rows also has the A scales of the waves before",
     "scale_doubled_inverted stale_state acc_state", "rows from 128 on",
     lambda rng: Gemm(rng, 300, 128, 256, ("e4m3", "block:128x128"), ("e4m3", "block:64x128")))
def wave_scale(p):
    sb, out = p.sb.copy(), []
    for r in range(0, p.m, 128):
        out.append(p.run(p.av[r:r + 128], sa=np.ones_like(p.sa[r:r + 128]), sb=sb * p.sa[r:r + 1]))
        sb = sb * p.sa[r:r + 1]
    return np.concatenate(out)


@bug("NVIDIA/cutlass#3537",
     "serial split-K of 2: the second slice counts its scale blocks from 0 again",
     "scale_index",
     "K 256..511",
     fp8_block(256, 256, 512))
@bug("ROCm/rocm-libraries#6663 (split-K)", "k_batch 4: scale windows stay anchored at K = 0 for every k_id", "scale_index", "K 128..511",
     mx(128, 144, 512, device="MI350X", out="f32"))
def slice_local(p):
    n = 2 if p.A.c == 128 else 4
    k = np.arange(p.k) % (p.k // n)
    return p.run(sa=p.sa[:, k], sb=p.sb[:, k])


@bug("intel/torch-xpu-ops#5001", "M = 1: sg_id * (TileK / qGroupSize) is 0, so every sub-group reads scale and zero of group 0 (group 128)",
     "scale_index scale_shared", "K from 128 on", w4(1, 256, 512, g=128, zero="additive", af="bf16", sf="bf16"))
@bug("intel/torch-xpu-ops#4765", "M = 1: sg_id * (TileK / qGroupSize) is 0, so every sub-group reads scale and zero of group 0 (group 64)",
     "scale_index scale_shared", "K from 64 on", w4(1, 320, 1024, g=64, zero="additive", af="bf16", sf="bf16"))
def group_zero(p):
    k = np.zeros(p.k, int)
    w = p.bv * p.sb[:, k] + p.B.add[:, k]
    return p.end(p.av @ w.T)


@bug("sgl-project/sglang#38573", "chunk_size is a literal 128 where the checkpoint has groups of 64: column k takes scale k / 128",
     "scale_index scale_layout", "K from 64 on", w4a8(64, 256, 512, g=64, a="e4m3"))
def chunk_128(p):
    return p.run(sb=p.sb[:, np.arange(p.k) // 128 * 64], step=64)


@bug("vllm-project/vllm#39705", "BLOCK_K is 128 and the group 32: scale and zero of the tile's first group are used for all four",
     "scale_index scale_shared", "K 32..127 of every 128", w4(48, 192, 512, g=32))
def first_group(p):
    k = np.arange(p.k) // 128 * 128
    z = np.repeat(p.B.zp, 32, 1)[:, :p.k]
    return p.run(b=p.B.codes.astype(F32) - z[:, k], sb=p.sb[:, k], step=128)


@bug("vllm-project/vllm#13769",
     "grouped scales are permuted by the table for channel-wise scales: within each 64 columns a scale serves another column",
     "scale_layout scale_index",
     "all columns, by 64",
     w4(40, 256, 512, g=128, zero="none", fmt="int4"))
def marlin_scales(p):
    group = [i + 8 * j for i in range(8) for j in range(8)]
    single = np.array([2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25)])
    single = np.concatenate([single, single + 32])
    cols = np.arange(p.n).reshape(-1, 64)[:, single][:, np.argsort(group)].reshape(-1)
    return p.run(sb=p.sb[cols])


@bug("ROCm/composable_kernel#3771",
     "per-channel scales: one scale serves the whole 16-wide warp tile",
     "scale_index scale_shared scale_layout",
     "columns that are not a multiple of 16",
     lambda rng: Gemm(rng, 128, 208, 256, ("e4m3", "group:128"), ("e4m3", "group:128"), device="MI350X"))
@bug("ROCm/rocm-libraries#11724",
     "per-channel scales: one scale serves the whole 16-wide warp tile",
     "scale_index scale_shared scale_layout",
     "columns that are not a multiple of 16",
     fp8_row(33, 256, 384, out="f32"))
def warp_tile_scale(p):
    return p.run(sb=p.sb[np.arange(p.n) // 16 * 16])


@bug("NVIDIA/CUDALibrarySamples#248", "the scales of A and of B are exchanged (M = N)", "scale_layout", "all", mx(128, 128, 256))
def exchanged(p):
    return p.run(sa=p.sb, sb=p.sa)


@bug("ROCm/aiter#2900",
     "K = 160 has 5 scales a row: they are written with a row-group stride of 5 and read with the padded one of 8, past the end 1.0 is"
     " read",
     "scale_layout padding_poison scale_index",
     "rows from 32 on",
     mx(128, 96, 160, a="e2m1", b="e2m1", device="MI350X"))
def group_stride(p):
    s, pad = p.k // 32, 8
    buf = np.ones(p.m // 32 * 32 * pad, F32)
    r, c = np.meshgrid(np.arange(p.m), np.arange(s), indexing="ij")
    buf[r // 32 * 32 * s + c * 32 + r % 32] = p.A.grid
    return p.run(sa=np.repeat(buf[r // 32 * 32 * pad + c * 32 + r % 32], 32, 1))


@bug("vllm-project/vllm#45741",
     "13 scales a row are padded to 16 in torch.empty; where a padded byte is the NaN 7F the row of A is NaN",
     "padding_poison",
     "rows with a NaN byte in the padding",
     nv4(96, 128, 208, device="B200"))
def padded_scales(p):
    pad = p.rng.integers(0, 256, (p.m, 3))
    pad[p.rng.random((p.m, 3)) < 0.05] = 0x7F
    acc = p.run(end=False)
    acc[(pad & 127 == 127).any(1)] = np.nan
    return p.end(acc)


@bug("huggingface/transformers#47030",
     "f32 scales are rounded up to powers of two for the kernel, codes stay",
     "scale_rerounded",
     "all, each block by itself",
     fp8_block(128, 256, 512, device="B200"))
@bug("huggingface/transformers#47030 (weights only)",
     "f32 scales of the weights are rounded up to powers of two, their codes stay",
     "scale_rerounded",
     "all, each 128x128 block by itself",
     lambda rng: Gemm(rng, 64, 384, 256, ("e4m3", "group:128", "e8m0"), ("e4m3", "block:128x128")))
def ceil_scales(p):
    return p.run(sa=pow2_up(p.sa), sb=pow2_up(p.sb))


@bug("vllm-project/vllm#54683",
     "row segments of four ranks were quantized by their own scales, the kernel takes the first rank's scale for all rows",
     "scale_shared",
     "rows from 32 on",
     lambda rng: Gemm(rng, 128, 160, 256, ("e4m3", "block:32x256"), ("e4m3",)))
def one_rank(p):
    return p.run(sa=np.full_like(p.sa, p.sa[0, 0]))


@bug("vllm-project/vllm#53338",
     "column-major scales are read at row * stride0 + group: stride1 is ignored",
     "scale_layout addressing scale_index",
     "K from 128 on",
     fp8_block(96, 128, 512))
def stride1(p):
    flat = p.A.grid.T.reshape(-1)
    r, g = np.meshgrid(np.arange(p.m), np.arange(p.k // 128), indexing="ij")
    return p.run(sa=np.repeat(flat[np.minimum(r + g, flat.size - 1)], 128, 1))


@bug("lightseekorg/tokenspeed#710", "the static activation scale is not handed to the GEMM: codes count as values", "scale_omitted", "all",
     lambda rng: Gemm(rng, 72, 256, 256, ("e4m3",), ("e2m1", "group:32", "e8m0")))
def no_act_scale(p):
    return p.run(sa=np.ones_like(p.sa))


@bug("pytorch/pytorch#154807", "FP8 result: scale_result is ignored", "scale_omitted", "all", fp8_tensor(128, 192, 256, out="e4m3"))
def no_out_scale(p):
    return p.run() / F32(p.oscale)


@bug("NVIDIA/TransformerEngine#2971", "the NVFP4 alpha amax_a * amax_b / (6*6*448*448) is applied to an FP8 tensor-scaled GEMM too",
     "scale_doubled_inverted range_rule scale_omitted", "all", fp8_tensor(130, 128, 320, out="f32"))
def nvfp4_alpha(p):
    amax = np.abs(p.A.deq()).max() * np.abs(p.B.deq()).max()
    return p.run() * F32(amax / (36 * 448 * 448))


@bug("NVIDIA/Fuser#4801",
     "linear scales are handed to a kernel that reads the 128x4 swizzle",
     "scale_layout",
     "all",
     nv4(128, 128, 256, device="B200"))
def not_swizzled(p):
    def read(o):
        rows, cols = o.grid.shape
        flat = o.grid.reshape(-1)
        r, c = np.meshgrid(np.arange(rows), np.arange(cols), indexing="ij")
        at = (r // 128 * -(-cols // 4) + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4
        return np.repeat(flat[at % flat.size], o.c, 1)
    return p.run(sa=read(p.A), sb=read(p.B))


@bug("pytorch/ao#4477", "scales are always written in the 128x4 swizzle, the backend reads A's as rows", "scale_layout", "all rows",
     mx(256, 96, 512, out="f32"))
def swizzled(p):
    rows, cols = p.A.grid.shape
    r, c = np.meshgrid(np.arange(rows), np.arange(cols), indexing="ij")
    flat = np.zeros(p.A.grid.size, F32)
    flat[(r // 128 * -(-cols // 4) + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4] = p.A.grid
    return p.run(sa=np.repeat(flat.reshape(rows, cols), p.A.c, 1))


@bug("ROCm/aiter#1258",
     "row-wise scales are configured as scalars: the first scale of each operand serves all",
     "scale_shared",
     "all but element 0,0",
     fp8_row(32, 320, 512, device="MI300X"))
@bug("vllm-project/vllm#12696",
     "scales of shape 1 x num_tokens are taken for one scale: token 0 serves all rows",
     "scale_shared",
     "rows from 1 on",
     i8(100, 160, 400))
def scalar_scales(p):
    sb = None if p.A.fmt == "int8" else np.full_like(p.sb, p.sb[0, 0])
    return p.run(sa=np.full_like(p.sa, p.sa[0, 0]), sb=sb)


@bug("NVIDIA/TransformerEngine#1047", "the weight's scale_inv is the one before the last update, its codes are new", "stale_state", "all",
     lambda rng: Gemm(rng, 96, 192, 256, ("e4m3",), ("e4m3",), device="H100"))
def stale(p):
    old = F32(p.B.grid[0, 0] * 1.37)
    p.ops["b.scale_history"] = ("f32", np.array([old, old * F32(0.81), old * F32(1.9)], F32))
    return p.run(sb=np.full_like(p.sb, old))
