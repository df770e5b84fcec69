"""zero_c.h through ctypes. tests/python/test_header.py compares it with the header."""

import ctypes
import os
import pathlib
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p

STATUSES = ("OK", "INVALID_ARGUMENT", "OUT_OF_ORDER", "MISMATCH", "NO_GRADIENTS", "ABORTED",
            "TIMED_OUT", "BROKEN", "CHECKPOINT", "OUT_OF_MEMORY", "CALLBACK", "UNSUPPORTED",
            "FAILED")
DTYPES = ("float32", "bfloat16", "float16")  # ZERO_FLOAT, ZERO_BFLOAT16, ZERO_FLOAT16
OPTIMIZERS = ("adamw", "sgd")
REDUCTIONS = ("mean", "sum", "mean_over_ranks")
SCHEDULES = ("default", "boundary", "every_micro_step")


class Parameter(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("elements", c_size_t), ("unit", c_size_t),
                ("units", POINTER(c_size_t)), ("unit_count", c_size_t), ("group", c_size_t),
                ("frozen", c_int), ("data", c_void_p), ("gradient", c_void_p)]


class Group(ctypes.Structure):
    _fields_ = [("learning_rate_factor", c_double), ("weight_decay", c_double),
                ("beta1", c_double), ("beta2", c_double), ("epsilon", c_double),
                ("momentum", c_double), ("nesterov", c_int), ("is_unclipped", c_int),
                ("reserved", c_uint64 * 4)]


class Options(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("stage", c_int), ("dtype", c_int), ("optimizer", c_int),
                ("group", Group), ("groups", POINTER(Group)), ("group_count", c_size_t),
                ("block", c_void_p), ("block_elements", c_size_t), ("clip_norm", c_float),
                ("reduction", c_int), ("schedule", c_int), ("bucket_bytes", c_size_t),
                ("require_gradients", c_int), ("initial_loss_scale", c_float),
                ("prefetch_elements", c_size_t), ("keep_units", c_size_t), ("poison", c_int),
                ("count_zero_gradients", c_int), ("group_norms", c_int), ("leave_unused", c_int),
                ("skip_norm", c_float), ("skip_norm_factor", c_float),
                ("skip_norm_window", c_size_t)]


class Slice(ctypes.Structure):
    _fields_ = [("parameter", c_size_t), ("begin", c_size_t), ("elements", c_size_t),
                ("weights", POINTER(c_float)), ("gradients", POINTER(c_float)),
                ("states", POINTER(c_float) * 2), ("learning_rate", c_double),
                ("group", c_size_t)]


class Report(ctypes.Structure):
    _fields_ = [("step_count", c_uint64), ("is_skipped", c_int), ("has_norm", c_int),
                ("gradient_norm", c_double), ("clip_coefficient", c_float),
                ("non_finite", c_int64), ("loss_scale", c_float), ("zero_gradients", c_int64)]


class Memory(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in
                ("parameters", "gradients", "master_weights", "optimizer_state",
                 "gradient_leases", "parameter_leases", "other", "engine_bytes", "total_bytes")]


STRUCTURES = {"zero_parameter": Parameter, "zero_group": Group, "zero_options": Options,
              "zero_slice": Slice, "zero_report": Report, "zero_memory": Memory}

Body = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
Update = ctypes.CFUNCTYPE(c_int, POINTER(Slice), c_void_p)

# Results and arguments; the handler of errors is not used, because each status is looked at.
FUNCTIONS = {
    "zero_last_error": (c_char_p, []),
    "zero_status_name": (c_char_p, [c_int]),
    "zero_version": (c_char_p, []),
    "zero_fail": (c_int, [c_char_p]),
    "zero_run_ranks": (c_int, [c_int, c_double, Body, c_void_p]),
    "zero_run_mpi": (c_int, [c_double, Body, c_void_p]),
    "zero_rank": (c_int, [c_void_p]),
    "zero_world": (c_int, [c_void_p]),
    "zero_sum": (c_int, [c_void_p, POINTER(c_float), c_size_t]),
    "zero_options_init": (None, [POINTER(Options), c_size_t]),
    "zero_create": (c_int, [c_void_p, POINTER(Parameter), c_size_t, POINTER(Options),
                            POINTER(c_void_p)]),
    "zero_destroy": (None, [c_void_p]),
    "zero_is_broken": (c_int, [c_void_p]),
    "zero_begin_step": (c_int, [c_void_p, c_size_t]),
    "zero_next_micro_step": (c_int, [c_void_p]),
    "zero_acquire": (c_int, [c_void_p, c_size_t]),
    "zero_release": (c_int, [c_void_p, c_size_t]),
    "zero_skip": (c_int, [c_void_p, c_size_t]),
    "zero_weight": (c_void_p, [c_void_p, c_size_t, c_size_t]),
    "zero_gradients": (c_int, [c_void_p, c_size_t, c_int]),
    "zero_gradient": (c_void_p, [c_void_p, c_size_t, c_size_t]),
    "zero_note_unused": (c_int, [c_void_p, c_size_t, c_size_t]),
    "zero_gradients_ready": (c_int, [c_void_p, c_size_t]),
    "zero_loss_scale": (c_int, [c_void_p, POINTER(c_float)]),
    "zero_step": (c_int, [c_void_p, c_double]),
    "zero_step_with": (c_int, [c_void_p, c_double, Update, c_void_p]),
    "zero_cancel_step": (c_int, [c_void_p]),
    "zero_step_count": (c_int, [c_void_p, POINTER(c_uint64)]),
    "zero_last_report": (c_int, [c_void_p, POINTER(Report)]),
    "zero_last_group_norms": (c_int, [c_void_p, POINTER(c_double), c_size_t]),
    "zero_get_parameter": (c_int, [c_void_p, c_size_t, POINTER(c_float), c_size_t]),
    "zero_set_parameter": (c_int, [c_void_p, c_size_t, POINTER(c_float), c_size_t]),
    "zero_gather": (c_int, [c_void_p, c_void_p, c_size_t]),
    "zero_set_learning_rate_factor": (c_int, [c_void_p, c_size_t, c_double]),
    "zero_save": (c_int, [c_void_p, c_char_p, c_uint64]),
    "zero_load": (c_int, [c_void_p, c_char_p, POINTER(c_uint64)]),
    "zero_has_checkpoint": (c_int, [c_char_p, POINTER(c_int)]),
    "zero_memory_of": (c_int, [c_void_p, POINTER(Memory)]),
    "zero_plan": (c_int, [POINTER(Parameter), c_size_t, POINTER(Options), c_int,
                          POINTER(Memory)]),
}


def _load():
    """The library of the variable ZERO_LIBRARY, or the one beside this file."""
    path = os.environ.get("ZERO_LIBRARY")
    if path is None:
        beside = sorted(pathlib.Path(__file__).parent.glob("libzero_c.so*"))
        if not beside:
            raise ImportError("zero: libzero_c.so is not beside the package; install it with "
                              "'pip install .', or name the library in ZERO_LIBRARY")
        path = str(beside[0])
    library = ctypes.CDLL(path)
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


C = _load()
