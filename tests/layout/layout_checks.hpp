#pragma once

// Checks what must hold for every layout and names the first violation.

#include <zero/layout/bucketer.hpp>
#include <zero/layout/flat_layout.hpp>
#include <zero/layout/piece.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace zero::test {

struct LayoutRules {
    bool has_whole_parameters =
        true;            ///< every parameter is in one bucket, starting at a multiple of 64
    bool is_even = true; ///< all extents of a bucket are equal
    bool may_cut = true; ///< a parameter may be on several ranks
    bool is_inside_units = false; ///< all parameters of a bucket have the same units
    bool is_cut_as_group =
        false; ///< the trainable and the frozen buckets are each cut once, as one group
};

namespace detail {

inline std::string cuts_problem(FlatLayout const& layout, std::size_t bucket,
                                LayoutRules const& rules) {
    auto const cuts = layout.cuts(bucket);
    if (cuts.size() != layout.world() + 1 || cuts[0] != 0) {
        return "there are not W + 1 cuts from 0";
    }
    for (std::size_t rank = 0; rank < layout.world(); ++rank) {
        if (cuts[rank + 1] < cuts[rank] || cuts[rank + 1] % 64 != 0) {
            return "cut " + std::to_string(rank + 1) + " falls or is not a multiple of 64";
        }
        if (rules.is_even && cuts[rank + 1] - cuts[rank] != cuts[1]) {
            return "the extents are not equally long";
        }
    }
    return "";
}

/// Checks that pieces are in order, do not overlap and are inside the bucket, and that padding is
/// minimal.
inline std::string pieces_problem(FlatLayout const& layout, std::size_t bucket,
                                  LayoutRules const& rules) {
    std::size_t end = 0;
    std::size_t aligned_sum = 0;
    for (Piece const& piece : layout.pieces(bucket)) {
        ParameterSpec const& spec = layout.parameter(piece.parameter);
        if (piece.bucket_begin < end
            || piece.bucket_begin + piece.elements > layout.elements(bucket)) {
            return "'" + spec.name + "' overlaps its predecessor or the end";
        }
        if (rules.has_whole_parameters
            && (piece.bucket_begin % 64 != 0 || piece.parameter_begin != 0
                || piece.elements != spec.elements)) {
            return "'" + spec.name + "' is not whole or does not start at a multiple of 64";
        }
        if (spec.trainable != layout.bucket(bucket).trainable) {
            return "'" + spec.name + "' shares a bucket with parameters of the other trainability";
        }
        if (rules.has_whole_parameters && spec.units.size() > 1
            && layout.pieces(bucket).size() != 1) {
            return "tied '" + spec.name + "' has no bucket of its own";
        }
        if (rules.is_inside_units
            && spec.units != layout.parameter(layout.pieces(bucket)[0].parameter).units) {
            return "'" + spec.name + "' belongs to other units";
        }
        end = piece.bucket_begin + piece.elements;
        aligned_sum += (piece.elements + 63) / 64 * 64;
    }
    std::size_t const edge = rules.is_even ? 64 * layout.world() : 64;
    std::size_t const expected = (aligned_sum + edge - 1) / edge * edge;
    bool const has_group_padding =
        rules.is_cut_as_group
        && (bucket + 1 == layout.trainable_buckets() || bucket + 1 == layout.buckets());
    if (rules.has_whole_parameters && !has_group_padding && layout.elements(bucket) != expected) {
        return "has " + std::to_string(layout.elements(bucket)) + " elements with padding, not "
               + std::to_string(expected);
    }
    std::size_t padding = 0;
    bool touches_a_piece = false;
    std::size_t gap_begin = 0;
    auto const check_gap = [&](std::size_t gap_end) {
        padding += gap_end - gap_begin;
        touches_a_piece = touches_a_piece || gap_end < gap_begin
                          || layout.content(bucket, {gap_begin, gap_end}) != 0;
    };
    for (Piece const& piece : layout.pieces(bucket)) {
        check_gap(piece.bucket_begin);
        gap_begin = piece.bucket_begin + piece.elements;
    }
    check_gap(layout.elements(bucket));
    if (touches_a_piece
        || padding + layout.content(bucket, {0, layout.elements(bucket)})
               != layout.elements(bucket)) {
        return "has padding that is not the complement of its parameters";
    }
    return layout.pieces(bucket).empty() ? "is empty" : "";
}

/// Checks that the buckets [begin, end), one after the other, are cut once into equal shards in
/// rank order, with minimal padding.
inline std::string group_problem(FlatLayout const& layout, std::size_t begin, std::size_t end) {
    std::size_t aligned_sum = 0;
    for (std::size_t bucket = begin; bucket < end; ++bucket) {
        for (Piece const& piece : layout.pieces(bucket)) {
            aligned_sum += (piece.elements + 63) / 64 * 64;
        }
    }
    std::size_t const edge = 64 * layout.world();
    std::size_t const shard = (aligned_sum + edge - 1) / edge * 64;
    for (std::size_t bucket = begin; bucket < end; ++bucket) {
        Range const part{layout.bucket_begin(bucket) - layout.bucket_begin(begin),
                         layout.bucket_begin(bucket) - layout.bucket_begin(begin)
                             + layout.elements(bucket)};
        for (std::size_t rank = 0; rank < layout.world(); ++rank) {
            Range const own = intersection({rank * shard, (rank + 1) * shard}, part);
            Range const extent = layout.extent(bucket, rank);
            if (extent.size() != own.size()
                || (!own.is_empty() && extent.begin + part.begin != own.begin)) {
                return "bucket " + std::to_string(bucket) + ": the extent of rank "
                       + std::to_string(rank) + " is not its part of the group";
            }
        }
        if (bucket + 1 == end && part.end != shard * layout.world()) {
            return "bucket " + std::to_string(bucket) + ": the group ends at "
                   + std::to_string(part.end);
        }
    }
    return "";
}

/// Checks that every element of every parameter is in exactly one extent of exactly one bucket.
inline std::string ownership_problem(FlatLayout const& layout, LayoutRules const& rules,
                                     bool has_frozen_buckets) {
    std::vector<std::vector<Piece>> slices(layout.parameters().size());
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        std::vector<std::size_t> by_rank;
        std::vector<std::size_t> at_once;
        auto const note = [](std::vector<std::size_t>& list, Piece const& slice) {
            list.insert(list.end(), {slice.parameter, slice.parameter_begin, slice.bucket_begin,
                                     slice.elements});
        };
        for (std::size_t rank = 0; rank < layout.world(); ++rank) {
            layout.for_slices(bucket, layout.extent(bucket, rank), [&](Piece const& slice) {
                slices[slice.parameter].push_back(slice);
                note(by_rank, slice);
            });
        }
        layout.for_slices_of_all_ranks(bucket, [&](Piece const& slice) { note(at_once, slice); });
        if (by_rank != at_once) {
            return "bucket " + std::to_string(bucket)
                   + " has other slices of all ranks together than rank by rank";
        }
    }
    for (std::size_t index = 0; index < slices.size(); ++index) {
        ParameterSpec const& spec = layout.parameter(index);
        std::sort(slices[index].begin(), slices[index].end(), [](Piece const& a, Piece const& b) {
            return a.parameter_begin < b.parameter_begin;
        });
        std::size_t end = 0;
        for (Piece const& slice : slices[index]) {
            if (slice.parameter_begin != end || slice.elements == 0) {
                return "'" + spec.name + "' has a gap or an overlap at element "
                       + std::to_string(end);
            }
            end += slice.elements;
        }
        bool const is_placed = spec.trainable || has_frozen_buckets;
        if (end != (is_placed ? spec.elements : 0)
            || (!rules.may_cut && slices[index].size() > 1)) {
            return "'" + spec.name + "' has " + std::to_string(end) + " owned elements in "
                   + std::to_string(slices[index].size()) + " slices";
        }
    }
    return "";
}

