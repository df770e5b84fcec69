#pragma once

#include "../core/language.hpp"

#include "../backend/backend.hpp"
#include "compatibility.hpp"
#include "engine.hpp"
#include "engine_rebuild.hpp"
#include "stage_layout.hpp"

#include <span>
#include <type_traits>
#include <vector>

namespace zero {

namespace detail {

/// @brief The conflict between policies that are valid each by itself.
template <int N, class... Policies>
consteval Conflict conflict_in() {
    using Config = StageConfig<(N >= 0 && N <= 3) ? N : 0, Policies...>; // NOLINT(bugprone-branch-clone): the branches are the same for N = 0 only
    return conflict_of({.stage = N,
                        .partitioner_cuts_parameters = Config::Partitioner::cuts_parameters,
                        .partitioner_cuts_group = Config::Partitioner::cuts_group,
                        .partitioner_brings_other_bucketer = !accepts_bucketer<typename Config::Partitioner, typename Config::Bucketer>,
                        .bucketer_may_span_units = Config::Bucketer::may_span_units,
                        .optimizer_is_whole_tensor = Config::Optimizer::whole_tensor,
                        .is_on_device = requires { requires Config::Engine::Backend::is_device; },
                        .is_stored_by_block = Config::OptimizerStates::is_block_scaled || Config::MasterPolicy::form == MasterForm::stochastic,
                        .master = Config::master_conflict});
}

/// @brief A communicator whose backend lacks something: its collectives may need no more than the queues, an engine does.
template <class P>
consteval bool has_bare_backend() {
    if constexpr (is_in<CommunicatorCategory, P>()) {
        return requires { requires !Backend<typename P::Backend>; };
    } else {
        return false;
    }
}

template <class P>
consteval bool diagnose_backend_of() {
    if constexpr (has_bare_backend<P>()) {
        return diagnose_backend<typename P::Backend>();
    } else {
        return true;
    }
}

template <int N, class... Policies>
consteval bool is_accepted() {
    if constexpr ((has_bare_backend<Policies>() || ...) || !(is_valid_policy<Policies>() && ...) || !are_distinct<Policies...>) {
        return false;
    } else {
        return conflict_in<N, Policies...>() == Conflict::none;
    }
}

/// @brief Says why a stage is rejected, the first cause only: a communicator without a whole backend, not a policy, an incomplete one, two of a kind, a bad composition.
template <int N, class... Policies>
consteval bool diagnose_stage() {
    if constexpr ((has_bare_backend<Policies>() || ...)) {
        return (diagnose_backend_of<Policies>() && ...); // before its collectives, which name types of the backend
    } else if constexpr (!(is_valid_policy<Policies>() && ...)) {
        return (diagnose_policy<Policies>() && ...);
    } else if constexpr (!are_distinct<Policies...>) {
        return diagnose_duplicates<Policies...>();
    } else {
        constexpr Conflict conflict = conflict_in<N, Policies...>();
        static_assert(conflict != Conflict::no_such_stage, "zero::ZeroStage: there is no such stage; write 0, 1, 2 or 3.");
        static_assert(conflict != Conflict::bucket_spans_units,
                      "zero::ZeroStage: in stage 3 a bucket must not span units, because units are gathered and freed one by one; "
                      "use zero::UnitBucketer or zero::SizeCappedBucketer.");
        static_assert(conflict != Conflict::units_on_few_ranks,
                      "zero::ZeroStage: in stage 3 the partitioner must not cut the whole group, because each unit would lie on few ranks, "
                      "which then send all of it; use zero::ContiguousPartitioner, or zero::BalancedPartitioner for whole parameters.");
        static_assert(conflict != Conflict::bucketer_not_the_partitioners,
                      "zero::ZeroStage: the partitioner brings its own bucketer, and under another one it would not cut as it says; leave "
                      "the bucketer out (zero::PerTensorPartitioner brings zero::ParameterBucketer).");
        static_assert(conflict != Conflict::whole_tensor_on_device,
                      "zero::ZeroStage: optimizers of whole parameters (Lamb, Muon) run on the host only; on a device use AdamW, Adam, Sgd, Lion, "
                      "Adagrad or a functor of one element.");
        static_assert(
            conflict != Conflict::optimizer_needs_whole_tensor,
            "zero::ZeroStage: the optimizer needs whole parameters, but the partitioner cuts them; use zero::BalancedPartitioner or "
            "zero::RoundRobinPartitioner.");
        static_assert(conflict != Conflict::whole_tensor_storage,
                      "zero::ZeroStage: an optimizer of whole parameters works on plain arrays; use zero::OptimizerState<float> or "
                      "<zero::bfloat16> instead of BlockScaledState, and zero::MasterWeights<float> instead of StochasticRounding.");
        static_assert(conflict != Conflict::master_of_itself || !std::is_same_v<typename StageConfig<0, Policies...>::Engine::Parameter, float>,
                      "zero::ZeroStage: float parameters are their own master weights; leave MasterWeights<float> out.");
        static_assert(conflict != Conflict::master_of_itself || std::is_same_v<typename StageConfig<0, Policies...>::Engine::Parameter, float>,
                      "zero::ZeroStage: master weights of the parameters' own 16-bit type are copies that keep nothing more; use "
                      "zero::MasterWeights<float>, or zero::NoMasterWeights for none.");
        static_assert(conflict != Conflict::master_loses_bits,
                      "zero::ZeroStage: the type of the master weights would lose bits of the parameters; use zero::MasterWeights<float> "
                      "(for float parameters: leave it out, they are their own master weights).");
        static_assert(conflict != Conflict::split_of_other,
                      "zero::ZeroStage: SplitMasterWeights completes bfloat16 parameters to floats; write zero::Parameters<zero::bfloat16>, "
                      "or use zero::MasterWeights<float> for float16 parameters (and nothing for float ones).");
        static_assert(conflict != Conflict::rounding_of_float,
                      "zero::ZeroStage: StochasticRounding is for 16-bit parameters, and float ones are not rounded at all; leave it out, or write "
                      "zero::Parameters<zero::bfloat16>.");
        return conflict == Conflict::none;
    }
}

/// @brief The engine of a stage whose policies fit together, with the geometry that its partitioner and bucketer make.
template <class Stage>
class AcceptedStage : public Engine<typename Stage::Engine> {
    using Base = Engine<typename Stage::Engine>;

public:
    using typename Base::Communicator;
    using typename Base::Options;
    using typename Base::Registration;
    using Composition = Stage; ///< every policy, defaults included
    static constexpr int stage = Stage::stage;

