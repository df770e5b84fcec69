#include "engine.hpp"
#include "guard.hpp"

#include <zero/comm/run_ranks.hpp>
#include <zero/core/error.hpp>
#include <zero/core/version.hpp>
#include <zero/host/inline_queue.hpp>
#ifdef ZERO_C_HAS_MPI
#include <zero/mpi/session.hpp>
#endif

#ifdef ZERO_C_HAS_CHECKPOINT
#include <zero/checkpoint/checkpoint_directory.hpp>

#include <filesystem>
#endif
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

// The functions of zero_c.h, except those for errors (guard.cpp).

namespace zero_c {

namespace {

void require(bool holds, char const* text) {
    if (!holds) {
        throw zero::InvalidArgument(text);
    }
}

/// Returns the engine. @throws InvalidArgument if there is none
zero_engine& engine_at(zero_engine* engine) {
    require(engine != nullptr, "zero: the engine is null; zero_create() makes one.");
    return *engine;
}

std::span<zero_parameter const> model(zero_parameter const* parameters, std::size_t count) {
    require(parameters != nullptr || count == 0, "zero: 'parameters' is null; give the list.");
    return {parameters, count};
}

zero_options default_options() {
    zero_options options{};
    options.size = sizeof(zero_options);
    options.stage = 2;
    options.group.learning_rate_factor = 1.0;
    options.group.weight_decay = 0.01;
    options.group.beta1 = 0.9;
    options.group.beta2 = 0.999;
    options.group.epsilon = 1e-8;
    options.group.momentum = 0.9;
    options.bucket_bytes = std::size_t{25} << 20U;
    options.initial_loss_scale = 65536.0F;
    options.prefetch_elements = ZERO_ONE_UNIT;
    options.skip_norm_window = 128;
    return options;
}

/// Returns the options. Options that the program was compiled without get their defaults.
zero_options whole_options(zero_options const* options) {
    require(options != nullptr,
            "zero: 'options' is null; pass a zero_options that zero_options_init() has set.");
    require(options->size > offsetof(zero_options, keep_units)
                && options->size <= sizeof(zero_options),
            "zero: 'options' was not set by zero_options_init(), or the program was compiled with "
            "zero_c.h of a later version.");
    zero_options whole = default_options();
    std::memcpy(&whole, options, options->size);
    return whole;
}

EngineType const& engine_type_of(zero_options const* options) {
    require(options->optimizer == ZERO_ADAMW || options->optimizer == ZERO_SGD,
            "zero: options.optimizer is neither ZERO_ADAMW nor ZERO_SGD.");
    bool const is_adamw = options->optimizer == ZERO_ADAMW;
    switch (options->dtype) {
    case ZERO_FLOAT: return is_adamw ? float_adamw : float_sgd;
    case ZERO_BFLOAT16: return is_adamw ? bfloat16_adamw : bfloat16_sgd;
    case ZERO_FLOAT16: return is_adamw ? float16_adamw : float16_sgd;
    }
    throw zero::InvalidArgument(
        "zero: options.dtype is none of ZERO_FLOAT, ZERO_BFLOAT16 and ZERO_FLOAT16.");
}

/// Runs a call of a rank. Keeps the first failure of its group. If the program ignored that
/// failure, a later call that is out of order throws it again.
template <class Body>
void keeping(FirstFailure const& first, Body&& body) {
    auto const keep = [&] {
        if (*first == nullptr) {
            *first = std::current_exception();
        }
    };
    try {
        body();
    } catch (zero::OutOfOrder const&) {
        if (*first != nullptr) {
            std::rethrow_exception(*first);
        }
        throw;
    } catch (zero::CommunicatorError const&) {
        keep();
        throw;
    } catch (zero::BrokenEngine const&) {
        keep();
        throw;
    } catch (CallbackFailed const& error) {
        if (error.status() == ZERO_CALLBACK) { // an update failed half-way
            keep();
        }
        throw;
    }
}

/// Calls a member of the engine.
template <class Body>
zero_status on(zero_engine* engine, Body&& body) noexcept {
    return guarded([&] {
        zero_engine& checked = engine_at(engine);
        keeping(checked.failure, [&] { body(checked); });
    });
}

/// Returns the communicator. @throws InvalidArgument if there is none
zero_communicator& communicator_at(zero_communicator* communicator) {
    require(communicator != nullptr, "zero: the communicator is null.");
    return *communicator;
}

/// Returns the options of a group. @throws InvalidArgument
template <class Options>
Options group_options(std::string const& function, double time_out, zero_rank_body body) {
    if (body == nullptr) {
        throw zero::InvalidArgument("zero: the body of " + function + " is null.");
    }
    if (!std::isfinite(time_out) || time_out < 0.0 || time_out >= 1e9) {
        throw zero::InvalidArgument("zero: the time-out of " + function
                                    + " is not a number of seconds; 0 is the default of 30 "
                                      "minutes.");
    }
    Options options;
    if (time_out > 0.0) {
        options.time_out = std::chrono::milliseconds(
            static_cast<std::chrono::milliseconds::rep>(std::ceil(time_out * 1000.0)));
    }
    return options;
}

/// Runs the body of a rank. @throws the failure that its status stands for
void run_body(Communicator::Inner inner, zero_rank_body body, void* user) {
    zero_communicator communicator{Communicator(inner)};
    int const status = body(&communicator, user);
    if (status == 0) {
        if (*communicator.failure != nullptr) { // the program ignored it
            std::rethrow_exception(*communicator.failure);
        }
        return;
    }
    // The status of a call that failed has a message; other numbers are the program's.
    bool const is_status = status > ZERO_OK && status <= ZERO_FAILED;
    std::string const message = zero_last_error();
    if (is_status && !message.empty()) {
        if (status == ZERO_ABORTED) { // a consequence of another rank's failure
            throw zero::Aborted(message);
        }
        throw CallbackFailed(static_cast<zero_status>(status), message);
    }
    throw CallbackFailed(ZERO_CALLBACK, "zero: the body of rank "
                                            + std::to_string(communicator.inner.rank())
                                            + " returned " + std::to_string(status));
}

char const* directory_at(char const* directory) {
    require(directory != nullptr, "zero: 'directory' is null.");
    require(*directory != 0, "zero: 'directory' is empty; name the folder of the checkpoints, "
                             "\".\" for the current one.");
    return directory;
}

} // namespace

} // namespace zero_c

