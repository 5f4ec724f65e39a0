// The walks of table.py on NVIDIA GPUs, compiled at first use for one operation and one element type. This
// file is what both kernels share; rows.cu or warps.cu follows it.
//
// ELEMENT is the tensor's type, CELL the narrow type that holds 0..n-1 in fast memory, WALK and FORM come
// from the table, SIZE(i) is how many values position i may hold, THREADS is the size of a block.
//
// Faulty values count as 0. The index of the first faulty row goes to *fault, unless that is null. What a row
// needs lies in shared memory, or in `scratch` where a row is too long for it.

typedef unsigned long long u64;

#define INVERT 0
#define COUNT 1
#define SELECT 2
#define SWAP_ENCODE 3
#define SWAP_DECODE 4
#define RIGHT 0
#define LEFT 1
#define INSERTION 2

#define SCATTERS (WALK == INVERT || FORM == INSERTION)
#define BACKWARD (WALK == SELECT && FORM != RIGHT)
#define CELL_MAX ((u64)(CELL)-1)
#define CELL_BITS (8 * (int)sizeof(CELL))
#define PER_WORD (4 / (int)sizeof(CELL))

extern __shared__ __align__(16) unsigned char shared[];

__device__ __forceinline__ void report(long long *fault, long long row) {
    if (fault) atomicMin(fault, row);
}

// The k-th lowest set bit of a word.
__device__ __forceinline__ int kth_bit(unsigned word, int k) {
    int at = 0;
#pragma unroll
    for (int width = 16; width; width >>= 1) {
        const int low = __popc(word & ((1u << width) - 1));
        if (k >= low) { k -= low; at += width; word >>= width; }
    }
    return at;
}
