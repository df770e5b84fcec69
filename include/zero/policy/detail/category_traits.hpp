#pragma once

#include "../../comm/communicator.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/policy_category.hpp"
#include "../../layout/bucketer.hpp"
#include "../../layout/partitioner.hpp"
#include "../gradient_reduction.hpp"
#include "../loss_scaler.hpp"
#include "../master_weights_policy.hpp"
#include "../offload.hpp"
#include "../optimizer.hpp"
#include "../optimizer_state_policy.hpp"
#include "../parameters.hpp"
#include "../wire_policy.hpp"

#include <concepts>

namespace ZERO_NAMESPACE::detail {

/// @brief The concept of a category and the messages about its policies. A new category adds one
/// specialisation here.
///
/// `is_model<P>`: P is a complete model. `diagnose<P>()`: reports why not. `diagnose_single<s>()`:
/// reports a second policy of the category unless `s`. The primary template stands for types that
/// are not categories.
template <class Category>
struct CategoryTraits {
    template <class P>
    static constexpr bool is_model = false;

    template <class P>
    static consteval bool diagnose() {
        static_assert(!std::same_as<P, P>,
                      "zero::ZeroStage: a policy names a category that does not exist; "
                      "'policy_category' is one of the types in zero/core/policy_category.hpp.");
        return false;
    }

    template <bool is_single>
    static consteval bool diagnose_single() {
        return is_single;
    }
};

template <>
struct CategoryTraits<ParametersCategory> {
    template <class P>
    static constexpr bool is_model = ParametersPolicy<P>;

    template <class P>
    static consteval bool diagnose() {
        return diagnose_parameters<P>();
    }

    template <bool is_single>
    static consteval bool diagnose_single() {
        static_assert(is_single, "zero::ZeroStage: two Parameters policies are given; give one.");
        return is_single;
    }
};

template <>
struct CategoryTraits<PartitionerCategory> {
    template <class P>
    static constexpr bool is_model = Partitioner<P>;

    template <class P>
    static consteval bool diagnose() {
        return diagnose_partitioner<P>();
    }

    template <bool is_single>
    static consteval bool diagnose_single() {
        static_assert(is_single, "zero::ZeroStage: two partitioners are given; give one.");
        return is_single;
    }
};

template <>
struct CategoryTraits<BucketerCategory> {
    template <class P>
    static constexpr bool is_model = Bucketer<P>;

    template <class P>
    static consteval bool diagnose() {
        return diagnose_bucketer<P>();
    }

    template <bool is_single>
    static consteval bool diagnose_single() {
        static_assert(is_single, "zero::ZeroStage: two bucketers are given; give one.");
        return is_single;
    }
};

template <>
struct CategoryTraits<CommunicatorCategory> {
    template <class P>
    static constexpr bool is_model = Communicator<P>;

    template <class P>
    static consteval bool diagnose() {
        return diagnose_communicator<P>();
    }

    template <bool is_single>
    static consteval bool diagnose_single() {
        static_assert(is_single, "zero::ZeroStage: two communicators are given; give one.");
        return is_single;
    }
};

template <>
struct CategoryTraits<LossScalerCategory> {
    template <class P>
    static constexpr bool is_model = LossScaler<P>;

    template <class P>
    static consteval bool diagnose() {
        return diagnose_loss_scaler<P>();
    }

    template <bool is_single>
    static consteval bool diagnose_single() {
        static_assert(is_single, "zero::ZeroStage: two loss scalers are given; give one.");
        return is_single;
    }
};

template <>
struct CategoryTraits<MasterWeightsCategory> {
    template <class P>
    static constexpr bool is_model = MasterWeightsPolicy<P>;

    template <class P>
    static consteval bool diagnose() {
        return diagnose_master_weights<P>();
    }

    template <bool is_single>
    static consteval bool diagnose_single() {
        static_assert(is_single,
                      "zero::ZeroStage: two MasterWeights policies are given; give one.");
        return is_single;
    }
};

template <>
struct CategoryTraits<OptimizerCategory> {
    template <class P>
    static constexpr bool is_model = Optimizer<P>;

    template <class P>
    static consteval bool diagnose() {
        return diagnose_optimizer<P>();
    }

    template <bool is_single>
    static consteval bool diagnose_single() {
        static_assert(is_single, "zero::ZeroStage: two optimizers are given; give one.");
        return is_single;
    }
};

template <>
struct CategoryTraits<OptimizerStateCategory> {
    template <class P>
    static constexpr bool is_model = OptimizerStatePolicy<P>;

    template <class P>
    static consteval bool diagnose() {
        return diagnose_optimizer_state<P>();
    }

    template <bool is_single>
    static consteval bool diagnose_single() {
        static_assert(is_single, "zero::ZeroStage: two policies for the type of the optimizer's "
                                 "states are given; give one.");
        return is_single;
    }
};

template <>
struct CategoryTraits<GradientReductionCategory> {
    template <class P>
    static constexpr bool is_model = GradientReductionPolicy<P>;

    template <class P>
    static consteval bool diagnose() {
        return diagnose_gradient_reduction<P>();
    }

    template <bool is_single>
    static consteval bool diagnose_single() {
        static_assert(is_single,
                      "zero::ZeroStage: two GradientReduction policies are given; give one.");
        return is_single;
    }
};

template <>
struct CategoryTraits<OffloadCategory> {
    template <class P>
    static constexpr bool is_model = OffloadPolicy<P>;

    template <class P>
    static consteval bool diagnose() {
        return diagnose_offload<P>();
    }

    template <bool is_single>
    static consteval bool diagnose_single() {
        static_assert(is_single, "zero::ZeroStage: two Offload policies are given; give one, with "
                                 "every kind in one zero::To.");
        return is_single;
    }
};

template <>
struct CategoryTraits<WireCategory> {
    template <class P>
    static constexpr bool is_model = WirePolicy<P>;

    template <class P>
    static consteval bool diagnose() {
        return diagnose_wire<P>();
    }

    template <bool is_single>
    static consteval bool diagnose_single() {
        static_assert(is_single, "zero::ZeroStage: two Wire policies are given; give one. "
                                 "zero::FrozenWeights is one: with others, write its codec as the "
                                 "fourth argument of zero::Wire.");
        return is_single;
    }
};

} // namespace ZERO_NAMESPACE::detail
