// A large result judged where it lies: counts, extremes, sums, ranks. Every f64 step is the CPU's (`compare`), none fused.
// compiled with --fmad=false
//
// All matrices are row-major doubles of `count` elements, `cols` a row. Extremes are the bits of doubles that are not negative: in the order
// of the numbers. What the CPU adds in an order is added in that order here: leaves of a tree, blocks of a sequence.
//
// -DSCALED=1: the result is codes with a scale a tile; else values of a float format. -DPASS=n: see judge_sums.
//
// contract judge_codes: block 256, any grid; args codes const u8* [count]; table const double[256]; unit const double* [tiles]; values double*;
//          cols, tile_rows, tile_cols, grid_cols int; count u64
// contract judge_widen: block 256, any grid; args from const float*; to double*; count u64
// contract judge_model: block 256, any grid; args model const float*, actual const float*; bias const float* [cols] or null; cols, dtype int (0 f32,
//          1 bf16, 2 f16); count u64; found u64[2], zeroed before: how many values of the model in this type have other bits; how many are no numbers
// contract judge_model_codes: block 256, any grid; args model const float*; bias as above; codes const u8*; table const double[256]; numbers const
//          double[] (enum Stored); scale float; cols int; count u64; found u64[3], zeroed before: how many codes are not those of the model's values
//          times the scale; how many values are no numbers; the bits of the largest magnitude
// Elements: exact, ideal, actual const double*; numbers const double[] (enum Stored); scale, unit const double* [tiles], of codes; cols, tile_rows,
//          tile_cols, grid_cols int; count u64
// contract judge_elements: block 256, any grid; args all Elements; certain (null: 0), probable (null: certain) const double*; tally u64[TALLY], zeroed;
//          largest u64* [tiles of the map], zeroed; map_rows, map_cols, map_width int
// contract judge_sums: block 32, grid ceil(leaves/32); args all Elements; starts const int* [leaves + 1]; means const double[3]; sums double*
//          [leaves, 18 or 3]; leaves int. PASS 0: of each of three errors |e|, e², e, r², a², r·a; 1: (e - mean)²
// contract judge_drawn: block 256, grid pieces; args all Elements; drawn double* [6, pieces * 256]: of each error the relative one and the one in
//          spacings, at even distances
// contract judge_ranks: block 256, any grid; args all Elements; between const double* [6, 3, 2]; tally u64* [6, 13], zeroed; inside double*
//          [6, 3, room]; room u64. Of a tally: the largest, then below, at the low end, at the high end, inside of each interval
// contract judge_power: block 512, grid blocks; args all Elements; certain const double* (null: 0); tally u64[4], the first all ones, then zeroed;
//          row_gains, column_gains u64*, all ones before; sums double* [blocks, 2]; bit_exact int; block u64
#include "common/doubles.cuh"
#include "common/gemm_types.cuh"

#ifndef SCALED
#define SCALED 0
#endif
#ifndef PASS
#define PASS 0
#endif

/// What `numbers` holds of a format.
enum Stored { MANTISSA, MIN_EXPONENT, SMALLEST, LARGEST, BEYOND, NAN_VALUE, NEGATIVE_ZERO, SATURATES };

/// `format::grid::ValueGrid` of a float format, and `compare::out::Cells`.
struct Cells {
    int mantissa, min_exponent;
    double least, most, beyond, nan_value, scale, unit;
    bool negative_zero, saturates;

