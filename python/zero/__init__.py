"""zero from Python: data-parallel training with ZeRO stages 0 to 3, on numpy arrays.

Ranks are threads (run_ranks) or processes (run_mpi). An Engine holds a rank's share of the model,
gradients and optimizer states. docs/guides/python.md shows a program.
"""

import collections
import copy
import ctypes
import difflib
import inspect
import operator
import re
import signal
import threading
import types
import warnings
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


# What messages call functions that Python has no method for.
_NAMES_HERE = {"gradients_ready()": "the end of the block of open(gradients=True)",
               "gradients()": "open(gradients=True)", "gradient()": "open(gradients=True)",
               "acquire()": "open()", "release()": "the end of the block of open()",
               "mpi::Options::time_out": "time_out"}


def _last_error():
    text = _c.C.zero_last_error().decode(errors="replace")
    text = re.sub(r"\b(?:zero_(?=\w+\(\))|options\.)", "", text)
    for name, name_here in _NAMES_HERE.items():
        text = re.sub(r"(?<!\w)" + re.escape(name), name_here, text)
    return text


def _check(status):
    if _is_interrupted.is_set() and threading.current_thread() is not threading.main_thread():
        raise KeyboardInterrupt
    if status:
        raise _ERRORS[status](_last_error())


def _whole(value, what):
    """A number from 0, for a type of C that would wrap others."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 63:
        raise InvalidArgument(f"zero: {what} is {value!r}, and must be a whole number from 0")
    return number


class _Unique:
    """An object that stands for one of the library's, and cannot be copied."""

    def __reduce_ex__(self, protocol):
        raise TypeError(f"zero: {type(self).__name__} cannot be copied or pickled")


# ---- Ranks ----


class Communicator(_Unique):
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

    def __repr__(self):
        return f"<rank {self.rank} of {self.world}>"

    def sum(self, values):
        """The sums of numbers over the ranks, added in float32 in the order of ranks: a float for a
        number, otherwise an array. Collective."""
        values = np.asarray(values)
        if values.dtype.kind not in "biuf":
            raise InvalidArgument(f"zero: sum() takes numbers, not {values.dtype}")
        sums = np.array(values, dtype=np.float32, order="C")
        if values.dtype.kind in "iu" and (sums.astype(values.dtype) != values).any():
            raise InvalidArgument("zero: sum() adds in float32, which has no integer like "
                                  f"{values.max()}; divide it first")
        _check(_c.C.zero_sum(self._handle, _floats(sums), sums.size))
        return sums if sums.ndim else float(sums)

    def _end(self, is_failed):
        for engine in list(self._engines):
            if engine._has_views():  # the memory stays for good, rather than break under an array
                engine._handle, engine._is_closed = None, True
                if not is_failed:
                    warnings.warn(f"zero: an array of the memory of {engine!r} is kept after its "
                                  "rank has ended. It shows whatever lay there last; copy the "
                                  "arrays that you keep.", RuntimeWarning, stacklevel=2)
            else:
                engine._destroy()
        self._handle = None


def _fail(failure):
    """The status of a callback, whose message is that of an exception. Throws nothing."""
    try:
        text = str(failure) if isinstance(failure, Error) else f"{type(failure).__name__}: {failure}"
    except Exception:
        text = type(failure).__name__
    return _c.C.zero_fail(text.encode(errors="replace"))


def _run(start, body):
    """Calls `start(callback)`. Returns what the body returned on each rank that ran here, or raises
    the first exception that is not a consequence of another rank's."""
    results, failures = {}, {}

    def run_rank(handle, _):
        communicator = Communicator(handle)
        rank = communicator.rank
        try:
            results[rank] = body(communicator)
            if inspect.isgenerator(results[rank]) or inspect.iscoroutine(results[rank]):
                raise TypeError("zero: the body is a generator or a coroutine, which did not run")
            return 0
        except BaseException as failure:  # none may leave a callback
            failures[rank] = failure
            if isinstance(failure, Aborted):
                return failure.status  # after a call of this thread that failed so
            return _fail(failure)
        finally:
            communicator._end(rank in failures)

    status = start(_c.Body(run_rank))
    causes = sorted(failures.items(), key=lambda item: (isinstance(item[1], Aborted), item[0]))
    if causes:
        raise causes[0][1]
    _check(status)
    return results


