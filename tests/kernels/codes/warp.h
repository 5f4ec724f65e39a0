// CUDA's words for one warp at a time on the CPU, for tests. Lanes are contexts that take turns whenever they
// meet: at a shuffle, a ballot or a barrier. Lanes that meet at different lines of the source end the program.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ucontext.h>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __popc __builtin_popcount

struct uint4 {
    unsigned x, y, z, w;
};
struct Index {
    int x;
};
static Index threadIdx, blockIdx, gridDim;
static ucontext_t scheduler, contexts[32];
static long long slots[2][32];
static int lines[2][32], meetings[32];
static bool done[32];

// Where the values of all lanes lie. Two sides take turns: no lane is two meetings ahead of another.
static const long long *meet(long long value, int line) {
    const int thread = threadIdx.x, lane = thread & 31, side = meetings[lane]++ & 1;
    slots[side][lane] = value;
    lines[side][lane] = line;
    swapcontext(&contexts[lane], &scheduler);
    threadIdx.x = thread;
    for (int i = 0; i < 32; i++)
        if (lines[side][i] != line) {
            fprintf(stderr, "lane %d is at line %d where lane %d is at %d\n", i, lines[side][i], lane, line);
            abort();
        }
    return slots[side];
}

static int from_below(const long long *values, int distance) {
    const int lane = threadIdx.x & 31;
    return (int)values[lane >= distance ? lane - distance : lane];
}

static unsigned as_bits(const long long *values) {
    unsigned bits = 0;
    for (int i = 0; i < 32; i++) bits |= (unsigned)(values[i] != 0) << i;
    return bits;
}

#define __syncwarp() meet(0, __LINE__)
#define __shfl_sync(mask, value, lane) ((int)meet(value, __LINE__)[lane])
#define __shfl_up_sync(mask, value, distance) from_below(meet(value, __LINE__), distance)
#define __ballot_sync(mask, value) as_bits(meet(value, __LINE__))

static void atomicOr(unsigned *at, unsigned bits) { *at |= bits; }
static void atomicXor(unsigned *at, unsigned bits) { *at ^= bits; }
static void atomicAdd(unsigned *at, unsigned change) { *at += change; }
static void atomicMin(long long *at, long long value) { *at = std::min(*at, value); }

#define __shared__
#define __align__(bytes)
#define shared shared_memory
unsigned char shared_memory[1 << 20] __attribute__((aligned(16)));

// What a lane runs: the kernel, with the arguments of a launch.
static void run_lane();

static void enter(int lane) {
    run_lane();
    done[lane] = true;
    swapcontext(&contexts[lane], &scheduler);
}

// Runs the warps of all blocks one after the other; the lanes in their order, or the last one first.
static void launch(int blocks, int warps, bool last_first) {
    static const int stack = 1 << 16;
    static std::vector<char> stacks(32 * stack);
    gridDim.x = blocks;
    for (int warp = 0; warp < blocks * warps; warp++) {
        blockIdx.x = warp / warps;
        for (int lane = 0; lane < 32; lane++) {
            getcontext(&contexts[lane]);
            contexts[lane].uc_stack.ss_sp = &stacks[lane * stack];
            contexts[lane].uc_stack.ss_size = stack;
            contexts[lane].uc_link = &scheduler;
            meetings[lane] = 0;
            done[lane] = false;
            makecontext(&contexts[lane], (void (*)())enter, 1, lane);
        }
        while (!std::all_of(done, done + 32, [](bool ended) { return ended; }))
            for (int step = 0; step < 32; step++) {
                const int lane = last_first ? 31 - step : step;
                threadIdx.x = 32 * (warp % warps) + lane;
                if (!done[lane]) swapcontext(&scheduler, &contexts[lane]);
            }
    }
}
