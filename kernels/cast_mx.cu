// Microscaling: a scale of 8 bits for 32 (MX) or 16 (NVFP4) neighbours, of the rows and, in a transposed copy, of the columns.
//
// Options (-D): IN F16, BF16 (default), F32;  FORMAT E4M3 (default), E5M2, E2M1, E2M3, E3M2;  WHOLE (common/tile.cuh);
//   SQUARE 0 (default), 1: one scale for 32x32 (NVFP4: 16x16), shared by both copies;  RULE, M the format's largest value, a the
//   group's amax (of Transformer Engine NaN dropped; else it stays), q = Qsat(RN32(x * s)):
//   TE_MXFP8: byte = e8m0 of RN32(a * RN32(1/M)) rounded up, Inf 254; s = 2^(127-byte)
//   MX_FLOOR, MX_CEIL, MX_EVEN, MX_RCEIL (torchao): byte of a's exponent, not finite 255;  s = 2^(127-byte), 255 NaN
//   TE_NVFP4: S = min(RN32(2688/A), FLT_MAX), A the tensor's amax; 1 where A = 0 or S = 0; D = RN32(1/S);
//      byte = e4m3 of b = min(RN32(a * RN32(S * RN32(1/6))), FLT_MAX); s = min(RN32(1 / RN32(b*D)), FLT_MAX); global_scale_inv = D
//   TORCHAO_NVFP4: t = RN32(A/2688); b = e4m3 of clamp(RN32(RN32(a/6)/t), 2^-6, 448); s = RN32(RN32(1/t)/b); global_scale_inv = t
//   A NaN product of a format without NaN: +max of TE_NVFP4, else what torchao's bit path leaves of x86's NaN.
// A cut group is a group of its own. e2m1 is packed two a byte, the even column in the low half, a row in ceil(cols/2) bytes (the high
// half of a last odd one is zero); the others one a byte.
//
// cast_mx(const void* x, u8* codes, u8* turned, u8* scale, u8* turned_scale, const float* amax, float* global_scale_inv, int rows, int
//   cols): codes [rows, cols], turned [cols, rows] or null; G the group: scale [rows, ceil(cols/G)], turned_scale [cols, ceil(rows/G)];
//   SQUARE: scale [ceil(rows/G), ceil(cols/G)] alone. amax[1] (tensor_amax of cast.cu) and global_scale_inv[1]: NVFP4.
//   grid ceil(rows/128)*ceil(cols/TILE_COLS), block 2*TILE_COLS.
// cast_mx_groups(const void* x, u8* codes, u8* scale, const float* amax, float* global_scale_inv, long long groups): codes and scale as above, of
//   rows that are whole groups; x 16-byte, codes 16-byte aligned. grid ceil(groups/(256*EACH)), at least 1, block 256; EACH groups a thread.
// x and turned 16-byte, codes 8-byte aligned; rows, cols > 0.
#ifndef RULE
#define RULE TE_MXFP8
#endif
#ifndef TILE_COLS
#define TILE_COLS (RULE >= TE_NVFP4 ? 64 : 128)
#endif
#include "common/eight_rows.cuh"
#include "common/narrow.cuh"
#include "common/tile.cuh"

#ifndef IN
#define IN BF16
#endif
#ifndef TILES
#define TILES (IN == F32 ? 128 / TILE_COLS : TILE_COLS == 64 ? 7 : 3)  // blocks an SM, at least
#endif
#ifndef FORMAT
#define FORMAT E4M3
#endif
#ifndef SQUARE
#define SQUARE 0
#endif
#ifndef EACH
#define EACH 4
#endif
constexpr bool NAN_WINS = RULE != TE_MXFP8 && RULE != TE_NVFP4, NVFP4 = RULE >= TE_NVFP4, PACKED = FORMAT == E2M1;
constexpr int GROUP_THREADS = 256, GROUP = NVFP4 ? 16 : 32, WORDS = sizeof(Eight<IN>) / 4, WARPS = TILE_THREADS / 32;
typedef Largest<IN, NAN_WINS> Amax;

