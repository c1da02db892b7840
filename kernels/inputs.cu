// Synthetic inputs: the bits of `input::generate` on the CPU, element by element.
//
// Every f64 step is one of IEEE's, none is fused: the same words, the same quantile, the same product of gains, the same roundings.
//
// contract draw
//   arch   any
//   block  256
//   grid   any
//   args   values float* [rows, cols]; row_gains const double* [rows]; column_gains const double* [cols]; rows, cols int; seed u64;
//          stream int; kind int: 0 normal, 1 normal without gains, 2 uniform, 3 log-normal, 4 Student's t with 3 degrees of freedom;
//          dtype int: 0 f32, 1 bf16, 2 f16; largest float: the dtype's largest finite number
#include "common/gemm_types.cuh"

__device__ __forceinline__ double plus(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ double minus(double a, double b) { return __dsub_rn(a, b); }
__device__ __forceinline__ double times(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ double over(double a, double b) { return __ddiv_rn(a, b); }

__device__ const double LN2_HIGH = 0x1.62e42feep-1, LN2_LOW = 0x1.a39ef35793c76p-33;

template <int N>
__device__ __forceinline__ double polynomial(const double (&c)[N], double x) {
    double sum = c[N - 1];
#pragma unroll
    for (int i = N - 2; i >= 0; i--) sum = plus(times(sum, x), c[i]);
    return sum;
}

__device__ double natural_log(double x) {
    const long long bits = __double_as_longlong(x);
    int e = (int)(bits >> 52) - 1023;
    double m = __longlong_as_double((bits & 0x000FFFFFFFFFFFFFll) | 1023ll << 52);
    if (m > 1.4142135623730951) {
        m = times(m, 0.5);
        e += 1;
    }
    const double s = over(minus(m, 1.0), plus(m, 1.0)), z = times(s, s);
    double tail = 0.0;
#pragma unroll
    for (int n = 11; n >= 1; n--) tail = times(plus(tail, over(1.0, (double)(2 * n + 1))), z);
    const double k = (double)e, twice = times(2.0, s);
    return plus(times(k, LN2_HIGH), plus(times(k, LN2_LOW), plus(twice, times(twice, tail))));
}

__device__ double exponential(double x) {
    const double k = floor(plus(times(x, 1.4426950408889634), 0.5));
    const double r = minus(minus(x, times(k, LN2_HIGH)), times(k, LN2_LOW));
    // 1/n! of an n! that f64 holds, from the last on.
    double factorial = 1.0, inverse[14];
    inverse[0] = 1.0;
#pragma unroll
    for (int n = 1; n < 14; n++) {
        factorial = times(factorial, (double)n);
        inverse[n] = over(1.0, factorial);
    }
    return times(polynomial(inverse, r), __longlong_as_double((long long)((int)k + 1023) << 52));
}

// AS 241 (PPND16): numerators and denominators of the centre, the middle and the tail.
__device__ const double CENTRE[2][8] = {
    {3.3871328727963665, 1.3314166789178438e2, 1.9715909503065513e3, 1.373169376550946e4, 4.592195393154987e4, 6.726577092700870e4,
     3.343057558358813e4, 2.5090809287301227e3},
    {1.0, 4.231333070160091e1, 6.871870074920579e2, 5.394196021424751e3, 2.1213794301586597e4, 3.930789580009271e4,
     2.8729085735721943e4, 5.226495278852854e3}};
__device__ const double MIDDLE[2][8] = {
    {1.4234371107496835, 4.630337846156546, 5.769497221460691, 3.6478483247632045, 1.2704582524523684, 2.417807251774506e-1,
     2.2723844989269184e-2, 7.745450142783414e-4},
    {1.0, 2.053191626637759, 1.6763848301838038, 6.897673349851e-1, 1.4810397642748008e-1, 1.5198666563616457e-2,
     5.475938084995345e-4, 1.0507500716444169e-9}};
__device__ const double TAIL[2][8] = {
    {6.657904643501103, 5.463784911164114, 1.7848265399172913, 2.9656057182850487e-1, 2.6532189526576124e-2, 1.2426609473880784e-3,
     2.7115555687434876e-5, 2.0103343992922881e-7},
    {1.0, 5.998322065558880e-1, 1.3692988092273580e-1, 1.4875361290850615e-2, 7.868691311456133e-4, 1.8463183175100547e-5,
     1.421511758316446e-7, 2.0442631033899398e-15}};

__device__ __forceinline__ double unit(u32 bits) { return times(plus((double)bits, 0.5), 1.0 / 4294967296.0); }

__device__ double normal(u32 bits) {
    const double p = unit(bits), q = minus(p, 0.5);
    if (fabs(q) <= 0.425) {
        const double r = minus(0.180625, times(q, q));
        return over(times(q, polynomial(CENTRE[0], r)), polynomial(CENTRE[1], r));
    }
    const double r = __dsqrt_rn(-natural_log(q < 0.0 ? p : minus(1.0, p)));
    const double x = minus(r, r <= 5.0 ? 1.6 : 5.0);
    const double z = r <= 5.0 ? over(polynomial(MIDDLE[0], x), polynomial(MIDDLE[1], x)) : over(polynomial(TAIL[0], x), polynomial(TAIL[1], x));
    return q < 0.0 ? -z : z;
}

struct Words {
    u32 w[4];
};

/// Philox4x32-10.
__device__ Words philox(u32 c0, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1) {
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
        c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
        c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
        c1 = (u32)p1;
        c3 = (u32)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

__device__ __forceinline__ float rounded(float x, int dtype) {
    if (dtype == 1) {
        const u32 bits = __float_as_uint(x);
        return __uint_as_float((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
    }
    if (dtype == 2) {
        float y;
        asm("{ .reg .f16 h; cvt.rn.f16.f32 h, %1; cvt.f32.f16 %0, h; }" : "=f"(y) : "f"(x));
        return y;
    }
    return x;
}

extern "C" __global__ void __launch_bounds__(256)
    draw(float* values, const double* row_gains, const double* column_gains, int rows, int cols, u64 seed, int stream, int kind, int dtype,
         float largest) {
    for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < (u64)rows * cols; at += (u64)gridDim.x * 256) {
        const Words words = philox((u32)at, (u32)(at >> 32), 0, (u32)stream, (u32)seed, (u32)(seed >> 32));
        const u32* w = words.w;
        const double gain = times(row_gains[at / cols], column_gains[at % cols]);
        double v;
        if (kind == 0) {
            v = times(normal(w[0]), gain);
        } else if (kind == 1) {
            v = normal(w[0]);
        } else if (kind == 2) {
            v = times(minus(times(2.0, unit(w[0])), 1.0), gain);
        } else if (kind == 3) {
            v = times(times(w[3] >> 31 ? -1.0 : 1.0, exponential(normal(w[0]))), gain);
        } else {
            const double z = normal(w[0]), a = normal(w[1]), b = normal(w[2]), c = normal(w[3]);
            const double squares = plus(plus(times(a, a), times(b, b)), times(c, c));
            v = times(over(z, __dsqrt_rn(over(squares, 3.0))), gain);
        }
        // A value that is not finite stays so.
        if (v - v == 0.0) v = fmin(fmax(v, -(double)largest), (double)largest);
        values[at] = rounded(__double2float_rn(v), dtype);
    }
}
