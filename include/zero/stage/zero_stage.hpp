#pragma once

#include "../core/detail/require_cxx20.hpp"

#include "../core/detail/namespace.hpp"
#include "../policy/detail/policy_list.hpp"
#include "detail/compose/diagnose_stage.hpp"
#include "detail/compose/stage_base.hpp"
#include "gradients.hpp"
#include "owned_slice.hpp"
#include "parameter.hpp"
#include "step_report.hpp"
#include "weights.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief Template arguments of constructors that refuse braces: compilers print their names.
struct OptionsDoNotFitSoWriteStageOptionsBeforeTheBraces;
struct ParametersDoNotFitSoWriteStageRegistrationBeforeTheBraces;

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief A ZeRO stage composed of policies, at most one per category, in any order. Every category
/// has a default.
///
/// | N | parameters | gradients after reduction | optimizer state | default schedule |
/// |---|---|---|---|---|
/// | 0 | replicated | replicated | replicated | boundary |
/// | 1 | replicated | sharded, with a full accumulation buffer | sharded | boundary |
/// | 2 | replicated | sharded | sharded | every_micro_step |
/// | 3 | sharded | sharded | sharded | every_micro_step |
///
/// The call protocol is the same in every stage. So are the bits of the results, for the same world
/// size, reduction schedule and types. The default schedule differs, so with several micro-steps
/// the same program rounds at different points in stages 0 and 1 than in 2 and 3, unless
/// `reduction.schedule` is given.
///
/// It is constructed from a communicator, the list of parameters and the options. The constructor
/// is collective: every rank of the group passes the same model and options. It makes the layout,
/// allocates everything, sets the initial values, and waits. It throws InvalidArgument (nothing was
/// sent), LayoutMismatch or CommunicatorError. The communicator must outlive the stage.
///
/// The members are those of Engine. `ZERO_DECLARE_STAGE` (declare_stage.hpp) compiles a composition
/// once for a whole program.
template <int N, class... Policies>
class ZeroStage : public detail::stage_base_t<N, Policies...> {
    using Base = detail::stage_base_t<N, Policies...>;
    using Group = typename Base::Communicator;
    using List = Registrations<typename Base::Registration>;
    /// Not a static_assert of this class: after one that failed, clang++ would leave out what
    /// follows it, and report every use of the stage.
    using Verdict = decltype(detail::judge_stage<N, Policies...>());

public:
    using Base::Base;

    using Weights = zero::Weights<typename Base::EngineType>;     ///< returned by `acquire`
    using Gradients = zero::Gradients<typename Base::EngineType>; ///< returned by `gradients`
    using Ticket = zero::StepTicket<typename Base::EngineType>;   ///< returned by `step`
    /// The argument of the visitor of `for_each_owned_slice`, for parameters of the first type.
    using OwnedSlice =
        zero::OwnedSlice<typename Base::Composition::EngineConfig,
                         typename Base::Composition::EngineConfig::template TypesAt<0>>;

    /// @brief Refuses a communicator whose type differs from the stage's, with one sentence instead
    /// of a list of constructors.
    template <class Other>
        requires(detail::is_accepted<N, Policies...>() && !std::is_convertible_v<Other&, Group&>)
    ZeroStage(Other&, List parameters, typename Base::Options const& options = {})
        : Base(*static_cast<Group*>(nullptr), parameters, options) {
        static_assert(sizeof(Other) == 0,
                      "zero::ZeroStage: the first argument is not the communicator of this stage, "
                      "which is ZeroStage<...>::Communicator; "
                      "name the communicator's type among the policies (without one a stage takes "
                      "a zero::LoopbackCommunicator).");
    }

    // A compiler does not say which name in braces is wrong, unless their type stands before them.
    // These constructors replace a list of candidates by a name that all compilers print, and by
    // their own line, which g++ and clang print.

    /// @brief Refuses options in braces that do not fit.
    template <class = detail::OptionsDoNotFitSoWriteStageOptionsBeforeTheBraces>
    ZeroStage(Group&, List, ...) = delete; // write Stage::Options{...}: it names what is wrong

    /// @brief Refuses registrations in braces that do not fit.
    template <class = detail::ParametersDoNotFitSoWriteStageRegistrationBeforeTheBraces>
    ZeroStage(Group&, ...) = delete; // write Stage::Registration{...}: it names what is wrong

    /// @brief The same composition with one policy replaced or added.
    template <class Policy>
    using with = typename detail::Exchange<Policy, detail::PolicyPack<>,
                                           Policies...>::template in<zero::ZeroStage, N>;

    /// @brief The same policies under another stage.
    template <int M>
    using at_stage = ZeroStage<M, Policies...>;
};

} // namespace ZERO_NAMESPACE
