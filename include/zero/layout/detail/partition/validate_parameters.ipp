#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../core/hash.hpp"
#include "../../padding.hpp"
#include "../../partitioner.hpp"
#include "make_buckets.hpp"
#include "order_by.hpp"
#include "place_in_bucket.hpp"
#include "shape.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Throws `InvalidArgument` unless `unit_order` lists each of the `units` once.
ZERO_COLD_INLINE void require_unit_order(std::span<std::size_t const> unit_order,
                                         std::size_t units) {
    std::vector<char> is_listed(units, false);
    std::size_t listed = 0;
    for (std::size_t const unit : unit_order) {
        if (unit < units && !is_listed[unit]) {
            is_listed[unit] = true;
            ++listed;
        }
    }
    if (listed != units || unit_order.size() != units) {
        throw_error<InvalidArgument>(
            {"zero: unit_order lists ", unit_order.size(), " numbers, of which ", listed,
             " are units not listed before; list each of the ", units,
             " units once, or leave it empty for the reverse order of use."});
    }
}

/// @brief Throws `InvalidArgument` unless a tile follows the one before it, and the last one ends
/// its parameter.
ZERO_COLD_INLINE void require_tile(std::span<ParameterSpec const> parameters, std::size_t index) {
    ParameterSpec const& spec = parameters[index];
    if (spec.tile.of.empty()) {
        return;
    }
    std::size_t const end = spec.tile.begin + spec.elements;
    bool follows = spec.tile.begin == 0;
    if (spec.tile.is_later() && index != 0) {
        ParameterSpec const& last = parameters[index - 1];
        follows = last.tile.of == spec.tile.of && last.tile.elements == spec.tile.elements
                  && last.tile.shape == spec.tile.shape && last.type == spec.type
                  && last.group == spec.group && last.trainable == spec.trainable
                  && last.tile.begin + last.elements == spec.tile.begin;
    }
    bool const is_complete = end == spec.tile.elements
                             || (end < spec.tile.elements && index + 1 < parameters.size()
                                 && parameters[index + 1].tile.of == spec.tile.of);
    if (!follows || !is_complete || spec.elements == 0) {
        throw_error<InvalidArgument>(
            {"zero: parameter '", spec.name,
             "' is no tile between its neighbours in the list; "
             "register all that tiles() returns, one after the other and unchanged but for units "
             "and the settings that they share."});
    }
}

/// @throws InvalidArgument if the rows are not those of the first dimensions of the shape
inline void require_rows_of_shape(ParameterSpec const& spec) {
    if (spec.rows == 0 || spec.shape.empty() || spec.elements == 0) {
        return;
    }
    std::size_t rows = 1;
    bool is_product = false;
    for (std::size_t dimension = 0; dimension + 1 < spec.shape.size(); ++dimension) {
        rows *= spec.shape[dimension];
        is_product = is_product || rows == spec.rows;
    }
    if (!is_product) {
        throw_error<InvalidArgument>(
            {"zero: parameter '", spec.name, "' has ", spec.rows, " rows, but the shape ",
             shape_text(spec.shape),
             "; the rows of its matrix are the product of the first dimensions. Leave 'rows' out, "
             "or give the shape of that matrix."});
    }
}

