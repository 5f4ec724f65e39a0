"""Fast paths on GPUs: Triton kernels of the network and of the optimizer, CUDA graphs, CUDA C at run time."""
