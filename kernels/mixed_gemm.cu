// D[M,N] = dequantized(W)[M,K] . X[N,K]^T: int4, uint4 or int8 weights with group scales times f16 or bf16 activations.
//
// Per weight (RN rounds to the activations' type), s and z of its row m and group k / G:
//   ZERO NONE       w = RN(q * s)
//   ZERO ADDITIVE   w = RN(RN((q - MID) * s) + z)      z in real units, of the activations' type (CUTLASS: MID 0; tinygemm: uint4, MID 8)
//   ZERO INTEGER_8  w = RN((q - z) * s)                z an int8
// Products and sums. K is cut into blocks of 128, the blocks into S = SPLIT * WARPS_K slices of P = ceil(blocks / S) consecutive
// blocks (the last ones may be short or empty). A slice's f32 sum starts at +0 and takes, block by block, 8 tensor-core steps of
// 16 products: c = T(16, 25, 23 RZ)(c, products) (docs/tensor-cores.md 1, sm_90). Step j of block b takes, for t = 0..3,
//   int4, uint4:  k = 128 b + 32 t + 8 (j / 2) + 2 (j % 2) + {0, 1, 4, 5}
//   int8:         k = 128 b + 32 t + 4 j + {0, 1, 2, 3}
// (k >= K: zeros). Then, in f32 to nearest even: sum = slice 0 + slice 1 + ... + slice S-1 in this order (from slice 0),
// v = RN32(sum + f32(bias[m])) if bias is given, D = RN(v). The order of N never matters.
//
// Options (-D): WEIGHT INT4, UINT4, INT8;  IN F16, BF16 (X, scales, additive zeros, bias, D);  ZERO, MID as above;
//   TILED 0: weights as they are, [M, K/2] (int8: [M, K]) row-major, 1: as mixed_reorder writes them;
//   NT 8-column tiles a CTA (1, 2, 4, 8), MT 16-row tiles a warp (1, 2), WARPS_M, WARPS_K warps, SPLIT CTAs of a cluster along K
//   (1, 2, 4, 8; 1 below sm_90), DEPTH blocks of weights in flight (4; int8 2), STAGE blocks of X in shared memory
//   (a multiple of DEPTH that divides 8 WARPS_M); ONE_STAGE 1 if P <= STAGE (the host's promise; saves registers);
//   GROUP 64 or 128: scales by whole loads, for ZERO NONE, ONE_STAGE 1, P == DEPTH == STAGE == 4, K % 512 == 0, that group size, scale_group 1,
//   scale_row a multiple of 8 (64) or 4 (128) and a 16-byte aligned scale; UNROLL of the inner loop (1, 2, 4: only speed).
//
// mixed_gemm(const u8* w, const u16* scale, const void* zero, const u16* x, const u16* bias, u16* d, int M, int N, int K,
//            int group_shift, long long scale_row, long long scale_group, long long d_row, long long d_col)
//   w     16-byte aligned; scale (and zero): element (m, group) at m*scale_row + group*scale_group, so both orders are possible
//   x     [N, K] row-major, 16-byte aligned;  bias [M] or null;  d: element (m, n) at m*d_row + n*d_col
//   group_shift  log2 G, G a power of two >= 32, or 30 for one group a row; groups a row = ceil(K / G)
//   grid  (SPLIT * ceil(M / ROWS), ceil(N / (8 NT)), 1), ROWS = 16 MT WARPS_M;  block 32 WARPS_M WARPS_K
//   shared memory (dynamic): WARPS_K*STAGE*(NT*2048 + ROWS*(GROUP ? 0 : ZERO ? 16 : 8)) + SPLIT*WARPS_K*ceil(ROWS/SPLIT)*NT*32 bytes. No workspace.
//   The host refuses: K % 32 != 0, K == 0, misaligned pointers, null scale, a null zero unless ZERO is NONE, zero points beyond -100..100
//   for bf16 with 4-bit weights (they would not be exact). All sums in a NaN or Inf follow docs/tensor-cores.md.
// mixed_reorder(w, out, M, K): thread per 16 bytes of out, grid ceil(n/256), block 256, n = ceil(M/16)*ceil(K/128)*64 (int8: *128).
//   out is n*16 bytes. Values are only moved: a piece holds row 16 i + 8 h + g, k = 128 b + 32 t .. + 31 (int8: part p of two, .. + 15),
//   at ((i * blocks + b) * 2 + h) * 32 + 4 g + t (int8: (... * 2 + p) * 32 + ...); rows beyond M and k beyond K are zero.
#include "common/mixed.cuh"

