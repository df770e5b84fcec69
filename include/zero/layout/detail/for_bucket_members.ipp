#pragma once

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../bucket_item.hpp"
#include "../padding.hpp"
#include "for_bucket_members.hpp"

namespace ZERO_NAMESPACE::detail {

/// @brief Returns how many of the first parameters of `order` may share a bucket.
ZERO_COLD_INLINE std::size_t count_shareable(std::span<ParameterSpec const> parameters,
                                             std::span<std::size_t const> order,
                                             bool inside_units) {
    ParameterSpec const& first = parameters[order[0]];
    std::size_t count = 1;
    while (first.units.size() == 1 && count < order.size()
           && parameters[order[count]].units.size() == 1
           && (!inside_units || parameters[order[count]].units == first.units)) {
        ++count;
    }
    return count;
}

ZERO_COLD_INLINE void for_bucket_members(std::span<ParameterSpec const> parameters,
                                         std::span<std::size_t const> order, bool inside_units,
                                         BucketerRef bucketer, std::size_t element_bytes,
                                         FunctionRef<std::span<std::size_t const>> visit) {
    while (!order.empty()) {
        std::size_t const shareable = count_shareable(parameters, order, inside_units);
        List<BucketItem> items;
        for (std::size_t const index : order.first(shareable)) {
            items.push_back(
                {padded_size(parameters[index].elements), parameters[index].units.front()});
        }
        for (std::size_t begin = 0; begin < shareable;) {
            std::size_t const taken =
                bucketer.take(as_span(items).subspan(begin), bucketer.options, element_bytes);
            if (taken == 0 || taken > shareable - begin) {
                throw_error<InvalidArgument>(
                    {"zero: the bucketer took ", taken, " of ", shareable - begin,
                     " parameters; it must take at least one and at most all."});
            }
            visit(order.subspan(begin, taken));
            begin += taken;
        }
        order = order.subspan(shareable);
    }
}

} // namespace ZERO_NAMESPACE::detail
