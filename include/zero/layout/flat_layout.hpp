#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "bucketer.hpp"
#include "cuts.hpp"
#include "parameter_spec.hpp"
#include "piece.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The geometry of a model on W ranks: the offset of each parameter in the flat buffer, the
/// cut of the flat buffer into buckets, and the cut of each bucket into one extent per rank.
///
/// A layout is a value, computed once and equal on every rank. All other code reads offsets from it
/// and computes none itself. It owns the specifications of the parameters and the bucket plans.
/// `make_layout` and `make_adopted_layout` create it.
///
/// Trainable buckets come first, frozen ones last. Buckets are numbered in gradient-ready order,
/// which follows `unit_order`, unless the partitioner chooses another order.
class FlatLayout {
public:
    /// @brief Takes the buckets as planned and indexes them. O(pieces + parameters).
    /// @param unit_order order in which units finish their backward pass, each once; empty: the
    /// reverse order of use
    FlatLayout(std::vector<ParameterSpec> parameters, std::size_t world,
               std::vector<BucketPlan> buckets, std::vector<std::size_t> unit_order = {});

    /// @brief Returns W, the number of ranks.
    [[nodiscard]] std::size_t world() const noexcept { return _world; }

    /// @brief Returns all parameters in registration order.
    [[nodiscard]] std::span<ParameterSpec const> parameters() const noexcept {
        return detail::as_span(_parameters);
    }

    /// @brief Returns a parameter by its index in registration order.
    [[nodiscard]] ParameterSpec const& parameter(std::size_t index) const {
        return _parameters[index];
    }

    /// @brief Returns the number of elements in all parameters registered before this one, without
    /// padding.
    [[nodiscard]] std::size_t first_element(std::size_t parameter) const {
        return _first_element[parameter];
    }

    /// @brief Returns the buckets that hold the parameter, in ascending order.
    [[nodiscard]] std::span<std::size_t const> parameter_buckets(std::size_t parameter) const {
        return detail::as_span(_parameter_buckets[parameter]);
    }

    /// @brief Returns where the pieces of a parameter are, in ascending order of bucket and index.
    /// Only a parameter of an adopted block has more than one.
    [[nodiscard]] std::span<PiecePosition const> parameter_pieces(std::size_t parameter) const {
        return positions(_first_of_parameter[parameter], _first_of_parameter[parameter + 1]);
    }

    /// @brief Returns the number of units.
    [[nodiscard]] std::size_t units() const noexcept { return _unit_parameters.size(); }

    /// @brief Returns the parameters that a unit uses, in ascending order.
    [[nodiscard]] std::span<std::size_t const> unit_parameters(std::size_t unit) const {
        return detail::as_span(_unit_parameters[unit]);
    }

    /// @brief Returns the buckets that hold the parameters of a unit, in ascending order.
    [[nodiscard]] std::span<std::size_t const> unit_buckets(std::size_t unit) const {
        return detail::as_span(_unit_buckets[unit]);
    }

    /// @brief Returns where the pieces of a unit's parameters are, in ascending order of bucket and
    /// index.
    [[nodiscard]] std::span<PiecePosition const> unit_pieces(std::size_t unit) const {
        return positions(_first_of_unit[unit], _first_of_unit[unit + 1]);
    }

    /// @brief Returns whether the unit uses the parameter. Both may be any number. O(log n) in the
    /// parameters of the unit.
    [[nodiscard]] bool is_member(std::size_t unit, std::size_t parameter) const noexcept;

    /// @brief Returns the order in which units are expected to finish their backward pass. The
    /// order of buckets and the number of gradient leases follow from it.
    [[nodiscard]] std::span<std::size_t const> unit_order() const noexcept { return _unit_order; }

    /// @brief Returns the number of buckets.
    [[nodiscard]] std::size_t buckets() const noexcept { return _buckets.size(); }

    /// @brief Returns the number of trainable buckets. They come first; all others are frozen.
    [[nodiscard]] std::size_t trainable_buckets() const noexcept { return _trainable_buckets; }

    /// @brief Returns the plan of a bucket.
    [[nodiscard]] BucketPlan const& bucket(std::size_t bucket) const { return _buckets[bucket]; }

    /// @brief Returns the pieces of a bucket in ascending order, without padding.
    [[nodiscard]] std::span<Piece const> pieces(std::size_t bucket) const {
        return detail::as_span(_buckets[bucket].pieces);
    }

    /// @brief Returns one piece.
    [[nodiscard]] Piece const& piece(PiecePosition at) const {
        return _buckets[at.bucket].pieces[at.index];
    }

    /// @brief Returns the W + 1 offsets where a bucket is cut into extents. `CutList` lists them as
    /// collectives take them.
    [[nodiscard]] Cuts cuts(std::size_t bucket) const {
        BucketPlan const& plan = _buckets[bucket];
        return plan.cuts.empty() ? Cuts::even(_world, plan.extent)
                                 : Cuts(detail::as_span(plan.cuts));
    }

    /// @brief Returns the number of elements in a bucket, padding included.
    [[nodiscard]] std::size_t elements(std::size_t bucket) const { return cuts(bucket).back(); }

    /// @brief Returns the range of a bucket that a rank owns, padding included. May be empty.
    [[nodiscard]] Range extent(std::size_t bucket, std::size_t rank) const {
        Cuts const cuts = this->cuts(bucket);
        return {cuts[rank], cuts[rank + 1]};
    }

    /// @brief Returns the number of elements in all buckets, padding included (P' in the formulas).
    [[nodiscard]] std::size_t padded_elements() const noexcept { return _bucket_begin.back(); }

