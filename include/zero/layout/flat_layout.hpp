#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/hash.hpp"
#include "bucket_plan.hpp"
#include "parameter_spec.hpp"
#include "piece.hpp"
#include "range.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The geometry of one model on W ranks: where each parameter lies, how the flat buffer is
/// cut into buckets and each bucket into shards. A pure value, computed once, the same on every
/// rank; everything else asks it and does no arithmetic of its own.
///
/// Buckets are numbered in gradient-ready order (that of `unit_order`, at first reverse
/// registration order) unless the partitioner orders otherwise; those of frozen parameters come
/// last.
class FlatLayout {
public:
    /// @param unit_order in which units finish their backward pass, each once; empty: the reverse
    /// order of use
    [[gnu::cold]] FlatLayout(std::vector<ParameterSpec> parameters, std::size_t world,
                             std::vector<BucketPlan> buckets,
                             std::vector<std::size_t> unit_order = {})
        : _world(world), _parameters(std::move(parameters)), _buckets(std::move(buckets)),
          _unit_order(std::move(unit_order)) {
        index_parameters();
        index_buckets();
    }

    /// @brief W, the number of ranks.
    [[nodiscard]] std::size_t world() const noexcept { return _world; }

    /// @brief In registration order.
    [[nodiscard]] std::span<ParameterSpec const> parameters() const noexcept {
        return detail::as_span(_parameters);
    }

    /// @brief By number of registration.
    [[nodiscard]] ParameterSpec const& parameter(std::size_t index) const {
        return _parameters[index];
    }

    /// @brief Number of the parameter's first element when all parameters are counted through in
    /// registration order.
    [[nodiscard]] std::size_t first_element(std::size_t parameter) const {
        return _first_element[parameter];
    }

    /// @brief Which buckets hold the parameter, in ascending order.
    [[nodiscard]] std::span<std::size_t const> parameter_buckets(std::size_t parameter) const {
        return detail::as_span(_parameter_buckets[parameter]);
    }

    /// @brief How many units there are.
    [[nodiscard]] std::size_t units() const noexcept { return _unit_parameters.size(); }

    /// @brief The parameters that a unit uses, in ascending order.
    [[nodiscard]] std::span<std::size_t const> unit_parameters(std::size_t unit) const {
        return detail::as_span(_unit_parameters[unit]);
    }

    /// @brief The buckets that hold them, in ascending order.
    [[nodiscard]] std::span<std::size_t const> unit_buckets(std::size_t unit) const {
        return detail::as_span(_unit_buckets[unit]);
    }

    /// @brief The order in which units are expected to finish their backward pass: buckets are
    /// filled and gradient leases counted for it.
    [[nodiscard]] std::span<std::size_t const> unit_order() const noexcept { return _unit_order; }

    /// @brief How many buckets there are.
    [[nodiscard]] std::size_t buckets() const noexcept { return _buckets.size(); }

    /// @brief Buckets below this number are trainable, the others frozen.
    [[nodiscard]] std::size_t trainable_buckets() const noexcept { return _trainable_buckets; }

    /// @brief A bucket as it was planned.
    [[nodiscard]] BucketPlan const& bucket(std::size_t bucket) const { return _buckets[bucket]; }

    /// @brief Its pieces in ascending order, without padding.
    [[nodiscard]] std::span<Piece const> pieces(std::size_t bucket) const {
        return detail::as_span(_buckets[bucket].pieces);
    }

    /// @brief Its W + 1 offsets, as collectives take them.
    [[nodiscard]] std::span<std::size_t const> cuts(std::size_t bucket) const {
        return detail::as_span(_buckets[bucket].cuts);
    }

    /// @brief Elements of a bucket with its padding.
    [[nodiscard]] std::size_t elements(std::size_t bucket) const {
        return _buckets[bucket].cuts.back();
    }

    /// @brief What one rank owns of a bucket, padding included; may be empty.
    [[nodiscard]] Range extent(std::size_t bucket, std::size_t rank) const {
        auto const& cuts = _buckets[bucket].cuts;
        return {cuts[rank], cuts[rank + 1]};
    }

    /// @brief All elements in buckets, padding included: P' of the formulas.
    [[nodiscard]] std::size_t padded_elements() const noexcept { return _bucket_begin.back(); }

    /// @brief Where a bucket starts in a buffer that holds all of them one after the other.
    [[nodiscard]] std::size_t bucket_begin(std::size_t bucket) const {
        return _bucket_begin[bucket];
    }

    /// @brief The parts of parameters inside `extent` of a bucket, as pieces: `visit(Piece)` for
    /// each, in ascending order. No padding.
    template <class Visitor>
    void for_slices(std::size_t bucket, Range extent, Visitor&& visit) const {
        for (Piece const& piece : _buckets[bucket].pieces) {
            Range const common =
                intersection({piece.bucket_begin, piece.bucket_begin + piece.elements}, extent);
            if (!common.is_empty()) {
                visit(Piece{piece.parameter,
                            piece.parameter_begin + (common.begin - piece.bucket_begin),
                            common.begin, common.size()});
            }
        }
    }

