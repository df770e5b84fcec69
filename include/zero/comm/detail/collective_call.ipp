#pragma once

#include "collective_call.hpp"

#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../integer_reduction.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_INLINE std::uint64_t hash_of(std::span<std::size_t const> cuts) noexcept {
    std::uint64_t hash = 14695981039346656037U;
    for (std::size_t const cut : cuts) {
        hash = (hash ^ cut) * 1099511628211U;
    }
    return hash;
}

ZERO_INLINE std::string describe(CollectiveTag const& tag) {
    std::string result = text({'\'', tag.what, ' ', tag.index, '\''});
    if (tag.parameter[0] != '\0') {
        result += text({", first parameter '", tag.parameter, '\''});
    }
    return tag.context[0] == '\0' ? result : result + text({", for ", tag.context});
}

ZERO_INLINE std::string describe(CollectiveCall const& call) {
    std::string result = text({name_of(call.kind), " of ", call.count, ' ', name_of(call.type),
                               " (", describe(call.tag), ", "});
    if (call.kind == CollectiveKind::broadcast) {
        result += text({"root ", call.detail});
    } else if (call.kind == CollectiveKind::integers) {
        std::size_t const sums = call.sums();
        result += call.detail >= CollectiveCall::detail_of(0)
                      ? text({"sum of ", sums, ", minimum of the others"})
                  : call.detail == static_cast<std::uint64_t>(IntegerReduction::sum)
                      ? std::string("sum")
                      : std::string("minimum");
    } else {
        // different numbers are enough to show that the cuts differ
        result += text({"cuts ", call.detail % 10000});
    }
    return result + ')';
}

ZERO_INLINE std::string describe(CollectiveCall const& first, std::size_t rank,
                                 CollectiveCall const& other) {
    return text({"rank 0 called ", describe(first), ", rank ", rank, " called ", describe(other)});
}

ZERO_INLINE bool are_cuts(std::span<std::size_t const> cuts, std::size_t world) noexcept {
    bool are = cuts.size() == world + 1 && cuts[0] == 0;
    for (std::size_t rank = 0; are && rank < world; ++rank) {
        are = cuts[rank] <= cuts[rank + 1];
    }
    return are;
}

ZERO_INLINE void throw_mismatch(std::string_view difference) {
    throw_error<CollectiveMismatch>(
        {"zero: ", difference,
         "; every rank must make the same calls in the same order, for the same units (where a "
         "rank does not use one, skip(unit) in the forward pass, and skip(unit) and "
         "gradients_ready(unit) in the backward pass) and number of micro-steps, with the same "
         "learning rate and settings."});
}

ZERO_COLD_INLINE void throw_second_thread(CollectiveTag const& tag) {
    throw_error<OutOfOrder>({"zero: a second thread calls the collective ", describe(tag),
                             " of a communicator while another thread is in one; give each "
                             "thread the communicator of its own rank."});
}

} // namespace ZERO_NAMESPACE::detail