    __device__ __forceinline__ double ulp(double x) const {
        return power_of(max(exponent(fmin(fabs(x), most)), min_exponent) - mantissa);
    }
    __device__ __forceinline__ double nearest(double x) const {
        const double magnitude = fabs(x), magic = 1.5 * power_of(max(exponent(magnitude), min_exponent) + 52 - mantissa);
        const double rounded = (magnitude + magic) - magic;
        const double value = rounded > most || magnitude >= 2.0 * most ? beyond : rounded;
        const bool sign = negative_zero || (value != 0.0 && !nan(value));
        return nan(x) ? nan_value : (__double_as_longlong(x) < 0 && sign ? -value : value);
    }
    __device__ __forceinline__ double spacing(double x) const { return SCALED ? ulp(x / unit) * fabs(unit) : ulp(x); }
    __device__ __forceinline__ double round(double x) const {
        return SCALED ? nearest((double)__double2float_rn(x * scale)) * unit + 0.0 : nearest(x) + 0.0;
    }
    __device__ __forceinline__ bool saturated(double value) const {
        const double code = SCALED ? value / unit : value, slack = 0.25 * ulp(most);
        return code >= most - slack || code <= least + fmin(slack, 0.25);
    }
    __device__ __forceinline__ double gap(double code) const {
        const double step = ulp(code);
        const bool power = code < 0.0 && step > ulp(0.0) && fabs(code) == step * power_of(mantissa);
        return code >= most && saturates ? INFINITE : (power ? 0.5 * step : step);
    }
    __device__ __forceinline__ void cell(double value, double& low, double& high) const {
        const double code = SCALED ? value / unit : value;
        double x = code - 0.5 * gap(-code), y = code + 0.5 * gap(code);
        if (SCALED) x = x / scale + 0.0, y = y / scale + 0.0;
        const bool there = finite(code), order = x <= y;
        low = there ? (order ? x : y) : value;
        high = there ? (order ? y : x) : value;
    }
    __device__ __forceinline__ void interval(double d, double radius, double& low, double& high) const {
        const bool anything = finite(d) && radius == INFINITE;
        const double reach = finite(d) && !anything ? radius : 0.0, x = round(d - reach), y = round(d + reach);
        low = x <= y ? x : y;
        high = x <= y ? y : x;
        if (anything) low = -INFINITE, high = INFINITE;
        if (nan(d)) low = high = NOT_A_NUMBER;
    }
};

__device__ __forceinline__ Cells stored(const double* numbers) {
    Cells c;
    c.mantissa = (int)numbers[MANTISSA];
    c.min_exponent = (int)numbers[MIN_EXPONENT];
    c.least = numbers[SMALLEST];
    c.most = numbers[LARGEST];
    c.beyond = numbers[BEYOND];
    c.nan_value = numbers[NAN_VALUE];
    c.negative_zero = numbers[NEGATIVE_ZERO] != 0.0;
    c.saturates = numbers[SATURATES] != 0.0;
    c.scale = c.unit = 1.0;
    return c;
}

/// A result: its references, what was written, and how that is stored; scales of codes, one a tile.
struct Elements {
    const double* exact;
    const double* ideal;
    const double* actual;
    const double* numbers;
    const double* scale;
    const double* unit;
    int cols;
    int tile_rows;
    int tile_cols;
    int grid_cols;
    u64 count;
};

__device__ __forceinline__ int tile_of(u64 at, int cols, int tile_rows, int tile_cols, int grid_cols) {
    return (int)(at / cols) / tile_rows * grid_cols + (int)(at % cols) / tile_cols;
}

/// The scales of an element's tile.
__device__ __forceinline__ void at_tile(Cells& c, const Elements& all, u64 at) {
    if (!SCALED) return;
    const int tile = tile_of(at, all.cols, all.tile_rows, all.tile_cols, all.grid_cols);
    c.scale = all.scale[tile];
    c.unit = all.unit[tile];
}

extern "C" __global__ void judge_codes(const u8* codes, const double* table, const double* unit, double* values, int cols, int tile_rows,
                                       int tile_cols, int grid_cols, u64 count) {
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += (u64)gridDim.x * blockDim.x) {
        values[at] = table[codes[at]] * unit[tile_of(at, cols, tile_rows, tile_cols, grid_cols)];
    }
}

extern "C" __global__ void judge_widen(const float* from, double* to, u64 count) {
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += (u64)gridDim.x * blockDim.x) to[at] = (double)from[at];
}

extern "C" __global__ void judge_model(const float* model, const float* actual, const float* bias, int cols, int dtype, u64 count, u64* found) {
    u64 differ = 0, special = 0;
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += (u64)gridDim.x * blockDim.x) {
        float x = model[at];
        if (bias) x = __fadd_rn(x, bias[at % cols]);
        special += !(x - x == 0.0f);
        if (dtype == 1) x = bf16_to_f32((u16)pack_bf16(x, 0.0f));
        if (dtype == 2) {
            const u16 half = (u16)pack_f16(x, 0.0f);
            asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
        }
        differ += __float_as_uint(x) != __float_as_uint(actual[at]);
    }
    if (differ) atomicAdd(found, differ);
    if (special) atomicAdd(found + 1, special);
}

