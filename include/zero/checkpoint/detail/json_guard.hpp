#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief A callback of the JSON parser. Refuses text that is nested too deeply, which would
/// overflow the stack later, and an object with a name that occurs twice, of which the parser drops
/// one.
class JsonGuard {
public:
    explicit JsonGuard(std::size_t most_levels) : _names(most_levels + 1) {}

    template <class Event, class Json>
    bool operator()(int depth, Event event, Json& parsed) {
        auto const level = static_cast<std::size_t>(depth);
        if (level >= _names.size()) {
            _is_valid = false;
        } else if (event == Event::object_start && level + 1 < _names.size()) {
            _names[level + 1].clear();
        } else if (event == Event::key) {
            _is_valid =
                _is_valid && _names[level].insert(parsed.template get<std::string>()).second;
        }
        return _is_valid;
    }

    [[nodiscard]] bool is_valid() const noexcept { return _is_valid; }

private:
    std::vector<std::set<std::string>> _names; ///< of the object that is open on each level
    bool _is_valid = true;
};

} // namespace ZERO_NAMESPACE::detail
