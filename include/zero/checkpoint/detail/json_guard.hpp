#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Checks a JSON text before it is parsed, as a handler of the parser's events. Refuses text
/// that is nested too deeply, which would overflow the stack later, and an object with a repeated
/// name, of which the parser would drop one.
///
/// Linear in the text. A callback of the parser could check the same, but would make it search an
/// object for discarded members whenever a member ends.
class JsonGuard {
public:
    /// @param most_levels the most levels of nested objects and arrays
    explicit JsonGuard(std::size_t most_levels) : _names(most_levels) {}

    [[nodiscard]] bool is_valid() const noexcept { return _is_valid; }

    bool start_object(std::size_t) {
        if (open()) {
            _names[_depth - 1].clear();
        }
        return _is_valid;
    }

    bool key(std::string const& name) {
        _is_valid = _names[_depth - 1].insert(name).second;
        return _is_valid;
    }

    bool start_array(std::size_t) { return open(); }
    bool end_object() { return close(); }
    bool end_array() { return close(); }

    bool null() { return true; }
    bool boolean(bool) { return true; }
    bool string(std::string const&) { return true; }

    template <class Number>
    bool number_integer(Number) {
        return true;
    }
    template <class Number>
    bool number_unsigned(Number) {
        return true;
    }
    template <class Number>
    bool number_float(Number, std::string const&) {
        return true;
    }
    template <class Binary>
    bool binary(Binary const&) {
        return true;
    }

    /// Does nothing: the parser reports the error again, as an exception.
    template <class Exception>
    bool parse_error(std::size_t, std::string const&, Exception const&) {
        return false;
    }

private:
    bool open() {
        _is_valid = ++_depth <= _names.size();
        return _is_valid;
    }

    bool close() {
        --_depth;
        return true;
    }

    std::vector<std::set<std::string>> _names; ///< names in the open object of each level
    std::size_t _depth = 0;
    bool _is_valid = true;
};

} // namespace ZERO_NAMESPACE::detail