#ifndef TILED
#define TILED 0
#endif
#ifndef NT
#define NT 2
#endif
#ifndef MT
#define MT 2
#endif
#ifndef WARPS_M
#define WARPS_M 7
#endif
#ifndef WARPS_K
#define WARPS_K 2
#endif
#ifndef SPLIT
#define SPLIT 8
#endif
#ifndef DEPTH
#define DEPTH (WEIGHT == INT8 ? 2 : 4)
#endif
#ifndef STAGE
#define STAGE DEPTH
#endif
#ifndef GROUP
#define GROUP 0
#endif
#ifndef UNROLL
#define UNROLL 1
#endif
#ifndef ONE_STAGE
#define ONE_STAGE 0
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#undef SPLIT
#define SPLIT 1
#endif
#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#else
#define CLUSTER
#endif

constexpr int BLOCK = 128;                                  // k of a block
constexpr int WORDS = WEIGHT == INT8 ? 8 : 4;                  // words of 32 codes
constexpr int ROWS = 16 * MT * WARPS_M, COLS = 8 * NT;      // of a CTA
constexpr int THREADS = 32 * WARPS_M * WARPS_K;
constexpr int OWNED = (ROWS + SPLIT - 1) / SPLIT;           // rows whose sums a CTA of the cluster finishes
constexpr int SLICES = SPLIT * WARPS_K;
constexpr bool DIRECT = GROUP != 0;
static_assert(!DIRECT || (ZERO == NONE && ONE_STAGE && STAGE == 4 && DEPTH == 4 && (GROUP == 64 || GROUP == 128)), "what GROUP needs");
constexpr int STAGE_BYTES = WARPS_K * STAGE * NT * 2048, STAGE_SCALE_BYTES = DIRECT ? 0 : WARPS_K * STAGE * ROWS * (ZERO ? 16 : 8);

struct Problem {
    const u8* w;
    const u16* scale;
    const void* zero;
    const u16* x;
    const u16* bias;
    u16* d;
    int m, n, k, group_shift;
    long long scale_row, scale_group, d_row, d_col;
};

__device__ __forceinline__ long long row_bytes(int k) { return WEIGHT == INT8 ? k : k / 2; }

/// The 32 codes of a row's block that a lane multiplies: k = 128 block + 32 t .. + 31.
struct Piece {
    uint4 codes[WORDS / 4];
};

__device__ __forceinline__ void load_piece(Piece& p, const Problem& a, int row, int block, int blocks, int lane) {
    const int k = BLOCK * block + 32 * (lane & 3);
    const bool exists = k < a.k && row < (TILED ? (a.m + 15) / 16 * 16 : a.m);
    const long long tile = ((long long)(row >> 4) * blocks + block) * 2 + ((row >> 3) & 1);
    const u8* at = a.w + (TILED ? tile * (WORDS / 4 * 512) + lane * 16 : row * row_bytes(a.k) + row_bytes(k));
#pragma unroll
    for (int i = 0; i < WORDS / 4; i++) {
        p.codes[i] = make_uint4(0, 0, 0, 0);
        if (exists) p.codes[i] = load_stream(at + i * (TILED ? 512 : 16));
    }
}

/// The weights of steps 2p and 2p + 1 (pairs first and second of step 2p, then of 2p + 1) from the piece's first words, which are then
/// shifted out. `scale` as store_scales wrote it.
__device__ __forceinline__ void dequantize(u32 (&w)[4], Piece& p, u32 scale) {
    uint4& c = p.codes[0];
    if constexpr (WEIGHT == INT8) {
        const u32 s = __byte_perm(scale, 0, 0x1010), z = __byte_perm(scale, 0, 0x3232);
        const int minus = minus_of(scale);
        const u32 two[2] = {c.x, c.y};
        const u32 sub = IN == F16 ? integer16(-1152 - minus) : __float_as_uint(-8388736.0f - (float)minus);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            u32 q[2];
            bytes_to_16bit<IN == BF16>(q, two[h], sub);
            w[2 * h] = scaled(q[0], s, z);
            w[2 * h + 1] = scaled(q[1], s, z);
        }
        uint4& next = p.codes[1];
        c = make_uint4(c.z, c.w, next.x, next.y);
        next = make_uint4(next.z, next.w, 0, 0);
    } else {
        word_to_weights(w, c.x, scale);
        c = make_uint4(c.y, c.z, c.w, 0);
    }
}

