// Pseudo-random permutations by a bijection: every element of every row is computed for itself. A Feistel
// network permutes the numbers of so many bits; a result that is no item goes through it again.

typedef unsigned long long u64;

__device__ __forceinline__ unsigned mixed(unsigned x, unsigned key) {
    const u64 product = 0xD2B74407B1CE6E93ull * (x ^ key);
    return (unsigned)(product >> 32) ^ (unsigned)product;
}

extern "C" __global__ void shuffle(long long *out, long long total, int n, int left_bits, int right_bits, u64 seed) {
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x; e < total; e += step) {
        const u64 key = (seed + (u64)(e / n)) * 0x9E3779B97F4A7C15ull;
        unsigned x = (unsigned)(e % n);
        do {
            unsigned left = x >> right_bits, right = x & ((1u << right_bits) - 1);
#pragma unroll
            for (int round = 0; round < 24; round += 2) {
                left ^= mixed(right, (unsigned)(key >> 32) + round * 0x9E3779B9u) & ((1u << left_bits) - 1);
                right ^= mixed(left, (unsigned)key + round * 0xBB67AE85u) & ((1u << right_bits) - 1);
            }
            x = left << right_bits | right;
        } while (x >= (unsigned)n);
        out[e] = x;
    }
}
