// A kernel of one's own, as `qassay run --kernel` takes it: an FP8 product with a scale a row of each operand, summed in f32 in order.
//
//   qassay run smoke --filter float8_rowwise --kernel examples/my_kernel.cu --entry my_gemm --op gemm
//
// A block is 16 × 16 elements of the result. The comment below says how the entry is called: its arguments in order, by the names that
// tensors have in a bundle (data/bundles/README.md) with the formats it takes, then the launch. `/` rounds up. Cases that do not fit are
// skipped with the reason.
//
// qassay: my_gemm(a.codes: e4m3, a.scale_inv: row, b.codes: e4m3, b.scale_inv: row, bias: bf16, out: bf16, m, n, k)
//         grid=n/16,m/16 block=16,16 device_model=f32_sequential

/// The value of an e4m3 code: sign, four bits of exponent (bias 7), three of fraction; 0x7f and 0xff are NaN, there is no Inf.
__device__ float decode(unsigned char code) {
    const int exponent = (code >> 3) & 15, fraction = code & 7;
    if ((code & 0x7f) == 0x7f) return __int_as_float(0x7fffffff);
    const float size = exponent == 0 ? fraction * 0x1p-9f : (8 + fraction) * exp2f(exponent - 10);
    return code & 0x80 ? -size : size;
}

/// Bits of the bf16 nearest to x, ties to even.
__device__ unsigned short to_bf16(float x) {
    const unsigned bits = __float_as_uint(x);
    if (isnan(x)) return 0x7fff;
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

extern "C" __global__ void my_gemm(const unsigned char* a, const float* a_scale_inv, const unsigned char* b, const float* b_scale_inv,
                                   const unsigned short* bias, unsigned short* out, int m, int n, int k) {
    const int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (row >= m || col >= n) return;
    float sum = 0;
    for (int i = 0; i < k; i++) sum += decode(a[row * k + i]) * decode(b[col * k + i]);
    float y = __fmul_rn(__fmul_rn(sum, a_scale_inv[row]), b_scale_inv[col]);
    if (bias) y = __fadd_rn(y, __uint_as_float((unsigned)bias[col] << 16));
    out[row * n + col] = to_bf16(y);
}
