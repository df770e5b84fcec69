"""zero from Python: data-parallel training with ZeRO stages 0 to 3, on numpy arrays.

Ranks are threads (run_ranks) or processes (run_mpi). An Engine holds a rank's share of the model,
gradients and optimizer states. docs/guides/python.md shows a program.
"""

import collections
import ctypes
import difflib
import re
import threading
import types
import weakref

import numpy as np

from . import _library as _c

__all__ = ["Aborted", "Broken", "CallbackFailed", "CheckpointError", "Communicator", "Engine",
           "Error", "Failed", "InvalidArgument", "Mismatch", "NoGradients", "OutOfMemory",
           "OutOfOrder", "Parameter", "Slice", "TimedOut", "Unit", "Unsupported", "has_checkpoint",
           "plan", "run_mpi", "run_ranks"]
__version__ = _c.C.zero_version().decode()


class Error(Exception):
    """A call of the library failed. Its text names the parameter, the rank and the remedy."""

    status = _c.STATUSES.index("FAILED")


class InvalidArgument(Error, ValueError):
    """Refused; nothing was changed."""


class OutOfOrder(Error):
    """A call that the protocol does not allow here; nothing was changed."""


class Mismatch(Error):
    """The ranks registered different models, or call differently."""


class NoGradients(Error):
    """No rank reported a gradient; the step changed nothing."""


class Aborted(Error):
    """Another rank failed or left; the text holds its cause."""


class TimedOut(Error, TimeoutError):
    """A rank did not arrive in time."""


class Broken(Error):
    """An earlier failure broke the engine."""


class CheckpointError(Error, OSError):
    """A checkpoint is missing, damaged or does not fit."""


class OutOfMemory(Error, MemoryError):
    """Memory could not be allocated."""


class CallbackFailed(Error):
    """A function of the program failed."""


class Unsupported(Error, NotImplementedError):
    """The library was built without the feature."""


class Failed(Error):
    """Anything else."""


_ERRORS = (None, InvalidArgument, OutOfOrder, Mismatch, NoGradients, Aborted, TimedOut, Broken,
           CheckpointError, OutOfMemory, CallbackFailed, Unsupported, Failed)
for _status, _class in enumerate(_ERRORS[1:], 1):
    _class.status = _status

_is_interrupted = threading.Event()  # by Ctrl-C, while ranks are threads


def _last_error():
    text = _c.C.zero_last_error().decode(errors="replace")
    return re.sub(r"\b(?:zero_(?=\w+\(\))|options\.)", "", text)


def _check(status):
    if _is_interrupted.is_set() and threading.current_thread() is not threading.main_thread():
        raise KeyboardInterrupt
    if status:
        raise _ERRORS[status](_last_error())


# ---- Ranks ----


class Communicator:
    """One rank of a group. It belongs to the body that got it."""

    def __init__(self, handle):
        self._handle = handle
        self._engines = weakref.WeakSet()

    @property
    def rank(self):
        """The number of this rank, from 0."""
        return _c.C.zero_rank(self._handle)

    @property
    def world(self):
        """The number of ranks."""
        return _c.C.zero_world(self._handle)

    def sum(self, values):
        """The sums of numbers over the ranks, added in float in the order of ranks: a float for a
        number, otherwise an array. Collective."""
        sums = np.array(values, dtype=np.float32, order="C")
        _check(_c.C.zero_sum(self._handle, _floats(sums), sums.size))
        return sums if sums.ndim else float(sums)

    def _end(self):
        for engine in list(self._engines):
            engine._destroy()
        self._handle = None


def _run(start, body):
    """Calls `start(callback)`. Returns what the body returned on each rank that ran here, or raises
    the first exception that is not a consequence of another rank's."""
    results, failures = {}, {}

    def run_rank(handle, _):
        communicator = Communicator(handle)
        rank = communicator.rank
        try:
            results[rank] = body(communicator)
            return 0
        except BaseException as failure:  # none may leave a callback
            failures[rank] = failure
            if isinstance(failure, Error):
                text = str(failure)
            else:
                text = f"rank {rank}: {type(failure).__name__}: {failure}"
            if isinstance(failure, Aborted):
                return failure.status  # after a call of this thread that failed so
            return _c.C.zero_fail(text.encode())
        finally:
            communicator._end()

    status = start(_c.Body(run_rank))
    causes = sorted(failures.items(), key=lambda item: (isinstance(item[1], Aborted), item[0]))
    if causes:
        raise causes[0][1]
    _check(status)
    return results


