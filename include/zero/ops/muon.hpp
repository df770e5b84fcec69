#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "../core/policy_category.hpp"
#include "../core/set_by_name.hpp"
#include "adamw.hpp"
#include "arithmetic.hpp"
#include "detail/check_option.hpp"
#include "detail/newton_schulz.hpp"
#include "detail/update_parts.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The rule by which `Muon` adapts the length of its steps to the shape of a matrix.
enum class MuonLength : std::uint8_t {
    /// sqrt(max(1, rows / columns)): the spectral norm of a step is about the learning rate, times
    /// this factor for tall matrices (Jordan et al., 2024).
    spectral,
    /// 0.2 * sqrt(max(rows, columns)): the root mean square of a step is about 0.2 times the
    /// learning rate, as with `AdamW`, so both take the same learning rates and weight decays (Liu
    /// et al., "Muon is Scalable for LLM Training", arXiv 2502.16982, section 2.2).
    adamw_rms
};

/// @brief Options of `Muon`. The learning rate is an argument of each step.
struct MuonOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    double momentum = 0.95;    ///< decay of the sum of gradients, 0 <= momentum < 1 in float
    double weight_decay = 0.0; ///< decoupled: times the learning rate and the parameter, >= 0
    AdamWOptions adamw{};      ///< for parameters that are not matrices
    double adamw_learning_rate_factor =
        1.0; ///< factor of the learning rate of parameters that are not matrices, >= 0
    MuonLength length = MuonLength::spectral; ///< length of the steps of matrices
};

/// @brief Muon: the orthogonalised momentum of a matrix (Jordan et al., "Muon: An optimizer for
/// hidden layers in neural networks", 2024). Needs whole matrices. `Update::matrix` of a
/// registration or its group, or its `rows`, says what is a matrix; everything else is updated by
/// `AdamW`. A `shape` of two dimensions without a choice is refused, and so is a model without a
/// matrix; `zero::describe(engine)` lists both.
///
/// For a matrix p with gradient g, all operations are in float, each rounded once, in exactly this
/// order:
///
///     b = fma(momentum, b, g)
///     x = mul(fma(momentum, b, g), float(1 / (norm + 1e-7)))
///     five times, with A = x x^T:
///         x = 3.4445 x + (-4.7750 A + 2.0315 A A) x
///     p = sub(p, fma(step_size, x, mul(decay, p)))
///
/// norm is the l2 norm of the matrix fma(momentum, b, g); step_size = float(learning_rate *
/// length), where length is sqrt(max(1, rows / columns)), or with `MuonLength::adamw_rms` 0.2 *
/// sqrt(max(rows, columns)), in double; decay = float(learning_rate * weight_decay). A matrix with
/// more rows than columns is transposed before the iteration and back after it.
///
/// The norm is in double, and its sum of squares is exact (see `ops::Inspection`).
/// `detail::MatrixProduct` defines the order of additions of a product. The five iterations take
/// about 15 k^2 n + 5 k^3 floating-point operations for sides k <= n, all on the rank that owns the
/// matrix.
struct Muon {
    using policy_category = OptimizerCategory;
    using Options = MuonOptions;
    static constexpr char const* name = "Muon"; ///< for messages and the hash of the options

    static constexpr std::size_t states =
        2; ///< momentum; AdamW's second moment, unused by matrices
    /// Names of the states, for checkpoints and `TrainingState`.
    static constexpr char const* state_names[states] = {"momentum_buffer", "exp_avg_sq"};
    static constexpr bool nonnegative_states[states] = {false, true}; ///< sums of squares
    static constexpr bool whole_tensor = true; ///< a matrix is orthogonalised as a whole
    /// Matrices have a rule of their own, so each registration says what is a matrix (`Update`).
    static constexpr bool updates_matrices = true;
    /// `AdamW` updates the others element by element, so they may be cut.
    static constexpr bool needs_only_matrices_whole = true;

    struct Hyper {
        float momentum;       ///< decay of the sum of gradients, for matrices
        float decay;          ///< learning rate times weight decay, for matrices
        double learning_rate; ///< learning rate of matrices, before the factor of their shape
        MuonLength length;    ///< rule of that factor
        AdamW::Hyper adamw;   ///< for parameters that are not matrices
    };

    /// @param step number of this step, from 1
    ZERO_HOST_DEVICE static Hyper hyper(Options const& options, double learning_rate,
                                        std::uint64_t step) noexcept {
        return {.momentum = static_cast<float>(options.momentum),
                .decay = static_cast<float>(ops::mul(learning_rate, options.weight_decay)),
                .learning_rate = learning_rate,
                .length = options.length,
                .adamw = AdamW::hyper(options.adamw,
                                      ops::mul(learning_rate, options.adamw_learning_rate_factor),
                                      step)};
    }

    /// @throws InvalidArgument naming the first option that is NaN or out of range
    [[gnu::cold]] static void validate(Options const& options) {
        detail::check_rate(name, "momentum", options.momentum);
        detail::check_non_negative(name, "weight_decay", options.weight_decay);
        detail::check_non_negative(name, "adamw_learning_rate_factor",
                                   options.adamw_learning_rate_factor);
        AdamW::validate(options.adamw);
    }

    /// @brief Calls `visit(name, option)` for each option, for checkpoints.
    template <class O, class Visitor>
    static void for_each_option(O& options, Visitor&& visit) {
        visit("momentum", options.momentum);
        visit("weight_decay", options.weight_decay);
        visit("adamw_learning_rate_factor", options.adamw_learning_rate_factor);
        visit("length", options.length);
        visit("adamw.beta1", options.adamw.beta1);
        visit("adamw.beta2", options.adamw.beta2);
        visit("adamw.epsilon", options.adamw.epsilon);
        visit("adamw.weight_decay", options.adamw.weight_decay);
    }

    static constexpr std::size_t scratch_floats(std::size_t rows, std::size_t columns) noexcept {
        return rows == 0 ? 0 : detail::NewtonSchulz::scratch_floats(rows, columns);
    }

    /// @brief One step of one parameter. @param tensor models `TensorArchetype`
    ZERO_NO_SIDE_CHECK
    template <class Tensor>
    ZERO_HOST_DEVICE static void update_tensor(Tensor const& tensor, Hyper const& hyper) noexcept {
        if (tensor.rows() == 0) {
            tensor.template update<AdamW>(hyper.adamw);
            return;
        }
        float* const direction = tensor.scratch();
        tensor.template write<detail::MuonDirection>(direction, hyper.momentum);
        double const norm = tensor.norm(direction, tensor.elements());
        tensor.scale(direction, tensor.elements(), static_cast<float>(1.0 / ops::add(norm, 1e-7)));
        float const* const orthogonal = detail::NewtonSchulz::run(direction, tensor);
        double const length = length_of(hyper.length, static_cast<double>(tensor.rows()),
                                        static_cast<double>(tensor.columns()));
        tensor.template update<detail::MuonStep>(
            orthogonal, {static_cast<float>(ops::mul(hyper.learning_rate, length)), hyper.decay});
    }

private:
    ZERO_HOST_DEVICE static double length_of(MuonLength length, double rows,
                                             double columns) noexcept {
        if (length == MuonLength::adamw_rms) {
            return ops::mul(0.2, ops::root(rows > columns ? rows : columns));
        }
        return rows > columns ? ops::root(rows / columns) : 1.0;
    }
};

} // namespace ZERO_NAMESPACE
