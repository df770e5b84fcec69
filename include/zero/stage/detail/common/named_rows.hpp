#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/hash.hpp"
#include "../../../layout/detail/partition/order_by.hpp"
#include "../../../layout/flat_layout.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief `gather(own, what, all)` sets `all` to the values of every rank, in rank order. Each rank
/// gives as many.
using GatherValues =
    FunctionRef<std::vector<std::uint64_t> const&, char const*, std::vector<std::uint64_t>&>;

/// @brief Returns the number by which model ranks know a parameter.
[[nodiscard]] inline std::uint64_t name_hash(FlatLayout const& layout, std::size_t parameter) {
    return Hash().add(std::string_view(layout.parameter(parameter).name)).value();
}

/// @brief The rows of numbers of all ranks, found by their first number, the hash of a name. Ranks
/// may give different numbers of rows.
///
/// Ranks that hold the parts of a model know each other's parameters by it.
class NamedRows {
public:
    /// @brief Gathers them. Collective; waits. @param own this rank's rows, one after the other
    /// @param words numbers in a row, @param what tag of the collectives
    [[gnu::cold]] NamedRows(std::vector<std::uint64_t> own, std::size_t words, char const* what,
                            GatherValues gather)
        : _words(words) {
        std::vector<std::uint64_t> sizes;
        gather({own.size()}, what, sizes);
        std::size_t most = 0;
        for (std::uint64_t const size : sizes) {
            most = larger(most, static_cast<std::size_t>(size));
        }
        own.resize(most);
        std::vector<std::uint64_t> all;
        gather(own, what, all);
        std::vector<std::uint64_t> names;
        for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
            for (std::size_t at = 0; at < sizes[rank]; ++at) {
                _rows.push_back(all[rank * most + at]);
            }
            _ranks.resize(_rows.size() / words, rank);
        }
        for (std::size_t row = 0; row < _ranks.size(); ++row) {
            names.push_back(_rows[row * words]);
        }
        _order = order_by(as_span(names));
    }

    /// @brief Calls `visit(rank, row)` for every row of a name, by rank. O(log n) besides.
    template <class Visit>
    void each_of(std::uint64_t name, Visit const& visit) const {
        std::size_t at = 0;
        for (std::size_t end = _order.size(); at < end;) {
            std::size_t const middle = at + (end - at) / 2;
            if (row(middle)[0] < name) {
                at = middle + 1;
            } else {
                end = middle;
            }
        }
        for (; at < _order.size() && row(at)[0] == name; ++at) {
            visit(_ranks[_order[at]], row(at));
        }
    }

    /// @brief Calls `visit(rank, row)` for every row, by name and then by rank.
    template <class Visit>
    void each(Visit const& visit) const {
        for (std::size_t at = 0; at < _order.size(); ++at) {
            visit(_ranks[_order[at]], row(at));
        }
    }

private:
    [[nodiscard]] std::uint64_t const* row(std::size_t at) const noexcept {
        return _rows.data() + _order[at] * _words;
    }

    std::size_t _words;
    std::vector<std::uint64_t> _rows;
    std::vector<std::size_t> _ranks; ///< by row
    std::vector<std::size_t> _order; ///< of the rows by name, then by rank
};

} // namespace ZERO_NAMESPACE::detail
