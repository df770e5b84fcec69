#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/hash.hpp"
#include "../core/policy_category.hpp"
#include "../ops/arithmetic.hpp"
#include "master_weights_policy.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

struct MasterWeightsOptions {};

/// @brief The optimizer updates a copy of the weights in this type; copy and parameter are its
/// result, each rounded once.
///
/// The type has to keep more bits of a number than the parameter: float for 16-bit parameters (the
/// default), float16 for bfloat16 ones. A float16 master has 11 significant bits instead of 8, at
/// half the memory of a float one, but it ends at 65504: a weight beyond that becomes infinite, and
/// one below 2^-25 becomes zero.
template <class T>
struct MasterWeights {
    using policy_category = MasterWeightsCategory;
    using Options = MasterWeightsOptions;
    using Type = T;
    static constexpr MasterForm form = MasterForm::copied;
};

/// @brief The parameter is its own master: no copy. For 16-bit parameters small updates are then
/// rounded away.
struct NoMasterWeights {
    using policy_category = MasterWeightsCategory;
    using Options = MasterWeightsOptions;
    using Type = void;
    static constexpr MasterForm form = MasterForm::own;
};

/// @brief A float master of which the bfloat16 parameter is the upper half: bit for bit
/// `MasterWeights<float>`, at 2.125 instead of 4 bytes.
///
/// Beside the parameter lie the lower 16 bits and, eight elements to a byte, whether the parameter
/// was rounded up; `SplitFloat` counts why one bit beside the 16 is needed. (A chain through the
/// remainders of the few elements that need it would take even less, but then an element could not
/// be read without its neighbours.)
struct SplitMasterWeights {
    using policy_category = MasterWeightsCategory;
    using Options = MasterWeightsOptions;
    using Type = void;
    static constexpr MasterForm form = MasterForm::split;
};

struct StochasticRoundingOptions {
    std::uint64_t seed = 0; ///< any; the same on all ranks
};

/// @brief No master weights: 16-bit parameters are updated in float and rounded to either
/// neighbour, so that updates survive on average.
///
/// The random bits are a function of the seed, the step count and the number of the element in
/// registration order (`ops/counter_random.hpp`), so the parameters do not depend on stage, world
/// size or queue. `ops::round_stochastically` says what is rounded how; exact values stay. The
/// error of one step is up to a unit in the last place, twice that of plain rounding, and those of
/// many steps cancel. (Stochastic rounding in place of master weights: Gupta et al., "Deep Learning
/// with Limited Numerical Precision", 2015.)
struct StochasticRounding {
    using policy_category = MasterWeightsCategory;
    using Options = StochasticRoundingOptions;
    using Type = void;
    static constexpr MasterForm form = MasterForm::stochastic;

    static void add_to(Hash& hash, Options const& options) noexcept { hash.add(options.seed); }
};

} // namespace ZERO_NAMESPACE
