#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/host_device.hpp"
#include "../arithmetic.hpp"
#include "../integer_power.hpp"
#include "../number.hpp"
#include "update_parts.hpp"

#include <cstddef>
#include <cstdint>

/// @file
/// @brief The moments of the gradient and their bias corrections, shared by Adam, AdamW and Lamb.
/// These optimizers differ in where the weight decay acts.

namespace ZERO_NAMESPACE::detail {

/// @brief The states and options of these optimizers.
struct AdamFamily {
    static constexpr std::size_t states = 2; ///< first and second moment
    /// Names of the states, for checkpoints and `TrainingState`.
    static constexpr char const* state_names[states] = {"exp_avg", "exp_avg_sq"};
    static constexpr bool nonnegative_states[states] = {false, true}; ///< sums of squares

    /// @brief Calls `visit(name, option)` for each option, for checkpoints.
    template <class O, class Visitor>
    static void for_each_option(O& options, Visitor&& visit) {
        visit("beta1", options.beta1);
        visit("beta2", options.beta2);
        visit("epsilon", options.epsilon);
        visit("weight_decay", options.weight_decay);
    }
};

/// @brief The constants of a step, as `AdamW` documents them.
struct AdamConstants {
    float rate1;
    float beta2;
    float rate2;
    float step_size;
    float inverse_root;
    float epsilon;
};

/// @brief Derives the constants of a step in double.
template <class Options>
ZERO_HOST_DEVICE AdamConstants adam_constants(Options const& options, double learning_rate,
                                              std::uint64_t step) noexcept {
    auto const rate1 = static_cast<float>(ops::sub(1.0, options.beta1));
    auto const beta2 = static_cast<float>(options.beta2);
    auto const rate2 = static_cast<float>(ops::sub(1.0, options.beta2));
    double const decay2 = static_cast<double>(beta2);
    double const correction1 =
        ops::sub(1.0, ops::integer_power(ops::sub(1.0, static_cast<double>(rate1)), step));
    double const correction2 =
        ops::mul(static_cast<double>(rate2),
                 ops::sub(1.0, ops::integer_power(decay2, step)) / ops::sub(1.0, decay2));
    return {.rate1 = rate1,
            .beta2 = beta2,
            .rate2 = rate2,
            .step_size = static_cast<float>(learning_rate / correction1),
            .inverse_root = static_cast<float>(1.0 / ops::root(correction2)),
            .epsilon = static_cast<float>(options.epsilon)};
}

/// @brief Returns the first moment divided by the root of the second. The bias of the second moment
/// is corrected; that of the first is corrected by `step_size`.
template <ops::Number F>
ZERO_PART_OF_FUNCTOR F direction_of_moments(F const (&moments)[2],
                                            AdamConstants const& constants) noexcept {
    return ops::div(moments[0],
                    ops::fma(constants.inverse_root, ops::root(moments[1]), constants.epsilon));
}

/// @brief Updates the moments and returns their direction.
template <ops::Number F>
ZERO_PART_OF_FUNCTOR F adam_direction(F const& gradient, F (&moments)[2],
                                      AdamConstants const& constants) noexcept {
    F& first = moments[0];
    F& second = moments[1];
    first = moved_towards(first, gradient, constants.rate1);
    second =
        ops::fma(constants.beta2, second, ops::mul(constants.rate2, ops::mul(gradient, gradient)));
    return direction_of_moments(moments, constants);
}

} // namespace ZERO_NAMESPACE::detail
