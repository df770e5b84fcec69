#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/hash.hpp"
#include "../core/policy_category.hpp"
#include "master_weights_policy.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Master weights have no options, except `StochasticRounding`.
struct MasterWeightsOptions {};

/// @brief The optimizer updates a copy of the weights of type T. The result is rounded once to the
/// copy and once to the parameter.
///
/// T must keep more significant bits than the parameter type: float for 16-bit parameters (the
/// default), or float16 for bfloat16 parameters. A float16 master has 11 significant bits instead
/// of 8, at half the memory of a float master. An update below 2^-12 of a weight is lost. Its range
/// is smaller: a weight beyond 65504 becomes infinite, and a weight below 2^-25 becomes zero.
template <class T>
struct MasterWeights {
    using policy_category = MasterWeightsCategory;
    using Options = MasterWeightsOptions;
    using Type = T;
    static constexpr MasterForm form = MasterForm::copied;
};

/// @brief The parameter is its own master, without a copy. In 16-bit parameters, small updates are
/// then lost to rounding.
struct NoMasterWeights {
    using policy_category = MasterWeightsCategory;
    using Options = MasterWeightsOptions;
    using Type = void;
    static constexpr MasterForm form = MasterForm::own;
};

/// @brief A float master whose upper half is the bfloat16 parameter. The results are bit for bit
/// those of `MasterWeights<float>`, with 2.125 instead of 4 bytes per element.
///
/// In addition to the parameter, each element has its lower 16 bits and one bit that is set if the
/// parameter was rounded up; these bits are packed into bytes. `SplitFloat` explains why the extra
/// bit is needed. (A chain through the remainders of the few elements that need it would be
/// smaller, but then an element could not be read without its neighbours.)
struct SplitMasterWeights {
    using policy_category = MasterWeightsCategory;
    using Options = MasterWeightsOptions;
    using Type = void;
    static constexpr MasterForm form = MasterForm::split;
};

/// @brief Options of `StochasticRounding`.
struct StochasticRoundingOptions {
    std::uint64_t seed = 0; ///< any value, equal on all ranks
};

/// @brief No master weights: 16-bit parameters are updated in float and rounded stochastically to
/// either neighbour, so the expected update is preserved.
///
/// The random bits are a function of the seed, the step count and the index of the element in
/// registration order (`ops/counter_random.hpp`), so the parameters do not depend on stage, world
/// size or queue. `ops::round_stochastically` defines the rounding; representable values stay. The
/// error of one step is up to one unit in the last place, twice the error of rounding to nearest,
/// and the errors of many steps cancel. (Stochastic rounding instead of master weights: Gupta et
/// al., "Deep Learning with Limited Numerical Precision", 2015.)
struct StochasticRounding {
    using policy_category = MasterWeightsCategory;
    using Options = StochasticRoundingOptions;
    using Type = void;
    static constexpr MasterForm form = MasterForm::stochastic;

    static void add_to(Hash& hash, Options const& options) noexcept { hash.add(options.seed); }
};

} // namespace ZERO_NAMESPACE
