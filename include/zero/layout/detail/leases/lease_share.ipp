#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/hash.hpp"
#include "../../gradient_source.hpp"
#include "../../lease_plan.hpp"
#include "../../lease_share.hpp"
#include "../../parameter_spec.hpp"
#include "../../piece.hpp"
#include "../partition/order_by.hpp"

#include <cstdint>
#include <vector>

namespace ZERO_NAMESPACE {

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
    auto const registered = detail::sorted_by(detail::as_span(shares), [](LeaseShare const& share) {
        return std::uint64_t{share.largest};
    });
    return detail::sorted_by(detail::as_span(registered), [](LeaseShare const& share) {
        return ~std::uint64_t{share.elements};
    });
}

namespace detail {

/// @brief Returns the units that use a parameter, at most three by name: "unit 0 and unit 13".
ZERO_COLD_INLINE std::string units_text(FlatLayout const& layout, ParameterSpec const& spec) {
    std::size_t const named = smaller(spec.units.size(), std::size_t{3});
    std::string units;
    for (std::size_t index = 0; index < named; ++index) {
        units += text({(index == 0 ? "" : " and "), layout.unit_text(spec.units[index])});
    }
    std::size_t const others = spec.units.size() - named;
    return others == 0 ? units : text({units, " and ", others, " others"});
}

/// @brief Returns "unit 32: 436.22 MB in 9 parameters, the largest is 'l31.gate' with 117.44 MB",
/// or "unit 0: 77.19 MB in 'wte'" for a share of one parameter.
ZERO_COLD_INLINE std::string share_text(FlatLayout const& layout, LeaseShare const& share,
                                        std::size_t element_bytes) {
    ParameterSpec const& largest = layout.parameter(share.largest);
    std::string const all =
        text({units_text(layout, largest), ": ", bytes_text(share.elements * element_bytes)});
    return share.parameters == 1
               ? text({all, " in '", largest.name, '\''})
               : text({all, " in ", share.parameters, " parameters, the largest is '", largest.name,
                       "' with ", bytes_text(share.largest_elements * element_bytes)});
}

/// @brief Returns the lines of one lease buffer, which name at most three shares and sum up to its
/// size; empty if the buffer is empty.
/// @param whole elements of the peak that follow those of its buckets (`whole_gradient_elements`)
ZERO_COLD_INLINE std::string buffer_text(char const* name, FlatLayout const& layout,
                                         LeasePlan const& plan, std::size_t element_bytes,
                                         std::size_t whole = 0) {
    if (plan.elements == 0) {
        return {};
    }
    std::string lines =
        text({name, " (", bytes_text(plan.elements * element_bytes), ") at their peak:\n"});
    std::vector<LeaseShare> const shares = lease_shares(layout, as_span(plan.peak));
    std::size_t const named = smaller(shares.size(), std::size_t{3});
    std::size_t content = 0;
    for (std::size_t index = 0; index < named; ++index) {
        lines += text({"  ", share_text(layout, shares[index], element_bytes), '\n'});
        content += shares[index].elements;
    }
    std::size_t others = 0;
    for (std::size_t index = named; index < shares.size(); ++index) {
        others += shares[index].elements;
    }
    std::size_t in_flight = whole;
    for (std::size_t const bucket : plan.peak) {
        in_flight += layout.elements(bucket);
    }
    auto const add = [&](char const* part, std::size_t elements) {
        if (elements != 0) {
            lines += text({"  ", part, ": ", bytes_text(elements * element_bytes), '\n'});
        }
    };
    add("other units", others);
    add("whole gradients of parameters in several buckets", whole);
    add("padding", in_flight - whole - content - others);
    add("gaps between places", plan.planned_elements() - in_flight);
    add("spare places", plan.elements - plan.planned_elements());
    return lines;
}

/// @brief Returns the largest bucket whose gradients are copied before their reduction, as a plan
/// of the one buffer for such copies.
ZERO_COLD_INLINE LeasePlan copied_gradients(FlatLayout const& layout, std::size_t type) {
    LeasePlan plan;
    plan.elements = copied_gradient_elements(layout, type);
    for (std::size_t bucket = 0; bucket < layout.trainable_buckets() && plan.peak.empty();
         ++bucket) {
        if (layout.bucket(bucket).type == type && layout.elements(bucket) == plan.elements
            && gradient_source(layout, bucket) == GradientSource::copy) {
            plan.peak.push_back(bucket);
        }
    }
    return plan;
}

/// @brief Returns the bytes of a buffer that holds several parameters at once because they are all
/// in one unit; 0 for other buffers.
ZERO_COLD_INLINE std::size_t one_unit_bytes(FlatLayout const& layout, LeasePlan const& plan,
                                            std::size_t element_bytes) {
    std::vector<LeaseShare> const shares = lease_shares(layout, as_span(plan.peak));
    bool const holds_all = layout.units() == 1 && !shares.empty() && shares.front().parameters > 1;
    return holds_all ? plan.planned_elements() * element_bytes : 0;
}

/// @brief Returns a line that says why a rank that holds the sums of all gradients leases gradients
/// in addition to them; empty if it leases none, or holds its share of the sums.
ZERO_COLD_INLINE std::string lease_reason(FlatLayout const& layout, StageRow const& row,
                                          ElementSizes const& sizes, std::size_t type,
                                          LeasePlan const& gradients, bool reads_in_place) {
    if (!holds_all_sums(layout, row) || has_gradient_block(layout)
        || (gradients.elements == 0
            && (reads_in_place || copied_gradient_elements(layout, type) == 0))) {
        return {};
    }
    return text({"gradients lie beside their sums because ",
                 sizes.gradient != sizes.accumulation ? "the sums have another type"
                 : !can_sum_in_leases(layout, row, type)
                     ? "those of parameters in several buckets are written as a whole"
                     : "a step may have several micro-steps; .reduction = {.one_micro_step = "
                       "true} excludes that, and none is leased if both have the same type",
                 "\n"});
}

} // namespace detail

