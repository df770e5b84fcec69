#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief One parameter group in backend memory, or one parameter if updates are counted for each;
/// then only those of the current step are used. `StepControl` owns the arrays of them.
template <class Optimizer>
struct GroupState {
    typename Optimizer::Options options{};
    double learning_rate_factor = 1.0;
    typename Optimizer::Hyper hyper{}; ///< for the current step
    bool is_left = false;              ///< the current step leaves the parameter as it is
    bool is_clipped = true;
    float factor =
        1.0F; ///< multiplies the gradients of the current step: unscales, averages, clips
};

/// @brief Returns the groups as the options of an engine set them.
template <class Group, class Options>
[[nodiscard]] List<Group> initial_groups(Options const& options, std::size_t count) {
    List<Group> groups(count);
    for (std::size_t group = 0; group < count; ++group) {
        bool const is_listed = group < options.groups.size();
        groups[group].options = is_listed ? options.groups[group].optimizer : options.optimizer;
        groups[group].learning_rate_factor =
            is_listed ? options.groups[group].learning_rate_factor : 1.0;
        groups[group].is_clipped = !is_listed || options.groups[group].is_clipped;
    }
    return groups;
}

} // namespace ZERO_NAMESPACE::detail