def run_ranks(world, body, time_out=0.0):
    """Runs body(communicator) as `world` ranks, each in a thread; returns the list of results.

    time_out: seconds that a rank waits for its peers in one call; 0: 30 minutes.
    An exception of one rank ends the others with Aborted, and is raised here. Ctrl-C ends all.
    """
    outcome = {}

    def start(callback):
        def call():
            outcome["status"] = _c.C.zero_run_ranks(world, time_out, callback, None)
            outcome["text"] = _last_error()

        thread = threading.Thread(target=call)
        thread.start()
        try:
            thread.join()
        except KeyboardInterrupt:
            _is_interrupted.set()
            thread.join()
            _is_interrupted.clear()
            raise
        if outcome["status"]:  # the text belongs to that thread
            return _c.C.zero_fail(outcome["text"].encode()) and outcome["status"]
        return 0

    results = _run(start, body)
    return [results[rank] for rank in range(world)]


def run_mpi(body, time_out=0.0):
    """Runs body(communicator) as one of the processes that mpirun or srun started; returns its
    result. Once a process, unless the program has begun MPI itself (import mpi4py.MPI does)."""
    results = _run(lambda callback: _c.C.zero_run_mpi(time_out, callback, None), body)
    return next(iter(results.values()))


# ---- Arrays ----


def _dtype(name):
    if name not in _c.DTYPES:
        raise InvalidArgument(f"zero: dtype {name!r} is none of {', '.join(_c.DTYPES)}")
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError as error:
            raise InvalidArgument("zero: numpy has no bfloat16; install the package ml_dtypes, "
                                  "which adds it") from error
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def _floats(array):
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


def _memory_of(array, what, parameter_dtype, elements, is_written=False):
    """The address of a caller's array. It must be one block of the engine's type."""
    if not isinstance(array, np.ndarray) or array.dtype != parameter_dtype:
        raise InvalidArgument(f"zero: {what} is not an array of {parameter_dtype}; make one with "
                              f"numpy.asarray(..., dtype={str(parameter_dtype)!r})")
    if array.size != elements:
        raise InvalidArgument(f"zero: {what} has {array.size} elements, and its parameter "
                              f"{elements}")
    if not array.flags.c_contiguous or (is_written and not array.flags.writeable):
        raise InvalidArgument(f"zero: {what} is not contiguous and writeable; pass a copy")
    return array.ctypes.data


class Parameter:
    """One tensor of a model.

    shape: a number of elements or a tuple.   unit: the number of the layer that uses it, from 0 in
    the order of use; units: all of them, for several.   group: index into the engine's groups.
    frozen: it has neither gradient nor optimizer state.
    data: initial values, read by Engine(); None: zeros. Inside `block`: where it stays.
    gradient: its gradient in an array of the program; None: in the engine's memory.
    """

    def __init__(self, name, shape, unit=0, *, units=None, group=0, frozen=False, data=None,
                 gradient=None):
        self.name, self.shape = name, (shape,) if isinstance(shape, int) else tuple(shape)
        self.units = [unit] if units is None else list(units)
        self.group, self.frozen, self.data, self.gradient = group, frozen, data, gradient
        self.elements = 1
        for extent in self.shape:
            self.elements *= extent