using zero_c::guarded;
using zero_c::on;

char const* zero_version(void) {
    static std::string const text = std::to_string(zero::version_major) + "."
                                    + std::to_string(zero::version_minor) + "."
                                    + std::to_string(zero::version_patch); // too short for the heap
    return text.c_str();
}

zero_status zero_run_ranks(int world, double time_out, zero_rank_body body, void* user) {
    return guarded([&] {
        zero::LoopbackOptions const options =
            zero_c::group_options<zero::LoopbackOptions>("zero_run_ranks()", time_out, body);
        zero::run_ranks(world, options, [&](zero::LoopbackCommunicator& inner) {
            zero_c::run_body(&inner, body, user);
        });
    });
}

zero_status zero_run_mpi(double time_out, zero_rank_body body, void* user) {
    return guarded([&] {
#ifdef ZERO_C_HAS_MPI
        auto const options =
            zero_c::group_options<zero::mpi::Options>("zero_run_mpi()", time_out, body);
        int is_initialised = 0;
        int is_finalised = 0;
        MPI_Initialized(&is_initialised);
        MPI_Finalized(&is_finalised);
        zero_c::require(
            is_finalised == 0,
            "zero: MPI has ended, and a process cannot begin it again; call MPI_Init_thread "
            "before the first zero_run_mpi() to call it more than once.");
        // Destroyed while no exception is in flight, because it would call MPI_Abort otherwise.
        auto session = is_initialised == 0 ? std::make_unique<zero::mpi::Session>() : nullptr;
        try {
            zero::mpi::Communicator inner(MPI_COMM_WORLD, options);
            zero::run_rank(
                inner, [&](zero::mpi::Communicator& rank) { zero_c::run_body(&rank, body, user); });
        } catch (...) {
            std::exception_ptr const failure = std::current_exception();
            if (zero::mpi::detail::Peers::process_must_abort().load()) {
                (void)session.release(); // MPI_Finalize might wait for ever
            }
            session.reset();
            std::rethrow_exception(failure);
        }
#else
        (void)time_out, (void)body, (void)user;
        throw zero_c::CallbackFailed(ZERO_UNSUPPORTED,
                                     "zero: this library was built without MPI; build it where "
                                     "CMake finds MPI, with ZERO_MPI=ON.");
#endif
    });
}

int zero_rank(zero_communicator const* communicator) {
    return communicator == nullptr ? -1 : communicator->inner.rank();
}

int zero_world(zero_communicator const* communicator) {
    return communicator == nullptr ? -1 : communicator->inner.size();
}