    /// @brief What `for_slices` visits in the extent of rank 0, then of rank 1 and so on: all
    /// pieces, cut where ownership changes.
    template <class Visitor>
    void for_slices_of_all_ranks(std::size_t bucket, Visitor&& visit) const {
        auto const& cuts = _buckets[bucket].cuts;
        std::size_t rank = 0;
        for (Piece const& piece : _buckets[bucket].pieces) {
            for (std::size_t done = 0; done < piece.elements;) {
                std::size_t const begin = piece.bucket_begin + done;
                while (cuts[rank + 1] <= begin) {
                    ++rank;
                }
                std::size_t const elements =
                    detail::smaller(piece.elements - done, cuts[rank + 1] - begin);
                visit(Piece{piece.parameter, piece.parameter_begin + done, begin, elements});
                done += elements;
            }
        }
    }

    /// @brief The padding of a bucket: `visit(Range)` for each gap, in ascending order.
    template <class Visitor>
    void for_padding(std::size_t bucket, Visitor&& visit) const {
        std::size_t end = 0;
        auto const visit_gap = [&](std::size_t next) {
            if (end < next) {
                visit(Range{end, next});
            }
        };
        for (Piece const& piece : _buckets[bucket].pieces) {
            visit_gap(piece.bucket_begin);
            end = piece.bucket_begin + piece.elements;
        }
        visit_gap(elements(bucket));
    }

    /// @brief Elements of parameters, without padding, inside `extent` of a bucket.
    [[nodiscard]] std::size_t content(std::size_t bucket, Range extent) const {
        std::size_t sum = 0;
        for_slices(bucket, extent, [&](Piece const& slice) { sum += slice.elements; });
        return sum;
    }

    /// @brief A hash over everything that must agree between ranks.
    [[nodiscard]] std::uint64_t hash() const {
        Hash hash;
        hash.add(_world);
        for (std::size_t index = 0; index < _parameters.size(); ++index) {
            hash.add(parameter_hash(index));
        }
        for (std::size_t const unit : _unit_order) {
            hash.add(unit);
        }
        for (auto const& bucket : _buckets) {
            for (std::size_t const cut : bucket.cuts) {
                hash.add(cut);
            }
            for (Piece const& piece : bucket.pieces) {
                hash.add(piece.parameter).add(piece.parameter_begin).add(piece.bucket_begin);
            }
        }
        return hash.value();
    }

    /// @brief A hash of one parameter: name, size, rows, units, group, trainability.
    [[nodiscard]] std::uint64_t parameter_hash(std::size_t index) const {
        ParameterSpec const& spec = _parameters[index];
        Hash hash;
        hash.add(spec.elements)
            .add(spec.group)
            .add(spec.trainable)
            .add(spec.type)
            .add(spec.rows)
            .add(std::string_view(spec.name));
        for (std::size_t const unit : spec.units) {
            hash.add(unit);
        }
        return hash.value();
    }

private:
    [[gnu::cold]] void index_parameters() {
        std::size_t next = 0;
        for (std::size_t index = 0; index < _parameters.size(); ++index) {
            _first_element.push_back(next);
            next += _parameters[index].elements;
            for (std::size_t const unit : _parameters[index].units) {
                if (unit >= _unit_parameters.size()) {
                    _unit_parameters.resize(unit + 1);
                }
                _unit_parameters[unit].push_back(index);
            }
        }
        _parameter_buckets.resize(_parameters.size());
        _unit_buckets.resize(_unit_parameters.size());
        for (std::size_t unit = _unit_order.empty() ? units() : 0; unit-- > 0;) {
            _unit_order.push_back(unit);
        }
    }

    [[gnu::cold]] void index_buckets() {
        _bucket_begin.push_back(0);
        for (std::size_t bucket = 0; bucket < _buckets.size(); ++bucket) {
            _bucket_begin.push_back(_bucket_begin.back() + elements(bucket));
            _trainable_buckets += _buckets[bucket].trainable ? 1 : 0;
            for (Piece const& piece : _buckets[bucket].pieces) {
                append_once(_parameter_buckets[piece.parameter], bucket);
                for (std::size_t const unit : _parameters[piece.parameter].units) {
                    append_once(_unit_buckets[unit], bucket);
                }
            }
        }
    }

    static void append_once(std::vector<std::size_t>& list, std::size_t value) {
        if (list.empty() || list.back() != value) {
            list.push_back(value);
        }
    }

    std::size_t _world;
    std::vector<ParameterSpec> _parameters;
    std::vector<BucketPlan> _buckets;
    std::vector<std::size_t> _unit_order;
    std::vector<std::size_t> _first_element;
    std::vector<std::size_t> _bucket_begin;
    std::vector<std::vector<std::size_t>> _parameter_buckets;
    std::vector<std::vector<std::size_t>> _unit_parameters;
    std::vector<std::vector<std::size_t>> _unit_buckets;
    std::size_t _trainable_buckets = 0;
};

} // namespace ZERO_NAMESPACE
