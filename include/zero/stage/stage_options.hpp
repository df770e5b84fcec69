#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/shared_function.hpp"
#include "../core/memory_resource.hpp"
#include "../core/set_by_name.hpp"
#include "../layout/gather_options.hpp"
#include "../layout/parameter_spec.hpp"
#include "../policy/gradient_reduction.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Where the caller's memory of one parameter is now, to be compared with its
/// registration.
struct CurrentMemory {
    void const* data = nullptr;     ///< address of its values; ignored if none was registered
    void const* gradient = nullptr; ///< address of its gradient; ignored if none was registered
    std::size_t elements = 0;       ///< current size of the parameter
};

/// @brief A callback `CurrentMemory(std::size_t parameter)`, or none; the argument is the
/// registration index. For `StageOptions::current_memory`.
using CurrentMemoryOf = detail::SharedFunction<CurrentMemory, std::size_t>;

template <class Config>
class Engine;

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @brief The argument of the option `rebuild_buckets`. Only an engine makes one.
template <class Config>
class RebuildRequest {
    friend class Engine<Config>;
    explicit RebuildRequest(Engine<Config>& engine) noexcept : _engine(&engine) {}
    Engine<Config>* _engine;
};

/// @brief A `std::span` that refuses a bare pointer with one sentence.
template <class T>
class BlockSpan : public std::span<T> {
public:
    // NOLINTBEGIN(google-explicit-constructor,bugprone-forwarding-reference-overload): as std::span
    constexpr BlockSpan() noexcept = default;
    constexpr BlockSpan(T* first, std::size_t elements) : std::span<T>(first, elements) {}

    template <class Range>
        requires(!std::is_pointer_v<std::remove_cvref_t<Range>>
                 && !std::is_base_of_v<BlockSpan, std::remove_cvref_t<Range>>
                 && std::is_convertible_v<Range &&, std::span<T>>)
    constexpr BlockSpan(Range&& range) : std::span<T>(std::forward<Range>(range)) {}

    template <class Pointer>
        requires(std::is_pointer_v<std::remove_cvref_t<Pointer>>)
    BlockSpan(Pointer&&) {
        static_assert(!std::is_pointer_v<std::remove_cvref_t<Pointer>>,
                      "zero: adopted_block needs the length of the block as well; write "
                      ".adopted_block = {pointer, elements}.");
    }
    // NOLINTEND(google-explicit-constructor,bugprone-forwarding-reference-overload)
};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief How a step treats infinite or NaN gradients if the loss scaler does not decide it.
enum class NonFinite : std::uint8_t {
    skip,       ///< change nothing
    step,       ///< update with them
    throw_error ///< change nothing; `step` waits for the decision and throws NonFiniteGradients
};

/// @brief Hyper-parameters of one parameter group.
template <class Optimizer>
struct ParameterGroup {
    typename Optimizer::Options optimizer{}; ///< hyper-parameters of this group only
    double learning_rate_factor = 1.0; ///< multiplies the learning rate given to `step`; finite as
                                       ///< a float, not negative
    bool is_clipped = true; ///< false: `gradient_clipping` neither counts its gradients in the norm
                            ///< nor scales them. Steps then add up the norm of each group
    std::optional<Update> update{}; ///< `Muon`: for parameters of the group without a choice of
                                    ///< their own (`Parameter::update`, `Parameter::rows`)
};

/// @brief The gradient norm above which a step is skipped: absolute, relative to a running norm, or
/// the smaller of both. Off unless `limit` or `factor` is given.
///
/// The running norm is the mean of the norms of the first `window` steps that were not skipped, and
/// limits nothing before. Each later step that is not skipped moves it by 1 / `window` of the
/// distance to its own norm. A norm that is not finite does not enter it, and a running norm of 0
/// limits nothing. It is part of a checkpoint.
struct NormLimit {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    std::optional<float> limit{};              ///< the largest norm; positive and finite
    std::optional<float> factor{}; ///< the largest multiple of the running norm; finite, above 1
    std::size_t window = 128;      ///< steps of the running norm; positive. With `factor` only

    /// @brief Returns whether there is a limit.
    [[nodiscard]] constexpr bool is_any() const noexcept {
        return limit.has_value() || factor.has_value();
    }
};

