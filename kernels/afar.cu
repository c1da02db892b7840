// Tensors whose values stay on the device: the amax of their tiles, their codes by a scale a tile, and what occurs among the codes.
// compiled with --fmad=false
//
// Matrices are row-major. A tile is tile_rows × tile_cols, the last ones what is left; tiles are numbered row by row.
//
// contract far_halves
//   arch   any
//   block  256
//   grid   any
//   args   values const u32* [count], the bits of f32 that bf16 holds; halves u16* [count]; count u64
//
// contract far_amax
//   arch   any
//   block  256
//   grid   any
//   args   values const u32* [rows, cols], the bits of f32; found u32* [tiles], zeroed before: the bits of the largest magnitude; special u32*, zeroed
//          before: 1 where a value is not finite; rows, cols, tile_rows, tile_cols int
//
// contract far_codes
//   arch   any
//   block  256
//   grid   any
//   args   values const float* [rows, cols], finite; scale const float* [tiles], scale_inv const float* [tiles], finite; codes u8* [rows, cols]:
//          RN32(value · scale) to the nearest code, ties to even, saturating; counts u32* [rows, 256]: how often each code occurs in each row; ties
//          u64*, zeroed before: how many value / scale_inv (f64) lie half-way between two finite codes; rows, cols, tile_rows, tile_cols int;
//          mantissa int: bits of the format's; bias int: of its exponent; largest int: its largest finite code
#include "common/doubles.cuh"
#include "common/gemm_types.cuh"

/// Half of the way to the host: the low half of what bf16 holds is 0.
extern "C" __global__ void __launch_bounds__(256) far_halves(const u32* values, u16* halves, u64 count) {
    for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < count; at += (u64)gridDim.x * 256) halves[at] = (u16)(values[at] >> 16);
}

/// Values of one row that a warp takes at a time.
constexpr int PART = 1024;

extern "C" __global__ void __launch_bounds__(256)
    far_amax(const u32* values, u32* found, u32* special, int rows, int cols, int tile_rows, int tile_cols) {
    const int lane = threadIdx.x % 32, tiles = ceil_div(cols, tile_cols), of_tile = ceil_div(min(tile_cols, cols), PART);
    const u64 parts = (u64)rows * tiles * of_tile;
    for (u64 part = (u64)blockIdx.x * 8 + threadIdx.x / 32; part < parts; part += (u64)gridDim.x * 8) {
        const int row = (int)(part / ((u64)tiles * of_tile)), inside = (int)(part % ((u64)tiles * of_tile));
        const int tile = inside / of_tile, begin = tile * tile_cols + inside % of_tile * PART;
        const int end = min(min(begin + PART, (tile + 1) * tile_cols), cols);
        const u32* of_row = values + (u64)row * cols;
        u32 most = 0;
#pragma unroll 4
        for (int j = begin + lane; j < end; j += 32) most = max(most, of_row[j] & 0x7fffffffu);
#pragma unroll
        for (int step = 16; step > 0; step /= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, step));
        u32* to = found + (u64)(row / tile_rows) * tiles + tile;
        // Most parts of a large tile add nothing: they do not wait for each other.
        if (lane == 0 && most > *(volatile u32*)to) atomicMax(to, most);
        if (lane == 0 && most >= 0x7f800000u) atomicMax(special, 1u);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    far_codes(const float* values, const float* scale, const float* scale_inv, u8* codes, u32* counts, u64* ties, int rows, int cols,
              int tile_rows, int tile_cols, int mantissa, int bias, int largest) {
    // A histogram a warp: the codes of neighbours are alike, and all would wait for the same counts.
    __shared__ u32 occurs[8][256];
    const int warp = threadIdx.x / 32, tiles = ceil_div(cols, tile_cols), shift = 23 - mantissa;
    // The least normal number of the format, and what makes its subnormals whole numbers.
    const float normal = __uint_as_float((u32)(127 + 1 - bias) << 23), whole = __uint_as_float((u32)(127 + bias - 1 + mantissa) << 23);
    const double greatest = (double)__uint_as_float((u32)((largest << shift) + ((127 - bias) << 23)));
    u64 halfway = 0;
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        for (int i = 0; i < 8; i++) occurs[i][threadIdx.x] = 0;
        __syncthreads();
        const u64 tile_row = (u64)(row / tile_rows) * tiles;
        for (int j = threadIdx.x; j < cols; j += 256) {
            const u64 tile = tile_row + j / tile_cols;
            const float x = values[(u64)row * cols + j], product = __fmul_rn(x, scale[tile]), magnitude = fabsf(product);
            const u32 bits = __float_as_uint(magnitude);
            u32 code;
            if (magnitude < normal) {
                code = (u32)__float2int_rn(__fmul_rn(magnitude, whole));
            } else {
                const u32 nearest = bits + ((1u << (shift - 1)) - 1) + ((bits >> shift) & 1);
                code = min((nearest >> shift) - ((u32)(127 - bias) << mantissa), (u32)largest);
            }
            code |= __float_as_uint(product) >> 31 << 7;
            codes[(u64)row * cols + j] = (u8)code;
            atomicAdd(&occurs[warp][code], 1u);
            // In units of the spacing of codes there: exact, since it is a power of two.
            const double y = fabs(__ddiv_rn((double)x, (double)scale_inv[tile]));
            const double steps = y * power_of(mantissa - max(exponent(y), 1 - bias));
            halfway += y < greatest && steps - floor(steps) == 0.5;
        }
        __syncthreads();
        u32 all = 0;
        for (int i = 0; i < 8; i++) all += occurs[i][threadIdx.x];
        counts[(u64)row * 256 + threadIdx.x] = all;
        __syncthreads();
    }
    if (halfway > 0) atomicAdd(ties, halfway);
}
