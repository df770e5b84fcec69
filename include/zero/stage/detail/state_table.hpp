#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/range.hpp"
#include "array_kind.hpp"
#include "held_array.hpp"
#include "held_slice.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Reads and writes the training state that this rank holds as floats, whatever form it is
/// stored in: master weights, split or block-scaled, in memory of the host or of a device.
///
/// A view of the arrays of one layout. It depends on no element type, so it is compiled once.
/// `TrainingState` and checkpoints use it. Nothing may use the memory meanwhile.
class StateTable {
public:
    /// Copies bytes between the host and the memory of the state, and waits: `(to, from, bytes)`.
    using Copy = FunctionRef<void*, void const*, std::size_t>;

    /// @param arrays arrays of all parameter types
    [[gnu::cold]] StateTable(FlatLayout const& layout, List<HeldArray> arrays);

    [[nodiscard]] List<HeldArray> const& arrays() const noexcept { return _arrays; }

    /// @brief Returns the slices of a parameter in ascending order. @param array index of the array
    [[nodiscard]] std::span<HeldSlice const> slices(std::size_t array, std::size_t parameter) const;

    /// @brief Returns the index of an array; the number of arrays if there is none.
    [[nodiscard]] std::size_t find(std::size_t type, ArrayKind kind,
                                   std::size_t state = 0) const noexcept;

    /// @brief Returns the ranges of a parameter whose values this rank holds.
    /// @param kind `parameter` for the weight that the next step starts from, `state` or `gradient`
    [[nodiscard]] std::vector<Range> held(ArrayKind kind, std::size_t state,
                                          std::size_t parameter) const;

    /// @brief Reads a range of a parameter, all of which this rank must hold.
    void load(ArrayKind kind, std::size_t state, std::size_t parameter, Range range, Copy copy,
              float* out) const;

    /// @brief Writes those elements of `range` that this rank holds, rounded to the stored types. A
    /// weight is written to master weights and parameters. Blocks that share a scale must lie in
    /// the range as a whole.
    /// @param values one per element of `range`
    void store(ArrayKind kind, std::size_t state, std::size_t parameter, Range range, Copy copy,
               float const* values) const;

private:
    /// The array whose slices decide what is held.
    [[nodiscard]] std::size_t lead(ArrayKind kind, std::size_t state, std::size_t parameter) const;

    /// Calls `visit(slice, chunk)` for the parts of an array's slices inside a range. Chunks have
    /// at most `state_chunk` elements, and are cut at multiples of it in the slice.
    template <class Visitor>
    void for_chunks(std::size_t array, std::size_t parameter, Range range, Visitor&& visit) const;

    [[nodiscard]] HeldSlice const& slice_at(std::size_t array, std::size_t parameter,
                                            std::size_t element) const;
    void store_weights(std::size_t parameter, Range range, Copy copy, float const* values) const;
    void store_states(std::size_t state, std::size_t parameter, Range range, Copy copy,
                      float const* values) const;
    void store_items(std::size_t array, std::size_t parameter, Range range, Copy copy,
                     float const* values) const;
    void store_bits(std::size_t array, std::size_t parameter, Range range, Copy copy,
                    float const* values) const;

    FlatLayout const* _layout;
    List<HeldArray> _arrays;
    List<std::vector<std::size_t>> _first; ///< by array and parameter: index of its first slice
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "state_table.ipp"
#endif