def _checked(body, time_out):
    if not callable(body):
        raise InvalidArgument(f"zero: the body is {body!r}, and must be a function of one rank")
    return float(time_out)


def run_ranks(world, body, time_out=0.0):
    """Runs body(communicator) as `world` ranks, each in a thread; returns the list of results.

    time_out: seconds that a rank waits for its peers in one call; 0: 30 minutes.
    An exception of one rank ends the others with Aborted, and is raised here. Ctrl-C ends all.
    """
    world, time_out = _whole(world, "the number of ranks"), _checked(body, time_out)
    outcome, is_done = {}, threading.Event()

    def start(callback):
        def call():
            outcome["status"] = _c.C.zero_run_ranks(world, time_out, callback, None)
            outcome["text"] = _last_error()
            is_done.set()

        interrupts = []

        def interrupt(number, frame):  # raises nothing, wherever this thread is
            interrupts.append(number)
            _is_interrupted.set()  # the next call of each rank raises

        handler = signal.getsignal(signal.SIGINT)
        is_handled = (callable(handler)
                      and threading.current_thread() is threading.main_thread())
        if is_handled:
            signal.signal(signal.SIGINT, interrupt)
        try:
            threading.Thread(target=call).start()
            while not is_done.wait(0.2):  # again, for a signal that another thread took
                pass
        finally:
            if is_handled:
                signal.signal(signal.SIGINT, handler)
            _is_interrupted.clear()
        if interrupts:
            handler(interrupts[0], None)
            raise KeyboardInterrupt
        if outcome["status"]:  # the text belongs to that thread
            _c.C.zero_fail(outcome["text"].encode())
        return outcome["status"]

    results = _run(start, body)
    return [results[rank] for rank in range(world)]


def run_mpi(body, time_out=0.0):
    """Runs body(communicator) as one of the processes that mpirun or srun started; returns its
    result. Once a process, unless the program has begun MPI itself (import mpi4py.MPI does)."""
    time_out = _checked(body, time_out)
    results = _run(lambda callback: _c.C.zero_run_mpi(time_out, callback, None), body)
    return next(iter(results.values()))


# ---- Arrays ----


def _dtype(name):
    if not isinstance(name, str):
        name = np.dtype(name).name
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


def _memory_of(array, what, parameter_dtype, shape, is_written=False):
    """The address of a caller's array. It must be one block of the engine's type."""
    if not isinstance(array, np.ndarray) or array.dtype != parameter_dtype:
        raise InvalidArgument(f"zero: {what} is not an array of {parameter_dtype}; make one with "
                              f"numpy.asarray(..., dtype={str(parameter_dtype)!r})")
    if array.shape != shape:
        raise InvalidArgument(f"zero: {what} has the shape {array.shape}, and its parameter "
                              f"{shape}")
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

    def __init__(self, name, shape, unit=None, *, units=None, group=0, frozen=False, data=None,
                 gradient=None):
        if not isinstance(name, str) or "\0" in name:
            raise InvalidArgument(f"zero: the name of a parameter is a text, not {name!r}")
        if unit is not None and units is not None:
            raise InvalidArgument(f"zero: '{name}' has 'unit' and 'units'; give one of the two")
        self.name = name
        try:
            extents = tuple(shape)
        except TypeError:
            extents = (shape,)
        self.shape = tuple(_whole(extent, f"an extent of '{name}'") for extent in extents)
        self.units = [_whole(each, f"a unit of '{name}'")
                      for each in (units if units is not None else [unit or 0])]
        self.group = _whole(group, f"the group of '{name}'")
        self.frozen, self.data, self.gradient = bool(frozen), data, gradient
        self.elements = 1
        for extent in self.shape:
            self.elements = _whole(self.elements * extent, f"the size of '{name}'")

    def __repr__(self):
        return f"<parameter '{self.name}' {self.shape}>"


