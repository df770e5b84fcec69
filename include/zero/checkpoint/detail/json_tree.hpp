#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace ZERO_NAMESPACE::detail {

/// @brief Owns a JSON value with nested ones, and destroys it without allocating.
///
/// The destructor of the JSON library allocates for nested values. When memory has run out, that
/// ends the program. So nested values are made in place here, and emptied from the inside out.
/// Temporary JSON values hold no others. Objects and arrays are assigned: a null value that
/// turns into one when memory runs out has a type without content. The private sources of
/// checkpoints include this header.
class JsonTree {
public:
    using Json = nlohmann::json;

    // NOLINTBEGIN(bugprone-exception-escape): what would throw finds nothing left to destroy
    JsonTree() = default;
    JsonTree(JsonTree const&) = delete;
    JsonTree& operator=(JsonTree const&) = delete;
    ~JsonTree() { empty(_root); }
    // NOLINTEND(bugprone-exception-escape)

    [[nodiscard]] Json& root() noexcept { return _root; }
    [[nodiscard]] Json const& root() const noexcept { return _root; }

    /// @brief Parses a text. Only into a new tree.
    /// @param input a `std::string_view` or a `std::istream`
    /// @param most_levels the most levels of nested objects and arrays: more would overflow the
    /// stack later
    /// @param take called as `take(open, value)` with each object or array that ends in an array,
    /// and the containers around it from the root on. Returns whether it has kept the value
    /// elsewhere, so that the tree drops it
    /// @return false, with a part of the text, if it is nested too deeply or an object has a name
    /// twice, of which the JSON library would drop one
    /// @throws nlohmann::json::exception
    template <class Input, class Take>
    [[nodiscard]] bool parse(Input& input, std::size_t most_levels, Take const& take) {
        Builder<Take> builder(_root, most_levels, take);
        return Json::sax_parse(input, &builder);
    }

    [[nodiscard]] bool parse(std::string_view text, std::size_t most_levels) {
        return parse(text, most_levels, [](auto const&, Json const&) { return false; });
    }

private:
    /// Handles the events of the parser. A callback of the parser could check the same, but would
    /// make it search an object for discarded members whenever a member ends.
    template <class Take>
    class Builder {
    public:
        Builder(Json& root, std::size_t most_levels, Take const& take)
            : _root(&root), _most_levels(most_levels), _take(&take) {}

        bool null() { return add(nullptr); }
        bool boolean(bool value) { return add(value); }
        bool number_integer(Json::number_integer_t value) { return add(value); }
        bool number_unsigned(Json::number_unsigned_t value) { return add(value); }
        bool number_float(Json::number_float_t value, std::string const&) { return add(value); }
        bool string(std::string& value) { return add(std::move(value)); }
        bool binary(Json::binary_t&) { return false; } // not in a text
        bool start_object(std::size_t) { return open(Json::value_t::object); }
        bool start_array(std::size_t) { return open(Json::value_t::array); }

        bool end_object() { return end(); }
        bool end_array() { return end(); }

        bool key(std::string& name) {
            _name = std::move(name);
            return !_open.back()->contains(_name);
        }

        template <class Exception>
        bool parse_error(std::size_t, std::string const&, Exception const& error) {
            throw error;
        }

    private:
        bool end() {
            Json& ended = *_open.back();
            _open.pop_back();
            if (!_open.empty() && _open.back()->is_array() && (*_take)(_open, ended)) {
                empty(ended);
                _open.back()->template get_ref<Json::array_t&>().pop_back();
            }
            return true;
        }

        /// Makes a value without others in the container that is open.
        template <class Value>
        Json& place(Value&& value) {
            if (_open.empty()) {
                return *_root = std::forward<Value>(value);
            }
            if (_open.back()->is_array()) {
                return _open.back()->emplace_back(std::forward<Value>(value));
            }
            return (*_open.back())[_name] = std::forward<Value>(value);
        }

        template <class Value>
        bool add(Value&& value) {
            (void)place(std::forward<Value>(value));
            return true;
        }

        bool open(Json::value_t type) {
            if (_open.size() == _most_levels) {
                return false;
            }
            _open.push_back(&place(type));
            return true;
        }

        Json* _root;
        std::size_t _most_levels;
        Take const* _take;
        std::vector<Json*> _open; ///< from the root to the container that is being filled
        std::string _name;        ///< of the next member
    };

    static void empty(Json& value) noexcept { // NOLINT(bugprone-exception-escape): see above
        if (value.is_structured()) {
            for (Json& part : value) {
                empty(part);
            }
            value.clear();
        }
    }

    Json _root;
};

} // namespace ZERO_NAMESPACE::detail
