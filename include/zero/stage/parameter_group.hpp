#pragma once

#include "../core/detail/namespace.hpp"
#include "../layout/parameter_spec.hpp"

#include <optional>

namespace ZERO_NAMESPACE {

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

} // namespace ZERO_NAMESPACE