class _Model:
    """The parameters and options in the form of zero_c.h, and what they point to."""

    def __init__(self, parameters, options):
        self.parameters = [copy.copy(p) for p in parameters] # nobody changes them
        for p in self.parameters:
            if not isinstance(p, Parameter):
                raise InvalidArgument(f"zero: the model is a list of zero.Parameter, and has {p!r}")
        self.options = self._translate(dict(options))
        self.list = (_c.Parameter * max(1, len(self.parameters)))()
        for number, (p, c) in enumerate(zip(self.parameters, self.list)):
            units = (ctypes.c_size_t * len(p.units))(*p.units)
            data = gradient = None
            if p.data is not None:
                data = _memory_of(p.data, f"the data of '{p.name}'", self.dtype, p.shape)
            if p.gradient is not None:
                gradient = _memory_of(p.gradient, f"the gradient of '{p.name}'", self.dtype,
                                      p.shape, is_written=True)
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
                value = value.lower() if isinstance(value, str) else value
                if value not in values:
                    raise InvalidArgument(f"zero: {name} {value!r} is none of {', '.join(values)}")
                setattr(options, name, values.index(value))
        self.block = given.pop("block", None)
        if self.block is not None:
            options.block = _memory_of(self.block, "block", self.dtype, (self.block.size,), True)
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


_GROUP_MEMBERS = {name: kind for name, kind in _c.Group._fields_ if name != "reserved"}
_OPTIONS = {name: kind for name, kind in _c.Options._fields_
            if name not in ("size", "group", "group_count", "block_elements", "groups", "block")}
_OTHER_NAMES = {"lr": "the rate is an argument of step()",
                "learning_rate": "the rate is an argument of step()",
                "gradient_clipping": "is 'clip_norm' meant?",
                "max_grad_norm": "is 'clip_norm' meant?", "betas": "set beta1 and beta2"}


def _set_members(structure, changes):
    is_group = isinstance(structure, _c.Group)
    known = _GROUP_MEMBERS if is_group else {**_OPTIONS, **_GROUP_MEMBERS}
    for name, value in changes.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = _OTHER_NAMES.get(name) or (f"is '{near[0]}' meant?" if near
                                              else "there are " + ", ".join(known))
            raise TypeError(f"zero: there is no option '{name}'; {hint}")
        if known[name] in (ctypes.c_float, ctypes.c_double):
            try:
                setattr(structure, name, float(value))
            except (TypeError, ValueError) as error:
                raise TypeError(f"zero: the option '{name}' does not take {value!r}") from error
        else:
            number = _whole(value, f"the option '{name}'")
            setattr(structure, name, number)
            if getattr(structure, name) != number:
                raise InvalidArgument(f"zero: the option '{name}' does not take {value!r}")


def plan(parameters, world, **options):
    """The bytes of rank 0 of `world` ranks, before anything is allocated."""
    model, memory = _Model(parameters, options), _c.Memory()
    _check(_c.C.zero_plan(model.list, len(model.parameters), ctypes.byref(model.options),
                          _whole(world, "the number of ranks"), ctypes.byref(memory)))
    return _members(memory)


def _members(structure):
    return types.SimpleNamespace(**{name: getattr(structure, name)
                                    for name, _ in structure._fields_})


# ---- Engine ----


class _Arrays(dict):
    """Arrays by the names of their parameters. An assignment copies into the array."""

    def __init__(self, reason):
        super().__init__()
        self.reason = reason  # why others are missing

    def __missing__(self, name):
        raise KeyError(f"zero: there is no '{name}' here: {self.reason}")

    def __setitem__(self, name, values):
        _assign(self[name], values)


def _assign(array, values):
    """Writes values into an array; `array += x` has done so already."""
    if values is array:
        return
    if np.shape(values) != array.shape:
        raise ValueError(f"zero: values of the shape {np.shape(values)} for an array of the shape "
                         f"{array.shape}")
    array[...] = values


class Unit:
    """A unit that is in use. Its arrays are views of the engine's memory until the unit is closed;
    an array that is kept longer shows another unit's numbers."""

    def __init__(self, number, has_gradients):
        self._number = number
        self._weights = _Arrays(f"unit {number} does not have it")
        self._gradients = _Arrays(
            f"unit {number} does not have it, or it is frozen" if has_gradients
            else f"open unit {number} with gradients=True")

    weights = property(lambda self: self._weights, doc="Read-only arrays by name.")
    gradients = property(lambda self: self._gradients, doc="Arrays by name.")

    def __repr__(self):
        return f"<unit {self._number}: {', '.join(self._weights)}>"

    def _close(self):
        for arrays in (self._weights, self._gradients):
            arrays.clear()
            arrays.reason = f"the block of unit {self._number} has ended"