extern "C" __global__ void judge_model_codes(const float* model, const float* bias, const u8* codes, const double* table, const double* numbers,
                                             float scale, int cols, u64 count, u64* found) {
    const Cells cells = stored(numbers);
    u64 differ = 0, special = 0;
    u32 largest = 0;
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += (u64)gridDim.x * blockDim.x) {
        float x = model[at];
        if (bias) x = __fadd_rn(x, bias[at % cols]);
        special += !(x - x == 0.0f);
        largest = max(largest, __float_as_uint(x) & 0x7fffffff);
        differ += bits(cells.nearest((double)__fmul_rn(x, scale))) != bits(table[codes[at]]);
    }
    if (differ) atomicAdd(found, differ);
    if (special) atomicAdd(found + 1, special);
    largest = __reduce_max_sync(~0u, largest);
    if (threadIdx.x % 32 == 0) atomicMax(found + 2, (u64)largest);
}

/// What judge_elements counts; of each error FINITE and what follows.
enum Tally {
    VIOLATIONS, IMPROBABLE, UNJUDGED, DIFFERING, UP_TO, IDEAL_FINITE = UP_TO + 9, IDEAL_NONZERO, JUDGED, UNCLIPPED, OF_ERRORS,
    OF_ERROR = 5, COUNTS = OF_ERRORS + 3 * OF_ERROR, RATIO_CERTAIN = COUNTS, RATIO_PROBABLE, LARGEST_ERROR, TALLY = LARGEST_ERROR + 3
};

__device__ __forceinline__ u32 sum_of_warp(u32 x) { return __reduce_add_sync(~0u, x); }
__device__ __forceinline__ u64 max_of_warp(u64 x) {
    for (int lane = 16; lane; lane /= 2) {
        const u64 other = __shfl_xor_sync(~0u, x, lane);
        x = other > x ? other : x;
    }
    return x;
}
__device__ __forceinline__ u64 min_of_warp(u64 x) { return ~max_of_warp(~x); }

/// `judged::look_at`: whether the element lies inside, and its error over its bound where `inside` says what is so.
__device__ __forceinline__ bool within(const Cells& cells, double d, double radius, double a) {
    double low, high;
    cells.interval(d, radius, low, high);
    return nan(low) ? nan(a) : low <= a && a <= high;
}
__device__ __forceinline__ double ratio_of(const Cells& cells, double d, double radius, double a, bool inside) {
    double clipped = d;
    if (cells.saturates) {
        const double x = cells.least * cells.unit + 0.0, y = cells.most * cells.unit + 0.0;
        if (!nan(x)) {
            const double bottom = fmin(x, y), top = fmax(y, x);
            clipped = d < bottom ? bottom : d;
            clipped = clipped > top ? top : clipped;
        }
    }
    const double of = fabs(a - clipped) / (radius + 0.5 * cells.spacing(fabs(d) + radius));
    if (nan(of)) return inside ? 0.0 : INFINITE;
    return inside ? fmin(of, 1.0) : fmax(of, 1.0 + 1.0 / (1ll << 52));
}

