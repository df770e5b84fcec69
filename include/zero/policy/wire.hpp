#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "../ops/block_codecs.hpp"
#include "wire_policy.hpp"

namespace ZERO_NAMESPACE {

/// @brief A policy that selects how weights and gradients travel between ranks: as they are, or in
/// blocks of 64 elements that a `Codec` makes smaller (qwZ and qgZ of ZeRO++, Wang et al., 2023).
///
/// *Weights.* Every gather of trainable parameters is encoded: of units in stage 3, and of updated
/// parameters in stages 1 and 2. What a pass reads is decode(encode(p)), where p is the master
/// weight, rounded to the parameter type. The owner reads it as well, so all ranks read the same
/// bits, which do not depend on stage, partitioner or bucket size. p keeps every bit where it is
/// the master itself: master weights, or the shards of stage 3. Frozen parameters, initial values,
/// states, sums and hashes travel as they are.
///
/// *Gradients.* A reduction is an exchange of codes. A rank encodes the pieces of all ranks,
/// decodes what it receives for its own extent, adds in float in rank order, and rounds once, to
/// the accumulation type. The result does not depend on stage, partitioner or bucket size. A block
/// with a NaN or an infinity decodes to NaN, so the step finds it. docs/wire.md
/// @tparam Weights `Plain`, `Int8Blocks`, `Int4Blocks` or another `Codec`
/// @tparam Gradients the same; the communicator is an `ExchangingCommunicator`
/// @tparam Feedback `NoFeedback`
template <class Weights = Plain, class Gradients = Plain, class Feedback = NoFeedback>
struct Wire {
    using policy_category = WireCategory;
    using WeightCodec = Weights;     ///< or `Plain`
    using GradientCodec = Gradients; ///< or `Plain`
    using ErrorFeedback = Feedback;  ///< `NoFeedback`
};
static_assert(WirePolicy<Wire<>> && WirePolicy<Wire<Int8Blocks>>);

} // namespace ZERO_NAMESPACE