    /// @brief Checks the arguments, builds the geometry, allocates everything, and takes over the values of rank 0. Collective; waits.
    /// @throws InvalidArgument (nothing was sent), LayoutMismatch, CommunicatorError
    AcceptedStage(Communicator& communicator, std::span<Registration const> parameters, Options const& options = {})
        : AcceptedStage(communicator, register_parameters<typename Stage::Engine>(parameters), options, Registered()) {}

    AcceptedStage(Communicator& communicator, std::vector<Registration> const& parameters, Options const& options = {})
        : AcceptedStage(communicator, std::span<Registration const>(parameters), options) {}

private:
    struct Registered {};

    AcceptedStage(Communicator& communicator, std::vector<AnyParameter> const& parameters, Options const& options, Registered)
        : Base(stage, communicator, parameters, options, &make_stage_layout<typename Stage::Engine, typename Stage::Partitioner, typename Stage::Bucketer>) {}
};

template <class... Policies>
struct PolicyPack {};

/// @brief What is no policy replaces none; the stage it then stands in says what it is.
template <class Replacement, class Policy>
consteval bool replaces() {
    if constexpr (HasCategory<Replacement>) {
        return is_in<typename Replacement::policy_category, Policy>();
    } else {
        return false;
    }
}

/// @brief The policies of a list that are not of a category, and one more.
template <class Replacement, class Kept, class... Policies>
struct Exchange;

template <class Replacement, class... Kept>
struct Exchange<Replacement, PolicyPack<Kept...>> {
    template <template <int, class...> class Stage, int N>
    using in = Stage<N, Kept..., Replacement>;
};

template <class Replacement, class... Kept, class First, class... Rest>
struct Exchange<Replacement, PolicyPack<Kept...>, First, Rest...>
    : Exchange<Replacement,
               std::conditional_t<replaces<Replacement, First>(), PolicyPack<Kept...>, PolicyPack<Kept..., First>>,
               Rest...> {};

/// @brief The policies do not fit in how numbers are stored, so that no engine can be compiled with them.
template <int N, class... Policies>
consteval bool conflicts_in_storage() {
    if constexpr ((is_valid_policy<Policies>() && ...) && are_distinct<Policies...>) {
        constexpr Conflict conflict = conflict_in<N, Policies...>();
        return conflict == Conflict::whole_tensor_storage || conflict == Conflict::split_of_other;
    }
    return false;
}

template <bool DropsStorage, class Policy>
inline constexpr bool is_usable =
    is_valid_policy<Policy>() && !has_bare_backend<Policy>() && !(DropsStorage && (is_in<MasterWeightsCategory, Policy>() || is_in<OptimizerStateCategory, Policy>()));

/// @brief What a rejected stage would be without the policies that can not be compiled.
template <int N, bool DropsStorage, class Usable, class... Rest>
struct UsableStage;

template <int N, bool DropsStorage, class... Usable>
struct UsableStage<N, DropsStorage, PolicyPack<Usable...>> {
    using type = AcceptedStage<StageConfig<(N >= 0 && N <= 3) ? N : 2, Usable...>>;
};

template <int N, bool DropsStorage, class... Usable, class First, class... Rest>
struct UsableStage<N, DropsStorage, PolicyPack<Usable...>, First, Rest...>
    : UsableStage<N, DropsStorage, std::conditional_t<is_usable<DropsStorage, First>, PolicyPack<Usable..., First>, PolicyPack<Usable...>>, Rest...> {};

/// @brief A rejected stage can be used like an accepted one, so that its uses add no errors to the one that says why.
template <int N, class... Policies>
class RejectedStage : public UsableStage<N, conflicts_in_storage<N, Policies...>(), PolicyPack<>, Policies...>::type {
    using Base = typename UsableStage<N, conflicts_in_storage<N, Policies...>(), PolicyPack<>, Policies...>::type;

public:
    using Base::Base;

