#pragma once

#include "../core/policy_category.hpp"
#include "detail/check_option.hpp"
#include "integer_power.hpp"
#include "number.hpp"

#include <cstddef>
#include <cstdint>

namespace zero {

/// @brief Hyper-parameters of `AdamW`; the learning rate comes with each step.
struct AdamWOptions {
    double beta1 = 0.9;         ///< decay of the first moment, 0 <= beta1 < 1
    double beta2 = 0.999;       ///< decay of the second moment, 0 <= beta2 < 1
    double epsilon = 1e-8;      ///< added to the root of the second moment, >= 0
    double weight_decay = 0.01; ///< decoupled: multiplied by the learning rate and the parameter, >= 0
};

/// @brief Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", algorithm 2), with bias correction.
///
/// With t counted from 1, everything in float and in exactly this order:
///
///     m = fma(beta1, m, mul(one_minus_beta1, g))
///     v = fma(beta2, v, mul(one_minus_beta2, mul(g, g)))
///     d = fma(inverse_root, root(v), epsilon)
///     p = sub(p, fma(step_size, div(m, d), mul(decay, p)))
///
/// where, in double and rounded once to float, step_size = learning_rate / (1 - beta1^t), inverse_root = 1 / sqrt(1 - beta2^t) and
/// decay = learning_rate * weight_decay. The parameter is rounded once per step.
struct AdamW {
    using policy_category = OptimizerCategory;
    using Options = AdamWOptions;

    static constexpr std::size_t states = 2;      ///< first moment, second moment; both start at zero
    static constexpr bool whole_tensor = false;   ///< each element by itself: a parameter may be cut anywhere

    struct Hyper {
        float beta1;
        float one_minus_beta1;
        float beta2;
        float one_minus_beta2;
        float step_size;
        float inverse_root;
        float epsilon;
        float decay;
    };

    /// @param step the number of this step, counted from 1.
    ZERO_HOST_DEVICE static Hyper hyper(Options const& options, double learning_rate, std::uint64_t step) noexcept {
        double const correction1 = 1.0 - ops::integer_power(options.beta1, step);
        double const correction2 = 1.0 - ops::integer_power(options.beta2, step);
        return {.beta1 = static_cast<float>(options.beta1),
                .one_minus_beta1 = static_cast<float>(1.0 - options.beta1),
                .beta2 = static_cast<float>(options.beta2),
                .one_minus_beta2 = static_cast<float>(1.0 - options.beta2),
                .step_size = static_cast<float>(learning_rate / correction1),
                .inverse_root = static_cast<float>(1.0 / ops::root(correction2)),
                .epsilon = static_cast<float>(options.epsilon),
                .decay = static_cast<float>(ops::mul(learning_rate, options.weight_decay))};
    }

    /// @throws InvalidArgument naming the first field that is NaN or out of its range.
    static void validate(Options const& options) {
        detail::check_option(detail::is_rate(options.beta1), "AdamW", "beta1", options.beta1, "at least 0 and less than 1");
        detail::check_option(detail::is_rate(options.beta2), "AdamW", "beta2", options.beta2, "at least 0 and less than 1");
        detail::check_option(detail::is_non_negative_float(options.epsilon), "AdamW", "epsilon", options.epsilon, "a finite float of at least 0");
        detail::check_option(detail::is_non_negative_float(options.weight_decay), "AdamW", "weight_decay", options.weight_decay,
                             "a finite float of at least 0");
    }

    template <class F>
    ZERO_HOST_DEVICE void operator()(F gradient, F& parameter, F (&state)[states], Hyper const& hyper) const {
        F& first = state[0];
        F& second = state[1];
        first = ops::fma(hyper.beta1, first, ops::mul(hyper.one_minus_beta1, gradient));
        second = ops::fma(hyper.beta2, second, ops::mul(hyper.one_minus_beta2, ops::mul(gradient, gradient)));
        F const denominator = ops::fma(hyper.inverse_root, ops::root(second), hyper.epsilon);
        F const change = ops::fma(hyper.step_size, ops::div(first, denominator), ops::mul(hyper.decay, parameter));
        parameter = ops::sub(parameter, change);
    }
};

} // namespace zero
