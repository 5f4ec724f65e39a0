"""The GPUs of this machine. Import this only where there are some: it starts CUDA."""

import torch

GENERATIONS = tuple(torch.cuda.get_device_capability(i)[0] for i in range(torch.cuda.device_count()))
"""The major compute capability of each GPU."""