    /// For a communicator that was rejected.
    template <class Communicator, class Parameters>
    RejectedStage(Communicator&, Parameters const&, typename Base::Options const& = {});
};

template <bool IsAccepted, int N, class... Policies>
struct StageBase {
    using type = RejectedStage<N, Policies...>;
};

template <int N, class... Policies>
struct StageBase<true, N, Policies...> {
    using type = AcceptedStage<StageConfig<N, Policies...>>;
};

template <int N, class... Policies>
using stage_base_t = typename StageBase<is_accepted<N, Policies...>(), N, Policies...>::type;

} // namespace detail

/// @brief A ZeRO stage composed of policies, which may stand in any order, at most one of a category; each has a default.
///
/// | N | parameters | gradients after reduction | optimizer state |
/// |---|---|---|---|
/// | 0 | replicated | replicated | replicated |
/// | 1 | replicated | sharded, with a full accumulation buffer | sharded |
/// | 2 | replicated | sharded | sharded |
/// | 3 | sharded | sharded | sharded |
///
/// The call protocol is the same in every stage, and so are the bits of the results, for the same world size, reduction schedule and types.
///
/// Constructed from a communicator, the list of parameters and the options. That is collective: every rank of the group does it, with the same model and
/// options; it builds the geometry, allocates everything, takes over the values of rank 0, and waits for that. It throws InvalidArgument (nothing was
/// sent), LayoutMismatch or CommunicatorError. The communicator outlives the stage. See detail::Engine for the members.
template <int N, class... Policies>
class ZeroStage : public detail::stage_base_t<N, Policies...> {
    using Base = detail::stage_base_t<N, Policies...>;
    static_assert(detail::diagnose_stage<N, Policies...>(),
                  "zero::ZeroStage: a policy was rejected; the error above says which one and why.");

public:
    using Base::Base;

    /// @brief Refuses a communicator of another type than the stage's, with a sentence instead of a list of constructors.
    template <class Other, class Registrations = std::vector<typename Base::Registration>>
        requires(detail::is_accepted<N, Policies...>() && !std::is_convertible_v<Other&, typename Base::Communicator&>)
    ZeroStage(Other&, Registrations const& parameters, typename Base::Options const& options = {})
        : Base(*static_cast<typename Base::Communicator*>(nullptr), parameters, options) {
        static_assert(sizeof(Other) == 0, "zero::ZeroStage: the first argument is not the communicator of this stage, which is ZeroStage<...>::Communicator; "
                                          "name the communicator's type among the policies (without one a stage takes a zero::LoopbackCommunicator).");
    }

    /// @brief The same composition with one policy exchanged, or added.
    template <class Policy>
    using with = typename detail::Exchange<Policy, detail::PolicyPack<>, Policies...>::template in<zero::ZeroStage, N>;

    /// @brief The same policies under another stage.
    template <int M>
    using at_stage = ZeroStage<M, Policies...>;
};

} // namespace zero