class _Model:
    """The parameters and options in the form of zero_c.h, and what they point to."""

    def __init__(self, parameters, options):
        self.parameters = list(parameters)
        self.options = self._translate(dict(options))
        self.list = (_c.Parameter * max(1, len(self.parameters)))()
        for number, (p, c) in enumerate(zip(self.parameters, self.list)):
            units = (ctypes.c_size_t * len(p.units))(*p.units)
            data = gradient = None
            if p.data is not None:
                data = _memory_of(p.data, f"the data of '{p.name}'", self.dtype, p.elements)
            if p.gradient is not None:
                gradient = _memory_of(p.gradient, f"the gradient of '{p.name}'", self.dtype,
                                      p.elements, is_written=True)
            self.list[number] = _c.Parameter(p.name.encode(), p.elements, 0, units, len(p.units),
                                             p.group, p.frozen, data, gradient)

    def _translate(self, given):
        options = _c.Options()
        _c.C.zero_options_init(ctypes.byref(options), ctypes.sizeof(options))
        self.dtype = _dtype(given.pop("dtype", "float32"))
        options.dtype = _c.DTYPES.index(str(self.dtype))
        for name, values in (("optimizer", _c.OPTIMIZERS), ("reduction", _c.REDUCTIONS),
                             ("schedule", _c.SCHEDULES)):
            if name in given:
                value = given.pop(name)
                if value not in values:
                    raise InvalidArgument(f"zero: {name} {value!r} is none of {', '.join(values)}")
                setattr(options, name, values.index(value))
        self.block = given.pop("block", None)
        if self.block is not None:
            options.block = _memory_of(self.block, "block", self.dtype, self.block.size, True)
            options.block_elements = self.block.size
        groups = given.pop("groups", None)
        _set_members(options.group, {name: given.pop(name) for name in list(given)
                                     if name in _GROUP_MEMBERS})
        _set_members(options, given)
        if groups is not None:
            self.groups = (_c.Group * len(groups))()
            for number, changes in enumerate(groups):
                self.groups[number] = options.group
                _set_members(self.groups[number], changes)
            options.groups, options.group_count = self.groups, len(groups)
        return options


_GROUP_MEMBERS = [name for name, _ in _c.Group._fields_ if name != "reserved"]
_OPTIONS = [name for name, _ in _c.Options._fields_
            if name not in ("size", "group", "group_count", "block_elements")]


def _set_members(structure, changes):
    known = _GROUP_MEMBERS if isinstance(structure, _c.Group) else _OPTIONS + _GROUP_MEMBERS
    for name, value in changes.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise TypeError(f"zero: there is no option '{name}'"
                            + (f"; is '{near[0]}' meant?" if near else f"; there are {known}"))
        try:
            setattr(structure, name, value)
        except TypeError as error:
            raise TypeError(f"zero: the option '{name}' does not take {value!r}") from error


def plan(parameters, world, **options):
    """The bytes of rank 0 of `world` ranks, before anything is allocated."""
    model, memory = _Model(parameters, options), _c.Memory()
    _check(_c.C.zero_plan(model.list, len(model.parameters), ctypes.byref(model.options), world,
                          ctypes.byref(memory)))
    return _members(memory)


def _members(structure):
    return types.SimpleNamespace(**{name: getattr(structure, name)
                                    for name, _ in structure._fields_})


# ---- Engine ----


class Unit:
    """A unit that is in use. Its arrays are views of the engine's memory until the unit is closed;
    an array that is kept longer shows another unit's numbers."""

    def __init__(self, weights, gradients):
        self.weights, self.gradients = weights, gradients


class Slice:
    """A slice of one parameter that this rank updates: views that are valid inside the call."""

    def __init__(self, model, c):
        def view(pointer):
            return np.ctypeslib.as_array(pointer, (c.elements,)) if pointer else None

        self.parameter, self.begin, self.group = model.parameters[c.parameter].name, c.begin, c.group
        self.weights, self.gradients = view(c.weights), view(c.gradients)
        self.states = [view(state) for state in c.states if state]
        self.learning_rate = c.learning_rate