extern "C" __global__ void __launch_bounds__(256)
    judge_elements(const Elements all, const double* certain, const double* probable, u64* tally, u64* largest, int map_rows, int map_cols,
                   int map_width) {
    Cells cells = stored(all.numbers);
    u32 counts[COUNTS] = {};
    u64 extremes[TALLY - COUNTS] = {};
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < all.count; at += (u64)gridDim.x * blockDim.x) {
        at_tile(cells, all, at);
        const double d = all.ideal[at], a = all.actual[at], sure = certain ? certain[at] : 0.0;
        const bool surely = within(cells, d, sure, a);
        const double ratio = ratio_of(cells, d, sure, a, surely);
        if (sure == INFINITE && finite(d)) {
            counts[UNJUDGED]++;
        } else {
            double probable_ratio = ratio, certain_ratio = ratio;
            bool likely = surely, accepted = surely;
            if (probable) {
                const double maybe = probable[at];
                likely = within(cells, d, maybe, a);
                probable_ratio = ratio_of(cells, d, maybe, a, likely);
                accepted = likely || surely;
                if (accepted != surely) certain_ratio = ratio_of(cells, d, sure, a, accepted);
            }
            counts[VIOLATIONS] += !accepted;
            counts[IMPROBABLE] += !likely;
            extremes[RATIO_CERTAIN - COUNTS] = max(extremes[RATIO_CERTAIN - COUNTS], bits(certain_ratio));
            extremes[RATIO_PROBABLE - COUNTS] = max(extremes[RATIO_PROBABLE - COUNTS], bits(probable_ratio));
        }
        const int row = (int)(at / all.cols), col = (int)(at % all.cols);
        u64* cell = largest + (u64)(row / map_rows) * map_width + col / map_cols;
        if (bits(ratio) > *cell) atomicMax(cell, bits(ratio));

        const double rounded = cells.round(d), stands = SCALED ? rounded : d;
        counts[DIFFERING] += rounded != a && !(nan(rounded) && nan(a));
        const bool same = d == a || (nan(d) && nan(a));
        const double ulps = same ? 0.0 : fabs(a - d) / cells.spacing(d);
        counts[UP_TO] += same;
#pragma unroll
        for (int i = 0; i < 6; i++) counts[UP_TO + 1 + i] += ulps <= 0.25 * (1 << i);
        counts[UP_TO + 7] += ulps <= 1.7976931348623157e308;
        counts[UP_TO + 8]++;
        counts[IDEAL_FINITE] += finite(d);
        counts[IDEAL_NONZERO] += finite(d) && d != 0.0;
        counts[JUDGED] += finite(d) && sure != INFINITE;
        bool clipped = d == 0.0 || !finite(d);
        if (cells.saturates) {
            const double x = cells.least * cells.unit + 0.0, y = cells.most * cells.unit + 0.0;
            clipped |= d <= fmin(x, y) || d >= fmax(x, y);
        }
        counts[UNCLIPPED] += !clipped;
        const double x = all.exact[at];
#pragma unroll
        for (int error = 0; error < 3; error++) {
            const double r = error == 1 ? stands : x, v = error == 0 ? stands : a;
            const bool both = finite(r) && finite(v);
            u32* of = counts + OF_ERRORS + error * OF_ERROR;
            of[0] += both;
            of[1] += !both && !(r == v || (nan(r) && nan(v)));
            of[2] += cells.saturated(v);
            of[3] += both && v == 0.0 && r != 0.0;
            of[4] += both && (r != 0.0 || v != 0.0);
            if (both) extremes[LARGEST_ERROR - COUNTS + error] = max(extremes[LARGEST_ERROR - COUNTS + error], bits(fabs(v - r)));
        }
    }
#pragma unroll
    for (int i = 0; i < COUNTS; i++) {
        const u32 sum = sum_of_warp(counts[i]);
        if (threadIdx.x % 32 == 0 && sum) atomicAdd(tally + i, (u64)sum);
    }
#pragma unroll
    for (int i = COUNTS; i < TALLY; i++) {
        const u64 most = max_of_warp(extremes[i - COUNTS]);
        if (threadIdx.x % 32 == 0 && most) atomicMax(tally + i, most);
    }
}

/// Elements of a leaf that are read together, and what a warp keeps of 32 leaves.
constexpr int WIDE = 32;

extern "C" __global__ void __launch_bounds__(32)
    judge_sums(const Elements all, const int* starts, const double* means, double* sums, int leaves) {
    __shared__ double kept[3][32][WIDE + 1];
    Cells cells = stored(all.numbers);
    const int lane = threadIdx.x, first = blockIdx.x * 32, leaf = first + lane;
    const u32 from = leaf < leaves ? (u32)starts[leaf] : 0, length = leaf < leaves ? (u32)starts[leaf + 1] - from : 0;
    double sum[PASS == 0 ? 18 : 3] = {};
    for (u32 at = 0; at < 256; at += WIDE) {
        for (int of = 0; of < 32; of++) {
            const u32 begin = __shfl_sync(~0u, from, of), long_ = __shfl_sync(~0u, length, of);
            if (at + lane < long_) {
                const u64 place = (u64)begin + at + lane;
                double d = all.ideal[place];
                if (SCALED) {
                    at_tile(cells, all, place);
                    d = cells.round(d);
                }
                kept[0][of][lane] = all.exact[place];
                kept[1][of][lane] = d;
                kept[2][of][lane] = all.actual[place];
            }
        }
        __syncwarp();
        for (int i = 0; i < WIDE && at + i < length; i++) {
            const double x = kept[0][lane][i], d = kept[1][lane][i], a = kept[2][lane][i];
#pragma unroll
            for (int error = 0; error < 3; error++) {
                const double r = error == 1 ? d : x, v = error == 0 ? d : a;
                if (!finite(r) || !finite(v)) continue;
                if (PASS == 0) {
                    const double e = v - r;
                    double* of = sum + error * 6;
                    of[0] += fabs(e), of[1] += e * e, of[2] += e, of[3] += r * r, of[4] += v * v, of[5] += r * v;
                } else {
                    const double e = v - r - means[error];
                    sum[error] += e * e;
                }
            }
        }
        __syncwarp();
    }
    if (leaf >= leaves) return;
    constexpr int EACH = PASS == 0 ? 18 : 3;
#pragma unroll
    for (int i = 0; i < EACH; i++) sums[(u64)leaf * EACH + i] = sum[i];
}

