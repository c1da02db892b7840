"""The K loop: ranges lost, doubled, over-read; accumulators that are narrow, stale or cleared at the wrong time."""
import numpy as np

from common import F32, F64, rnd
from problems import Gemm, Wgrad
from registry import bug, fp8_block, fp8_row, fp8_tensor, i8, mx, nv4, w4, w4a8


@bug("tile-ai/tilelang#2381",
     "block_K = 24 is walked in steps of 16: the last 8 of every 24 of K are dropped",
     "k_tail",
     "K 16..23 of every 24",
     lambda rng: Gemm(rng, 64, 64, 240, ("f16",), ("int8", "row"), out="f16"))
@bug("tile-ai/tilelang#2381 (one block)",
     "K = 24 is walked in steps of 16: the last 8 are dropped",
     "k_tail",
     "K 16..23",
     fp8_row(64, 64, 24))
def block_24(p):
    return p.run(ks=range(0, p.k, 24), step=16)


@bug("ml-explore/mlx#3854",
     "split-K of 4 with partitions of 16 and tiles of 32: each partition also adds the 16 columns that follow, the last one the next "
     "row's",
     "k_tail acc_state",
     "K from 16 on twice",
     nv4(40, 96, 64, out="f16"))
def small_partitions(p):
    x, w = p.A.deq(), p.B.deq()
    x = np.concatenate([x, np.roll(x, -1, 0)], 1)
    w = np.concatenate([w, np.roll(w, -1, 0)], 1)
    return sum(x[:, k:k + 32] @ w[:, k:k + 32].T for k in range(0, p.k, 16)).astype(F32)


@bug("ml-explore/mlx#3912",
     "K = 208 is tiled by 32 without a bound: the last tile adds 16 columns of the next rows",
     "k_tail padding_poison",
     "all, by the 16 columns behind the end",
     lambda rng: Gemm(rng, 50, 128, 208, ("f16",), ("e2m1", "group:16", "e4m3"), out="f16"))
def tail_16(p):
    return (p.run() + np.roll(p.av, -1, 0)[:, :16] @ np.roll(p.B.deq(), -1, 0)[:, :16].T).astype(F32)


@bug("ggml-org/llama.cpp#8311",
     "stream-k borders are not rounded to 128 of K: the tile that a border cuts loses the 64 in front of it",
     "k_tail acc_state",
     "rows and columns of every third tile, 64 of K",
     lambda rng: Gemm(rng, 96, 192, 448, ("int8", "group:32"), ("int4", "group:32", "f16"), out="f32"))
def stream_k(p):
    out = p.run()
    for i, (m, n) in enumerate((m, n) for m in range(0, p.m, 32) for n in range(0, p.n, 64)):
        if i % 3 == 1:
            k = 64 * (1 + i % 5)
            out[m:m + 32, n:n + 64] -= p.A.deq()[m:m + 32, k:k + 64] @ p.B.deq()[n:n + 64, k:k + 64].T
    return out


@bug("ROCm/rocm-libraries#6663",
     "num_loop = 3 enters the hot loop: 5 tiles are accumulated instead of 3, the last two twice",
     "k_tail acc_state",
     "K 256..767 twice",
     mx(64, 128, 768, device="MI350X", bk=256))
def five_loops(p):
    tiles = [0, 256, 512, 256, 512]
    return p.run(ks=[t + s for t in tiles for s in range(0, 256, 32)])


@bug("ROCm/composable_kernel#3387",
     "split-K 4 over 3 tiles of 128: the block without work computes the last tile once more",
     "k_tail acc_state",
     "K 256..383 twice",
     fp8_row(48, 160, 384, out="f16", device="MI300X"))
def idle_block(p):
    return p.run(ks=[0, 128, 256, 256])


@bug("NVIDIA/cutlass#3538",
     "parallel split-K: the workspace is not set up, the slices' partial products land in D and the last one stays",
     "acc_state silent_skip k_tail",
     "K 0..255 lost",
     lambda rng: Gemm(rng, 100, 128, 512, ("f16",), ("int8", "row"), out="f16", device="A100"))
def last_slice(p):
    return p.run(ks=[256, 384])


@bug("ROCm/composable_kernel#2697",
     "split-K adds atomically into a workspace that still holds the result of the run before",
     "acc_state stale_state padding_poison",
     "all",
     fp8_tensor(80, 96, 256, out="f32", device="MI300X"))
def old_workspace(p):
    return p.run() + (p.run(a=np.roll(p.av, 7, 0)[:, ::-1]) * F32(0.8)).astype(F32)


