// The walks of table.py on NVIDIA GPUs, compiled at first use for one operation and one element type:
// ELEMENT is the tensor's type, CELL the narrow type that holds 0..n-1 in fast memory, WALK and FORM come
// from the table, SIZE(i) is how many values position i may hold.
//
// walk_rows gives each thread a row: a block reads its rows in one coalesced sweep into narrow cells, walks
// them there and writes them in one sweep, so that memory traffic is that of a plain copy. walk_merge gives
// each row to a block and finds counts or selections by merging ever longer runs, in log n rounds.
//
// Faulty values are replaced by 0 where they are read. The index of the first faulty row goes to *fault,
// unless that is null. Cells lie in shared memory, or in `scratch` where a row is too long for it.

typedef unsigned long long u64;

#define COUNT 1
#define SELECT 2
#define SWAP_ENCODE 3
#define SWAP_DECODE 4
#define RIGHT 0
#define LEFT 1
#define INSERTION 2

#if WALK == SWAP_ENCODE
#define BUFFERS 3
#elif WALK == SWAP_DECODE || WALK == 0 || FORM == INSERTION
#define BUFFERS 2
#else
#define BUFFERS 1
#endif

extern __shared__ __align__(16) unsigned char shared[];

__device__ __forceinline__ void report(long long *fault, long long row) {
    if (fault) atomicMin(fault, row);
}

// Where the k-th lowest set bit of a word is.
__device__ __forceinline__ int kth_bit(u64 word, int k) {
    unsigned w = (unsigned)word;
    int at = 0, low = __popc(w);
    if (k >= low) { k -= low; at = 32; w = (unsigned)(word >> 32); }
#pragma unroll
    for (int width = 16; width; width >>= 1) {
        low = __popc(w & ((1u << width) - 1));
        if (k >= low) { k -= low; at += width; w >>= width; }
    }
    return at;
}

// Walks one row of cells. Returns the cells that hold the result; sets `good` to false for a faulty row.
__device__ __forceinline__ CELL *walk(CELL *a, CELL *b, CELL *c, int n, bool &good) {
#if WALK == 0
    for (int i = 0; i < n; i++) b[i] = (CELL)i;
    for (int i = 0; i < n; i++) b[a[i]] = (CELL)i;
    for (int v = 0; v < n; v++) good &= a[b[v]] == v;
    return b;
#elif WALK == COUNT
    u64 met = 0;
    for (int i = 0; i < n; i++) {
        int x = a[i];
        u64 bit = 1ull << x;
        int smaller = __popcll(met & (bit - 1));
        met |= bit;
#if FORM == RIGHT
        a[i] = (CELL)(x - smaller);
#elif FORM == LEFT
        a[i] = (CELL)(i - smaller);
#else
        b[x] = (CELL)smaller;
#endif
    }
    good &= met == ~0ull >> (64 - n);
    return FORM == INSERTION ? b : a;
#elif WALK == SELECT
    u64 free = ~0ull >> (64 - n);
    for (int s = 0; s < n; s++) {
        int i = FORM == RIGHT ? s : n - 1 - s;
        int taken = kth_bit(free, FORM == LEFT ? i - a[i] : a[i]);
        free ^= 1ull << taken;
#if FORM == INSERTION
        b[taken] = (CELL)i;
#else
        a[i] = (CELL)taken;
#endif
    }
    return FORM == INSERTION ? b : a;
#elif WALK == SWAP_ENCODE
    for (int i = 0; i < n; i++) b[i] = c[i] = (CELL)i;  // b: the list; c: where the list has each item
    for (int i = 0; i < n; i++) {
        int x = a[i], j = c[x], moved = b[i];
        good &= j >= i;  // an item met before lies to the left
        j = j >= i ? j : i;
        b[j] = (CELL)moved;
        c[moved] = (CELL)j;
        c[x] = (CELL)i;
        a[i] = (CELL)(j - i);
    }
    return a;
#else
    for (int i = 0; i < n; i++) b[i] = (CELL)i;
    for (int i = 0; i < n; i++) {
        int j = i + a[i];
        CELL drawn = b[j];
        b[j] = b[i];
        b[i] = drawn;
    }
    return b;
#endif
}