/// Global column blocks of a stage: block `i` of the CTA's slice `slice`, -1 if the slice has no such block.
__device__ __forceinline__ int block_at(int first_slice, int slice, int per_slice, int stage, int i) {
    const int in_slice = stage * STAGE + i;
    return in_slice < per_slice ? (first_slice + slice) * per_slice + in_slice : -1;
}

/// Scale (and zero point in the upper half) of (row, slice, block, t), 0 beyond M and K, through registers: loads now, stores later.
/// A thread has one (slice, block, t), so that neighbours read neighbouring groups of a row, and every SCALE_STEP-th row.
constexpr int SCALES = 2 * MT * STAGE, ENTRIES = 4 * STAGE * WARPS_K, SCALE_STEP = THREADS / ENTRIES;
static_assert(THREADS % ENTRIES == 0, "8 * WARPS_M must be a multiple of STAGE");
__device__ __forceinline__ void load_scales(u32 (&v)[SCALES], const Problem& a, int cta_row, int first_slice, int per_slice, int stage) {
    const int e = threadIdx.x % ENTRIES, row = cta_row + threadIdx.x / ENTRIES;
    const int b = block_at(first_slice, e / (4 * STAGE), per_slice, stage, e / 4 % STAGE), k = BLOCK * b + 32 * (e % 4);
    const int rows = b >= 0 && k < a.k ? a.m - row : 0;
    const long long first = row * a.scale_row + (k >> a.group_shift) * a.scale_group;
    const u16* scale = a.scale + first;
    const u8* zero = (const u8*)a.zero + first * (ZERO == ADDITIVE ? 2 : 1);
#pragma unroll
    for (int j = 0; j < SCALES; j++) {
        u16 s = 0, z = 0;
        if (j * SCALE_STEP < rows) {
            asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(s) : "l"(scale));
            if (ZERO == ADDITIVE) asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(z) : "l"(zero));
            if (ZERO == INTEGER_8) asm volatile("ld.global.nc.s8 %0, [%1];" : "=h"(z) : "l"(zero));
        }
        scale += SCALE_STEP * a.scale_row;
        zero += SCALE_STEP * a.scale_row * (ZERO == ADDITIVE ? 2 : 1);
        v[j] = ZERO ? s | (u32)z << 16 : s;
    }
}
__device__ __forceinline__ void store_scales(u8* scales, const u32 (&v)[SCALES]) {
    const int e = threadIdx.x % ENTRIES, at = (e / 4 * ROWS + threadIdx.x / ENTRIES) * 4 + e % 4;
#pragma unroll
    for (int j = 0; j < SCALES; j++) {
        if (ZERO) ((u32*)scales)[at + j * SCALE_STEP * 4] = v[j];
        else ((u16*)scales)[at + j * SCALE_STEP * 4] = (u16)v[j];
    }
}

/// The scales of a row's slice of 4 blocks by one load, GROUP 64 (16 bytes) or 128 (8 bytes), instead of through shared memory.
struct Direct {
    uint4 words;
};
__device__ __forceinline__ void load_direct(Direct (&v)[2 * MT], const Problem& a, int row, int first_block, int lane) {
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        const u16* at = a.scale + (row + 8 * r) * a.scale_row + first_block * (BLOCK / (GROUP ? GROUP : 64));
        v[r].words = make_uint4(0, 0, 0, 0);
        if (row + 8 * r >= a.m || BLOCK * first_block >= a.k) continue;
        if (GROUP == 64) v[r].words = load_stream(at);
        else asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(v[r].words.x), "=r"(v[r].words.y) : "l"(at));
    }
}
/// The scale of block i of the slice, in the lower half.
__device__ __forceinline__ u32 direct_scale(const Direct& v, int i, int lane) {
    const int word = GROUP == 64 ? i : i / 2;
    const u32 both = word == 0 ? v.words.x : word == 1 ? v.words.y : word == 2 ? v.words.z : v.words.w;
    return (GROUP == 64 ? lane & 2 : i & 1) ? both >> 16 : both;
}