/// What the whole tensor decides.
struct Global {
    float inverse, factor;  // global_scale_inv; TE_NVFP4: RN32(S * RN32(1/6))
};
__device__ __forceinline__ Global global_of(const float* amax) {
    if (!NVFP4) return {1.0f, 1.0f};
    if (RULE == TORCHAO_NVFP4) return {__fdiv_rn(*amax, 2688.0f), 0.0f};
    float s = fminf(__fdiv_rn(2688.0f, *amax), __uint_as_float(FLT_MAX_BITS));
    if (*amax == 0.0f || s == 0.0f) s = 1.0f;
    return {__frcp_rn(s), __fmul_rn(s, 1.0f / 6.0f)};
}

/// A group's scale: what elements are multiplied by, and the byte in memory.
struct GroupScale {
    float scale;
    u32 byte;
};
__device__ __forceinline__ GroupScale scale_of(float amax, const Global& global) {
    constexpr float M = max_of(FORMAT);
    const float limit = __uint_as_float(FLT_MAX_BITS);
    if (RULE == TE_NVFP4) {
        const u32 byte = fp8_pair<E4M3>(fminf(__fmul_rn(amax, global.factor), limit), 0.0f) & 0xff;
        return {fminf(__frcp_rn(__fmul_rn(e4m3_value(byte), global.inverse)), limit), byte};
    }
    if (RULE == TORCHAO_NVFP4) {
        const float b = __fdiv_rn(__fdiv_rn(amax, 6.0f), global.inverse);
        const u32 byte = fp8_pair<E4M3>(b < 0.015625f ? 0.015625f : b > 448.0f ? 448.0f : b, 0.0f) & 0xff;
        return {__fdiv_rn(__frcp_rn(global.inverse), e4m3_value(byte)), byte};
    }
    u32 byte;
    if (RULE == TE_MXFP8) {
        byte = e8m0_up(__fmul_rn(amax, 1.0f / M));
    } else if (RULE == MX_RCEIL) {
        const u32 bits = __float_as_uint(__fmul_rn(amax, 1.0f / M)), exponent = bits >> 23, fraction = bits & 0x7fffffu;
        byte = bits >= INFINITE ? 255 : exponent + (exponent == 0 ? fraction > 0x400000u : fraction != 0);
    } else {
        u32 bits = __float_as_uint(amax);
        if (RULE == MX_EVEN && bits <= INFINITE) bits = (bits + (1u << (22 - mantissa_of(FORMAT)))) & 0xff800000u;
        const int e = (int)(bits >> 23) + (RULE == MX_CEIL && (bits & 0x7fffffu)) - emax_of(FORMAT);
        byte = bits >= INFINITE ? 255 : (u32)max(0, min(255, e));
    }
    return {e8m0_reciprocal(byte), byte};
}

__device__ __forceinline__ u32 code_of(float v, float scale) {
    const float p = __fmul_rn(v, scale);
    if (!is_fp8(FORMAT) && RULE != TE_NVFP4 && p != p) return PACKED ? 0x3 : FORMAT == E2M3 ? 0xc : 0xe;
    return any_code<FORMAT>(p);
}
/// Codes of eight elements, one a byte; `scale(j)` of each.
template <typename S>
__device__ __forceinline__ uint2 codes_of(const Eight<IN>& v, const S& scale) {
    if constexpr (is_fp8(FORMAT)) {
        float p[8];
#pragma unroll
        for (int j = 0; j < 8; j++) p[j] = __fmul_rn(v[j], scale(j));
        return make_uint2(fp8_four<FORMAT>(p[0], p[1], p[2], p[3]), fp8_four<FORMAT>(p[4], p[5], p[6], p[7]));
    }
    // Only a scale that is not finite makes NaN of elements that are not (TE_NVFP4 has none, and its NaN is +max).
    bool finite = true;
#pragma unroll
    for (int j = 0; j < 8; j++) finite &= RULE == TE_NVFP4 || scale(j) < __uint_as_float(INFINITE);
    if (finite) {
        float p[8];
#pragma unroll
        for (int j = 0; j < 8; j++) p[j] = __fmul_rn(v[j], scale(j));
        typedef Narrow<FORMAT> N;
        return make_uint2(N::four(p[0], p[1], p[2], p[3]), N::four(p[4], p[5], p[6], p[7]));
    }
    u32 word[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < 8; j++) word[j / 4] |= code_of(v[j], scale(j)) << (8 * (j % 4));
    return make_uint2(word[0], word[1]);
}