extern "C" __global__ void walk_rows(const ELEMENT *__restrict__ in, ELEMENT *__restrict__ out, long long rows,
                                     int n, int stride, int per_block, CELL *scratch, long long *fault) {
    CELL *cells = scratch ? scratch + (long long)blockIdx.x * BUFFERS * per_block * stride : (CELL *)shared;
    const int step_row = blockDim.x / n, step_place = blockDim.x % n;
    for (long long first = (long long)blockIdx.x * per_block; first < rows;
         first += (long long)gridDim.x * per_block) {
        const int count = (int)min((long long)per_block, rows - first);
        const ELEMENT *source = in + first * n;
        ELEMENT *target = out + first * n;
        int r = threadIdx.x / n, i = threadIdx.x % n;
#pragma unroll 4
        for (int e = threadIdx.x; e < count * n; e += blockDim.x) {
            u64 value = (u64)source[e];
            if (value >= (u64)(SIZE(i))) {
                report(fault, first + r);
                value = 0;
            }
            cells[r * stride + i] = (CELL)value;
            r += step_row;
            i += step_place;
            if (i >= n) { i -= n; r++; }
        }
        __syncthreads();
        const int result = BUFFERS == 1 || WALK == SWAP_ENCODE ? 0 : per_block * stride;
        if (threadIdx.x < count) {
            CELL *a = cells + threadIdx.x * stride;
            bool good = true;
            walk(a, a + per_block * stride, a + 2 * per_block * stride, n, good);
            if (!good) report(fault, first + threadIdx.x);
        }
        __syncthreads();
        r = threadIdx.x / n, i = threadIdx.x % n;
#pragma unroll 4
        for (int e = threadIdx.x; e < count * n; e += blockDim.x) {
            target[e] = (ELEMENT)cells[result + r * stride + i];
            r += step_row;
            i += step_place;
            if (i >= n) { i -= n; r++; }
        }
        __syncthreads();
    }
}

#if WALK == COUNT || WALK == SELECT

// How many of the sorted cells [0, length), each less its index times `slope`, are below (or not above) v.
__device__ __forceinline__ int rank_in(const CELL *cells, int length, int v, int slope, bool or_equal) {
    int low = 0, high = length;
    while (low < high) {
        int middle = (low + high) >> 1;
        int key = (int)cells[middle] - slope * middle;
        if (key < v || (or_equal && key == v)) low = middle + 1;
        else high = middle;
    }
    return low;
}

// COUNT sorts the values; an element of a right run has as many smaller ones before it as the left run's
// search says. SELECT goes through the picks in time: a cell is a pick's slot among those free when its run
// began, a run is sorted by slot, and a later pick's slot moves up by the earlier ones taken at or below it.
extern "C" __global__ void walk_merge(const ELEMENT *__restrict__ in, ELEMENT *__restrict__ out, long long rows,
                                      int n, CELL *scratch, long long *fault) {
    CELL *cells = scratch ? scratch + (long long)blockIdx.x * 5 * n : (CELL *)shared;
    CELL *found = cells + 4 * n;
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        const ELEMENT *source = in + row * n;
        ELEMENT *target = out + row * n;
        CELL *key = cells, *from = cells + n, *new_key = cells + 2 * n, *new_from = cells + 3 * n;
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            u64 value = (u64)source[i];
            if (value >= (u64)(SIZE(i))) {
                report(fault, row);
                value = 0;
            }
            int time = WALK == SELECT && FORM != RIGHT ? n - 1 - i : i;
            key[time] = (CELL)(WALK == SELECT && FORM == LEFT ? i - (int)value : (int)value);
            from[time] = (CELL)time;
            found[time] = 0;
        }
        __syncthreads();
        for (int run = 1; run < n; run *= 2) {
            for (int p = threadIdx.x; p < n; p += blockDim.x) {
                const int begin = p / (2 * run) * (2 * run), middle = min(begin + run, n);
                const int end = min(begin + 2 * run, n);
                int v = key[p], origin = from[p], q, at;
                if (p < middle) {
                    at = p - begin;
                    q = rank_in(key + middle, end - middle, WALK == SELECT ? v - at : v, 0, false);
                } else {
                    at = p - middle;
                    q = rank_in(key + begin, middle - begin, v, WALK == SELECT, true);
                    if (WALK == SELECT) v += q;
                    else found[origin] += (CELL)q;
                }
                new_key[begin + at + q] = (CELL)v;
                new_from[begin + at + q] = (CELL)origin;
            }
            __syncthreads();
            CELL *swap = key; key = new_key; new_key = swap;
            swap = from; from = new_from; new_from = swap;
        }
        if (WALK == SELECT && FORM != INSERTION) {
            for (int p = threadIdx.x; p < n; p += blockDim.x) found[from[p]] = (CELL)p;
            __syncthreads();
        }
        for (int p = threadIdx.x; p < n; p += blockDim.x) {
            int result;
            if (WALK == COUNT) {
                if (key[p] != p) report(fault, row);
                if (FORM == RIGHT) {
                    u64 x = (u64)source[p];
                    result = (int)(x < (u64)n ? x : 0) - found[p];
                } else result = FORM == LEFT ? p - found[p] : found[from[p]];
            } else if (FORM == INSERTION) result = n - 1 - from[p];
            else result = found[FORM == RIGHT ? p : n - 1 - p];
            target[p] = (ELEMENT)result;
        }
        __syncthreads();
    }
}

#endif