/// Copies X of `STAGE` blocks of each of the CTA's slices to where lanes find 16 bytes, the eight k of steps 2p and 2p + 1, in one
/// place: piece (slice, block, p, tile) at ((slice*STAGE + block)*4 + p)*NT + tile, lane (column % 8)*4 + t. A warp copies two columns
/// of a block at a time: neighbouring lanes read neighbouring 16 bytes.
__device__ __forceinline__ void copy_x(u32 to, const Problem& a, int first_slice, int per_slice, int stage) {
    constexpr int UNITS = WARPS_K * STAGE * COLS / 2, WARPS = THREADS / 32;
    const int chunk = threadIdx.x % 16, odd = threadIdx.x / 16 % 2, p = chunk % 4, t = chunk / 4;
#pragma unroll
    for (int j = 0; j < (UNITS + WARPS - 1) / WARPS; j++) {
        const int unit = j * WARPS + threadIdx.x / 32, column = unit % (COLS / 2) * 2 + odd, block = unit / (COLS / 2);
        if (UNITS % WARPS && unit >= UNITS) break;
        const int b = block_at(first_slice, block / STAGE, per_slice, stage, block % STAGE);
        const int k = BLOCK * b + 8 * chunk, n = blockIdx.y * COLS + column;
        const bool exists = b >= 0 && k < a.k && n < a.n;
        copy16(to + (((block * 4 + p) * NT + column / 8) * 32 + column % 8 * 4 + t) * 16, exists ? a.x + (long long)n * a.k + k : a.x,
               exists ? 16 : 0);
    }
}

extern "C" __global__ void CLUSTER __launch_bounds__(THREADS, 1) mixed_gemm(
    const u8* w, const u16* scale, const void* zero, const u16* x, const u16* bias, u16* d, int m, int n, int k, int group_shift,
    long long scale_row, long long scale_group, long long d_row, long long d_col) {
    const Problem a = {w, scale, zero, x, bias, d, m, n, k, group_shift, scale_row, scale_group, d_row, d_col};
    extern __shared__ __align__(128) u8 smem[];
    u8* scales = smem + STAGE_BYTES;                           // [WARPS_K][STAGE][ROWS][4]
    float* sums = (float*)(scales + STAGE_SCALE_BYTES);        // [SLICES][OWNED][COLS]
#if SPLIT > 1
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = blockIdx.x % SPLIT;
    const int warp_k = warp / WARPS_M, tile_row = warp % WARPS_M * (16 * MT), cta_row = blockIdx.x / SPLIT * ROWS;
    const int blocks = (k + BLOCK - 1) / BLOCK, per_slice = (blocks + SLICES - 1) / SLICES;
    const int slice = rank * WARPS_K + warp_k, first = slice * per_slice;
    const int count = max(0, min(per_slice, blocks - first));
    const int row = cta_row + tile_row + lane / 4;

    // The weights come from furthest away: their loads go first.
    float acc[MT][NT][4] = {};
    Piece ring[DEPTH][2 * MT];
    Direct direct[2 * MT];
    for (int stage = 0; stage * STAGE < (ONE_STAGE ? STAGE : per_slice); stage++) {
        if (stage) __syncthreads();
        if (stage == 0)
#pragma unroll
            for (int i = 0; i < DEPTH; i++)
                if (i < count)
#pragma unroll
                    for (int r = 0; r < 2 * MT; r++) load_piece(ring[i][r], a, row + 8 * r, first + i, blocks, lane);
        u32 v[SCALES];
        if (DIRECT) load_direct(direct, a, row, first, lane);
        else load_scales(v, a, cta_row, rank * WARPS_K, per_slice, stage);
        copy_x(shared_address(smem), a, rank * WARPS_K, per_slice, stage);
        if (!DIRECT) store_scales(scales, v);
        copies_done();
        __syncthreads();
        for (int turn = 0; turn < STAGE / DEPTH; turn++)
#pragma unroll
            for (int i = 0; i < DEPTH; i++) {
                const int block = stage * STAGE + turn * DEPTH + i;
                if (block >= count) break;
                const u8* xs = smem + ((warp_k * STAGE + turn * DEPTH + i) * 4 * NT * 32 + lane) * 16;
                u32 scale[2 * MT];
#pragma unroll
                for (int r = 0; r < 2 * MT; r++) {
                    const int at = ((warp_k * STAGE + turn * DEPTH + i) * ROWS + tile_row + 8 * r) * 4 + lane;
                    if (DIRECT) scale[r] = direct_scale(direct[r], i, lane);
                    else scale[r] = ZERO ? ((const u32*)scales)[at] : ((const u16*)scales)[at];
                }
#pragma unroll UNROLL
                for (int p = 0; p < 4; p++) {
                    u32 even[MT][4], odd[MT][4];  // rows g and g + 8
#pragma unroll
                    for (int t = 0; t < MT; t++) {
                        dequantize(even[t], ring[i][2 * t], scale[2 * t]);
                        dequantize(odd[t], ring[i][2 * t + 1], scale[2 * t + 1]);
                    }
#pragma unroll
                    for (int c = 0; c < NT; c++) {
                        uint4 b = *(const uint4*)(xs + (p * NT + c) * 512);
                        // Nibbles come out of their words as k = 0 4, 1 5, 2 6, 3 7.
                        if (WEIGHT != INT8)
                            b = make_uint4(__byte_perm(b.x, b.z, 0x5410), __byte_perm(b.x, b.z, 0x7632), __byte_perm(b.y, b.w, 0x5410),
                                           __byte_perm(b.y, b.w, 0x7632));
#pragma unroll
                        for (int t = 0; t < MT; t++)
                            mma16(acc[t][c], even[t][0], odd[t][0], even[t][1], odd[t][1], b.x, b.y);
#pragma unroll
                        for (int t = 0; t < MT; t++)
                            mma16(acc[t][c], even[t][2], odd[t][2], even[t][3], odd[t][3], b.z, b.w);
                    }
                }
                if (!(ONE_STAGE && STAGE == DEPTH) && block + DEPTH < count)
#pragma unroll
                    for (int r = 0; r < 2 * MT; r++) load_piece(ring[i][r], a, row + 8 * r, first + block + DEPTH, blocks, lane);
            }
    }

    // Every slice's sum goes to the CTA that owns the row; all have started once the first barrier is passed.
#if SPLIT > 1
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
#pragma unroll
    for (int t = 0; t < MT; t++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = tile_row + 16 * t + 8 * h + lane / 4;
            float* at = sums + (slice * OWNED + r % OWNED) * COLS + lane % 4 * 2;
#if SPLIT > 1
            u32 remote;
            asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(at)), "r"(r / OWNED));
