#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../contiguous_partitioner.hpp"
#include "../padding.hpp"
#include "../piece.hpp"
#include "../range.hpp"
#include "for_bucket_members.hpp"
#include "make_adopted_buckets.hpp"
#include "order_by.hpp"
#include "partition_bucket.hpp"
#include "partitioner_ref.hpp"
#include "validate_parameters.hpp"

#include <cstdint>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief Cuts an adopted block into buckets.
///
/// It cuts one stretch of adjacent trainable parameters after another. A stretch is a list of
/// parameters without a gap between them, in descending order of address, which is gradient-ready
/// order.
class AdoptedBlock {
public:
    AdoptedBlock(std::span<ParameterSpec const> parameters, std::span<std::size_t const> offsets,
                 std::size_t world)
        : _parameters(parameters), _offsets(offsets), _world(world) {}

    /// @brief Returns where a parameter lies in the block.
    [[nodiscard]] Range range(std::size_t index) const {
        return {_offsets[index], _offsets[index] + _parameters[index].elements};
    }

    /// @brief Makes direct buckets of the parts between multiples of W * `granularity`, and
    /// collects the ends of the stretch for the staged bucket.
    void cut(std::span<std::size_t const> stretch, BucketerRef bucketer,
             std::size_t element_bytes) {
        std::size_t const step = _world * granularity;
        Range const whole{range(stretch.back()).begin, range(stretch.front()).end};
        Range const body{round_up(whole.begin, step), round_down(whole.end, step)};
        if (body.begin >= body.end) {
            add_staged(stretch, whole);
            return;
        }
        add_staged(stretch, {body.end, whole.end});
        std::size_t const most = larger(step, round_down(bucketer.capacity / element_bytes, step));
        std::size_t top = body.end;
        auto const add = [&](std::span<std::size_t const> members) {
            std::size_t const bottom =
                larger(body.begin, round_down(range(members.back()).begin, step));
            while (bottom < top) {
                std::size_t const begin = top - smaller(top - bottom, most);
                add_direct_bucket(stretch, {begin, top});
                top = begin;
            }
        };
        for_bucket_members(_parameters, stretch, false, bucketer, element_bytes, add);
        add_staged(stretch, {whole.begin, body.begin});
    }

    /// @brief Returns the direct buckets, then the staged one if there is any.
    [[nodiscard]] std::vector<BucketPlan> finish() && {
        if (!_staged.empty()) {
            ContiguousPartitioner::State state;
            _buckets.push_back(partition_bucket(_parameters, as_span(_staged), _world,
                                                partitioner_ref<ContiguousPartitioner>(), &state));
            _buckets.back().is_staged = true;
        }
        return std::move(_buckets);
    }

private:
    /// @brief Returns the pieces of a stretch inside `part` of the block, in ascending order.
    /// O(log stretch + pieces).
    [[nodiscard]] std::vector<Piece> pieces(std::span<std::size_t const> stretch,
                                            Range part) const {
        std::size_t first = 0; // all parameters before it lie behind the part
        for (std::size_t left = stretch.size(); left != 0;) {
            std::size_t const half = left / 2;
            bool const is_behind = range(stretch[first + half]).begin >= part.end;
            first += is_behind ? half + 1 : 0;
            left = is_behind ? left - half - 1 : half;
        }
        std::size_t last = first;
        while (last < stretch.size() && range(stretch[last]).end > part.begin) {
            ++last;
        }
        std::vector<Piece> pieces;
        for (std::size_t position = last; position-- > first;) {
            std::size_t const index = stretch[position];
            Range const common = intersection(range(index), part);
            if (!common.is_empty()) {
                pieces.push_back({index, common.begin - _offsets[index], common.begin - part.begin,
                                  common.size()});
            }
        }
        return pieces;
    }

    void add_direct_bucket(std::span<std::size_t const> stretch, Range part) {
        BucketPlan bucket;
        bucket.pieces = pieces(stretch, part);
        bucket.block_begin = part.begin;
        bucket.extent = part.size() / _world;
        _buckets.push_back(std::move(bucket));
    }

    void add_staged(std::span<std::size_t const> stretch, Range part) {
        for (Piece const& piece : pieces(stretch, part)) {
            _staged.push_back(piece);
        }
    }

    std::span<ParameterSpec const> _parameters;
    std::span<std::size_t const> _offsets;
    std::size_t _world;
    std::vector<BucketPlan> _buckets;
    std::vector<Piece> _staged;
};

/// @brief Returns the parameters that have elements, in descending order of address.
ZERO_COLD_INLINE std::vector<std::size_t>
descending_order(std::span<ParameterSpec const> parameters, std::span<std::size_t const> offsets) {
    std::vector<std::size_t> const ascending =
        order_by(std::vector<std::uint64_t>(offsets.begin(), offsets.end()));
    std::vector<std::size_t> order;
    for (std::size_t position = ascending.size(); position-- > 0;) {
        if (parameters[ascending[position]].elements != 0) {
            order.push_back(ascending[position]);
        }
    }
    return order;
}

ZERO_COLD_INLINE std::vector<BucketPlan>
make_adopted_buckets(std::span<ParameterSpec const> parameters,
                     std::span<std::size_t const> offsets, LayoutOptions const& options,
                     BucketerRef bucketer) {
    validate_parameters(parameters, options);
    bucketer.validate(bucketer.options);
    if (!options.unit_order.empty()) {
        throw_error<InvalidArgument>(
            {"zero: unit_order would be ignored, because an adopted block is cut in the order of "
             "its addresses; leave it out."});
    }
    if (offsets.size() != parameters.size()) {
        throw_error<InvalidArgument>({"zero: ", offsets.size(), " offsets are given for ",
                                      parameters.size(),
                                      " parameters of an adopted block; give one each."});
    }
    AdoptedBlock block(parameters, offsets, options.world);
    std::vector<std::size_t> const order = descending_order(parameters, offsets);
    std::vector<std::size_t> stretch;
    auto const finish_stretch = [&] {
        if (!stretch.empty()) {
            block.cut(stretch, bucketer, options.element_bytes);
            stretch.clear();
        }
    };
    for (std::size_t position = 0; position < order.size(); ++position) {
        std::size_t const index = order[position];
        std::size_t const next =
            position == 0 ? block.range(index).end : offsets[order[position - 1]];
        if (block.range(index).end > next) {
            throw_error<InvalidArgument>(
                {"zero: parameters '", parameters[index].name, "' and '",
                 parameters[order[position - 1]].name,
                 "' overlap in the adopted block; for a tied parameter register it once and list "
                 "all its units."});
        }
        if (block.range(index).end < next) {
            finish_stretch();
        }
        if (parameters[index].trainable) {
            stretch.push_back(index);
        } else {
            finish_stretch();
        }
    }
    finish_stretch();
    return std::move(block).finish();
}

} // namespace ZERO_NAMESPACE::detail
