"""One rank of each peer. A contender's `step` writes the gradients, reduces, updates and gathers.

Parameters start at zero, and gradients are constant, so AdamW moves every parameter by the learning
rate in each step; `moved` yields pairs of values and the sign of their movement.
"""

import dataclasses
import os

import torch
import torch.distributed as dist

import models

LEARNING_RATE = 1e-4
GRADIENT_OF_RANK = [0.75, -0.25]  # their mean is positive: a rank that reduces nothing fails
CLIPPING = 1.0


@dataclasses.dataclass
class Job:
    rank: int
    world: int
    dtype: torch.dtype
    scale: float
    is_clipped: bool
    shared: str  # a folder in memory, the same for all ranks

    def sizes_of_units(self):
        units = models.units_of("gpt2")
        return [[models.scaled_elements(shape, self.scale) for shape in unit] for unit in units]


def sign_of(index):
    """The sign of a parameter's gradients: a result at the wrong place is found."""
    return -1.0 if index % 2 else 1.0


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=LEARNING_RATE, fused=True)


class WriteGradients(torch.autograd.Function):
    """The identity; its backward pass writes the gradient of every parameter once."""

    @staticmethod
    def forward(ctx, x, values, *parameters):
        ctx.gradients = [(p.shape, v, p.dtype) for p, v in zip(parameters, values)]
        return x.clone()

    @staticmethod
    def backward(ctx, upstream):
        written = (torch.full(shape, value, dtype=dtype) for shape, value, dtype in ctx.gradients)
        return upstream, None, *written


class Unit(torch.nn.Module):
    """Parameters that are used together."""

    def __init__(self, sizes, values, dtype):
        super().__init__()
        self.values = values
        for index, size in enumerate(sizes):
            parameter = torch.nn.Parameter(torch.zeros(size, dtype=dtype))
            self.register_parameter(f"p{index}", parameter)

    def forward(self, x):
        return WriteGradients.apply(x, self.values, *self.parameters())


class Model(torch.nn.Module):
    """The tensors of GPT-2 as a model that computes nothing, with the cheapest backward pass."""

    def __init__(self, job, dtype):
        super().__init__()
        units = []
        index = 0
        for sizes in job.sizes_of_units():
            signs = [sign_of(index + offset) for offset in range(len(sizes))]
            values = [GRADIENT_OF_RANK[job.rank] * sign for sign in signs]
            units.append(Unit(sizes, values, dtype))
            index += len(sizes)
        self.embedding = units[0]
        self.blocks = torch.nn.ModuleList(units[1:-1])
        self.last_norm = units[-1]

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.last_norm(x)


def model_input(dtype=torch.float32):
    return torch.ones((), dtype=dtype, requires_grad=True)