zero_status zero_sum(zero_communicator* communicator, float* values, size_t count) {
    return guarded([&] {
        zero_communicator& checked = zero_c::communicator_at(communicator);
        zero_c::require(values != nullptr || count == 0, "zero: the values of zero_sum() are "
                                                         "null.");
        auto& inner = checked.inner;
        auto const world = static_cast<std::size_t>(inner.size());
        std::vector<std::size_t> cuts(world + 1);
        for (std::size_t rank = 0; rank <= world; ++rank) {
            cuts[rank] = count / world * rank + std::min(count % world, rank);
        }
        zero::host::InlineQueue queue;
        zero_c::keeping(checked.failure, [&] {
            inner.all_reduce(static_cast<float const*>(values), values, cuts, &queue,
                             {"zero_sum(), sum", 0, "", "a call that every rank must make"});
        });
    });
}

void zero_options_init(zero_options* options, size_t size) {
    if (options == nullptr || size < sizeof(options->size)) {
        return;
    }
    zero_options const defaults = zero_c::default_options();
    std::memset(static_cast<void*>(options), 0, size);
    std::memcpy(options, &defaults, std::min(size, sizeof defaults));
    options->size = size;
}

zero_status zero_create(zero_communicator* communicator, zero_parameter const* parameters,
                        size_t count, zero_options const* options, zero_engine** engine) {
    return guarded([&] {
        zero_c::require(engine != nullptr, "zero: 'engine' is null; give the address of a "
                                           "zero_engine*.");
        *engine = nullptr;
        zero_communicator& checked = zero_c::communicator_at(communicator);
        zero_options const whole = zero_c::whole_options(options);
        auto const& type = zero_c::engine_type_of(&whole);
        zero_c::keeping(checked.failure, [&] {
            *engine = type.make(checked, zero_c::model(parameters, count), whole).release();
        });
        (*engine)->failure = checked.failure;
    });
}

void zero_destroy(zero_engine* engine) {
    delete engine;
}

int zero_is_broken(zero_engine const* engine) {
    return engine == nullptr || engine->is_broken() ? 1 : 0;
}

zero_status zero_begin_step(zero_engine* engine, size_t micro_steps) {
    return on(engine, [&](zero_engine& e) { e.begin_step(micro_steps); });
}

zero_status zero_next_micro_step(zero_engine* engine) {
    return on(engine, [](zero_engine& e) { e.next_micro_step(); });
}

zero_status zero_acquire(zero_engine* engine, size_t unit) {
    return on(engine, [&](zero_engine& e) { e.acquire(unit); });
}

zero_status zero_release(zero_engine* engine, size_t unit) {
    return on(engine, [&](zero_engine& e) { e.release(unit); });
}

zero_status zero_skip(zero_engine* engine, size_t unit) {
    return on(engine, [&](zero_engine& e) { e.skip(unit); });
}

zero_status zero_open(zero_engine* engine, size_t unit, float** weights, float** gradients) {
    return on(engine, [&](zero_engine& e) {
        zero_c::require(weights != nullptr, "zero: the table of weights is null.");
        e.open(unit, weights, gradients);
    });
}

zero_status zero_close(zero_engine* engine, size_t unit) {
    return on(engine, [&](zero_engine& e) { e.close(unit); });
}

void const* zero_weight(zero_engine* engine, size_t unit, size_t parameter) {
    void const* address = nullptr;
    static_cast<void>(on(engine, [&](zero_engine& e) { address = e.weight(unit, parameter); }));
    return address;
}

zero_status zero_gradients(zero_engine* engine, size_t unit, int is_overwritten) {
    return on(engine, [&](zero_engine& e) { e.gradients(unit, is_overwritten == 0); });
}

void* zero_gradient(zero_engine* engine, size_t unit, size_t parameter) {
    void* address = nullptr;
    static_cast<void>(on(engine, [&](zero_engine& e) { address = e.gradient(unit, parameter); }));
    return address;
}

zero_status zero_note_unused(zero_engine* engine, size_t unit, size_t parameter) {
    return on(engine, [&](zero_engine& e) { e.note_unused(unit, parameter); });
}

zero_status zero_gradients_ready(zero_engine* engine, size_t unit) {
    return on(engine, [&](zero_engine& e) { e.gradients_ready(unit); });
}

zero_status zero_loss_scale(zero_engine* engine, float* scale) {
    return on(engine, [&](zero_engine& e) {
        zero_c::require(scale != nullptr, "zero: 'scale' is null.");
        *scale = e.loss_scale();
    });
}

