// Radii of every element of a large product. Every f64 step is the CPU's (`model::sums`, `compare::ProductArithmetic`), none fused.
// compiled with --fmad=false
//
// -DEACH=1: sums are bounded from their row and their column; else relative to their sum |a||b|, and lines, repeats, scales and first_b are null.
//
// contract judge_bound: block 256, any grid; args ideal, magnitude: const double*; bias const double* [cols] or null; numbers const double[]
//          (enum Arithmetic); lines of a, of b: const int* [4 + 48, rows or lines] (enum Line); repeats of a, of b: const double*; scales of a, of b:
//          const double*; first_b const int* [rows] or null: the line of b that column 0 meets; certain, probable double*; rows, cols, lines int
// contract judge_amax: block 256, any grid; args ideal const double*, certain const double* or null; count u64; found u64[3], zeroed before: the largest |d|, |d| - radius
//          and |d| + radius as bits of doubles, of finite d the first, of numbers the others; none below 0
#include "common/doubles.cuh"
#include "common/gemm_types.cuh"

#ifndef EACH
#define EACH 1
#endif

/// `numbers` of judge_bound.
enum Arithmetic {
    REFERENCE, DESCALE_LOW, LARGEST_SUM, AFTER_UNDERFLOW, ABSOLUTE, ABSOLUTE_SCALED, FACTORS, FACTOR_UNDERFLOW, SCALING, GROUPS, JOINING,
    INVERSE_DESCALE, LARGEST_INTERMEDIATE, LAMBDA, RELATIVE, OF_PARTIAL, RELATIVE_ABSOLUTE, STEPS, ADDS, STEP_FRACTION, SUM_FRACTION, FLOOR
};
constexpr double HALF_SPACING = 1.0 / (1 << 24);
/// What is known of a row of factors, by line of the array; then how many exponents are at most the largest less 0 to 47.
enum Line { COUNT, TOP, HIGHEST, LOWEST };
constexpr int BINS = 48;

__device__ __forceinline__ int at_most(const int* lines, int of, int line, int depth) { return lines[(4 + min(depth, BINS - 1)) * of + line]; }

/// `model::sums::smaller`.
__device__ int smaller(const int* a, int rows, int row, const int* b, int cols, int col, int limit) {
    const int depth = a[HIGHEST * rows + row] + b[HIGHEST * cols + col] + 2 - limit, all = min(a[COUNT * rows + row], b[COUNT * cols + col]);
    if (depth <= 0) return all;
    if (depth >= 2 * BINS - 1) return min(at_most(a, rows, row, BINS) + at_most(b, cols, col, BINS), all);
    int least = all;
    for (int i = 0; i <= min(depth, BINS - 1); i++) least = min(least, at_most(a, rows, row, i) + at_most(b, cols, col, depth - i));
    return least;
}

__device__ __forceinline__ int exponent_of(double x) { return max(exponent(fabs(x * (1.0 + 1e-12))), -1022); }

/// `compare::SumRadius`.
struct Radius {
    double sure, drift, variance;
    bool unknown;
};

/// `compare::Accumulation::at`.
__device__ __forceinline__ double relative_to(const double* numbers, double sum, double size) {
    return fmin(numbers[RELATIVE] * size, numbers[OF_PARTIAL] * 0.5 * (size + fabs(sum))) + numbers[RELATIVE_ABSOLUTE];
}

/// What is known of both sides' rows.
struct Sides {
    const int* lines_a;
    const int* lines_b;
    const double* repeats_a;
    const double* repeats_b;
    const double* scales_a;
    const double* scales_b;
    int rows, lines;

    /// `model::SumBound::at` of a row and a line of b.
    __device__ __forceinline__ Radius at(const double* numbers, int row, int line, double of_sum, double of_size) const {
        const auto number = [&](Arithmetic of) { return numbers[of]; };
        double sure = 0.0, drift = 0.0, variance = 0.0;
        const double unit = fabs(scales_a[row]) * fabs(scales_b[line]);
        bool unknown = false;
        if (unit > 0.0 && finite(unit) && of_size > 0.0) {
            const double x = of_sum / unit, t = of_size / unit, partial = 0.5 * (t + x);
            const int count_a = lines_a[COUNT * rows + row], count_b = lines_b[COUNT * lines + line];
            const double count = (double)min(count_a, count_b);
            const double alike = fmax(count * fmin(repeats_a[row], repeats_b[line]), 1.0);
            const int low = lines_a[LOWEST * rows + row] + lines_b[LOWEST * lines + line];
            const int fraction = (int)number(SUM_FRACTION), f = (int)number(STEP_FRACTION), least = -126;
            const int products = max(lines_a[TOP * rows + row] + lines_b[TOP * lines + line], (int)number(FLOOR));
            const double steps = fmin(number(STEPS), 2.0 * count), adds = fmin(number(ADDS), 2.0 * count);
            const double c = power_of(products - f);
            double term = 0.0, out = 0.0, add = 0.0;
            const auto top = [&](int e) { return max(max(products, e), least); };
            const auto error = [&](int e) {
                term = fmax(power_of(top(e) - f) - power_of(min(max(low, -1000), 1000)), 0.0);
                out = power_of(max(e, least) - fraction);
                add = power_of(max(e, -126) - 24);
                return count * term + steps * (c + out) + adds * add;
            };
            const int first = exponent_of(partial), last = exponent_of(t * (1.0 + adds * 2.0 * HALF_SPACING));
            const bool exact = first <= 127 && low >= max(top(first) - f, first - fraction) && low >= least - fraction;
            if (count > 0.0 && !exact) {
                int e = min(first, 127);
                double all = 0.0;
                for (; e <= 127; e++) {
                    all = error(e);
                    if (partial + all < power_of(e + 1) || e >= last) break;
                }
                unknown = e > 127 || first > 127;
                const double small = (double)smaller(lines_a, rows, row, lines_b, lines, line, top(e) - f), leaning = steps * (c + out);
                sure = fmin(all, (t + x) * (1.0 + 1e-5) + steps * power_of(-149));
                drift = 0.5 * ((count + small) * term + leaning);
                const double half_term = 0.5 * term, half_step = 0.5 * c + 0.5 * out;
                variance = alike * (count * (half_term * half_term) + steps * (half_step * half_step) + adds * add * add);
            }
            if (!unknown) {
                const double most = relative_to(numbers, x, t);
                sure = fmin(sure, most) * unit;
                drift = fmin(drift, most) * unit;
                variance = variance * unit * unit;
            }
        }
        return {sure, drift, variance, unknown};
    }
};

