"""What the GPUs of this machine are. Import this only where there is one: it starts CUDA."""

import torch

GENERATIONS = tuple(torch.cuda.get_device_capability(i)[0] for i in range(torch.cuda.device_count()))
"""The major compute capability of each."""