zero_status zero_step(zero_engine* engine, double learning_rate) {
    return on(engine, [&](zero_engine& e) { e.step(learning_rate); });
}

zero_status zero_step_with(zero_engine* engine, double learning_rate, zero_update update,
                           void* user) {
    return on(engine, [&](zero_engine& e) {
        zero_c::require(update != nullptr, "zero: 'update' is null; zero_step() updates with the "
                                           "optimizer of the options.");
        e.step_with(learning_rate, update, user);
    });
}

zero_status zero_cancel_step(zero_engine* engine) {
    return on(engine, [](zero_engine& e) { e.cancel_step(); });
}

zero_status zero_step_count(zero_engine* engine, uint64_t* count) {
    return on(engine, [&](zero_engine& e) {
        zero_c::require(count != nullptr, "zero: 'count' is null.");
        *count = e.step_count();
    });
}

zero_status zero_last_report(zero_engine* engine, zero_report* report) {
    return on(engine, [&](zero_engine& e) {
        zero_c::require(report != nullptr, "zero: 'report' is null.");
        *report = e.last_report();
    });
}

zero_status zero_last_group_norms(zero_engine* engine, double* norms, size_t groups) {
    return on(engine, [&](zero_engine& e) {
        zero_c::require(norms != nullptr || groups == 0, "zero: 'norms' is null.");
        e.last_group_norms({norms, groups});
    });
}

zero_status zero_get_parameter(zero_engine* engine, size_t parameter, float* values,
                               size_t elements) {
    return on(engine, [&](zero_engine& e) {
        zero_c::require(values != nullptr || elements == 0, "zero: 'values' is null.");
        e.get_parameter(parameter, {values, elements});
    });
}

zero_status zero_set_parameter(zero_engine* engine, size_t parameter, float const* values,
                               size_t elements) {
    return on(engine, [&](zero_engine& e) {
        zero_c::require(values != nullptr || elements == 0, "zero: 'values' is null.");
        e.set_parameter(parameter, {values, elements});
    });
}

zero_status zero_gather(zero_engine* engine, void* block, size_t elements) {
    return on(engine, [&](zero_engine& e) {
        zero_c::require(block != nullptr || elements == 0, "zero: 'block' is null.");
        e.gather(block, elements);
    });
}

zero_status zero_set_learning_rate_factor(zero_engine* engine, size_t group, double factor) {
    return on(engine, [&](zero_engine& e) { e.set_learning_rate_factor(group, factor); });
}

zero_status zero_save(zero_engine* engine, char const* directory, uint64_t position) {
    return on(engine, [&](zero_engine& e) { e.save(zero_c::directory_at(directory), position); });
}

zero_status zero_load(zero_engine* engine, char const* directory, uint64_t* position) {
    return on(engine, [&](zero_engine& e) { e.load(zero_c::directory_at(directory), position); });
}

zero_status zero_has_checkpoint(char const* directory, int* has_checkpoint) {
    return guarded([&] {
        zero_c::require(has_checkpoint != nullptr, "zero: 'has_checkpoint' is null.");
        zero_c::directory_at(directory);
#ifdef ZERO_C_HAS_CHECKPOINT
        bool const is_there = std::filesystem::is_directory(directory);
        *has_checkpoint =
            is_there && zero::CheckpointDirectory(directory).latest().has_value() ? 1 : 0;
#else
        *has_checkpoint = 0;
#endif
    });
}

zero_status zero_memory_of(zero_engine const* engine, zero_memory* memory) {
    return guarded([&] {
        zero_c::require(engine != nullptr, "zero: the engine is null; zero_create() makes one.");
        zero_c::require(memory != nullptr, "zero: 'memory' is null.");
        *memory = engine->memory();
    });
}

zero_status zero_plan(zero_parameter const* parameters, size_t count, zero_options const* options,
                      int world, zero_memory* memory) {
    return guarded([&] {
        zero_options const whole = zero_c::whole_options(options);
        auto const& type = zero_c::engine_type_of(&whole);
        zero_c::require(memory != nullptr, "zero: 'memory' is null.");
        zero_c::require(world > 0, "zero: 'world' is not positive; it is the number of ranks.");
        zero_c::require(whole.stage >= 0 && whole.stage <= 3,
                        "zero: options.stage is none of 0, 1, 2 and 3.");
        zero_c::require(whole.block == nullptr,
                        "zero: zero_plan() plans engines that allocate the parameters; with "
                        "options.block ask zero_memory_of() after zero_create().");
        *memory = type.plan(zero_c::model(parameters, count), whole, world);
    });
}