class Engine:
    """A rank's share of a model, its gradients and its optimizer states. Collective.

    Options are those of zero_options and zero_group in zero_c.h by name: stage, dtype ("float32",
    "bfloat16", "float16"), optimizer ("adamw", "sgd"), clip_norm, weight_decay, ...; groups is a
    list of dictionaries of what differs from the options of all.
    """

    def __init__(self, communicator, parameters, **options):
        self._handle = None
        self._model = _Model(parameters, options)
        self._numbers = {p.name: number for number, p in enumerate(self._model.parameters)}
        self._units = collections.defaultdict(list)
        for p in self._model.parameters:
            for unit in p.units:
                self._units[unit].append(p)
        self._views = []  # weak references to buffers that arrays show
        handle = ctypes.c_void_p()
        _check(_c.C.zero_create(communicator._handle, self._model.list,
                                len(self._model.parameters), ctypes.byref(self._model.options),
                                ctypes.byref(handle)))
        self._handle = handle
        communicator._engines.add(self)

    def close(self):
        """Ends the engine; inside a step it aborts the group. Done at the end of the body at the
        latest. While an array still shows its memory, the engine stays until then."""
        self._is_closed = True
        if not any(view() is not None for view in self._views):
            self._destroy()

    _is_closed = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _destroy(self):
        handle, self._handle = self._handle, None
        self._is_closed = True
        if handle is not None:
            _c.C.zero_destroy(handle)

    __del__ = _destroy

    def _call(self, function, *arguments):
        _check(getattr(_c.C, function)(self._open_handle(), *arguments))

    def _open_handle(self):
        if self._is_closed:
            raise OutOfOrder("zero: the engine is closed")
        return self._handle

    def _number(self, parameter):
        if isinstance(parameter, int):
            return parameter
        if parameter not in self._numbers:
            raise InvalidArgument(f"zero: there is no parameter {parameter!r}")
        return self._numbers[parameter]

    def _view(self, address, p, is_writeable):
        if p.elements == 0:
            return np.empty(p.shape, self._model.dtype)
        if address is None:
            raise _ERRORS[2](_last_error())
        buffer = (ctypes.c_ubyte * (p.elements * self._model.dtype.itemsize)).from_address(address)
        self._views = [view for view in self._views if view() is not None]
        self._views.append(weakref.ref(buffer))
        array = np.frombuffer(buffer, self._model.dtype).reshape(p.shape)
        array.flags.writeable = is_writeable
        return array

    # A step: begin_step(), units, step()

    def begin_step(self, micro_steps=1):
        """Begins a step of forward and backward passes, whose gradients are added."""
        self._call("zero_begin_step", micro_steps)

    def next_micro_step(self):
        """Ends a micro-step and begins the next one. Collective."""
        self._call("zero_next_micro_step")

    def open(self, unit, gradients=False, overwritten=False):
        """Gathers a unit for a `with` block: its weights, read-only, and with `gradients` the memory
        to which the backward pass adds; `overwritten`: it writes every element instead. The end of
        the block reports the gradients as complete. Collective in stage 3."""
        return _OpenUnit(self, unit, gradients, overwritten)

    def skip(self, unit):
        """For a rank that does not use a unit, where the others open it."""
        self._call("zero_skip", unit)

    def note_unused(self, unit, parameter):
        """With leave_unused: nothing is added to this gradient in this micro-step."""
        self._call("zero_note_unused", unit, self._number(parameter))

    def loss_scale(self):
        """The factor of the loss, inside a step: 1 unless the dtype is float16."""
        scale = ctypes.c_float()
        self._call("zero_loss_scale", ctypes.byref(scale))
        return scale.value

    def step(self, learning_rate, update=None):
        """Ends a step: norm, clipping and update, by the optimizer of the options, or by
        update(slice) of the program for each slice that this rank owns. Collective."""
        if update is None:
            self._call("zero_step", learning_rate)
            return
        failures = []

        def call(c, _):
            try:
                update(Slice(self._model, c.contents))
                return 0
            except BaseException as failure:  # none may leave a callback
                failures.append(failure)
                return -1

        try:
            self._call("zero_step_with", learning_rate, _c.Update(call), None)
        except CallbackFailed:
            if failures:
                raise failures[0] from None
            raise

    def cancel_step(self):
        """Gives up a step, on every rank at the same point."""
        self._call("zero_cancel_step")

    # Between steps

    def report(self):
        """What the last step did: step_count, is_skipped, gradient_norm, clip_coefficient, ...
        Waits for it."""
        report = _c.Report()
        self._call("zero_last_report", ctypes.byref(report))
        return _members(report)

    def group_norms(self):
        """The gradient norm of each group in the last step, with the option group_norms. Waits."""
        norms = (ctypes.c_double * max(1, self._model.options.group_count))()
        self._call("zero_last_group_norms", norms, len(norms))
        return list(norms)

    def step_count(self):
        """The number of steps that were not skipped. Waits."""
        count = ctypes.c_uint64()
        self._call("zero_step_count", ctypes.byref(count))
        return count.value

    def get(self, parameter):
        """A copy of a whole parameter in float32, from its master weights. Collective."""
        number = self._number(parameter)
        values = np.empty(self._model.parameters[number].shape, np.float32)
        self._call("zero_get_parameter", number, _floats(values), values.size)
        return values

    def set(self, parameter, values):
        """Sets a whole parameter on every rank to the values of rank 0. Collective."""
        number = self._number(parameter)
        values = np.ascontiguousarray(values, np.float32)
        self._call("zero_set_parameter", number, _floats(values), values.size)

    def gather(self):
        """A copy of all parameters, one after the other. Collective."""
        block = np.empty(sum(p.elements for p in self._model.parameters), self._model.dtype)
        self._call("zero_gather", block.ctypes.data, block.size)
        return block

    def set_learning_rate_factor(self, group, factor):
        """Multiplies the learning rate of a group. Equal on all ranks."""
        self._call("zero_set_learning_rate_factor", group, factor)

    def save(self, directory, position):
        """Saves the training state into a new checkpoint below `directory`, for any stage and
        number of ranks. position: a number of the program's own, which load() returns. Collective.
        """
        self._call("zero_save", str(directory).encode(), position)

    def load(self, directory):
        """Loads the last checkpoint below `directory`; returns its position. Collective."""
        position = ctypes.c_uint64()
        self._call("zero_load", str(directory).encode(), ctypes.byref(position))
        return position.value

    def memory(self):
        """The bytes of this rank by kind, equal to what was allocated."""
        memory = _c.Memory()
        self._call("zero_memory_of", ctypes.byref(memory))
        return _members(memory)

    @property
    def is_broken(self):
        """Whether a failure left the engine unable to go on."""
        return bool(_c.C.zero_is_broken(self._open_handle()))


