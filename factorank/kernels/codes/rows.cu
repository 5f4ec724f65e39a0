// A row for each thread: a block reads its rows in one coalesced sweep into narrow cells, walks them there and
// writes them in one sweep, so that memory traffic is that of a plain copy. WORDS is the number of 64-bit words
// of a set of n, ALIGNED whether every block's rows begin at a multiple of 16 bytes.

// Walks that scatter their results need a second row for them; swaps keep a list, or a list and its inverse.
#define BUFFERS (WALK == SWAP_ENCODE ? 3 : SCATTERS || WALK == SWAP_DECODE ? 2 : 1)

// A set of values below 64 * WORDS, in registers: every index is a constant when compiling.
struct Set {
    u64 word[WORDS];

    __device__ __forceinline__ void fill(int n) {
#pragma unroll
        for (int w = 0; w < WORDS; w++) {
            int left = n - 64 * w;
            word[w] = left <= 0 ? 0 : left >= 64 ? ~0ull : ~0ull >> (64 - left);
        }
    }

    // Puts x in, or takes it out, and returns how many members are below it.
    __device__ __forceinline__ int flip(int x) {
        int below = 0;
#pragma unroll
        for (int w = 0; w < WORDS; w++) {
            int at = x - 64 * w;
            bool here = at >= 0 && at < 64;
            u64 bit = here ? 1ull << (at & 63) : 0;
            below += __popcll(at < 0 ? 0 : here ? word[w] & (bit - 1) : word[w]);
            word[w] ^= bit;
        }
        return below;
    }

    // Takes the k-th smallest member out and returns it.
    __device__ __forceinline__ int take(int k) {
        u64 chosen = word[0];
        int at = 0, rest = k;
#pragma unroll
        for (int w = 1, before = 0; w < WORDS; w++) {
            before += __popcll(word[w - 1]);
            if (k >= before) { chosen = word[w]; at = 64 * w; rest = k - before; }
        }
        unsigned half = (unsigned)chosen;
        const int low = __popc(half);
        if (rest >= low) { rest -= low; at += 32; half = (unsigned)(chosen >> 32); }
        at += kth_bit(half, rest);
#pragma unroll
        for (int w = 0; w < WORDS; w++)
            if (at >> 6 == w) word[w] ^= 1ull << (at & 63);
        return at;
    }
};

// Cells 0, 1, 2, …, a word at a time.
__device__ __forceinline__ void count_up(CELL *cells, int n) {
    const unsigned first = PER_WORD == 4 ? 0x03020100u : PER_WORD == 2 ? 0x00010000u : 0u;
    const unsigned step = PER_WORD == 4 ? 0x04040404u : PER_WORD == 2 ? 0x00020002u : 1u;
    unsigned *words = (unsigned *)cells;
    for (int k = 0; k * PER_WORD < n; k++) words[k] = first + k * step;
}

// Walks one row of cells `a`; b and c are its scratch. Results go to a, or to b if the walk scatters them.
// Returns whether the row is valid.
__device__ __forceinline__ bool walk(CELL *a, CELL *b, CELL *c, int n) {
    Set set;
    bool good = true;
    if (WALK == INVERT || WALK == SWAP_ENCODE || WALK == SWAP_DECODE) count_up(b, n);
    if (WALK == SWAP_ENCODE) count_up(c, n);  // b: the list; c: where the list has each item
    if (WALK == COUNT) set.fill(0);
    if (WALK == SELECT) set.fill(n);
    unsigned *words = (unsigned *)a;
    const int last = (n - 1) / PER_WORD;
    for (int k = 0; k <= last; k++) {
        const int which = BACKWARD ? last - k : k;
        unsigned word = words[which], results = 0;
#pragma unroll
        for (int q = 0; q < PER_WORD; q++) {
            const int place = BACKWARD ? PER_WORD - 1 - q : q, i = which * PER_WORD + place;
            if (i >= n) continue;
            int x = (word >> (CELL_BITS * place)) & (unsigned)CELL_MAX, result = 0;
            const bool inside = x < (SIZE(i));
            good &= inside;
            x = inside ? x : 0;
            if (WALK == INVERT) b[x] = (CELL)i;
            else if (WALK == COUNT) {
                const int smaller = set.flip(x);
                if (FORM == INSERTION) b[x] = (CELL)smaller;
                else result = FORM == RIGHT ? x - smaller : i - smaller;
            } else if (WALK == SELECT) {
                result = set.take(FORM == LEFT ? i - x : x);
                if (FORM == INSERTION) b[result] = (CELL)i;
            } else if (WALK == SWAP_ENCODE) {
                int j = c[x];
                const int moved = b[i];
                good &= j >= i;  // an item met before lies to the left
                j = j >= i ? j : i;
                b[j] = (CELL)moved;
                c[moved] = (CELL)j;
                c[x] = (CELL)i;
                result = j - i;
            } else {
                result = b[i + x];
                b[i + x] = b[i];
            }
            results |= ((unsigned)result & (unsigned)CELL_MAX) << (CELL_BITS * place);
        }
        if (!SCATTERS) words[which] = results;
    }
    if (WALK == INVERT)  // a place that nothing went to still holds itself, where another item lies
        for (int v = 0; v < n; v++) good &= a[b[v]] == v;
    if (WALK == COUNT) {  // flipping a value twice takes it out again
        Set full;
        full.fill(n);
#pragma unroll
        for (int w = 0; w < WORDS; w++) good &= set.word[w] == full.word[w];
    }
    return good;
}