ZERO_COLD_INLINE std::string describe_leases(FlatLayout const& layout, StageRow const& row,
                                             ElementSizes const& sizes, Storage storage,
                                             std::size_t spares, std::size_t type,
                                             GatherOptions const& gather, bool sums_in_leases,
                                             bool reads_in_place) {
    LeasePlan const gradients =
        sums_in_leases ? LeasePlan{}
                       : plan_gradient_leases(layout, !row.shards_parameters(), spares, type);
    LeasePlan const parameters = plan_parameter_leases(layout, row, storage, spares, type, gather);
    std::size_t whole_gradients = 0;
    for (std::size_t const bucket : gradients.peak) {
        whole_gradients += whole_gradient_elements(layout, bucket);
    }
    std::string lines =
        detail::buffer_text("gradient leases", layout, gradients, sizes.gradient, whole_gradients)
        + detail::buffer_text(
            "copies of caller-owned gradients", layout,
            sums_in_leases || reads_in_place ? LeasePlan{} : detail::copied_gradients(layout, type),
            sizes.gradient)
        + detail::buffer_text("parameter leases", layout, parameters, sizes.parameter);
    std::size_t whole = detail::one_unit_bytes(layout, gradients, sizes.gradient);
    if (row.shards_parameters()) { // otherwise buckets are copied one at a time
        whole += detail::one_unit_bytes(layout, parameters, sizes.parameter);
    }
    if (whole != 0) {
        lines += detail::text(
            {"all parameters lie in ", layout.unit_text(0),
             ", so all leases are in flight at once (", detail::bytes_text(whole),
             "), and no reduction overlaps with the backward pass; with a unit for each layer "
             "(.units = {layer} in the registrations) they hold about two layers, at least the "
             "largest parameter\n"});
    }
    return sums_in_leases
               ? lines
               : lines + detail::lease_reason(layout, row, sizes, type, gradients, reads_in_place);
}

} // namespace ZERO_NAMESPACE
