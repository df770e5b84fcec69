#!/usr/bin/env python3
"""Fits y = w . x + b on four ranks in stage 3 through zero_c.h, with ctypes.

usage: from_python.py [path of libzero_c.so]
"""

import ctypes
import math
import sys

RANKS, STEPS, SIZE = 4, 300, 12
ZERO_OK, ZERO_SGD = 0, 1


class Parameter(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("elements", ctypes.c_size_t), ("unit", ctypes.c_size_t),
                ("units", ctypes.c_void_p), ("unit_count", ctypes.c_size_t),
                ("group", ctypes.c_size_t), ("frozen", ctypes.c_int), ("data", ctypes.c_void_p),
                ("gradient", ctypes.c_void_p)]


class Group(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in
                ("learning_rate_factor", "weight_decay", "beta1", "beta2", "epsilon", "momentum")
                ] + [("nesterov", ctypes.c_int), ("is_unclipped", ctypes.c_int),
                     ("reserved", ctypes.c_uint64 * 4)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("stage", ctypes.c_int), ("dtype", ctypes.c_int),
                ("optimizer", ctypes.c_int), ("group", Group), ("groups", ctypes.c_void_p),
                ("group_count", ctypes.c_size_t), ("block", ctypes.c_void_p),
                ("block_elements", ctypes.c_size_t), ("clip_norm", ctypes.c_float),
                ("reduction", ctypes.c_int), ("schedule", ctypes.c_int),
                ("bucket_bytes", ctypes.c_size_t), ("require_gradients", ctypes.c_int),
                ("initial_loss_scale", ctypes.c_float), ("prefetch_elements", ctypes.c_size_t),
                ("keep_units", ctypes.c_size_t), ("poison", ctypes.c_int)]


Floats = ctypes.POINTER(ctypes.c_float)
Body = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
zero = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libzero_c.so")
zero.zero_last_error.restype = ctypes.c_char_p
zero.zero_run_ranks.argtypes = [ctypes.c_int, ctypes.c_double, Body, ctypes.c_void_p]
zero.zero_rank.argtypes = [ctypes.c_void_p]
zero.zero_options_init.argtypes = [ctypes.POINTER(Options), ctypes.c_size_t]
zero.zero_options_init.restype = None
zero.zero_create.argtypes = [ctypes.c_void_p, ctypes.POINTER(Parameter), ctypes.c_size_t,
                             ctypes.POINTER(Options), ctypes.POINTER(ctypes.c_void_p)]
zero.zero_begin_step.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
zero.zero_open.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(Floats),
                           ctypes.POINTER(Floats)]
zero.zero_close.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
zero.zero_step.argtypes = [ctypes.c_void_p, ctypes.c_double]
zero.zero_get_parameter.argtypes = [ctypes.c_void_p, ctypes.c_size_t, Floats, ctypes.c_size_t]
zero.zero_destroy.argtypes = [ctypes.c_void_p]


def check(status):
    if status != ZERO_OK:
        raise RuntimeError(zero.zero_last_error().decode())


def target(i):
    return math.sin(i + 1.0)


def train(communicator):
    """One rank; returns the weights and the bias."""
    model = (Parameter * 2)(Parameter(name=b"weights", elements=SIZE),
                            Parameter(name=b"bias", elements=1))
    options = Options()
    zero.zero_options_init(ctypes.byref(options), ctypes.sizeof(options))
    options.stage, options.optimizer = 3, ZERO_SGD
    options.group.momentum, options.group.weight_decay = 0.5, 0.0
    engine = ctypes.c_void_p()
    check(zero.zero_create(communicator, model, 2, ctypes.byref(options), ctypes.byref(engine)))
    weights, gradients = (Floats * 2)(), (Floats * 2)()
    for step in range(STEPS):
        sample = step * RANKS + zero.zero_rank(communicator)
        x = [math.sin((sample * SIZE + i) ** 2 % 9973) for i in range(SIZE)]
        check(zero.zero_begin_step(engine, 1))
        check(zero.zero_open(engine, 0, weights, gradients))
        y = weights[1][0] + sum(weights[0][i] * x[i] for i in range(SIZE))
        error = y - (0.5 + sum(target(i) * x[i] for i in range(SIZE)))
        for i in range(SIZE):
            gradients[0][i] += error * x[i]
        gradients[1][0] += error
        check(zero.zero_close(engine, 0))
        check(zero.zero_step(engine, 0.1))
    found = (ctypes.c_float * SIZE)()
    bias = (ctypes.c_float * 1)()
    check(zero.zero_get_parameter(engine, 0, found, SIZE))
    check(zero.zero_get_parameter(engine, 1, bias, 1))
    zero.zero_destroy(engine)
    return list(found), bias[0]


results = {}


def rank_body(communicator, _):
    try:  # an exception must not leave a callback
        results[zero.zero_rank(communicator)] = train(communicator)
        return ZERO_OK
    except Exception as error:
        print(error, file=sys.stderr)
        return -1


check(zero.zero_run_ranks(RANKS, 60.0, Body(rank_body), None))
found, bias = results[0]
worst = max(abs(found[i] - target(i)) for i in range(SIZE))
print(f"largest error of a weight {worst:.5f}, bias {bias:.5f}")
sys.exit(0 if worst < 0.02 and abs(bias - 0.5) < 0.02 and results[0] == results[3] else 1)
