// A row for each warp, 32 steps of a COUNT or SELECT walk at once. COUNT adds what lay in the set before them and
// the smaller ones among them. SELECT brings 32 picks to what was free before the first, and takes them together.
// GROUP is the number of 32-bit words of the set for each lane, SPILLED whether all lies in `scratch`.

// The set of a warp: lane g owns the GROUP words from g * STRIDE on and knows how many members lie before
// them. The stride is odd, so that lanes which look into different groups do not collide.
#define STRIDE (GROUP | 1)
#define EVERY 0xffffffffu

struct WarpSet {
    unsigned *words, *counts;  // counts: the members of each group
    int lane, before;

    // Makes the set empty, or that of all values below n.
    __device__ __forceinline__ void fill(int n, bool full) {
        int members = 0;
        for (int j = 0; j < GROUP; j++) {
            const unsigned word = full ? whole(lane * GROUP + j, n) : 0;
            words[lane * STRIDE + j] = word;
            members += __popc(word);
        }
        counts[lane] = members;
        __syncwarp();
        sum_up();
    }

    // Whether all values below n are members.
    __device__ __forceinline__ bool is_full(int n) {
        bool same = true;
        for (int j = 0; j < GROUP; j++) same &= words[lane * STRIDE + j] == whole(lane * GROUP + j, n);
        return same;
    }

    // COUNT puts x in, SELECT takes it out. Other lanes do the same; `before` is old until sum_up.
    __device__ __forceinline__ void flip(int x) {
        const int group = x / (32 * GROUP), at = group * STRIDE + (x >> 5) - group * GROUP;
        if (WALK == COUNT) atomicOr(words + at, 1u << (x & 31));  // a value that comes twice stays
        else atomicXor(words + at, 1u << (x & 31));
        if (GROUP > 1) atomicAdd(counts + group, WALK == COUNT ? 1u : ~0u);
    }

    __device__ __forceinline__ void sum_up() {
        const int own = GROUP > 1 ? counts[lane] : __popc(words[lane]);
        int total = own;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const int left = __shfl_up_sync(EVERY, total, d);
            if (lane >= d) total += left;
        }
        before = total - own;
    }

    // How many members are below x.
    __device__ __forceinline__ int below(int x) {
        const int group = x / (32 * GROUP), last = (x >> 5) - group * GROUP;
        int sum = __shfl_sync(EVERY, before, group);
#pragma unroll 16
        for (int j = 0; j < GROUP - 1; j++) {
            const int many = __popc(words[group * STRIDE + j]);
            sum += j < last ? many : 0;
        }
        return sum + __popc(words[group * STRIDE + last] & ((1u << (x & 31)) - 1));
    }

    // The k-th smallest member.
    __device__ __forceinline__ int select(int k) {
        int group = 0, rest = k, sum = 0, last = 0;
#pragma unroll
        for (int step = 16; step; step >>= 1)
            if (__shfl_sync(EVERY, before, group + step) <= k) group += step;
        rest -= __shfl_sync(EVERY, before, group);
        const int all = rest;
#pragma unroll 16
        for (int j = 1; j < GROUP; j++) {
            sum += __popc(words[group * STRIDE + j - 1]);
            if (all >= sum) { last = j; rest = all - sum; }
        }
        return 32 * (group * GROUP + last) + kth_bit(words[group * STRIDE + last], rest);
    }

    static __device__ __forceinline__ unsigned whole(int w, int n) {
        const int left = n - 32 * w;
        return left <= 0 ? 0 : left >= 32 ? EVERY : EVERY >> (32 - left);
    }
};

__device__ constexpr int bit_length(int x) { return x ? 1 + bit_length(x >> 1) : 0; }

// The lanes whose x is smaller.
__device__ __forceinline__ unsigned smaller_lanes(int x) {
    unsigned same = EVERY, smaller = 0;
#pragma unroll
    for (int b = bit_length(32 * 32 * GROUP - 1) - 1; b >= 0; b--) {
        const unsigned mine = -((x >> b) & 1);
        const unsigned other = same & (mine ^ __ballot_sync(EVERY, mine));
        smaller |= other & mine;
        same ^= other;
    }
    return smaller;
}

// The lanes pick one after the other, each the k-th of what those before it left: which that is of what was
// there before the first. A pick moves up by one for each earlier one, the last first, that is not above it.
__device__ __forceinline__ int slot_of(int k, int lane, CELL *picks) {
    const int unit = 32 - CELL_BITS;  // a cell is compared at the upper end of a word, whatever lies below it
    const unsigned earlier = (1u << lane) - 1;
    unsigned limit = (unsigned)(k + 1) << unit;
    picks[lane] = (CELL)k;
    __syncwarp();
#pragma unroll
    for (int quad = 8 / PER_WORD - 1; quad >= 0; quad--) {
        const uint4 four = ((const uint4 *)picks)[quad];
        const unsigned words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int at = 4 * PER_WORD - 1; at >= 0; at--) {
            const unsigned pick = words[at / PER_WORD] << (unit - CELL_BITS * (at % PER_WORD));
            if ((earlier >> (quad * 4 * PER_WORD + at) & 1) && pick < limit) limit += 1u << unit;
        }
    }
    return (int)(limit >> unit) - 1;
}

extern "C" __global__ void __launch_bounds__(THREADS)
walk_warps(const ELEMENT *__restrict__ in, ELEMENT *__restrict__ out, long long rows, int n, int stride,
           int per_block, unsigned char *scratch, long long *fault) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    unsigned char *all = SPILLED ? scratch + (long long)blockIdx.x * per_block * stride : shared;
    WarpSet set;
    set.lane = lane;
    set.words = (unsigned *)(all + (long long)warp * stride);
    set.counts = set.words + 32 * STRIDE;
    CELL *picks = (CELL *)(set.counts + 32), *cells = picks + 32;
    for (long long row = (long long)blockIdx.x * per_block + warp; row < rows;
         row += (long long)gridDim.x * per_block) {
        const long long start = row * n + (BACKWARD ? n - 1 - lane : lane);
        const ELEMENT *source = in + start;
        ELEMENT *target = out + start;
        bool good = true;
        __syncwarp();
        set.fill(n, WALK == SELECT);
        ELEMENT following = lane < n ? *source : (ELEMENT)0;
        for (int time = lane; time - lane < n; time += 32) {
            const bool live = time < n;
            const int i = BACKWARD ? n - 1 - time : time;
            const u64 value = (u64)following;
            source += BACKWARD ? -32 : 32;
            if (time + 32 < n) following = *source;
            const bool inside = live && value < (u64)(WALK == COUNT ? n : n - time);
            good &= inside || !live;
            int x = inside ? (int)value : 0, result;
            if (WALK == COUNT) {
                const int smaller = set.below(x) + __popc(smaller_lanes(x) & ((1u << lane) - 1));
                result = SCATTERS ? smaller : FORM == RIGHT ? x - smaller : i - smaller;
            } else {
                const int slot = slot_of(inside && FORM == LEFT ? i - x : x, lane, picks);
                x = set.select(live ? slot : 0);
                result = SCATTERS ? i : x;
            }
            __syncwarp();
            if (live) {
                set.flip(x);
                if (SCATTERS) cells[x] = (CELL)result;
                else *target = (ELEMENT)result;
            }
            target += BACKWARD ? -32 : 32;
            __syncwarp();
            set.sum_up();
        }
        if (WALK == COUNT) good &= set.is_full(n);
        if (SCATTERS)
            for (int i = lane; i < n; i += 32) out[row * n + i] = (ELEMENT)cells[i];
        if (!good) report(fault, row);
    }
}