/// The relative error and the one in spacings; NaN where there is none.
__device__ __forceinline__ void errors_of(const Cells& cells, double r, double a, double& relative, double& ulps) {
    const bool both = finite(r) && finite(a);
    const double e = fabs(a - r), apart = e / cells.spacing(r);
    relative = both && (r != 0.0 || a != 0.0) ? e / fabs(r) : NOT_A_NUMBER;
    ulps = both ? (e == 0.0 ? 0.0 : (nan(apart) ? INFINITE : apart)) : NOT_A_NUMBER;
}

/// All six of an element.
__device__ __forceinline__ void samples_of(const Cells& cells, const Elements& all, u64 at, double (&samples)[6]) {
    const double x = all.exact[at], a = all.actual[at], d = SCALED ? cells.round(all.ideal[at]) : all.ideal[at];
#pragma unroll
    for (int error = 0; error < 3; error++)
        errors_of(cells, error == 1 ? d : x, error == 0 ? d : a, samples[2 * error], samples[2 * error + 1]);
}

extern "C" __global__ void judge_drawn(const Elements all, double* drawn) {
    const u64 pieces = gridDim.x, from = pieces > 1 ? blockIdx.x * (all.count - 256) / (pieces - 1) : 0, at = from + threadIdx.x;
    Cells cells = stored(all.numbers);
    double samples[6];
    at_tile(cells, all, at);
    samples_of(cells, all, at, samples);
    for (int i = 0; i < 6; i++) drawn[i * pieces * 256 + blockIdx.x * 256 + threadIdx.x] = samples[i];
}

extern "C" __global__ void __launch_bounds__(256)
    judge_ranks(const Elements all, const double* between, u64* tally, double* inside, u64 room) {
    Cells cells = stored(all.numbers);
    double ends[6][3][2];
    for (int i = 0; i < 36; i++) ends[i / 6][i / 2 % 3][i % 2] = between[i];
    u32 counts[6][3][3] = {};
    u64 largest[6] = {};
    const u64 threads = (u64)gridDim.x * blockDim.x, here = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    // All lanes of a warp go on together: they append together.
    for (u64 from = here - threadIdx.x % 32; from < all.count; from += threads) {
        const u64 at = from + threadIdx.x % 32;
        double samples[6] = {NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER};
        if (at < all.count) {
            at_tile(cells, all, at);
            samples_of(cells, all, at, samples);
        }
#pragma unroll
        for (int s = 0; s < 6; s++) {
            const double x = samples[s];
            if (!nan(x)) largest[s] = max(largest[s], bits(x));
#pragma unroll
            for (int i = 0; i < 3; i++) {
                const double low = ends[s][i][0], high = ends[s][i][1];
                counts[s][i][0] += x < low;
                counts[s][i][1] += x == low;
                counts[s][i][2] += x == high && low < high;
                const bool kept = low < x && x < high;
                const u32 lanes = __ballot_sync(~0u, kept);
                if (!lanes) continue;
                u64 place = 0;
                if (threadIdx.x % 32 == 0) place = atomicAdd(tally + s * 13 + 1 + i * 4 + 3, (u64)__popc(lanes));
                place = __shfl_sync(~0u, place, 0) + __popc(lanes & ((1u << threadIdx.x % 32) - 1));
                if (kept && place < room) inside[(s * 3 + i) * room + place] = x;
            }
        }
    }
#pragma unroll
    for (int s = 0; s < 6; s++) {
        const u64 most = max_of_warp(largest[s]);
        if (threadIdx.x % 32 == 0 && most) atomicMax(tally + s * 13, most);
#pragma unroll
        for (int i = 0; i < 9; i++) {
            const u32 sum = sum_of_warp(counts[s][i / 3][i % 3]);
            if (threadIdx.x % 32 == 0 && sum) atomicAdd(tally + s * 13 + 1 + i / 3 * 4 + i % 3, (u64)sum);
        }
    }
}

/// Elements that all threads look at before one of them adds.
constexpr int CHUNK = 1024;
enum Power { SMALLEST_GAIN, HIDDEN, ZEROS_CAUGHT, ODD_GAINS };

/// `compare::power::Element`: the smallest gain that is seen, squares of what is needed and of the ideal.
struct Element {
    double gain, needed, energy;
    bool hides, allows_zero;

