#pragma once

#include "../../../comm/grouped_communicator.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../policy/master_weights_policy.hpp"
#include "../../../policy/optimizer_state_policy.hpp"
#include "../common/engine_context.hpp"
#include "../common/gather_on_host.hpp"
#include "../common/named_rows.hpp"
#include "compared_options.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>
#include <vector>

/// The agreement of ranks that hold the parts of one copy of a model, which know each other's
/// parameters by name.
namespace ZERO_NAMESPACE::detail {

/// @brief The restrictions of a composition on parameters that several model ranks hold.
struct ModelRules {
    bool updates_whole_tensors = false; ///< no parameter may be cut over model ranks
    bool depends_on_position = false;   ///< replicas must be at the same place in their layouts
    bool leaves_unused = false;         ///< a part may leave a parameter that another one updates
    std::size_t ranks_of_expert = 0; ///< consecutive model ranks that hold the same experts, which
                                     ///< no other rank does; 0: parameters are no experts
};

template <class Config>
[[nodiscard]] ModelRules model_rules(typename Config::Communicator const& communicator,
                                     bool leaves_unused) noexcept {
    std::size_t ranks_of_expert = 0;
    if constexpr (ExpertCommunicator<typename Config::Communicator>) {
        ranks_of_expert = communicator.ranks_of_expert();
    }
    return {Config::Optimizer::whole_tensor,
            Config::MasterWeights::form == MasterForm::stochastic || Config::rounds_states
                || Config::OptimizerState::is_block_scaled,
            leaves_unused, ranks_of_expert};
}

/// @brief Refuses `counts_on` where there are no model ranks. @throws InvalidArgument
[[gnu::cold]] void require_no_replicas(FlatLayout const& layout, std::size_t rank);

/// @brief Compares the options that decide on steps. @return a number of the engine that is equal
/// on all model ranks @throws LayoutMismatch on every one
[[gnu::cold]] std::uint32_t compare_over_model(List<ComparedOption> const& options,
                                               GatherValues gather);

/// @brief Requires a parameter on some model rank for each entry of `options.groups`.
/// @throws InvalidArgument on every model rank
[[gnu::cold]] void require_used_groups(FlatLayout const& layout, std::size_t groups,
                                       GatherValues gather);

/// @brief Returns for each parameter whether this model rank counts it: all others but replicas of
/// those that a lower rank registered. Names are compared by hash.
/// @throws InvalidArgument, LayoutMismatch on every rank that registered the parameter
[[gnu::cold]] [[nodiscard]] std::vector<char>
find_counted(FlatLayout const& layout, std::size_t model_rank, std::size_t model_size,
             ModelRules const& rules, GatherValues gather);

/// @brief Returns a hash of the bytes of a parameter, 8 at a time.
[[gnu::cold]] [[nodiscard]] std::uint64_t hash_of_values(std::string_view bytes) noexcept;

/// @brief Compares hashes of the values of replicas. @param own rows of name and hash of this rank
/// @throws InvalidArgument on every model rank
[[gnu::cold]] void compare_replicas(FlatLayout const& layout, std::vector<std::uint64_t> const& own,
                                    GatherValues gather);

/// @brief Agrees with the model ranks, and returns what this rank counts. Collective over them;
/// waits.
/// @param group_count parameter groups of this rank
/// @param is_rebuilt whether an engine has another layout now
template <class Config>
[[gnu::cold]] [[nodiscard]] CountedParameters<Config>
agree_over_model([[maybe_unused]] int number, EngineContext<Config> const& context,
                 [[maybe_unused]] std::size_t group_count,
                 [[maybe_unused]] bool is_rebuilt = false) {
    FlatLayout const& layout = *context.layout;
    auto& communicator = *context.communicator;
    if constexpr (ModelParallelCommunicator<typename Config::Communicator>) {
        auto& model = communicator.model();
        auto const& options = *context.options;
        auto compared =
            compared_options(number, context.schedule, context.predivide, options, communicator);
        compared.push_back({"number of groups", Hash().add(group_count).value()});
        auto const gather = gather_over(model, context.queue, *context.memory,
                                        is_rebuilt ? context.counted->engine : 0);
        try {
            std::uint32_t const engine = compare_over_model(compared, gather);
            require_used_groups(layout, is_rebuilt ? 0 : options.groups.size(), gather);
            return {find_counted(layout, static_cast<std::size_t>(model.rank()),
                                 static_cast<std::size_t>(model.size()),
                                 model_rules<Config>(communicator, options.unused_parameters
                                                                       == UnusedParameters::leave),
                                 gather),
                    engine};
        } catch (std::exception const& error) { // perhaps on this rank alone
            communicator.abort(error.what());
            throw;
        }
    } else {
        require_no_replicas(layout, context.rank());
        return {};
    }
}

/// @brief Agrees with all ranks, and returns what this rank counts. Collective; waits. An engine
/// calls it before it makes what depends on the layout.
/// @param layout of `context`
template <class Config>
[[gnu::cold]] [[nodiscard]] CountedParameters<Config>
agree_over_ranks(int number, EngineContext<Config> const& context, FlatLayout& layout,
                 std::size_t group_count) {
    auto& communicator = *context.communicator;
    auto counted = agree_over_model(number, context, group_count);
    try {
        require_agreement(layout, Config::parameter_dtypes,
                          compared_options(number, context.schedule, context.predivide,
                                           *context.options, communicator,
                                           hash_of_initialisation(context.parameters)),
                          communicator, context.queue, *context.memory);
    } catch (std::exception const& error) { // perhaps on this rank alone
        communicator.abort(text({"rank ", context.rank(), ": ", first_line(error.what())}));
        throw;
    }
    return counted;
}

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "model_ranks.ipp"
#endif