class _OpenUnit:
    def __init__(self, engine, unit, has_gradients, is_overwritten):
        self._engine, self._unit = engine, unit
        self._has_gradients, self._is_overwritten = has_gradients, is_overwritten

    def __enter__(self):
        engine, unit = self._engine, self._unit
        engine._call("zero_acquire", unit)
        try:
            if self._has_gradients:
                engine._call("zero_gradients", unit, self._is_overwritten)
            weights, gradients = {}, {}
            for p in engine._units[unit]:
                place = engine._open_handle(), unit, engine._numbers[p.name]
                weights[p.name] = engine._view(_c.C.zero_weight(*place), p, False)
                if self._has_gradients and not p.frozen:
                    gradients[p.name] = engine._view(_c.C.zero_gradient(*place), p, True)
        except BaseException:
            _c.C.zero_release(engine._handle, unit)
            raise
        self._arrays = Unit(weights, gradients)
        return self._arrays

    def __exit__(self, kind, *_):
        self._arrays.weights, self._arrays.gradients = {}, {}
        if self._has_gradients and kind is None:
            self._engine._call("zero_gradients_ready", self._unit)
        if kind is None:
            self._engine._call("zero_release", self._unit)
        else:
            _c.C.zero_release(self._engine._handle, self._unit)


def has_checkpoint(directory):
    """Whether there is a complete checkpoint below `directory`, which need not exist."""
    found = ctypes.c_int()
    _check(_c.C.zero_has_checkpoint(str(directory).encode(), ctypes.byref(found)))
    return bool(found.value)
