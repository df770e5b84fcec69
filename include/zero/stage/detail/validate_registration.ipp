#pragma once

#include "validate_registration.hpp"

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../layout/detail/count_blocks.hpp"
#include "../../layout/detail/shape.hpp"

#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void validate_registration(std::span<AnyParameter const> parameters,
                                            std::size_t groups, Storage storage, bool needs_whole,
                                            bool serves_adopted, std::size_t types) {
    if (needs_whole && storage == Storage::adopted) {
        throw_error<InvalidArgument>(
            {"zero: an adopted block is cut inside parameters, but the optimizer needs whole ones; "
             "use Storage::scattered or Storage::owned."});
    }
    if (!serves_adopted && storage == Storage::adopted) {
        throw_error<InvalidArgument>(
            {"zero: an adopted block is cut bucket by bucket where it lies, and another "
             "partitioner would be ignored; use ContiguousPartitioner or Storage::scattered."});
    }
    std::vector<bool> is_used(groups, parameters.empty());
    for (auto const& parameter : parameters) {
        if (parameter.spec.update == Update::elements && parameter.spec.rows != 0) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", parameter.spec.name, "' has ", parameter.spec.rows,
                 " rows, which Update::elements would ignore; leave 'rows' or 'update' out."});
        }
        if (needs_whole && !parameter.spec.tile.of.empty()) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", parameter.spec.tile.of,
                 "' is registered in tiles, but the optimizer needs whole parameters; register it "
                 "without tiles()."});
        }
        // the largest index decides how many groups are made
        if (groups == 0 && parameter.spec.group >= parameters.size()) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", parameter.spec.name, "' is in group ", parameter.spec.group,
                 ", but there are ", parameters.size(),
                 " parameters, so at most as many groups; number groups from 0."});
        }
        if (groups != 0 && parameter.spec.group >= groups) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", parameter.spec.name, "' is in group ", parameter.spec.group,
                 ", but options.groups has ", groups, " entries; list every group, or none."});
        }
        if (groups != 0) {
            is_used[parameter.spec.group] = true;
        }
    }
    for (std::size_t group = 0; group < groups; ++group) {
        if (!is_used[group]) {
            throw_error<InvalidArgument>({"zero: options.groups has ", groups,
                                          " entries, but no parameter is in group ", group,
                                          ", so its options would be ignored; set the group of a "
                                          "parameter, or leave the entry out."});
        }
    }
    if (types > 1 && storage == Storage::adopted) {
        throw_error<InvalidArgument>({"zero: an adopted block holds one parameter type, but the "
                                      "model has several; use Storage::scattered."});
    }
}

ZERO_COLD_INLINE void decide_updates(std::vector<ParameterSpec>& specs,
                                     std::span<std::optional<Update> const> groups,
                                     std::string const& optimizer) {
    std::size_t trained = 0;
    std::size_t matrices = 0;
    for (ParameterSpec& spec : specs) {
        if (!spec.trainable || spec.elements == 0) {
            continue;
        }
        ++trained;
        if (!spec.update && spec.group < groups.size()) {
            spec.update = groups[spec.group];
        }
        if (!spec.update && spec.shape.size() == 2) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", spec.name, "' has the shape ", shape_text(spec.shape),
                 ", and ", optimizer,
                 " does not guess whether that is a matrix to orthogonalise; set 'update' of the "
                 "parameter or its group to zero::Update::matrix, or to zero::Update::elements for "
                 "embeddings and output heads."});
        }
        if (spec.update == Update::matrix) {
            if (spec.rows == 0 && spec.shape.size() < 2) {
                throw_error<InvalidArgument>(
                    {"zero: parameter '", spec.name, "' is chosen as a matrix, but has ",
                     spec.shape.empty() ? std::string("neither rows nor a shape")
                                        : "the shape " + shape_text(spec.shape) + " and no rows",
                     "; give 'rows', or choose zero::Update::elements."});
            }
            spec.rows = spec.rows == 0 ? spec.shape.front() : spec.rows;
            ++matrices;
        } else {
            spec.update = Update::elements;
            spec.rows = 0;
        }
    }
    if (trained != 0 && matrices == 0) {
        throw_error<InvalidArgument>(
            {"zero: none of the ", trained, " trainable parameters is a matrix, so ", optimizer,
             " would orthogonalise nothing; set 'update' of those that are to "
             "zero::Update::matrix, or use AdamW."});
    }
}

ZERO_COLD_INLINE void require_tiles_of_blocks(std::span<AnyParameter const> parameters,
                                              std::span<std::size_t const> offsets) {
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        ParameterSpec const& spec = parameters[index].spec;
        if (!spec.trainable || !spec.tile.is_later()) {
            continue;
        }
        if (spec.tile.begin % block_elements != 0) {
            throw_error<InvalidArgument>(
                {"zero: tile '", spec.name, "' begins inside a block of ", block_elements,
                 " elements of '", spec.tile.of,
                 "' whose states share a scale, so it would not train to the bits of the whole "
                 "parameter; choose a number of tiles that begin at multiples of ",
                 block_elements, ", or use OptimizerState<bfloat16>."});
        }
        if (!offsets.empty() && offsets[index] % block_elements != 0) {
            throw_error<InvalidArgument>(
                {"zero: tile '", spec.name, "' begins at element ", offsets[index],
                 " of the adopted block, which is no multiple of the ", block_elements,
                 " elements whose states share a scale, so it would not train to the bits of the "
                 "whole parameter; use Storage::scattered, or OptimizerState<bfloat16>."});
        }
    }
}

} // namespace ZERO_NAMESPACE::detail
