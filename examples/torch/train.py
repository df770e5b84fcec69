"""Trains the model of torch_gpt.cpp with stage 3, in the processes that torchrun starts:

    torchrun --nproc-per-node 2 train.py
"""

#[train
import datetime
import pathlib

import torch
import torch.distributed as dist
from torch.utils import cpp_extension

folder = pathlib.Path(__file__).resolve().parent
include = folder.parents[1] / "include"  # where zero/torch.hpp lies
trainer = cpp_extension.load("trainer", [str(folder / "trainer.cpp")],
                             extra_cflags=["-std=c++20"], extra_include_paths=[str(include)])

limit = datetime.timedelta(minutes=10)
dist.init_process_group("gloo", timeout=limit)
group = dist.new_group(backend="gloo", timeout=limit)  # nothing else may use it
losses = trainer.train(group._get_backend(torch.device("cpu")),
                       dist.distributed_c10d._get_default_store())
#train]

if dist.get_rank() == 0:
    print(f"loss {losses[-1]:.6f}, at first {losses[0]:.6f}")
dist.destroy_process_group()
