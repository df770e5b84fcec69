#pragma once

#include "../../../core/convert.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../layout/piece.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief Notes what a visitor of `for_each_owned_slice` writes where a parameter has a copied
/// master weight: the value, or the master weight. Each call that makes the other one follow then
/// knows which is newer. For memory that the host can read. A member of `OptimizerStore`.
///
/// While a slice is visited it needs a copy of that slice, and afterwards a byte for each element
/// of the slices that were written, until one of the calls.
/// @tparam P type of the parameter, @tparam M type of its master weight
template <class P, class M>
class WrittenWeights {
public:
    /// @brief Calls `visit()` and notes what it writes.
    /// @param index number of the slice, @param values, masters of equal length
    template <class Visit>
    void watch(std::size_t index, std::span<P> values, std::span<M> masters, Visit&& visit) {
        List<P> const old_values(values);
        List<M> const old_masters(masters);
        try {
            visit();
        } catch (...) {
            note(index, values, old_values.data(), masters, old_masters.data());
            throw;
        }
        note(index, values, old_values.data(), masters, old_masters.data());
    }

    [[nodiscard]] bool is_empty() const noexcept { return _slices.size() == 0; }

    /// @brief Sets the master weights of some slices to the values that were written.
    void take_over_values(Range slices) noexcept {
        for_written(slices, Written::value,
                    [](P& value, M& master) { master = from_float<M>(to_float(value)); });
    }

    /// @brief Rounds the master weights of some slices that were written to the values.
    void round_masters(Range slices) noexcept {
        for_written(slices, Written::master, [](P& value, M& master) { value = rounded(master); });
    }

    /// @brief Forgets all writes.
    void forget() noexcept { _slices = List<Slice>(); }

private:
    enum class Written : std::uint8_t { nothing, value, master };

    struct Slice {
        std::size_t index = 0;
        std::span<P> values{};
        std::span<M> masters{};
        List<Written> written{}; ///< by element: the last write
    };

    [[nodiscard]] static P rounded(M master) noexcept { return from_float<P>(to_float(master)); }

    template <class T>
    [[nodiscard]] static bool differ(T const& a, T const& b) noexcept {
        return std::memcmp(&a, &b, sizeof(T)) != 0;
    }

    void note(std::size_t index, std::span<P> values, P const* old_values, std::span<M> masters,
              M const* old_masters) {
        Slice* slice = nullptr;
        for (std::size_t i = 0; i < values.size(); ++i) {
            bool const is_master = differ(masters[i], old_masters[i]);
            if (!is_master && !differ(values[i], old_values[i])) {
                continue;
            }
            slice = slice == nullptr ? &find(index, values, masters) : slice;
            slice->written[i] = is_master ? Written::master : Written::value;
        }
    }

    [[nodiscard]] Slice& find(std::size_t index, std::span<P> values, std::span<M> masters) {
        std::size_t place = _next; // slices are visited in order
        for (std::size_t turn = 0; turn < _slices.size(); ++turn, ++place) {
            place = place < _slices.size() ? place : 0;
            if (_slices[place].index == index) {
                _next = place + 1;
                return _slices[place];
            }
        }
        Slice slice{index, values, masters, List<Written>(values.size())};
        _slices.push_back(std::move(slice));
        _next = 0;
        return _slices[_slices.size() - 1];
    }

    /// Skips elements that agree: a step may have followed, or both were written.
    template <class Change>
    void for_written(Range slices, Written kind, Change const& change) noexcept {
        for (Slice& slice : _slices) {
            bool const is_among = slice.index >= slices.begin && slice.index < slices.end;
            for (std::size_t i = 0; is_among && i < slice.values.size(); ++i) {
                if (slice.written[i] == kind
                    && differ(slice.values[i], rounded(slice.masters[i]))) {
                    change(slice.values[i], slice.masters[i]);
                }
            }
        }
    }

    List<Slice> _slices; ///< those that were written
    std::size_t _next = 0;
};

} // namespace ZERO_NAMESPACE::detail