    /// @brief Returns the first element of a bucket in the flat buffer, which holds all buckets one
    /// after the other.
    [[nodiscard]] std::size_t bucket_begin(std::size_t bucket) const {
        return _bucket_begin[bucket];
    }

    /// @brief Calls `visit(Piece)` for each slice of a parameter inside `extent` of a bucket, in
    /// ascending order, without padding.
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

    /// @brief Calls `visit(Piece)` for the slices in the extent of rank 0, then of rank 1, and so
    /// on: all pieces of the bucket, cut where the owner changes.
    template <class Visitor>
    void for_slices_of_all_ranks(std::size_t bucket, Visitor&& visit) const {
        Cuts const cuts = this->cuts(bucket);
        std::size_t rank = 0;
        for (Piece const& piece : _buckets[bucket].pieces) {
            for (std::size_t done = 0; done < piece.elements;) {
                std::size_t const begin = piece.bucket_begin + done;
                rank = cuts.owner(begin, rank);
                std::size_t const elements =
                    detail::smaller(piece.elements - done, cuts[rank + 1] - begin);
                visit(Piece{piece.parameter, piece.parameter_begin + done, begin, elements});
                done += elements;
            }
        }
    }

    /// @brief Returns the number of elements inside `extent` of a bucket, without padding.
    [[nodiscard]] std::size_t content(std::size_t bucket, Range extent) const;

    /// @brief Gives the units names for messages; they are not part of the hash.
    /// @param names one for each unit, or none
    /// @throws InvalidArgument if the number of names is neither 0 nor that of the units
    void name_units(std::vector<std::string> names);

    /// @brief Names the call by which the program reports gradients, for messages; null:
    /// `gradients_ready`. It is not part of the hash.
    void name_backward_call(char const* call) noexcept { _backward_call = call; }

    /// @brief Returns that name; null if the program calls `gradients_ready`.
    [[nodiscard]] char const* backward_call() const noexcept { return _backward_call; }

    /// @brief Returns a text such as "unit 3" or, with a name, "unit 3 ('decoder.1')".
    [[nodiscard]] std::string unit_text(std::size_t unit) const;

    /// @brief Returns the name of a unit; null if units have none.
    [[nodiscard]] char const* unit_name(std::size_t unit) const noexcept {
        return unit < _unit_names.size() ? _unit_names[unit].c_str() : nullptr;
    }

    /// @brief Returns a text such as "bucket 3 (first parameter 'weight')".
    [[nodiscard]] std::string bucket_text(std::size_t bucket) const;

    /// @brief Returns the name of the first parameter in a bucket; empty if it holds none.
    [[nodiscard]] char const* first_name(std::size_t bucket) const noexcept;

    /// @brief Takes a block of gradients (`GradientMemory::block`) for separate memory of the
    /// caller. It is not part of the hash.
    void separate_gradients() noexcept;

    /// @brief Sets a number that is equal on all ranks and differs between the layouts that engines
    /// of one group make, also when one makes its buckets again. It is not part of the hash.
    void set_number(std::uint64_t number) noexcept { _number = number; }

    /// @brief Returns that number; 0 before ranks have agreed.
    [[nodiscard]] std::uint64_t number() const noexcept { return _number; }

    /// @brief Returns the part of that number which tags carry. @see CollectiveTag::engine
    [[nodiscard]] std::uint32_t tagged_number() const noexcept {
        return static_cast<std::uint32_t>(_number);
    }

    /// @brief Returns a hash of everything in the layout that must be equal on all ranks.
    [[nodiscard]] std::uint64_t hash() const;

    /// @brief Returns a hash of one parameter: name, elements, rows, type, units, group, shape, of
    /// which parameter it is a tile, and whether it is trainable.
    [[nodiscard]] std::uint64_t parameter_hash(std::size_t index) const;

private:
    [[nodiscard]] std::span<PiecePosition const> positions(std::size_t begin,
                                                           std::size_t end) const {
        return {_positions.data() + begin, end - begin};
    }

    void index_parameters();
    void index_buckets();
    void index_pieces();

    std::size_t _world;
    std::vector<ParameterSpec> _parameters;
    std::vector<BucketPlan> _buckets;
    std::vector<std::size_t> _unit_order;
    std::vector<std::size_t> _first_element;
    std::vector<std::size_t> _bucket_begin;
    std::vector<std::vector<std::size_t>> _parameter_buckets;
    std::vector<std::vector<std::size_t>> _unit_parameters;
    std::vector<std::vector<std::size_t>> _unit_buckets;
    std::uint64_t _number = 0;                    ///< of the engine; 0: not agreed yet
    std::vector<std::string> _unit_names;         ///< empty, or one for each unit
    char const* _backward_call = nullptr;         ///< for messages; null: gradients_ready()
    std::vector<PiecePosition> _positions;        ///< by parameter, then by unit
    std::vector<std::size_t> _first_of_parameter; ///< by parameter: first position; and the end
    std::vector<std::size_t> _first_of_unit;      ///< by unit: first position; and the end
    std::size_t _trainable_buckets = 0;
};

namespace detail {

/// @brief Calls `visit(bucket)` for those of these buckets that have the type, in ascending order.
template <class Visitor>
void for_buckets(FlatLayout const& layout, Range buckets, std::size_t type, Visitor const& visit) {
    for (std::size_t bucket = buckets.begin; bucket < buckets.end; ++bucket) {
        if (layout.bucket(bucket).type == type) {
            visit(bucket);
        }
    }
}

} // namespace detail

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/partition/flat_layout.ipp"
#endif