/// Eight codes of 4 bits, one a byte, to four bytes.
__device__ __forceinline__ u32 pack_nibbles(uint2 w) { return __byte_perm(w.x | w.x >> 4, w.y | w.y >> 4, 0x6420); }
/// The first `count` of eight e2m1 codes, one a byte, as nibbles from `at`, a byte at a time.
__device__ __forceinline__ void store_nibbles(u8* at, uint2 eight, int count) {
    const u32 bytes = pack_nibbles(eight);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (2 * i + 1 < count) at[i] = (u8)(bytes >> (8 * i));
        else if (2 * i < count) at[i] = (u8)(bytes >> (8 * i)) & 0xf;
    }
}

/// Two nibbles a byte: store_tile and store_turned for e2m1.
__device__ __forceinline__ void store_tile_packed(u8* d, const uint2 (&codes)[8], const TilePlace& p) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (!p.has(i)) continue;
        u8* at = d + (long long)(p.row() + i) * ceil_div(p.cols, 2) + p.col() / 2;
        if (p.whole()) *(u32*)at = pack_nibbles(codes[i]);
        else store_nibbles(at, codes[i], p.cols - p.col());
    }
}
__device__ __forceinline__ void store_turned_packed(u8* turned, const u8* shared, const TilePlace& p) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int column = TILE_THREADS / 16 * i + threadIdx.x / 16, piece = threadIdx.x % 16, row = p.row0 + 8 * piece;
        if (p.col0 + column >= p.cols) continue;
        const uint2 v = *(const uint2*)(shared + column * TILE + (piece ^ swapped(column / 8)) * 8);
        u8* at = turned + (long long)(p.col0 + column) * ceil_div(p.rows, 2) + row / 2;
        if (!WHOLE) store_nibbles(at, v, p.rows - row);
        else if (row < p.rows) *(u32*)at = pack_nibbles(v);
    }
}

/// Scales to memory. NVFP4's tiles of 64 columns are not faster by staying in the L2.
template <typename T>
__device__ __forceinline__ void keep_scale(u8* at, T v) {
    if constexpr (NVFP4) *(T*)at = v;
    else store_scale(at, v);
}

constexpr int LANES = GROUP / 8, ROWS_OF_WARP = 32 / TILE_LANES;  // threads along a group; threads of a warp along a column
/// Whether the rows of a group lie in one warp.
constexpr bool IN_WARP = LANES <= ROWS_OF_WARP;

/// Whether the elements wait in shared memory (the transposed codes take their place); f32 is held in registers.
constexpr bool WAITS = IN != F32;

struct Shared {
    alignas(16) u8 turned[WAITS ? 2 * TILE_BYTES : TILE_BYTES];
    u32 columns[IN_WARP ? 1 : WARPS][TILE_LANES][WORDS];  // largest of a warp's rows, as Largest packs them
    alignas(16) float scale[TILE / GROUP][TILE_COLS];     // of the columns of each group of rows
    alignas(16) u8 bytes[TILE_COLS][TILE / GROUP];        // the same in memory
};

/// The scales of the tile's columns to `to`, `groups` a column of the matrix: those of a column at once, or a byte at a time.
__device__ __forceinline__ void store_column_scales(u8* to, const Shared& shared, const TilePlace& p, int groups) {
    constexpr int ALONG = TILE / GROUP;
    const int column = threadIdx.x, first = p.row0 / GROUP;
    if (column >= TILE_COLS || p.col0 + column >= p.cols) return;
    u8* at = to + (long long)(p.col0 + column) * groups + first;
    if (groups % ALONG == 0) {
        if (ALONG == 4) keep_scale(at, *(const u32*)shared.bytes[column]);
        else keep_scale(at, *(const uint2*)shared.bytes[column]);
        return;
    }
    for (int i = 0; i < min(ALONG, groups - first); i++) keep_scale(at + i, shared.bytes[column][i]);
}

/// The thread's elements.
struct Elements {
    Eight<IN> held[WAITS ? 1 : 8];
    u8* rows;