class Slice:
    """A slice of one parameter that this rank updates: parameter (its name), begin (its first
    element), weights, gradients and states (float32 views inside the call), learning_rate, group.
    """

    def __init__(self, engine, c):
        def view(pointer):
            address = ctypes.cast(pointer, ctypes.c_void_p).value
            return engine._view(address, (c.elements,), np.dtype(np.float32), True)

        self.parameter = engine._model.parameters[c.parameter].name
        self.begin, self.group, self.learning_rate = c.begin, c.group, c.learning_rate
        self._weights, self._gradients = view(c.weights), view(c.gradients)
        self.states = tuple(view(state) for state in c.states if state)

    weights = property(lambda self: self._weights,
                       lambda self, values: _assign(self._weights, values))
    gradients = property(lambda self: self._gradients)


class Engine(_Unique):
    """A rank's share of a model, its gradients and its optimizer states. Collective.

    Options are those of zero_options and zero_group in zero_c.h by name: stage, dtype ("float32",
    "bfloat16", "float16"), optimizer ("adamw", "sgd"), clip_norm, weight_decay, ...; groups is a
    list of dictionaries of what differs from the options of all.
    """

    def __init__(self, communicator, parameters, **options):
        if not isinstance(communicator, Communicator):
            raise InvalidArgument(f"zero: {communicator!r} is not the communicator of a rank, which "
                                  "the body of run_ranks() or run_mpi() gets")
        self._model = _Model(parameters, options)
        self._numbers = {p.name: number for number, p in enumerate(self._model.parameters)}
        self._units = collections.defaultdict(list)
        for p in self._model.parameters:
            for unit in p.units:
                self._units[unit].append(p)
        self._views = []  # weak references to buffers that arrays show, and that keep this alive
        self._open_units = []
        self._is_updating = False
        handle = ctypes.c_void_p()
        _check(_c.C.zero_create(communicator._handle, self._model.list,
                                len(self._model.parameters), ctypes.byref(self._model.options),
                                ctypes.byref(handle)))
        self._handle = handle
        communicator._engines.add(self)

    _handle, _is_closed, _views = None, False, ()  # if the constructor fails

    def __repr__(self):
        return (f"<engine of {len(self._model.parameters)} parameters, stage "
                f"{self._model.options.stage}>")

    def close(self):
        """Ends the engine; inside a step it aborts the group. Done at the end of the body at the
        latest. While an array still shows its memory, the memory stays."""
        if not self._is_closed:
            self._usable_handle()
            if self._open_units:
                raise OutOfOrder(f"zero: close() inside the block of unit {self._open_units[-1]}")
        self._is_closed = True
        if not self._has_views():
            self._destroy()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _has_views(self):
        return any(view() is not None for view in self._views)

    def _destroy(self):
        handle, self._handle = self._handle, None
        self._is_closed = True
        if handle is not None:
            _c.C.zero_destroy(handle)

    __del__ = _destroy

    def _call(self, function, *arguments):
        _check(getattr(_c.C, function)(self._usable_handle(), *arguments))

    def _usable_handle(self):
        if self._is_closed:
            raise OutOfOrder("zero: the engine is closed")
        if self._is_updating:
            raise OutOfOrder("zero: the update of a step must not call its engine")
        return self._handle

    def _number(self, parameter):
        if isinstance(parameter, str):
            if parameter not in self._numbers:
                raise InvalidArgument(f"zero: there is no parameter '{parameter}'")
            return self._numbers[parameter]
        number = _whole(parameter, "the number of a parameter")
        if number >= len(self._model.parameters):
            raise InvalidArgument(f"zero: there is no parameter {number}")
        return number

    def _view(self, address, shape, dtype, is_writeable):
        """An array that shows memory of the C engine, and keeps it."""
        count = int(np.prod(shape, dtype=np.int64))
        if count == 0:
            return np.empty(shape, dtype)
        if address is None:
            raise OutOfOrder(_last_error())
        buffer = (ctypes.c_ubyte * (count * dtype.itemsize)).from_address(address)
        buffer._engine = self
        self._views = [view for view in self._views if view() is not None]
        self._views.append(weakref.ref(buffer))
        array = np.frombuffer(buffer, dtype).reshape(shape)
        array.flags.writeable = is_writeable
        return array

    # A step: begin_step(), units, step()

    def begin_step(self, micro_steps=1):
        """Begins a step of forward and backward passes, whose gradients are added."""
        self._call("zero_begin_step", _whole(micro_steps, "the number of micro-steps"))

    def next_micro_step(self):
        """Ends a micro-step and begins the next one. Collective."""
        self._call("zero_next_micro_step")

    def open(self, unit, gradients=False, overwritten=False):
        """Gathers a unit for a `with` block: its weights, read-only, and with `gradients` the memory
        to which the backward pass adds; `overwritten`: it writes every element instead. The end of
        the block reports the gradients as complete. Collective in stage 3."""
        if overwritten and not gradients:
            raise InvalidArgument("zero: open() with overwritten=True needs gradients=True")
        return _OpenUnit(self, _whole(unit, "the unit"), gradients, overwritten)

    def skip(self, unit):
        """For a rank that does not use a unit, where the others open it."""
        self._call("zero_skip", _whole(unit, "the unit"))

    def note_unused(self, unit, parameter):
        """With leave_unused: nothing is added to this gradient in this micro-step."""
        self._call("zero_note_unused", _whole(unit, "the unit"), self._number(parameter))

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
                update(Slice(self, c.contents))
                return 0
            except BaseException as failure:  # none may leave a callback
                failures.append(failure)
                return _fail(failure)

        handle, self._is_updating = self._usable_handle(), True
        try:
            _check(_c.C.zero_step_with(handle, learning_rate, _c.Update(call), None))
        except CallbackFailed:
            if failures:
                raise failures[0] from None
            raise
        finally:
            self._is_updating = False

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
        values = np.array(values, np.float32, order="C")
        if values.shape != self._model.parameters[number].shape:
            raise InvalidArgument(f"zero: set() with values of the shape {values.shape} for "
                                  f"{self._model.parameters[number]!r}")
        self._call("zero_set_parameter", number, _floats(values), values.size)

    def gather(self):
        """A copy of all parameters, one after the other. Collective."""
        block = np.empty(sum(p.elements for p in self._model.parameters), self._model.dtype)
        self._call("zero_gather", block.ctypes.data, block.size)
        return block

    def set_learning_rate_factor(self, group, factor):
        """Multiplies the learning rate of a group. Equal on all ranks."""
        self._call("zero_set_learning_rate_factor", _whole(group, "the group"), factor)

    def save(self, directory, position):
        """Saves the training state into a new checkpoint below `directory`, for any stage and
        number of ranks. position: a number of the program's own, which load() returns. Collective.
        """
        self._call("zero_save", str(directory).encode(), _whole(position, "the position"))

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
        return bool(_c.C.zero_is_broken(self._usable_handle()))