ZERO_COLD_INLINE void validate_parameters(std::span<ParameterSpec const> parameters,
                                          LayoutOptions const& options) {
    if (options.world == 0) {
        throw_error<InvalidArgument>({"zero: world is 0; a layout needs at least one rank."});
    }
    for (std::size_t type = 0; type < options.types(); ++type) {
        if (options.bytes_of(type) == 0) {
            throw_error<InvalidArgument>(
                {"zero: element_bytes is 0; give the size of the parameter type."});
        }
    }
    std::vector<std::uint64_t> names; // hashes of the names
    // What has each name: the index of a parameter. The name of a parameter that is cut into tiles
    // has the index of its first tile plus the number of parameters.
    std::vector<std::size_t> named;
    std::vector<std::size_t> last_listed; // by unit: 1 + the last parameter that lists it
    std::size_t total = 0;
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        ParameterSpec const& spec = parameters[index];
        if (spec.name.empty()) {
            throw_error<InvalidArgument>(
                {"zero: parameter number ", index, " has no name; give each a unique one."});
        }
        if (spec.units.empty()) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", spec.name,
                 "' lists no unit; name the units that use it, in order of use."});
        }
        for (std::size_t const unit : spec.units) {
            if (unit > parameters.size() * 16 + 4096) {
                throw_error<InvalidArgument>(
                    {"zero: parameter '", spec.name, "' lists unit ", unit,
                     "; units are numbered from 0 in order of use, without large gaps."});
            }
            if (unit >= last_listed.size()) {
                last_listed.resize(unit + 1, 0);
            }
            if (last_listed[unit] == index + 1) {
                throw_error<InvalidArgument>({"zero: parameter '", spec.name, "' lists unit ", unit,
                                              " twice; list it once."});
            }
            last_listed[unit] = index + 1;
        }
        if (spec.type >= options.types()) {
            throw_error<InvalidArgument>({"zero: parameter '", spec.name, "' has the type number ",
                                          spec.type, ", but the layout is made for ",
                                          options.types(), " types; give the size of each."});
        }
        if (spec.elements > (std::numeric_limits<std::size_t>::max() >> 8U) - total) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", spec.name, "' makes the model larger than 2^56 elements."});
        }
        if (!spec.shape.empty() && product_of(spec.shape) != spec.elements) {
            throw_error<InvalidArgument>({"zero: parameter '", spec.name, "' has ", spec.elements,
                                          " elements, which is not the product of its shape ",
                                          shape_text(spec.shape),
                                          "; give only one of the two, or "
                                          "a shape with as many elements."});
        }
        if (spec.rows != 0 && spec.elements % spec.rows != 0) {
            throw_error<InvalidArgument>({"zero: parameter '", spec.name, "' has ", spec.elements,
                                          " elements, which are not ", spec.rows,
                                          " rows of equal length; give the rows of the matrix, or "
                                          "0 if it is not a matrix."});
        }
        require_rows_of_shape(spec);
        total += spec.elements;
        require_tile(parameters, index);
        named.push_back(index);
        if (!spec.tile.of.empty() && spec.tile.begin == 0) {
            named.push_back(index + parameters.size());
        }
    }
    auto const name_of = [&](std::size_t entry) -> std::string const& {
        std::size_t const index = named[entry];
        return index < parameters.size() ? parameters[index].name
                                         : parameters[index - parameters.size()].tile.of;
    };
    names.reserve(named.size());
    for (std::size_t entry = 0; entry < named.size(); ++entry) {
        names.push_back(Hash().add(std::string_view(name_of(entry))).value());
    }
    if (!options.unit_order.empty()) {
        std::size_t units = 0;
        for (ParameterSpec const& spec : parameters) {
            for (std::size_t const unit : spec.units) {
                units = larger(units, unit + 1);
            }
        }
        require_unit_order(options.unit_order, units);
    }
    std::vector<std::size_t> const order = order_by(names);
    for (std::size_t first = 0; first < order.size(); ++first) {
        for (std::size_t second = first + 1;
             second < order.size() && names[order[first]] == names[order[second]]; ++second) {
            if (name_of(order[first]) == name_of(order[second])) {
                throw_error<InvalidArgument>({"zero: two parameters are named '",
                                              name_of(order[first]),
                                              "'; names must be unique. For a tied parameter "
                                              "register it once and list all its units."});
            }
        }
    }
}