    __device__ __forceinline__ void load(const void* x, const TilePlace& p) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const long long at = (long long)(p.row() + i) * p.cols + p.col();
            Eight<IN>& v = held[WAITS ? 0 : i];
            if constexpr (WAITS) {
                u8* to = row_in<BF16>(rows, i);
                if (p.has(i) && p.whole()) {
                    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(smem_address(to)), "l"((const u8*)x + 2 * at) : "memory");
                    continue;
                }
                if (p.has(i)) v.load_some(x, at, p.cols - p.col());
                else v.zero();
                *(uint4*)to = make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]);
            } else {
                if (!p.has(i)) v.zero();
                else if (p.whole()) v.load(x, at);
                else v.load_some(x, at, p.cols - p.col());
            }
        }
        if (WAITS) asm volatile("cp.async.wait_all;" ::: "memory");
    }
    __device__ __forceinline__ Eight<IN> operator[](int i) const {
        if constexpr (!WAITS) return held[i];
        Eight<IN> v;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3]) : "r"(smem_address(row_in<BF16>(rows, i))) : "memory");
        return v;
    }
};

/// The largest of each of the thread's columns over its group of rows.
__device__ __forceinline__ void largest_of_columns(Amax (&column)[WORDS], const Elements& v, Shared& shared) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const Eight<IN> row = v[i];
#pragma unroll
        for (int k = 0; k < WORDS; k++) column[k].take(row.word[k]);
    }
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
#pragma unroll
        for (int step = TILE_LANES; step < TILE_LANES * LANES && step < 32; step *= 2) column[k].take(__shfl_xor_sync(~0u, column[k].pair, step));
    }
    if constexpr (!IN_WARP) {  // the group's other rows are the next warp's
        static_assert(IN_WARP || LANES == 2 * ROWS_OF_WARP, "two warps");
        const int warp = threadIdx.x / 32;
        if (threadIdx.x % 32 < TILE_LANES) {
#pragma unroll
            for (int k = 0; k < WORDS; k++) shared.columns[warp][tile_x()][k] = column[k].pair;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < WORDS; k++) column[k].take(shared.columns[warp ^ 1][tile_x()][k]);
    }
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS, TILES)
    cast_mx(const void* x, u8* codes, u8* turned, u8* scale, u8* turned_scale, const float* amax, float* global_scale_inv, int rows, int cols) {
    __shared__ Shared shared;
    const int across = ceil_div(cols, TILE_COLS), tile = blockIdx.x;
    const TilePlace p = {rows, cols, tile / across * TILE, tile % across * TILE_COLS};
    const int row_groups = ceil_div(cols, GROUP), column_groups = ceil_div(rows, GROUP);
    Elements v;
    v.rows = shared.turned;
    uint2 q[8];
    v.load(x, p);
    const Global global = global_of(amax);
    if (NVFP4 && tile == 0 && threadIdx.x == 0) *global_scale_inv = global.inverse;

    Amax column[WORDS];
    if (SQUARE || turned) largest_of_columns(column, v, shared);
    if (SQUARE) {
        Amax largest;
#pragma unroll
        for (int k = 0; k < WORDS; k++) largest.take(column[k].pair);
#pragma unroll
        for (int step = LANES / 2; step; step /= 2) largest.take(__shfl_xor_sync(~0u, largest.pair, step));
        const GroupScale s = scale_of(__uint_as_float(largest.bits()), global);
#pragma unroll
        for (int i = 0; i < 8; i++) q[i] = codes_of(v[i], [&](int) { return s.scale; });
        if (p.row() % GROUP == 0 && p.col() % GROUP == 0 && p.row() < rows && p.col() < cols)
            scale[(long long)(p.row() / GROUP) * row_groups + p.col() / GROUP] = (u8)s.byte;
    } else {
        typedef EightRows<LANES> Rows;
        Amax largest[8];
#pragma unroll
        for (int i = 0; i < 8; i++) largest[i].take(v[i]);
        Rows::reduce(largest);
        float mine[Rows::KEEP];
#pragma unroll
        for (int i = 0; i < Rows::KEEP; i++) {
            const GroupScale s = scale_of(__uint_as_float(largest[i].bits()), global);
            const int row = p.row() + Rows::first() + i, group = p.col() / GROUP;
            mine[i] = s.scale;
            if (row < rows && group < row_groups) keep_scale(scale + (long long)row * row_groups + group, (u8)s.byte);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float s = Rows::of(mine, i);
            q[i] = codes_of(v[i], [&](int) { return s; });
        }
    }
    if (PACKED) store_tile_packed(codes, q, p);
    else store_tile(codes, q, p);
    if (!turned) return;

    if (!SQUARE) {
        // The threads of a group of rows compute the scales of its columns together, MINE of the eight a thread.
        constexpr int MINE = 8 / LANES, PACKED_IN = IN == F32 ? 1 : 2;
        const int group = tile_y() / LANES, part = tile_y() % LANES, c = MINE * part;
#pragma unroll
        for (int j = 0; j < MINE; j++) {
            Amax one;
#pragma unroll
            for (int k = 0; k < LANES; k++) {
                if (part == k) one.pair = column[(MINE * k + j) / PACKED_IN].pair;
            }
            if (IN != F32) one.pair = j & 1 ? one.pair >> 16 : one.pair & 0xffff;
            const GroupScale s = scale_of(__uint_as_float(one.bits()), global);
            shared.scale[group][8 * tile_x() + c + j] = s.scale;
            shared.bytes[8 * tile_x() + c + j][group] = (u8)s.byte;
        }
        if (IN_WARP) __syncwarp();
        else __syncthreads();
        float own[8];
#pragma unroll
        for (int j = 0; j < 8; j++) own[j] = shared.scale[group][8 * tile_x() + j];
#pragma unroll
        for (int i = 0; i < 8; i++) q[i] = codes_of(v[i], [&](int j) { return own[j]; });
    }
    if (WAITS) __syncthreads();
    put_turned(shared.turned, q);
    __syncthreads();
    if (PACKED) store_turned_packed(turned, shared.turned, p);
    else store_turned(turned, shared.turned, p);
    if (!SQUARE) store_column_scales(turned_scale, shared, p, column_groups);
}