class _OpenUnit:
    def __init__(self, engine, unit, has_gradients, is_overwritten):
        self._engine, self._unit = engine, unit
        self._has_gradients, self._is_overwritten = has_gradients, is_overwritten

    def __getattr__(self, name):
        raise AttributeError(f"zero: no '{name}' yet; use `with engine.open({self._unit}) as unit:`")

    def __enter__(self):
        engine, unit = self._engine, self._unit
        engine._call("zero_acquire", unit)
        arrays = Unit(unit, self._has_gradients)
        try:
            if self._has_gradients:
                engine._call("zero_gradients", unit, self._is_overwritten)
            for p in engine._units[unit]:
                place = engine._usable_handle(), unit, engine._numbers[p.name]
                dict.__setitem__(arrays.weights, p.name, engine._view(
                    _c.C.zero_weight(*place), p.shape, engine._model.dtype, False))
                if self._has_gradients and not p.frozen:
                    dict.__setitem__(arrays.gradients, p.name, engine._view(
                        _c.C.zero_gradient(*place), p.shape, engine._model.dtype, True))
        except BaseException:
            arrays._close()
            _c.C.zero_release(engine._handle, unit)
            raise
        self._arrays = arrays
        engine._open_units.append(unit)
        return arrays

    def __exit__(self, kind, *_):
        self._arrays._close()
        engine = self._engine
        engine._open_units.remove(self._unit)
        if kind is not None:
            if engine._handle is not None:
                _c.C.zero_release(engine._handle, self._unit)
            return
        if self._has_gradients:
            engine._call("zero_gradients_ready", self._unit)
        engine._call("zero_release", self._unit)


def has_checkpoint(directory):
    """Whether there is a complete checkpoint below `directory`, which need not exist."""
    found = ctypes.c_int()
    _check(_c.C.zero_has_checkpoint(str(directory).encode(), ctypes.byref(found)))
    return bool(found.value)
