#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/hash.hpp"
#include "../lease_share.hpp"
#include "../parameter_spec.hpp"
#include "../piece.hpp"
#include "order_by.hpp"

#include <cstdint>
#include <vector>

namespace ZERO_NAMESPACE {

namespace detail {

ZERO_COLD_INLINE std::vector<LeaseShare> largest_first(List<LeaseShare> const& shares) {
    std::vector<std::uint64_t> firsts;
    for (LeaseShare const& share : shares) {
        firsts.push_back(share.largest);
    }
    std::vector<std::size_t> const registered = order_by(firsts);
    std::vector<std::uint64_t> sizes;
    sizes.reserve(registered.size());
    for (std::size_t const share : registered) {
        sizes.push_back(~std::uint64_t{shares[share].elements});
    }
    std::vector<LeaseShare> ordered;
    ordered.reserve(shares.size());
    for (std::size_t const position : order_by(sizes)) {
        ordered.push_back(shares[registered[position]]);
    }
    return ordered;
}

} // namespace detail

ZERO_COLD_INLINE std::vector<LeaseShare> lease_shares(FlatLayout const& layout,
                                                      std::span<std::size_t const> buckets) {
    std::vector<std::size_t> elements_of(layout.parameters().size(), 0);
    for (std::size_t const bucket : buckets) {
        for (Piece const& piece : layout.pieces(bucket)) {
            elements_of[piece.parameter] += piece.elements;
        }
    }
    std::vector<std::size_t> parameters;
    std::vector<std::uint64_t> keys; // hashes of the units; equal for equal lists
    for (std::size_t parameter = 0; parameter < elements_of.size(); ++parameter) {
        if (elements_of[parameter] != 0) {
            Hash hash;
            for (std::size_t const unit : layout.parameter(parameter).units) {
                hash.add(unit);
            }
            parameters.push_back(parameter);
            keys.push_back(hash.value());
        }
    }
    detail::List<LeaseShare> shares;
    for (std::size_t const position : detail::order_by(keys)) {
        std::size_t const parameter = parameters[position];
        if (shares.empty()
            || layout.parameter(shares[shares.size() - 1].largest).units
                   != layout.parameter(parameter).units) {
            shares.push_back({});
            shares[shares.size() - 1].largest = parameter;
        }
        LeaseShare& share = shares[shares.size() - 1];
        share.elements += elements_of[parameter];
        ++share.parameters;
        if (elements_of[parameter] > elements_of[share.largest]) {
            share.largest = parameter;
        }
        share.largest_elements = elements_of[share.largest];
    }
    return detail::largest_first(shares);
}

} // namespace ZERO_NAMESPACE