#pragma unroll
            for (int c = 0; c < NT; c++)
                asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(remote + 32 * c), "f"(acc[t][c][2 * h]), "f"(acc[t][c][2 * h + 1])
                             : "memory");
#else
#pragma unroll
            for (int c = 0; c < NT; c++) *(float2*)(at + 8 * c) = make_float2(acc[t][c][2 * h], acc[t][c][2 * h + 1]);
#endif
        }
#if SPLIT > 1
    asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
    for (int i = threadIdx.x; i < OWNED * COLS; i += THREADS) {
        const int local = rank * OWNED + i / COLS, r = cta_row + local, c = blockIdx.y * COLS + i % COLS;
        if (local >= ROWS || r >= m || c >= n) continue;
        float part[SLICES];
#pragma unroll
        for (int s = 0; s < SLICES; s++) part[s] = sums[s * OWNED * COLS + i];
        float v = part[0];
#pragma unroll
        for (int s = 1; s < SLICES; s++) v = __fadd_rn(v, part[s]);
        if (bias) v = __fadd_rn(v, load_as<IN>(bias, r));
        store_as<IN>(d, r * d_row + c * d_col, v);
    }
}

extern "C" __global__ void mixed_reorder(const u8* w, uint4* out, int m, int k) {
    const int blocks = (k + BLOCK - 1) / BLOCK, parts = WORDS / 4;
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (long long)((m + 15) / 16) * blocks * 64 * parts) return;
    const int lane = (int)(i % 32), part = (int)(i / 32 % parts), half = (int)(i / 32 / parts % 2);
    const long long tile = i / 32 / parts / 2;
    const int row = (int)(tile / blocks) * 16 + half * 8 + lane / 4, kk = (int)(tile % blocks) * BLOCK + 32 * (lane % 4);
    uint4 v = make_uint4(0, 0, 0, 0);
    if (row < m && kk < k) v = *(const uint4*)(w + row * row_bytes(k) + row_bytes(kk) + 16 * part);
    out[i] = v;
}