// What a thread moves at once: 16 bytes, or one element where the addresses do not allow it.
#define WIDTH (ALIGNED ? 16 / (int)sizeof(ELEMENT) : 1)
#define BATCH (THREADS == 64 ? 5 : 4)

struct alignas(WIDTH * sizeof(ELEMENT)) Vector {
    ELEMENT element[WIDTH];
};

// Between whole rows in memory, `total` elements one after the other, and their cells. Several loads are
// under way before the first is used. What no cell can hold becomes the largest it can, which is outside
// every domain.
template <bool LOADING, typename POINTER>
__device__ __forceinline__ void sweep(POINTER memory, CELL *cells, int total, int n, int stride) {
    const int jump = blockDim.x * WIDTH, step_row = jump / n, step_place = jump % n;
    int e = threadIdx.x * WIDTH, r = e / n, i = e % n;
    while (e < total) {
        Vector vector[BATCH];
        if (LOADING) {
#pragma unroll
            for (int b = 0; b < BATCH; b++)
                if (e + b * jump + WIDTH <= total) vector[b] = *(const Vector *)(memory + e + b * jump);
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            if (e + WIDTH <= total) {
                int row = r, place = i;
#pragma unroll
                for (int v = 0; v < WIDTH; v++) {
                    CELL &cell = cells[row * stride + place];
                    ELEMENT &element = vector[b].element[v];
                    if (LOADING) cell = (CELL)((u64)element < CELL_MAX ? (u64)element : CELL_MAX);
                    else element = (ELEMENT)cell;
                    if (++place == n) { place = 0; row++; }
                }
                if (!LOADING) *(Vector *)(memory + e) = vector[b];
            } else {
                for (int last = e; last < total; last++) {  // fewer than WIDTH are left
                    CELL &cell = cells[last / n * stride + last % n];
                    if (LOADING) cell = (CELL)((u64)memory[last] < CELL_MAX ? (u64)memory[last] : CELL_MAX);
                    else *(ELEMENT *)(memory + last) = (ELEMENT)cell;
                }
            }
            e += jump;
            r += step_row;
            i += step_place;
            if (i >= n) { i -= n; r++; }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, WORDS > 1 ? 1 : THREADS == 64 ? 12 : 8)
walk_rows(const ELEMENT *__restrict__ in, ELEMENT *__restrict__ out, long long rows, int n, int stride, int per_block,
          CELL *scratch, long long *fault) {
    CELL *all = scratch ? scratch + (long long)blockIdx.x * BUFFERS * per_block * stride : (CELL *)shared;
    for (long long first = (long long)blockIdx.x * per_block; first < rows;
         first += (long long)gridDim.x * per_block) {
        const int count = (int)min((long long)per_block, rows - first), total = count * n;
        const ELEMENT *source = in + first * n;
        ELEMENT *target = out + first * n;
        sweep<true>(source, all, total, n, stride);
        __syncthreads();
        if (threadIdx.x < count) {
            CELL *a = all + threadIdx.x * stride;
            if (!walk(a, a + per_block * stride, a + 2 * per_block * stride, n)) report(fault, first + threadIdx.x);
        }
        __syncthreads();
        sweep<false>(target, SCATTERS ? all + per_block * stride : all, total, n, stride);
        __syncthreads();
    }
}