/// Checks that the tables by parameter and by unit agree with the pieces.
inline std::string index_problem(FlatLayout const& layout) {
    std::vector<std::vector<std::size_t>> of_parameter(layout.parameters().size());
    std::vector<std::vector<std::size_t>> of_unit(layout.units());
    std::size_t end = 0;
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        if (layout.bucket_begin(bucket) != end
            || layout.bucket(bucket).trainable != (bucket < layout.trainable_buckets())) {
            return "bucket " + std::to_string(bucket) + " starts elsewhere or is not in order";
        }
        end += layout.elements(bucket);
        for (Piece const& piece : layout.pieces(bucket)) {
            of_parameter[piece.parameter].push_back(bucket);
            for (std::size_t const unit : layout.parameter(piece.parameter).units) {
                of_unit[unit].push_back(bucket);
            }
        }
    }
    auto const differs = [](std::vector<std::size_t>& expected, auto found) {
        std::sort(expected.begin(), expected.end());
        expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
        return !std::equal(expected.begin(), expected.end(), found.begin(), found.end());
    };
    std::size_t first = 0;
    for (std::size_t index = 0; index < of_parameter.size(); ++index) {
        if (layout.first_element(index) != first
            || differs(of_parameter[index], layout.parameter_buckets(index))) {
            return "the buckets or the number of '" + layout.parameter(index).name + "' are wrong";
        }
        first += layout.parameter(index).elements;
    }
    for (std::size_t unit = 0; unit < of_unit.size(); ++unit) {
        if (differs(of_unit[unit], layout.unit_buckets(unit))) {
            return "the buckets of unit " + std::to_string(unit) + " are wrong";
        }
    }
    return layout.padded_elements() == end ? "" : "padded_elements is not the sum of the buckets";
}

} // namespace detail

/// @brief Returns the first rule that `layout` violates, or an empty text. O(pieces * W),
/// independent of the sizes of parameters.
inline std::string problem_in(FlatLayout const& layout, LayoutRules const& rules,
                              bool has_frozen_buckets = true) {
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        std::string const problem = detail::cuts_problem(layout, bucket, rules);
        std::string const second =
            problem.empty() ? detail::pieces_problem(layout, bucket, rules) : problem;
        if (!second.empty()) {
            return "bucket " + std::to_string(bucket) + ": " + second;
        }
    }
    if (rules.is_cut_as_group) {
        std::string const trainable = detail::group_problem(layout, 0, layout.trainable_buckets());
        std::string const group =
            trainable.empty()
                ? detail::group_problem(layout, layout.trainable_buckets(), layout.buckets())
                : trainable;
        if (!group.empty()) {
            return group;
        }
    }
    std::string const owners = detail::ownership_problem(layout, rules, has_frozen_buckets);
    return owners.empty() ? detail::index_problem(layout) : owners;
}

/// @brief Returns the parameters of each bucket, in registration order.
inline std::vector<std::vector<std::size_t>> bucket_members(FlatLayout const& layout) {
    std::vector<std::vector<std::size_t>> members(layout.buckets());
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        for (Piece const& piece : layout.pieces(bucket)) {
            members[bucket].push_back(piece.parameter);
        }
        std::sort(members[bucket].begin(), members[bucket].end());
    }
    return members;
}

} // namespace zero::test