/// Eight codes of e2m1, two a byte.
__device__ __forceinline__ u32 nibbles_of(const Eight<IN>& v, float scale) {
    if constexpr (PACKED) {
        if (RULE == TE_NVFP4 || scale < __uint_as_float(INFINITE)) {
            float p[8];
#pragma unroll
            for (int j = 0; j < 8; j++) p[j] = __fmul_rn(v[j], scale);
            return Narrow<E2M1>::nibbles(p);
        }
    }
    return pack_nibbles(codes_of(v, [&](int) { return scale; }));
}

extern "C" __global__ void __launch_bounds__(GROUP_THREADS)
    cast_mx_groups(const void* x, u8* codes, u8* scale, const float* amax, float* global_scale_inv, long long groups) {
    constexpr int EIGHTS = GROUP / 8;
    const long long first = (long long)blockIdx.x * (GROUP_THREADS * EACH) + threadIdx.x;
    Eight<IN> v[EACH][EIGHTS];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const long long group = first + i * GROUP_THREADS;
#pragma unroll
        for (int k = 0; k < EIGHTS; k++) {
            if (group < groups) v[i][k].load(x, GROUP * group + 8 * k);
            else v[i][k].zero();
        }
    }
    const Global global = global_of(amax);
    if (NVFP4 && first == 0) *global_scale_inv = global.inverse;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const long long group = first + i * GROUP_THREADS;
        if (group >= groups) return;
        Amax largest;
#pragma unroll
        for (int k = 0; k < EIGHTS; k++) largest.take(v[i][k]);
        const GroupScale s = scale_of(__uint_as_float(largest.bits()), global);
        scale[group] = (u8)s.byte;
        if constexpr (PACKED) {
            u32 word[EIGHTS];
#pragma unroll
            for (int k = 0; k < EIGHTS; k++) word[k] = nibbles_of(v[i][k], s.scale);
            if constexpr (EIGHTS == 2) store8(codes + 8 * group, make_uint2(word[0], word[1]));
            else store16(codes + 16 * group, make_uint4(word[0], word[1], word[2], word[3]));
        } else {
#pragma unroll
            for (int k = 0; k < EIGHTS; k++) store8(codes + GROUP * group + 8 * k, codes_of(v[i][k], [&](int) { return s.scale; }));
        }
    }
}
