#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/hash.hpp"
#include "../core/policy_category.hpp"
#include "adamw.hpp"
#include "arithmetic.hpp"
#include "detail/check_option.hpp"
#include "detail/matrix_product.hpp"
#include "detail/muon_steps.hpp"
#include "detail/newton_schulz.hpp"
#include "host_device.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Hyper-parameters of `Muon`; the learning rate comes with each step.
struct MuonOptions {
    double momentum = 0.95; ///< decay of the sum of gradients, 0 <= momentum < 1 in float
    double weight_decay =
        0.0;              ///< decoupled: multiplied by the learning rate and the parameter, >= 0
    AdamWOptions adamw{}; ///< for parameters that are no matrices
    double adamw_learning_rate_factor =
        1.0; ///< times the learning rate, for parameters that are no matrices, >= 0
};

/// @brief Muon: the momentum of a matrix, made orthogonal (Jordan et al., "Muon: An optimizer for
/// hidden layers in neural networks", 2024). Needs whole parameters; those with `rows == 0` are no
/// matrices and are updated by `AdamW`.
///
/// In float, each operation rounded once, in exactly this order, for a matrix p with its gradient
/// g:
///
///     b = fma(momentum, b, g)
///     x = mul(fma(momentum, b, g), float(1 / (norm + 1e-7)))      norm: of the fma, over the
///     matrix five times: x = 3.4445 x + (-4.7750 A + 2.0315 A A) x       A = x x^T; transposed
///     before and after if there are more rows than columns p = sub(p, fma(step_size, x, mul(decay,
///     p)))
///
/// with step_size = float(learning_rate * sqrt(max(1, rows / columns))) and decay =
/// float(learning_rate * weight_decay). The norm is in double, its sum of squares exact over leaves
/// (see `ops::Inspection`); `detail::MatrixProduct` says how a product is summed. The five
/// iterations cost about 15 k^2 n + 5 k^3 floating-point operations for sides k <= n, all on the
/// rank that owns the matrix.
struct Muon {
    using policy_category = OptimizerCategory;
    using Options = MuonOptions;

    static constexpr std::size_t states =
        2; ///< momentum and, of a matrix unused, AdamW's second moment; both start at zero
    static constexpr bool whole_tensor = true; ///< a matrix is made orthogonal as a whole

    struct Hyper {
        float momentum;       ///< of a matrix
        float decay;          ///< learning rate times weight decay, of a matrix
        double learning_rate; ///< of a matrix, before its shape counts
        AdamW::Hyper adamw;   ///< of all that is no matrix
    };

    /// @param step the number of this step, counted from 1.
    ZERO_HOST_DEVICE static Hyper hyper(Options const& options, double learning_rate,
                                        std::uint64_t step) noexcept {
        return {.momentum = static_cast<float>(options.momentum),
                .decay = static_cast<float>(ops::mul(learning_rate, options.weight_decay)),
                .learning_rate = learning_rate,
                .adamw = AdamW::hyper(options.adamw,
                                      ops::mul(learning_rate, options.adamw_learning_rate_factor),
                                      step)};
    }

    /// @throws InvalidArgument naming the first field that is NaN or out of its range.
    static void validate(Options const& options) {
        detail::check_option(detail::is_rate(options.momentum), "Muon", "momentum",
                             options.momentum, "at least 0 and less than 1");
        detail::check_option(detail::is_non_negative_float(options.weight_decay), "Muon",
                             "weight_decay", options.weight_decay, "a finite float of at least 0");
        detail::check_option(detail::is_non_negative_float(options.adamw_learning_rate_factor),
                             "Muon", "adamw_learning_rate_factor",
                             options.adamw_learning_rate_factor, "a finite float of at least 0");
        AdamW::validate(options.adamw);
    }

    /// @brief Adds what ranks have to agree on.
    static void add_to(Hash& hash, Options const& options) noexcept {
        hash.add("Muon")
            .add(options.momentum)
            .add(options.weight_decay)
            .add(options.adamw_learning_rate_factor);
        AdamW::add_to(hash, options.adamw);
    }

    static constexpr std::size_t scratch_floats(std::size_t rows, std::size_t columns) noexcept {
        return rows == 0 ? 0 : detail::NewtonSchulz::scratch_floats(rows, columns);
    }

    /// @param tensor see `TensorArchetype`
    template <class Tensor>
    static void update_tensor(Tensor const& tensor, Hyper const& hyper) noexcept {
        if (tensor.rows() == 0) {
            tensor.template update<AdamW>(hyper.adamw);
            return;
        }
        float* const direction = tensor.scratch();
        tensor.template write<detail::MuonDirection>(direction, hyper.momentum);
        double const norm = tensor.norm(direction, tensor.elements());
        tensor.scale(direction, tensor.elements(), static_cast<float>(1.0 / (norm + 1e-7)));
        float const* const orthogonal = detail::NewtonSchulz::run(
            direction, tensor.rows(), tensor.columns(),
            [&](detail::MatrixProduct const& product) { tensor.multiply(product); });
        double const ratio =
            static_cast<double>(tensor.rows()) / static_cast<double>(tensor.columns());
        double const length = ratio > 1.0 ? ops::root(ratio) : 1.0;
        tensor.template update<detail::MuonStep>(
            orthogonal, {static_cast<float>(ops::mul(hyper.learning_rate, length)), hyper.decay});
    }
};

} // namespace ZERO_NAMESPACE
