#pragma once

#include "../core/finite.hpp"
#include "../core/throw_error.hpp"
#include "../layout/memory_plan.hpp"
#include "../policy/gradient_reduction.hpp"
#include "../policy/options_hash.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace zero {

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
    double learning_rate_factor = 1.0;       ///< times the learning rate given to `step`; finite as a float, not negative
};

namespace detail {
template <class Config>
class Engine;

/// @brief What an engine hands to its option `rebuild_buckets`; nobody else makes one.
template <class Config>
class RebuildRequest {
    friend class Engine<Config>;
    explicit RebuildRequest(Engine<Config>& engine) noexcept : _engine(&engine) {}
    Engine<Config>* _engine;
};
} // namespace detail

/// @brief What can be chosen at run time. The engine's own, then one member for each policy category that has options, then queues and memory.
template <class Config>
struct StageOptions {
    using Backend = typename Config::Backend; ///< that of the communicator

    std::optional<float> gradient_clipping{};                    ///< largest global norm; positive. Off unless given
    NonFinite non_finite = NonFinite::skip;                      ///< another than `skip` only without a loss scaler that skips overflows
    UnusedParameters unused_parameters = UnusedParameters::zero; ///< what a missing gradient means
    Storage storage = Storage::owned;                            ///< whose memory parameters lie in
    std::span<typename Config::Parameter> adopted_block{};       ///< storage == adopted: the block that holds all parameters
    std::size_t extra_leases = 0;                                ///< more buckets in flight than units in order of use need; of any number no more are made than are of use (`lease_count`)
    /// `Stage::in_ready_order`: at the end of the first step, make buckets anew in the order in which its gradients became ready on rank 0, and move
    /// the state to its new owners. For models whose backward pass does not go through units in reverse order. Changes no bit of any result. That
    /// `step` waits and allocates: for the moment master weights and optimizer state are there twice, and before that parameters. Pointers taken
    /// from the engine before (not handles) are void then. Not with an adopted block. A function, so that only who names it compiles it.
    void (*rebuild_buckets)(detail::RebuildRequest<Config>) = nullptr;
    std::size_t leases_until_rebuild = 0;                  ///< rebuild_buckets: more gradient buckets in flight, until the buckets are made anew; as many as are of use, too
    bool prefetch = true;                                  ///< stage 3: gather the next unit of the last micro-step's order in advance
    bool poison = false;                                   ///< fill padding, reused and released memory with NaN (for tests)

    [[no_unique_address]] typename Config::BucketerOptions bucketer{};              ///< of the bucketer policy; options without a member take no room
    [[no_unique_address]] typename Config::LossScaler::Options loss_scaler{};       ///< of the loss scaler policy
    [[no_unique_address]] typename Config::Optimizer::Options optimizer{};          ///< of every group; leave it out when `groups` lists them
    std::vector<ParameterGroup<typename Config::Optimizer>> groups{};               ///< all of them, or none
    GradientReductionOptions reduction{};                                           ///< mean or sum, schedule, predivide
    [[no_unique_address]] typename Config::MasterWeights::Options master_weights{}; ///< the seed of StochasticRounding

    typename Backend::Queue compute_queue = Backend::default_compute_queue(); ///< where the model runs; it must outlive the engine
    std::optional<typename Backend::Queue> communication_queue{}; ///< default: one of the engine's own; it must outlive the engine
    MemoryResource* memory = nullptr;                             ///< default: the backend's
};

namespace detail {

/// Not inlined: g++ 12 then takes the value of an empty optional for read, and warns in the caller's code.
[[gnu::noinline]] inline void validate_clipping(std::optional<float> const& largest_norm) {
    if (largest_norm && (!(*largest_norm > 0.0F) || !detail::is_finite(*largest_norm))) {
        detail::throw_error<InvalidArgument>({"zero: gradient_clipping is ", *largest_norm,
                                              "; it has to be positive and finite. Leave it out to switch clipping off."});
    }
}

template <class Config>
void validate_options(StageOptions<Config> const& options, int stage) {
    validate_clipping(options.gradient_clipping);
    Config::LossScaler::validate(options.loss_scaler);
    if (Config::LossScaler::skips_overflow && options.non_finite != NonFinite::skip) {
        detail::throw_error<InvalidArgument>({"zero: non_finite would be ignored, because the loss scaler skips steps whose gradients are infinite or NaN; leave it out (at_minimum of DynamicLossScaler reports overflows that go on), or use NoLossScaler."});
    }
    Config::Optimizer::validate(options.optimizer);
    if (!options.groups.empty() && hash_of_options<typename Config::Optimizer>(options.optimizer) != hash_of_options<typename Config::Optimizer>({})) {
        detail::throw_error<InvalidArgument>({"zero: 'optimizer' would be ignored, because 'groups' lists the hyper-parameters of every group; give them there only."});
    }
    for (std::size_t group = 0; group < options.groups.size(); ++group) {
        try {
            Config::Optimizer::validate(options.groups[group].optimizer);
        } catch (InvalidArgument const& error) {
            detail::throw_error<InvalidArgument>({error.what(), " It is an option of group ", group, '.'});
        }
        double const factor = options.groups[group].learning_rate_factor;
        if (!detail::is_non_negative_float(factor)) {
            detail::throw_error<InvalidArgument>({"zero: learning_rate_factor of group ", group, " is ", factor,
                                                  "; it has to be finite as a float and not negative."});
        }
    }
    if (options.storage != Storage::owned && stage_table[static_cast<std::size_t>(stage)].shards_parameters()) {
        detail::throw_error<InvalidArgument>({"zero: stage 3 frees parameters between uses, which it can not do with the caller's memory; use Storage::owned (give initial values by 'data' or 'initialize') or a stage below 3."});
    }
    if (options.rebuild_buckets != nullptr && options.storage == Storage::adopted) {
        detail::throw_error<InvalidArgument>({"zero: rebuild_buckets would be ignored, because an adopted block is cut in the order of its addresses; leave it out, or use Storage::scattered."});
    }
    if (options.rebuild_buckets == nullptr && options.leases_until_rebuild != 0) {
        detail::throw_error<InvalidArgument>({"zero: leases_until_rebuild would be ignored without rebuild_buckets; set that, too, or use extra_leases."});
    }
    if ((options.storage == Storage::adopted) != !options.adopted_block.empty()) {
        detail::throw_error<InvalidArgument>({"zero: Storage::adopted and adopted_block go together; give both or neither."});
    }
}

} // namespace detail
} // namespace zero