    __device__ __forceinline__ Element(const Cells& cells, bool bit_exact, double d, double radius, double a) {
        const bool known = finite(d) && finite(a) && finite(radius);
        double first = a, last = a, cell_low, cell_high, low_end, high_end, unused;
        if (!bit_exact) cells.interval(d, radius, first, last);
        cells.cell(a, cell_low, cell_high);
        double low = fmax(d - radius, cell_low), high = fmin(d + radius, cell_high);
        if (!(low <= high)) {
            const double x = fmin(fmin(low, high), d), y = fmax(fmax(high, low), d);
            low = x, high = y;
        }
        cells.cell(last, unused, high_end);
        cells.cell(first, low_end, unused);
        const double above = known ? high_end + fabs(high_end) * (1.0 / (1 << 23)) : INFINITE;
        const double below = known ? low_end + -1.0 * fabs(low_end) * (1.0 / (1 << 23)) : -INFINITE;
        if (!known) low = high = d;
        hides = known ? first < last : finite(d) && radius == INFINITE;
        allows_zero = !known || (first <= 0.0 && 0.0 <= last);
        const double up = above - low, down = high - below;
        const bool judged = finite(up) && finite(down);
        const double most = fmax(up, down);
        needed = judged ? most * most : 0.0;
        energy = judged ? d * d : 0.0;
        gain = low > 0.0 ? above / low : (high < 0.0 ? below / high : INFINITE);
    }
};

extern "C" __global__ void __launch_bounds__(512)
    judge_power(const Elements all, const double* certain, u64* tally, u64* row_gains, u64* column_gains, double* sums, int bit_exact,
                u64 block) {
    __shared__ double needed[2][CHUNK], energy[2][CHUNK];
    Cells cells = stored(all.numbers);
    const u64 from = blockIdx.x * block, to = min(from + block, all.count);
    u64 least = ~0ull;
    u32 hidden = 0, caught = 0, odd = 0;
    double sum = 0.0;
    const int chunks = (int)((to - from + CHUNK - 1) / CHUNK);
    for (int chunk = 0; chunk <= chunks; chunk++) {
        // Two warps add the chunk before, one its needs, one its energies; the others look at this one.
        if (threadIdx.x < 64) {
            if (chunk > 0 && threadIdx.x % 32 == 0) {
                const double* of = threadIdx.x == 0 ? needed[(chunk - 1) % 2] : energy[(chunk - 1) % 2];
                const int n = (int)min((u64)CHUNK, to - from - (u64)(chunk - 1) * CHUNK);
                int i = 0;
                for (; i + 16 <= n; i += 16) {
                    double next[16];
#pragma unroll
                    for (int j = 0; j < 16; j++) next[j] = of[i + j];
#pragma unroll
                    for (int j = 0; j < 16; j++) sum = sum + next[j];
                }
                for (; i < n; i++) sum = sum + of[i];
            }
        } else if (chunk < chunks) {
            for (int i = threadIdx.x - 64; i < CHUNK; i += 512 - 64) {
                const u64 at = from + (u64)chunk * CHUNK + i;
                if (at >= to) break;
                at_tile(cells, all, at);
                const double d = all.ideal[at];
                const Element e(cells, bit_exact, d, certain ? certain[at] : 0.0, all.actual[at]);
                needed[chunk % 2][i] = e.needed;
                energy[chunk % 2][i] = e.energy;
                hidden += e.hides;
                caught += !e.allows_zero;
                odd += !(e.gain >= 0.0);
                least = min(least, bits(e.gain));
                if (d != 0.0) {
                    u64 *row = row_gains + at / all.cols, *column = column_gains + at % all.cols;
                    if (bits(e.gain) < *row) atomicMin(row, bits(e.gain));
                    if (bits(e.gain) < *column) atomicMin(column, bits(e.gain));
                }
            }
        }
        __syncthreads();
    }
    if (threadIdx.x == 0 || threadIdx.x == 32) sums[blockIdx.x * 2 + threadIdx.x / 32] = sum;
    least = min_of_warp(least);
    hidden = sum_of_warp(hidden);
    caught = sum_of_warp(caught);
    odd = sum_of_warp(odd);
    if (threadIdx.x % 32 == 0) {
        atomicMin(tally + SMALLEST_GAIN, least);
        atomicAdd(tally + HIDDEN, (u64)hidden);
        atomicAdd(tally + ZEROS_CAUGHT, (u64)caught);
        atomicAdd(tally + ODD_GAINS, (u64)odd);
    }
}
