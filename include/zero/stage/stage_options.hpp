#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/memory_resource.hpp"
#include "../layout/storage.hpp"
#include "../policy/gradient_reduction.hpp"
#include "detail/rebuild_request.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief What a step does with infinite or NaN gradients when no loss scaler decides it.
enum class NonFinite : std::uint8_t {
    skip,       ///< change nothing
    step,       ///< update with them
    throw_error ///< change nothing; `step` waits for the decision and throws NonFiniteGradients
};

/// @brief What a trainable parameter is that got no gradient in a micro-step.
enum class UnusedParameters : std::uint8_t {
    zero, ///< its gradient is zero: moments decay, weight decay applies
    error ///< UnusedParameter is thrown at the end of the micro-step
};

/// @brief Hyper-parameters of one parameter group.
template <class Optimizer>
struct ParameterGroup {
    typename Optimizer::Options optimizer{}; ///< of this group only
    double learning_rate_factor =
        1.0; ///< times the learning rate given to `step`; finite as a float, not negative
};

/// @brief What can be chosen at run time. The engine's own, then one member for each policy
/// category that has options, then queues and memory.
template <class Config>
struct StageOptions {
    using Backend = typename Config::Backend; ///< that of the communicator

    std::optional<float> gradient_clipping{}; ///< largest global norm; positive. Off unless given
    NonFinite non_finite =
        NonFinite::skip; ///< another than `skip` only without a loss scaler that skips overflows
    UnusedParameters unused_parameters = UnusedParameters::zero; ///< what a missing gradient means
    Storage storage = Storage::owned;                            ///< whose memory parameters lie in
    std::span<typename Config::Parameter>
        adopted_block{};          ///< storage == adopted: the block that holds all parameters
    std::size_t extra_leases = 0; ///< more buckets in flight than units in order of use need; of
                                  ///< any number no more are made than are of use (`lease_count`)
    /// `Stage::in_ready_order`: at the end of the first step, make buckets anew in the order in
    /// which its gradients became ready on rank 0, and move the state to its new owners. For models
    /// whose backward pass does not go through units in reverse order. Changes no bit of any
    /// result. That `step` waits and allocates: for the moment master weights and optimizer state
    /// are there twice, and before that parameters. Pointers taken from the engine before (not
    /// handles) are void then. Not with an adopted block. A function, so that only who names it
    /// compiles it.
    void (*rebuild_buckets)(detail::RebuildRequest<Config>) = nullptr;
    std::size_t leases_until_rebuild =
        0; ///< rebuild_buckets: more gradient buckets in flight, until the buckets are made anew;
           ///< as many as are of use, too
    bool prefetch =
        true; ///< stage 3: gather the next unit of the last micro-step's order in advance
    bool poison = false; ///< fill padding, reused and released memory with NaN (for tests)

    [[no_unique_address]] typename Config::BucketerOptions
        bucketer{}; ///< of the bucketer policy; options without a member take no room
    [[no_unique_address]]
    typename Config::LossScaler::Options loss_scaler{}; ///< of the loss scaler policy
    [[no_unique_address]] typename Config::Optimizer::Options
        optimizer{}; ///< of every group; leave it out when `groups` lists them
    std::vector<ParameterGroup<typename Config::Optimizer>> groups{}; ///< all of them, or none
    GradientReductionOptions reduction{}; ///< mean or sum, schedule, predivide
    [[no_unique_address]]
    typename Config::MasterWeights::Options master_weights{}; ///< the seed of StochasticRounding

    typename Backend::Queue compute_queue =
        Backend::default_compute_queue(); ///< where the model runs; it must outlive the engine
    std::optional<typename Backend::Queue>
        communication_queue{}; ///< default: one of the engine's own; it must outlive the engine
    MemoryResource* memory = nullptr; ///< default: the backend's
};

} // namespace ZERO_NAMESPACE