/// @brief Further figures of the reduced gradients in every `StepReport`. Off, they cost nothing.
///
/// Each one adds a pass over the gradients that this rank owns, or replaces the inspection by a
/// slightly slower one. It also adds integers to a collective that the step sends anyway. A step
/// with one of them inspects its gradients: its report has the norm and the count of non-finite
/// elements. No figure changes a bit of a result.
struct ReportOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    bool zero_gradients = false;               ///< `StepReport::zero_gradients`
    bool group_norms = false;                  ///< `StepReport::group_norms`

    /// @brief Returns whether any figure is asked for.
    [[nodiscard]] constexpr bool is_any() const noexcept { return zero_gradients || group_norms; }
};

/// @brief The meaning of a trainable parameter without a gradient.
enum class UnusedParameters : std::uint8_t {
    zero,  ///< its gradient is zero: moments decay, weight decay applies
    error, ///< UnusedParameter is thrown at the end of the micro-step
    leave  ///< a step in which no rank had a gradient of it, in any micro-step, changes no bit of
           ///< its weights, its states and its own number of updates, from which the bias
           ///< correction follows
};

/// @brief The options of a stage that are chosen at run time: first the engine's own, then one
/// member for each policy category that has options, then queues and memory.
template <class Config>
struct StageOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    using Backend = typename Config::Backend;  ///< the communicator's backend

    std::optional<float> gradient_clipping{}; ///< largest global norm; positive. Off unless given
    /// The norm, as reported and before clipping, above which a step is skipped as by an overflow.
    /// The loss scaler does not count that step. The queue decides, so that nothing waits.
    NormLimit skip_above_norm{};
    NonFinite non_finite = NonFinite::skip; ///< must be `skip` if the loss scaler skips overflows
    std::size_t skip_limit = 100; ///< once this many steps in a row were skipped, every further
                                  ///< step is skipped as well, and the second `begin_step` after
                                  ///< them throws TooManySkips on every rank; 0: no limit
    /// Called by `begin_step` with a sentence about the last step but one, if that step was skipped
    /// and the one before it was not. With a callback each `begin_step` waits for that step. May be
    /// absent on some ranks.
    detail::SharedFunction<void, std::string const&> on_skip{};
    ReportOptions report{}; ///< further figures in every `StepReport`
    UnusedParameters unused_parameters = UnusedParameters::zero; ///< meaning of a missing gradient
    Storage storage = Storage::owned; ///< the memory that holds the parameters, and its owner
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
    /// weights and optimizer state, exist twice, with `Offload` in two files. It invalidates
    /// pointers taken from the engine, but no handles. Not allowed with an adopted block. It is a
    /// function pointer so that programs that do not use it do not pay for its compilation.
    void (*rebuild_buckets)(detail::RebuildRequest<Config>) = nullptr;
    std::size_t leases_until_rebuild = 0; ///< rebuild_buckets: further spare places for gradients
                                          ///< until the buckets are rebuilt; capped likewise
    GatherOptions gather{}; ///< stage 3: units gathered in advance, kept units, and limits
    std::size_t update_tile_elements = 0; ///< stages 0 and 3, and one rank: most elements that one
                                          ///< command updates, if no slice has more; 0: all
    bool poison = false; ///< fill padding, reused and released memory with NaN (for tests)

    [[no_unique_address]] typename Config::PartitionerOptions
        partitioner{}; ///< options of the partitioner policy (`ProportionalPartitioner`)
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
    [[no_unique_address]]
    typename Config::Offload::Options offload{}; ///< where the states lie that `Offload` moves
    [[no_unique_address]]
    typename Config::Feedback::Options feedback{}; ///< of the `ErrorFeedback` of `Wire`

    typename Backend::Queue compute_queue =
        Backend::default_compute_queue(); ///< where the model runs; it must outlive the engine
    /// The queue of collectives and updates. By default the engine owns one. On the host it waits
    /// for room when it is full, and it has a thread unless more than 4 ranks of a Loopback share a
    /// core (`Engine::communicates_inline`). A given queue must outlive the engine.
    /// `HostBackend::default_compute_queue()` has no thread, `host::WaitingQueue` has one; the bits
    /// are the same.
    std::optional<typename Backend::Queue> communication_queue{};
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

/// @brief The elements over which each norm of `Engine::gradient_norms` is taken.
enum class NormScope : std::uint8_t {
    global,    ///< one norm over all parameters
    groups,    ///< one norm per parameter group
    parameters ///< one norm per parameter, in registration order
};

} // namespace ZERO_NAMESPACE
