#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/hash.hpp"
#include "../core/policy_category.hpp"
#include "../core/set_by_name.hpp"
#include "../ops/block_codecs.hpp"
#include "wire_policy.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Options of `ErrorFeedback`. They must be equal on all ranks.
struct ErrorFeedbackOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    float beta = 0.8F; ///< the part of the old error in the new one: from 0 to below 1. What all
                       ///< steps since a reset lost stays below one bound / (1 - beta)
    std::uint64_t reset_every = 1024; ///< steps after which errors are set to 0; positive
};

/// @brief For `Wire`: each rank keeps what the encoding of its gradients lost, and adds it to the
/// gradients that it encodes next (LoCo, Xie et al., 2024).
///
/// With the old error e, a rank encodes v = gradient + e, and keeps beta e + (1 - beta) (v -
/// decoded v). Errors are scaled with the loss scale. A block that is not finite leaves no error. A
/// step that is skipped or cancelled sets all errors to 0, and so do every `reset_every`-th step,
/// `Engine::set_step_count` and a load without errors. Checkpoints hold them.
/// On `Groups<C, Hybrid>` a rank keeps what it lost inside its group, and nothing of what is lost
/// between replicas.
///
/// Each rank has errors of the whole model, in the row `gradient errors` of the memory plan, in
/// every stage. A parameter without a gradient gets what is left of its errors, so
/// `UnusedParameters::leave` is refused.
/// @tparam S `float`, 4 bytes an element, or a `Codec`, such as `Int8Blocks`: 66/64 bytes
template <class S>
struct ErrorFeedback {
    using Storage = S;                    ///< how errors are kept
    using Options = ErrorFeedbackOptions; ///< `StageOptions::feedback`

    /// @brief Adds the options that ranks compare.
    static void add_to(Hash& hash, Options const& options) noexcept {
        hash.add(double{options.beta}).add(options.reset_every);
    }
};

/// @brief A policy that selects how weights and gradients travel between ranks, and how frozen
/// parameters lie in memory: as they are, or in blocks of 64 elements that a `Codec` makes smaller
/// (qwZ and qgZ of ZeRO++, Wang et al., 2023).
///
/// *Weights.* Every gather of trainable parameters is encoded: of units in stage 3, and of updated
/// parameters in stages 1 and 2. What a pass reads is decode(encode(p)), where p is the master
/// weight, rounded to the parameter type. The owner reads it as well, so all ranks read the same
/// bits, which do not depend on stage, partitioner or bucket size. p keeps every bit where it is
/// the master itself: master weights, or the shards of stage 3. Frozen parameters, if they have no
/// codec of their own, initial values, states, sums and hashes travel as they are.
///
/// *Gradients.* A reduction is an exchange of codes. A rank encodes the pieces of all ranks,
/// decodes what it receives for its own extent, adds in float in rank order, and rounds once, to
/// the accumulation type. The result does not depend on stage, partitioner or bucket size. A block
/// with a NaN or an infinity decodes to NaN, so the step finds it.
///
/// *Frozen parameters* (stage 3). A rank keeps its shards in codes alone, and gathers send them as
/// they lie. A write, such as of initial values, `load_checkpoint` or `GatheredParameters`, encodes
/// once; what is read is decoded, exactly in `TrainingState`, and rounded to the parameter type in
/// a pass.
///
/// *Two levels.* On `Groups<C, Hybrid>` gradients are encoded inside a group, and once a step
/// replicas add their sums in codes: an exchange of the parts of an extent, decoded and added in
/// float in the order of replicas, rounded to the accumulation type, encoded again and gathered.
/// Every replica decodes all parts, its own as well. docs/wire.md
/// @tparam Weights `Plain`, `Int8Blocks`, `Int4Blocks` or another `Codec`
/// @tparam Gradients the same, on one level or on both; or a `Level<Inside, Between>`. The
/// communicator is an `ExchangingCommunicator`
/// @tparam Feedback `NoFeedback`, or `ErrorFeedback` beside a codec of gradients
/// @tparam Frozen `Plain`, or a `Codec` that encodes decoded blocks to the codes that they had
template <class Weights = Plain, class Gradients = Plain, class Feedback = NoFeedback,
          class Frozen = Plain>
struct Wire {
    using policy_category = WireCategory;
    using WeightCodec = Weights;     ///< or `Plain`
    using GradientCodec = Gradients; ///< or `Plain`, or a `Level`
    using ErrorFeedback = Feedback;  ///< or `NoFeedback`
    using FrozenCodec = Frozen;      ///< or `Plain`
};

/// @brief The `Wire` that only keeps frozen parameters in codes, for adapters over a frozen model
/// in stage 3.
template <class C>
using FrozenWeights = Wire<Plain, Plain, NoFeedback, C>;
static_assert(WirePolicy<Wire<>> && WirePolicy<Wire<Int8Blocks>>
              && WirePolicy<Wire<Plain, Int4Blocks, ErrorFeedback<float>>>
              && WirePolicy<FrozenWeights<Int8Blocks>>
              && WirePolicy<Wire<Plain, Level<Plain, Int8Blocks>>>);

} // namespace ZERO_NAMESPACE
