#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../core/hash.hpp"
#include "../layout_options.hpp"
#include "../parameter_spec.hpp"
#include "order_by.hpp"
#include "ready_order.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Refuses what no layout can be made of. @throws InvalidArgument naming the parameter and
/// the remedy.
[[gnu::cold]] inline void validate_parameters(std::span<ParameterSpec const> parameters,
                                              LayoutOptions const& options) {
    if (options.world == 0) {
        detail::throw_error<InvalidArgument>(
            {"zero: world is 0; a layout needs at least one rank."});
    }
    for (std::size_t type = 0; type < options.types(); ++type) {
        if (options.bytes_of(type) == 0) {
            detail::throw_error<InvalidArgument>(
                {"zero: element_bytes is 0; give the size of the parameter type."});
        }
    }
    std::vector<std::uint64_t> names; // their hashes
    std::size_t total = 0;
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        ParameterSpec const& spec = parameters[index];
        if (spec.name.empty()) {
            detail::throw_error<InvalidArgument>(
                {"zero: parameter number ", index, " has no name; give each a unique one."});
        }
        if (spec.units.empty()) {
            detail::throw_error<InvalidArgument>(
                {"zero: parameter '", spec.name,
                 "' lists no unit; name the units that use it, in order of use."});
        }
        for (std::size_t const unit : spec.units) {
            std::size_t listed = 0;
            for (std::size_t const other : spec.units) {
                listed += other == unit ? 1U : 0U;
            }
            if (listed != 1) {
                detail::throw_error<InvalidArgument>({"zero: parameter '", spec.name,
                                                      "' lists unit ", unit,
                                                      " twice; list it once."});
            }
            if (unit > parameters.size() * 16 + 4096) {
                detail::throw_error<InvalidArgument>(
                    {"zero: parameter '", spec.name, "' lists unit ", unit,
                     "; units are numbered from 0 in order of use, without large gaps."});
            }
        }
        if (spec.type >= options.types()) {
            detail::throw_error<InvalidArgument>({"zero: parameter '", spec.name,
                                                  "' has the type number ", spec.type,
                                                  ", but the layout is made for ", options.types(),
                                                  " types; give the size of each."});
        }
        if (spec.rows != 0 && spec.elements % spec.rows != 0) {
            detail::throw_error<InvalidArgument>(
                {"zero: parameter '", spec.name, "' has ", spec.elements,
                 " elements, which are not ", spec.rows,
                 " rows of equal length; give the rows of the matrix, or 0 if it is none."});
        }
        if (spec.elements > (std::numeric_limits<std::size_t>::max() >> 8U) - total) {
            detail::throw_error<InvalidArgument>(
                {"zero: parameter '", spec.name, "' makes the model larger than 2^56 elements."});
        }
        total += spec.elements;
        names.push_back(Hash().add(std::string_view(spec.name)).value());
    }
    if (!options.unit_order.empty()) {
        std::size_t units = 0;
        for (ParameterSpec const& spec : parameters) {
            for (std::size_t const unit : spec.units) {
                units = std::max(units, unit + 1);
            }
        }
        detail::require_unit_order(options.unit_order, units);
    }
    std::vector<std::size_t> const order = detail::order_by(names);
    for (std::size_t first = 0; first < order.size(); ++first) {
        for (std::size_t second = first + 1;
             second < order.size() && names[order[first]] == names[order[second]]; ++second) {
            if (parameters[order[first]].name == parameters[order[second]].name) {
                detail::throw_error<InvalidArgument>({"zero: two parameters are named '",
                                                      parameters[order[first]].name,
                                                      "'; names are unique. For a tied parameter "
                                                      "register it once and list all its units."});
            }
        }
    }
}

} // namespace ZERO_NAMESPACE::detail
