#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/piece.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The parameters of a layout by name, and those that are registered in tiles by the name of
/// the whole. The layout must outlive it.
class ParameterNames {
public:
    /// @brief O(n log n) in the parameters.
    [[gnu::cold]] explicit ParameterNames(FlatLayout const& layout) {
        std::size_t const count = layout.parameters().size();
        _names.reserve(count);
        for (std::size_t index = 0; index < count; ++index) {
            auto const& spec = layout.parameter(index);
            _names.push_back({spec.name, {index, index + 1}});
            if (std::string_view const whole = spec.tile.of; !whole.empty()) {
                bool const continues = index > 0 && layout.parameter(index - 1).tile.of == whole;
                if (!continues) {
                    _names.push_back({whole, {index, index}});
                    _open = _names.size() - 1;
                }
                _names[_open].parameters.end = index + 1;
            }
        }
        std::stable_sort(_names.begin(), _names.end(),
                         [](Name const& a, Name const& b) { return a.name < b.name; });
    }

    /// @brief Returns the index of the parameter of that name, or those of its tiles. O(log n).
    /// @throws InvalidArgument if there is none
    [[nodiscard]] Range find(FlatLayout const& layout, std::string_view name) const {
        auto const found =
            std::lower_bound(_names.begin(), _names.end(), name,
                             [](Name const& a, std::string_view b) { return a.name < b; });
        if (found == _names.end() || found->name != name) {
            throw_error<InvalidArgument>({"zero: no parameter is named '", name,
                                          "'; the model has ", layout.parameters().size(),
                                          " parameters."});
        }
        return found->parameters;
    }

private:
    struct Name {
        std::string_view name;
        Range parameters;
    };

    std::vector<Name> _names; ///< in ascending order
    std::size_t _open = 0;    ///< during construction: the entry of the last tiles
};

} // namespace ZERO_NAMESPACE::detail