class Hand:
    """Sums by hand over shared memory, then PyTorch's fused AdamW on this rank's half.

    Gradients are those of a loss divided by the number of ranks, so their sum is the mean. Each
    rank has a copy of all parameters in shared memory; with bfloat16 it has float master weights.
    """

    writes_gradients = True
    CHUNK = 1 << 18  # elements; sums of bfloat16 are then converted while they are in the cache

    def __init__(self, job):
        if job.world != 2:
            raise NotImplementedError("sums by hand are written for two ranks")
        self.job = job
        self.sizes = [size for unit in job.sizes_of_units() for size in unit]
        elements = sum(self.sizes)
        halves = [slice(0, elements // 2), slice(elements // 2, elements)]
        self.own, self.other = halves[job.rank], halves[1 - job.rank]
        self.gradients = [self.array("gradient", rank, elements) for rank in range(2)]
        self.parameters = self.array("parameter", job.rank, elements)
        self.peers_parameters = self.array("parameter", 1 - job.rank, elements)
        self.parameters.zero_()
        self.has_master = job.dtype != torch.float32
        weights = self.parameters[self.own]
        self.weights = torch.nn.Parameter(weights.float() if self.has_master else weights)
        self.weights.grad = torch.zeros_like(self.weights)
        self.chunk = torch.zeros(self.CHUNK, dtype=job.dtype)
        self.optimizer = adamw([self.weights])
        self.write_gradients()
        dist.barrier()

    def array(self, name, rank, elements):
        path = os.path.join(self.job.shared, f"{name}_{rank}")
        return torch.from_file(path, shared=True, size=elements, dtype=self.job.dtype)

    def write_gradients(self):
        rank = self.job.rank
        for index, part in enumerate(self.gradients[rank].split(self.sizes)):
            part.fill_(GRADIENT_OF_RANK[rank] * sign_of(index) / self.job.world)

    def reduce(self):
        terms = [gradient[self.own] for gradient in self.gradients]
        if not self.has_master:
            torch.add(*terms, out=self.weights.grad)
            return
        chunks = (tensor.split(self.CHUNK) for tensor in (*terms, self.weights.grad))
        for a, b, result in zip(*chunks):
            rounded = self.chunk[: len(a)]
            torch.add(a, b, out=rounded)
            result.copy_(rounded)

    def clip(self):
        square = torch.linalg.vector_norm(self.weights.grad).square()
        dist.all_reduce(square)
        self.weights.grad.mul_(torch.clamp(CLIPPING / (square.sqrt() + 1e-6), max=1.0))

    @torch.no_grad()
    def step(self):
        if self.writes_gradients:
            self.write_gradients()
            dist.barrier()
        self.reduce()
        if self.job.is_clipped:
            self.clip()
        self.optimizer.step()
        if self.has_master:
            self.parameters[self.own].copy_(self.weights)
        dist.barrier()
        self.parameters[self.other].copy_(self.peers_parameters[self.other])

    def moved(self):
        for index, part in enumerate(self.parameters.split(self.sizes)):
            yield part, sign_of(index)


class HandHeld(Hand):
    """The same; the gradients are written once, before the first step."""

    writes_gradients = False


def take_step(job, model, parameters, optimizer):
    """A step of PyTorch: backward pass, clipping if asked for, update."""
    model(model_input()).backward()
    if job.is_clipped:
        torch.nn.utils.clip_grad_norm_(parameters, CLIPPING)
    optimizer.step()
    optimizer.zero_grad()


class Replicated:
    """DistributedDataParallel and the fused AdamW: every rank updates every parameter."""

    def __init__(self, job):
        if job.dtype != torch.float32:
            raise NotImplementedError("torch.optim.AdamW has no master weights")
        self.job = job
        self.model = Model(job, job.dtype)
        self.parallel = torch.nn.parallel.DistributedDataParallel(
            self.model, gradient_as_bucket_view=True
        )
        self.optimizer = self.make_optimizer()

    def make_optimizer(self):
        return adamw(self.model.parameters())

    def step(self):
        take_step(self.job, self.parallel, self.model.parameters(), self.optimizer)

    def moved(self):
        for index, parameter in enumerate(self.model.parameters()):
            yield parameter, sign_of(index)


class ShardedOptimizer(Replicated):
    """The same with ZeroRedundancyOptimizer."""

    def make_optimizer(self):
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(
            self.model.parameters(),
            optimizer_class=torch.optim.AdamW,
            parameters_as_bucket_view=True,
            lr=LEARNING_RATE,
            fused=True,
        )


class FullySharded:
    """FSDP2: one group per block, one for everything else, by its defaults.

    bfloat16: it gathers and reduces in bfloat16, and updates float shards.
    """

    def __init__(self, job):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        self.job = job
        policy = MixedPrecisionPolicy()
        if job.dtype != torch.float32:
            policy = MixedPrecisionPolicy(param_dtype=job.dtype, cast_forward_inputs=False)
        mesh = dist.init_device_mesh("cpu", (job.world,))
        self.model = Model(job, torch.float32)
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(self.model, mesh=mesh, mp_policy=policy)
        self.optimizer = adamw(self.model.parameters())

    def step(self):
        take_step(self.job, self.model, self.model.parameters(), self.optimizer)

    def moved(self):
        for index, parameter in enumerate(self.model.parameters()):
            yield parameter.to_local(), sign_of(index)


class DeepSpeed:
    """DeepSpeed with the fused AdamW of PyTorch; bfloat16 has float master weights."""

    stage = 0

    def __init__(self, job):
        import deepspeed

        self.model = Model(job, torch.float32)
        self.optimizer = adamw(self.model.parameters())
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "zero_optimization": {"stage": self.stage},
            "zero_allow_untested_optimizer": True,
            "gradient_clipping": CLIPPING if job.is_clipped else 0.0,
            "bf16": {"enabled": job.dtype == torch.bfloat16},
        }
        self.input_dtype = job.dtype
        self.engine, *_ = deepspeed.initialize(
            model=self.model, optimizer=self.optimizer, config=config
        )

    def step(self):
        self.engine.backward(self.engine(model_input(self.input_dtype)))
        self.engine.step()

    def moved(self):
        for index, parameter in enumerate(self.model.parameters()):
            yield getattr(parameter, "ds_tensor", parameter), sign_of(index)


class DeepSpeed1(DeepSpeed):
    stage = 1


class DeepSpeed2(DeepSpeed):
    stage = 2


class DeepSpeed3(DeepSpeed):
    stage = 3


CONTENDERS = {
    "hand": Hand,
    "hand_held": HandHeld,
    "ddp": Replicated,
    "zero_optimizer": ShardedOptimizer,
    "fsdp2": FullySharded,
    "deepspeed_1": DeepSpeed1,
    "deepspeed_2": DeepSpeed2,
    "deepspeed_3": DeepSpeed3,
}
