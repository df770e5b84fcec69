#pragma once

#include <zero_c.h>

#include <zero/comm/any_communicator.hpp>
#include <zero/comm/loopback.hpp>
#ifdef ZERO_C_HAS_MPI
#include <zero/mpi/communicator.hpp>
#endif

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>

namespace zero_c {

/// @brief A communicator of threads, or of processes over MPI.
#ifdef ZERO_C_HAS_MPI
using Communicator = zero::AnyCommunicator<zero::LoopbackCommunicator, zero::mpi::Communicator>;
#else
using Communicator = zero::AnyCommunicator<zero::LoopbackCommunicator>;
#endif

/// @brief The first failure of a group that a rank has seen, which no later call hides.
using FirstFailure = std::shared_ptr<std::exception_ptr>;

} // namespace zero_c

/// @brief One rank, as a C program holds it.
struct zero_communicator {
    zero_c::Communicator inner;
    zero_c::FirstFailure failure = std::make_shared<std::exception_ptr>();
};

/// @brief An engine of any type, as a C program holds it. One class for each combination of element
/// type and optimizer implements it (`typed_engine.hpp`); stages share an engine type.
struct zero_engine {
    zero_engine() = default;
    zero_engine(zero_engine const&) = delete;
    zero_engine& operator=(zero_engine const&) = delete;
    virtual ~zero_engine() = default;

    zero_c::FirstFailure failure; ///< first failure of its communicator's group

    [[nodiscard]] virtual bool is_broken() const noexcept = 0;
    virtual void begin_step(std::size_t micro_steps) = 0;
    virtual void next_micro_step() = 0;
    virtual void acquire(std::size_t unit) = 0;
    virtual void release(std::size_t unit) = 0;
    virtual void open(std::size_t unit, float** weights, float** gradients) = 0;
    virtual void close(std::size_t unit) = 0;
    virtual void skip(std::size_t unit) = 0;
    virtual void const* weight(std::size_t unit, std::size_t parameter) = 0;
    virtual void gradients(std::size_t unit, bool is_zeroed) = 0;
    virtual void* gradient(std::size_t unit, std::size_t parameter) = 0;
    virtual void note_unused(std::size_t unit, std::size_t parameter) = 0;
    virtual void gradients_ready(std::size_t unit) = 0;
    [[nodiscard]] virtual float loss_scale() = 0;
    virtual void step(double learning_rate) = 0;
    virtual void step_with(double learning_rate, zero_update update, void* user) = 0;
    virtual void cancel_step() = 0;
    [[nodiscard]] virtual zero_report last_report() = 0;
    virtual void last_group_norms(std::span<double> norms) = 0;
    [[nodiscard]] virtual std::uint64_t step_count() = 0;
    virtual void get_parameter(std::size_t parameter, std::span<float> values) = 0;
    virtual void set_parameter(std::size_t parameter, std::span<float const> values) = 0;
    virtual void gather(void* block, std::size_t elements) = 0;
    virtual void set_learning_rate_factor(std::size_t group, double factor) = 0;
    virtual void save(char const* directory, std::uint64_t position) = 0;
    virtual void load(char const* directory, std::uint64_t* position) = 0; ///< it may be null
    [[nodiscard]] virtual zero_memory memory() const = 0;
};

namespace zero_c {

/// @brief The functions of one combination of element type and optimizer.
struct EngineType {
    std::unique_ptr<zero_engine> (*make)(zero_communicator& communicator,
                                         std::span<zero_parameter const> parameters,
                                         zero_options const& options);
    zero_memory (*plan)(std::span<zero_parameter const> parameters, zero_options const& options,
                        int world);
};

extern EngineType const float_adamw, float_sgd;
extern EngineType const bfloat16_adamw, bfloat16_sgd;
extern EngineType const float16_adamw, float16_sgd;

} // namespace zero_c