/// @brief Checks that a partitioner kept the contract of `Partitioner` for one bucket.
///
/// A partitioner that breaks it would change the results of the training, or make the engine write
/// outside its buffers. O(items log(items) + W), once per bucket.
/// @param pieces the pieces of the bucket, in the order in which the partitioner got them
/// @throws InvalidArgument naming the parameter
ZERO_COLD_INLINE void require_partition(std::span<ParameterSpec const> parameters,
                                        std::span<Piece const> pieces,
                                        std::span<PartitionItem const> items,
                                        std::span<std::size_t const> cuts,
                                        PartitionerRef const& partitioner) {
    for (std::size_t cut = 0; cut < cuts.size(); ++cut) {
        if (cuts[cut] % granularity != 0 || (cut == 0 ? cuts[0] != 0 : cuts[cut] < cuts[cut - 1])) {
            throw_error<InvalidArgument>(
                {"zero: the partitioner's cut number ", cut, " of a bucket is ", cuts[cut],
                 "; cuts must begin with 0, not descend, and be multiples of ", granularity, "."});
        }
        if (partitioner.is_even && cut != 0 && cuts[cut] - cuts[cut - 1] != cuts[1]) {
            throw_error<InvalidArgument>({"zero: the partitioner says is_even, but gives ", cuts[1],
                                          " elements of a bucket to rank 0 and ",
                                          cuts[cut] - cuts[cut - 1], " to rank ", cut - 1,
                                          "; make all extents equal, or set is_even to false."});
        }
    }
    std::vector<std::uint64_t> offsets;
    std::vector<char> is_placed(pieces.size(), false);
    for (PartitionItem const& item : items) {
        if (item.index >= pieces.size() || is_placed[item.index]
            || item.elements != pieces[item.index].elements) {
            throw_error<InvalidArgument>({"zero: the partitioner returned piece number ",
                                          item.index, " of ", pieces.size(), " with ",
                                          item.elements,
                                          " elements; it may reorder the pieces of a bucket, but "
                                          "keeps each once, with its elements."});
        }
        is_placed[item.index] = true;
        offsets.push_back(item.offset);
    }
    std::size_t free = 0;
    std::size_t next_cut = 0; // the first cut after the start of the item
    for (std::size_t const number : order_by(offsets)) {
        PartitionItem const& item = items[number];
        if (item.elements == 0) {
            continue;
        }
        ParameterSpec const& spec = parameters[pieces[item.index].parameter];
        std::string const& name = spec.name;
        if (item.offset % granularity != 0 || item.offset < free || item.offset > cuts.back()
            || item.elements > cuts.back() - item.offset) {
            throw_error<InvalidArgument>({"zero: the partitioner placed '", name, "' (",
                                          item.elements, " elements) at ", item.offset,
                                          " of a bucket of ", cuts.back(),
                                          "; pieces must start at multiples of ", granularity,
                                          ", lie inside the bucket, and do not overlap."});
        }
        free = item.offset + item.elements;
        while (cuts[next_cut] <= item.offset) {
            ++next_cut;
        }
        if (!partitioner.cuts_parameters && cuts[next_cut] < free) {
            throw_error<InvalidArgument>(
                {"zero: the partitioner says that it cuts no parameter, but cuts '", name, "' at ",
                 cuts[next_cut], "; cut between pieces, or make cuts_parameters true."});
        }
        if (partitioner.is_spread != nullptr && spec.rows != 0 && cuts[next_cut] < free) {
            throw_error<InvalidArgument>(
                {"zero: the partitioner keeps matrices whole, but cuts '", name, "' (", spec.rows,
                 " rows) at ", cuts[next_cut],
                 "; cut between pieces, or inside parameters that are no matrices."});
        }
    }
}

ZERO_COLD_INLINE BucketPlan partition_bucket(std::span<ParameterSpec const> parameters,
                                             std::span<Piece const> pieces, std::size_t world,
                                             PartitionerRef const& partitioner, void* state) {
    List<PartitionItem> items;
    for (std::size_t index = 0; index < pieces.size(); ++index) {
        items.push_back({index, pieces[index].elements, 0});
    }
    BucketPlan bucket;
    std::span<PartitionItem> const placed(items.data(), items.size());
    // Takes O(items) for any W. A partitioner that claims to cut no parameter is checked below
    // instead.
    if (partitioner.is_contiguous && partitioner.cuts_parameters) {
        bucket.extent = even_extent(place_in_order(placed), world);
    } else {
        bucket.cuts.resize(world + 1);
        partitioner.partition(placed, state, bucket.cuts);
        require_partition(parameters, pieces, as_span(items), bucket.cuts, partitioner);
        if (partitioner.is_even) {
            bucket.extent = bucket.cuts[1];
            bucket.cuts = {};
        }
    }
    bucket.pieces.reserve(items.size());
    for (PartitionItem const& item : items) {
        bucket.pieces.push_back(pieces[item.index]);
        bucket.pieces.back().bucket_begin = item.offset;
    }
    return bucket;
}

} // namespace ZERO_NAMESPACE::detail
