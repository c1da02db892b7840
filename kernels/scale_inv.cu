// The small kernel after an FP8 GEMM whose library does not write scale_inv (Transformer Engine, pull request 1083), and one that keeps a
// stream busy before it.
//
// scale_inv(const float* scale, float* scale_inv): scale_inv[0] = RN32(1 / scale[0]). grid 1, block 1.
// hold(long long ns): returns after that many nanoseconds of the device's clock. grid 1, block 1.

extern "C" __global__ void scale_inv(const float* scale, float* scale_inv) { *scale_inv = 1.0f / *scale; }

extern "C" __global__ void hold(long long ns) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begin < ns);
}