extern "C" __global__ void __launch_bounds__(256)
    judge_bound(const double* ideal, const double* magnitude, const double* bias, const double* numbers, const int* lines_a, const int* lines_b,
                const double* repeats_a, const double* repeats_b, const double* scales_a, const double* scales_b, const int* first_b,
                double* certain, double* probable, int rows, int cols, int lines) {
    const Sides sides{lines_a, lines_b, repeats_a, repeats_b, scales_a, scales_b, rows, lines};
    const auto number = [&](Arithmetic of) { return numbers[of]; };
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < (u64)rows * cols; at += (u64)gridDim.x * blockDim.x) {
        const int row = (int)(at / cols), col = (int)(at % cols);
        const double d = ideal[at], size = magnitude[at], with = bias ? bias[col] : 0.0;
        const double s = fmax(size - fabs(with), 0.0), reference = number(REFERENCE) * size;
        if (s == 0.0 && with == 0.0) {
            certain[at] = probable[at] = 0.0;
            continue;
        }
        const double unscaled = fmin(s / number(DESCALE_LOW), number(LARGEST_SUM));
        const double after_scales = number(AFTER_UNDERFLOW) > 0.0 ? unscaled * number(AFTER_UNDERFLOW) : 0.0;
        const double absolute = reference + number(ABSOLUTE) + number(ABSOLUTE_SCALED) * after_scales;
        const double factors = number(FACTORS) * s + number(FACTOR_UNDERFLOW) + 0.0;
        const double of_sum = fabs(d - with) + reference + factors, of_size = s + reference + factors;
        Radius sum{};
        if (EACH) {
            sum = sides.at(numbers, row, (first_b ? first_b[row] : 0) + col, of_sum, of_size);
        } else {
            sum.sure = sum.drift = relative_to(numbers, of_sum, of_size);
        }
        // ProductArithmetic::radius.
        const auto after = [&](double radius) {
            const double whole = fabs(d - with) + reference + radius;
            double scaled = radius + number(SCALING) * whole;
            if (number(GROUPS) > 1.0) scaled = radius + number(SCALING) * (s + radius) + number(JOINING) * (0.5 * (s + whole) + radius);
            return scaled + (bias ? HALF_SPACING * (fabs(d) + scaled) : 0.0);
        };
        const double surely = after(factors + sum.sure), likely = after(factors + sum.drift + number(LAMBDA) * __dsqrt_rn(sum.variance));
        const double intermediate = fmin((size + surely) * fmax(number(INVERSE_DESCALE), 1.0), number(LARGEST_INTERMEDIATE));
        const bool unknown = sum.unknown || !finite(sum.sure) || !(intermediate < 3.4028234663852886e38);
        certain[at] = unknown ? INFINITE : surely + absolute;
        probable[at] = unknown ? INFINITE : fmin(likely + absolute, surely + absolute);
    }
}

__device__ __forceinline__ void raise(u64* to, double x) {
    u64 most = x > 0.0 ? bits(x) : 0;
    for (int lane = 16; lane; lane /= 2) {
        const u64 other = __shfl_xor_sync(~0u, most, lane);
        most = other > most ? other : most;
    }
    if (threadIdx.x % 32 == 0 && most) atomicMax(to, most);
}

extern "C" __global__ void judge_amax(const double* ideal, const double* certain, u64 count, u64* found) {
    double largest = 0.0, low = 0.0, high = 0.0;
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += (u64)gridDim.x * blockDim.x) {
        const double d = fabs(ideal[at]);
        if (finite(d)) largest = fmax(largest, d);
        if (nan(d) || !certain) continue;
        low = fmax(low, d - certain[at]);
        high = fmax(high, d + certain[at]);
    }
    raise(found, largest);
    raise(found + 1, low);
    raise(found + 2, high);
}