@bug("facebookexperimental/triton#3401",
     "a split's part of the workspace has M = 200 rows, its tiles write 256: zeros cover the first 56 rows of the next split",
     "acc_state mn_edge addressing k_tail",
     "rows 0..55, K 256..511",
     fp8_block(200, 128, 512, device="B200"))
def overlapping_splits(p):
    parts = [p.run(ks=[0, 128], end=False), p.run(ks=[256, 384], end=False)]
    parts[1][:256 - p.m] = 0
    return p.end(parts[0] + parts[1])


@bug("1bit-MONSTER/1bit-MONSTER#1207",
     "only one of eight micro-tiles of K is accumulated",
     "k_tail acc_state pack_permute",
     "K 8..63 of every 64",
     i8(64, 64, 512, out="f32"))
def one_of_eight(p):
    return p.run(ks=range(0, p.k, 64), step=8)


@bug("1bit-MONSTER/1bit-MONSTER#1273",
     "the first activation tile of 16 is used for every tile of K",
     "acc_state k_tail stale_state",
     "K from 16 on",
     fp8_row(8, 200, 128, out="f32"))
def same_x(p):
    return p.run(a=np.tile(p.av[:, :16], (1, p.k // 16)))


@bug("tile-ai/tilelang#2627",
     "the accumulator is cleared in the loop: only the last micro-slice (16) of every K tile of 64 is kept",
     "acc_state k_tail",
     "K 0..47 of every 64",
     lambda rng: Gemm(rng, 64, 128, 256, ("bf16",), ("int8", "row"), device="H100"))
def cleared_inside(p):
    return p.run(ks=range(48, p.k, 64), step=16)


@bug("tile-ai/tilelang#2617",
     "clear_accum is ignored: each column tile of 64 starts from the sums of the one before",
     "acc_state stale_state",
     "columns from 64 on",
     lambda rng: Gemm(rng, 32, 256, 320, ("f16",), ("int4", "row"), out="f32"))
def not_cleared(p):
    acc = p.run(end=False) / p.sb[:, 0]
    acc = np.cumsum(acc.reshape(p.m, -1, 64), 1, dtype=F32).reshape(p.m, p.n)
    return p.end(acc * p.sb[:, 0])


def half_chain(a, b, every):
    """Sums in f16, rounded after every few products."""
    acc = np.zeros((len(a), len(b)), np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(0, a.shape[1], every):
            acc = (acc + (a[:, k:k + every] @ b[:, k:k + every].T)).astype(np.float16)
    return acc.astype(F32)


@bug("openvinotoolkit/openvino#34704",
     "activations times int4 codes are summed in f16 over a scale group of 128 and run over 65504",
     "overflow_wrap lowprec_acc",
     "sums beyond 65504 are Inf or NaN",
     lambda rng: Gemm(rng, 40, 96, 384, ("f16",), ("int4", "group:128", "f16"), out="f16", data="plain", fix=lambda r, a, b: (np.abs(a) *
     F32(400), np.abs(b))))
def f16_groups(p):
    acc = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(0, p.k, 128):
            acc = acc + half_chain(p.av[:, k:k + 128], p.bv[:, k:k + 128], 8) * p.sb[:, k]
        return p.end(acc)


@bug("openvinotoolkit/openvino#25525",
     "the sum over all of K is kept in f16: small terms are lost beside a large sum",
     "lowprec_acc",
     "all",
     lambda rng: Gemm(rng, 33, 128, 1024, ("f16",), ("int8", "row"), out="f16", data="onesided", bdata="onesided", fix=lambda r, a, b: (a
     * F32(0.2), b)))
@bug("NVIDIA/cutlass#1188", "f16 accumulators: 2048 + 1 is 2048", "lowprec_acc", "all",
     lambda rng: Gemm(rng, 64, 64, 1024, ("e4m3", "row"), ("e4m3", "row"), out="f32", data="onesided", bdata="onesided"))
def f16_sum(p):
    a, b = (p.av / 32, p.bv / 32) if p.A.fmt == "e4m3" else (p.av, p.bv / 128)
    back = F32(1024) if p.A.fmt == "e4m3" else F32(128)
    return p.end(half_chain(a, b, 2) * back * (p.sa[:, :1] * p.sb[:, 0]))


@bug("vllm-project/vllm#33972",
     "f16: partial sums of split-K are reduced in f16 and reach Inf before the scale of the channel brings them back",
     "overflow_wrap lowprec_acc",
     "sums beyond 65504",
     lambda rng: Gemm(rng, 20, 160, 512, ("f16",), ("int8", "row"), out="f16", data="onesided", fix=lambda r, a, b: (a * F32(8),
     np.where(np.arange(160)[:, None] % 3 == 0, np.abs(b), b))))
def f16_reduce(p):
    acc = np.zeros((p.m, p.n), np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(0, p.k, 128):
            acc = (acc + (p.av[:, k:k + 128] @ p.bv[:, k:k + 128].T).astype(np.float16)).astype(np.float16)
        return p.end(acc.astype(F32) * p.sb[:, 0])


@bug("microsoft/onnxruntime#16105",
     "u8 x s8 by vpmaddubsw: the sum of each pair saturates at 16 bits",
     "overflow_wrap lowprec_acc",
     "pairs of K with large products",
     lambda rng: Gemm(rng, 24, 72, 256, ("int8", "row"), ("int8", "row"), out="f32", data="uniform", bdata="uniform"))
@bug("uxlfoundation/oneDNN#518",
     "u8 x s8 by vpmaddubsw: the sum of each pair saturates at 16 bits, activations shifted by 128",
     "overflow_wrap lowprec_acc",
     "pairs of K with large products",
     lambda rng: Gemm(rng, 17, 64, 192, ("int8", "tensor"), ("int8", "row"), out="f32", data="uniform", bdata="uniform"))
def pair_saturates(p):
    a, b = p.A.codes.astype(int) + 128, p.B.codes.astype(int)
    acc = np.zeros((p.m, p.n), int)
    for k in range(0, p.k, 2):
        acc += np.clip(a[:, k, None] * b[:, k] + a[:, k + 1, None] * b[:, k + 1], -32768, 32767)
    acc -= 128 * b.sum(1)
    return p.end(acc.astype(F32) * p.sa[:, :1] * p.sb[:, 0])


@bug("microsoft/BitNet#629",
     "128 pair sums go into one 16-bit lane before it is widened, and wrap",
     "overflow_wrap",
     "sums of 256 products beyond 32767",
     lambda rng: Gemm(rng, 12, 96, 1024, ("int8", "row"), ("int4", "row"), out="f32", data="uniform", bdata="onesided", fix=lambda r, a,
     b: (np.abs(a), b)))
def lane_16(p):
    acc = np.zeros((p.m, p.n), int)
    for k in range(0, p.k, 256):
        part = p.A.codes[:, k:k + 256].astype(int) @ p.B.codes[:, k:k + 256].astype(int).T
        acc += (part + 32768) % 65536 - 32768
    return p.end(acc.astype(F32) * p.sa[:, :1] * p.sb[:, 0])


def with_128(rng):
    """int8 activations whose codes reach -128."""
    p = Gemm(rng, 30, 64, 256, ("int8", "row"), ("int4", "row"), out="f32")
    p.A.codes[rng.random(p.A.codes.shape) < 0.03] = -128
    p.A.v = p.A.codes.astype(F32)
    p.refresh()
    return p


@bug("ggml-org/ggml#1393", "the sign of a weight is moved to the activation by _mm_sign_epi8: -(-128) is -128", "overflow_wrap codec_edge",
     "activations of -128 that meet a negative weight", with_128)
def sign_epi8(p):
    acc = p.av @ p.bv.T + 2 * ((p.av == -128) * p.av) @ (np.abs(p.bv) * (p.bv < 0)).T
    return p.end((acc * p.sa[:, :1] * p.sb[:, 0]).astype(F32))


@bug("openvinotoolkit/openvino#34528",
     "convert_half(acc) * weight scale runs over 65504 before the activation's small scale is applied",
     "overflow_wrap",
     "groups with |acc * scale| > 65504",
     lambda rng: Gemm(rng, 48, 64, 512, ("int8", "row"), ("int4", "group:128", "f16"), out="f16", fix=lambda r, a, b: (a * F32(2e-4), b *
     F32(12000))))
def half_scale(p):
    acc = np.zeros((p.m, p.n), np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(0, p.k, 128):
            part = (p.av[:, k:k + 128] @ p.bv[:, k:k + 128].T).astype(np.float16)
            acc = acc + (part * p.sb[:, k].astype(np.float16)) * p.sa[:, :1].astype(np.float16)
        return p.end(acc.astype(F32))


@bug("NVIDIA/cutlass#2674",
     "wgrad groups of no tokens have no K tile: the accumulator is stored as the group before left it",
     "acc_state padding_poison stale_state group_boundary",
     "experts 1 and 3",
     lambda rng: Wgrad(rng, [48, 0, 80, 0, 33], 64, 96))
def empty_group(p):
    out = p.right()
    for e in range(1, p.e):
        if p.offs[e] == p.offs[e - 1]:
            out[e] = out[e - 1]
    return out
