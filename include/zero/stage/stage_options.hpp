#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/shared_function.hpp"
#include "../core/memory_resource.hpp"
#include "../layout/gather_options.hpp"
#include "../layout/storage.hpp"
#include "../policy/gradient_reduction.hpp"
#include "current_memory.hpp"
#include "detail/block_span.hpp"
#include "detail/rebuild_request.hpp"
#include "non_finite.hpp"
#include "parameter_group.hpp"
#include "report_options.hpp"
#include "unused_parameters.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The options of a stage that are chosen at run time: first the engine's own, then one
/// member for each policy category that has options, then queues and memory.
template <class Config>
struct StageOptions {
    using Backend = typename Config::Backend; ///< the communicator's backend

    std::optional<float> gradient_clipping{}; ///< largest global norm; positive. Off unless given
    NonFinite non_finite = NonFinite::skip;   ///< must be `skip` if the loss scaler skips overflows
    std::size_t skip_limit = 100; ///< once this many steps in a row were skipped, every further
                                  ///< step is skipped as well, and the second `begin_step` after
                                  ///< them throws TooManySkips on every rank; 0: no limit
    /// Called by `begin_step` with a sentence about the last step but one, if that step was skipped
    /// and the one before it was not. With a callback each `begin_step` waits for that step. May be
    /// absent on some ranks.
    detail::SharedFunction<void, std::string const&> on_skip{};
    ReportOptions report{}; ///< further figures in every `StepReport`
    UnusedParameters unused_parameters = UnusedParameters::zero; ///< meaning of a missing gradient
    Storage storage = Storage::owned; ///< the memory in which parameters lie, and its owner
    detail::BlockSpan<typename Config::Parameter>
        adopted_block{}; ///< storage == adopted: the block that holds all parameters
    /// Whether `step` may return while commands that use memory of the caller are still pending:
    /// parameters in it, and gradients that were registered or handed over. That memory must then
    /// live until the ticket's `wait`. By default `step` and `cancel_step` wait for such commands
    /// on a host backend. Engines that use none, and devices, never wait.
    bool asynchronous = false;
    /// `begin_step` asks it for the memory of every parameter and throws InvalidArgument if a
    /// pointer or size differs from the registration. For trainers whose framework may replace
    /// memory. May be absent on some ranks.
    CurrentMemoryOf current_memory{};
    std::vector<std::string> unit_names{}; ///< names for messages and `describe_memory`: one for
                                           ///< each unit, or none
    char const* backward_call = nullptr;   ///< the call by which an adapter reports gradients, for
                                           ///< messages: "backward(loss) of X"; null:
                                           ///< gradients_ready(). A text that lives as long
    std::size_t extra_leases = 0; ///< spare places, as large as the largest buckets, for unit
                                  ///< orders other than the layout's; capped at the number of
                                  ///< buckets, with which every order works (`LeasePlan`)
    /// `Stage::in_ready_order`: at the end of the first step, rebuilds the buckets in the order in
    /// which gradients became ready on rank 0, and moves the state to its new owners. For models
    /// whose backward pass does not visit the units in reverse order. Changes no bit of any result.
    /// That one `step` waits and allocates: for a time first the parameters, then the master
    /// weights and optimizer state, exist twice. It invalidates pointers taken from the engine, but
    /// no handles. Not allowed with an adopted block. It is a function pointer so that programs
    /// that do not use it do not pay for its compilation.
    void (*rebuild_buckets)(detail::RebuildRequest<Config>) = nullptr;
    std::size_t leases_until_rebuild = 0; ///< rebuild_buckets: further spare places for gradients
                                          ///< until the buckets are rebuilt; capped likewise
    GatherOptions gather{}; ///< stage 3: units gathered in advance, kept units, and limits
    std::size_t update_tile_elements = 0; ///< stages 0 and 3, and one rank: most elements that one
                                          ///< command updates, if no slice has more; 0: all
    bool poison = false; ///< fill padding, reused and released memory with NaN (for tests)

    [[no_unique_address]] typename Config::BucketerOptions
        bucketer{}; ///< options of the bucketer policy; empty ones occupy no space
    [[no_unique_address]]
    typename Config::LossScaler::Options loss_scaler{}; ///< options of the loss scaler policy
    [[no_unique_address]] typename Config::Optimizer::Options
        optimizer{}; ///< hyper-parameters of every group; leave them out when `groups` lists them
    std::vector<ParameterGroup<typename Config::Optimizer>> groups{}; ///< all of them, or none
    GradientReductionOptions reduction{}; ///< mean or sum, schedule, predivide
    [[no_unique_address]]
    typename Config::MasterWeights::Options master_weights{}; ///< the seed of StochasticRounding

    typename Backend::Queue compute_queue =
        Backend::default_compute_queue(); ///< where the model runs; it must outlive the engine
    std::optional<typename Backend::Queue>
        communication_queue{}; ///< default: a queue that the engine owns, which on the host waits
                               ///< for room when it is full; a given one must outlive the engine
    MemoryResource* memory = nullptr; ///< default: the backend's

    /// @brief Returns whether a group is left out of `gradient_clipping`.
    [[nodiscard]] bool leaves_out_groups() const noexcept {
        for (auto const& group : groups) {
            if (!group.is_clipped) {
                return true;
            }
        }
        return false;
    }
};

} // namespace ZERO_NAMESPACE
