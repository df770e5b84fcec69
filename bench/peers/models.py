"""The tensors that every peer trains, in the order of tests/support/shapes.hpp."""

import math

# layers, width; as in bench/cuda/kernels_bench.cu and tests/support/shapes.hpp
MODELS = {
    "gpt2": (12, 768),
    "gpt2-medium": (24, 1024),
    "gpt2-large": (36, 1280),
    "gpt2-xl": (48, 1600),
}


def units_of(model):
    """Shapes of the embeddings, of each block, and of the last norm."""
    layers, width = MODELS[model]
    block = [(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,)]
    block += [(width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    return [[(50257, width), (1024, width)]] + layers * [block] + [[(width,), (width,)]]


def shapes_of(model):
    return [shape for unit in units_of(model) for shape in unit]


def scaled_elements(shape, scale):
    """Elements of a tensor, scaled as in zero_step.cpp: a multiple of 64."""
    return max(64, int(scale * math.prod(shape)) // 64 * 64)
