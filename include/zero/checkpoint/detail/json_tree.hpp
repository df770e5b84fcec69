#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace ZERO_NAMESPACE::detail {

/// @brief Reads an object of known members while a text is parsed, without JSON values: there may
/// be 10^5 of them, and values would take several times the time and the memory. Members of other
/// names are ignored. The private sources of checkpoints include this header.
class JsonRecord {
public:
    using Json = nlohmann::json;
    using Row = std::array<std::uint64_t, 3>;

    /// @brief The name of a member and the place of its value: one of the pointers.
    struct Member {
        std::string_view name;
        std::string* text = nullptr;
        std::uint64_t* natural = nullptr;
        bool* flag = nullptr;
        std::vector<std::uint64_t>* naturals = nullptr;
        std::vector<Row>* rows = nullptr; ///< arrays of numbers, of which the first three are kept
        bool is_optional = false;         ///< without it the value stays
        bool is_set = false;
    };

    explicit JsonRecord(std::vector<Member> members) : _members(std::move(members)) {}

    /// @brief Returns why the object that has ended is not right; empty if it is.
    [[nodiscard]] std::string problem() const {
        for (Member const& member : _members) {
            if (_problem.empty() && !(member.is_set || member.is_optional)) {
                return text({"it has no '", member.name, "'"});
            }
        }
        return _problem;
    }

    /// @brief Returns whether the object has a member.
    [[nodiscard]] bool has(std::string_view name) const {
        for (Member const& member : _members) {
            if (member.name == name) {
                return member.is_set;
            }
        }
        return false;
    }

    /// @name Events of the parser
    /// @{

    void begin() {
        _problem.clear();
        for (Member& member : _members) {
            member.is_set = false;
        }
    }

    /// @return false for a name that occurs twice
    [[nodiscard]] bool key(std::string const& name) {
        if (_level != 0) {
            return true; // in a value that is ignored
        }
        for (Member& member : _members) {
            if (member.name == name) {
                _member = &member;
                return !std::exchange(member.is_set, true);
            }
        }
        _member = nullptr;
        return true;
    }

    template <class Value>
    void add(Value const& value) {
        if (_member == nullptr) {
            return;
        }
        if constexpr (std::is_same_v<Value, std::string>) {
            if (_level == 0 && _member->text != nullptr) {
                *_member->text = value;
                return;
            }
        } else if constexpr (std::is_same_v<Value, bool>) {
            if (_level == 0 && _member->flag != nullptr) {
                *_member->flag = value;
                return;
            }
        } else if constexpr (std::is_same_v<Value, Json::number_unsigned_t>) {
            if (std::uint64_t* const place = place_of_natural()) {
                *place = value;
                return;
            }
        }
        refuse(Json(value).dump());
    }

    void open(bool is_array) {
        if (_member != nullptr) {
            if (!is_array || !expects_array()) {
                refuse(is_array ? "an array" : "an object");
            } else if (_level == 1) {
                _member->rows->emplace_back();
                _column = 0;
            } else if (_member->naturals != nullptr) {
                _member->naturals->clear();
            } else {
                _member->rows->clear();
            }
        }
        ++_level;
    }

    void close() {
        --_level;
        if (_member != nullptr && _level == 1 && _column < Row().size()) {
            note(text({"an array has no number at index ", _column}));
        }
    }

    /// @brief Returns the number of arrays and objects that are open in the record.
    [[nodiscard]] std::size_t level() const noexcept { return _level; }

    /// @}

private:
    [[nodiscard]] bool expects_array() const noexcept {
        return _level == 0 ? _member->naturals != nullptr || _member->rows != nullptr
                           : _level == 1 && _member->rows != nullptr;
    }

    /// Returns null if no number is expected.
    [[nodiscard]] std::uint64_t* place_of_natural() {
        if (_level == 0) {
            return _member->natural;
        }
        if (_level == 2) {
            return _column < Row().size() ? &_member->rows->back()[_column++] : &_ignored;
        }
        return _member->naturals == nullptr ? nullptr : &_member->naturals->emplace_back();
    }

    void refuse(std::string_view what) {
        bool const is_text = _level == 0 && _member->text != nullptr;
        bool const is_flag = _level == 0 && _member->flag != nullptr;
        note(text({what, " is not ",
                   expects_array() ? "an array"
                   : is_text       ? "a text"
                   : is_flag       ? "true or false"
                                   : "a natural number"}));
    }

    /// Keeps the first problem, and ignores the rest of the member.
    void note(std::string_view what) {
        if (_problem.empty()) {
            _problem = text({"in '", _member->name, "' ", what});
        }
        _member = nullptr;
    }

    std::vector<Member> _members;
    Member* _member = nullptr; ///< the one that is read; null: it is ignored
    std::size_t _level = 0;
    std::size_t _column = 0;    ///< of the next number of a row
    std::uint64_t _ignored = 0; ///< the last one that a row has too many
    std::string _problem;
};

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
    /// @param records `records.begin(open, name)` is called with the containers around an object
    /// from the root on, and the name of the last member of the innermost object. It returns the
    /// record that reads the object instead of the tree, or null. `records.end(record)` is called
    /// when the object has ended
    /// @return false, with a part of the text, if it is nested too deeply or an object has a name
    /// twice, of which the JSON library would drop one
    /// @throws nlohmann::json::exception
    template <class Input, class Records>
    [[nodiscard]] bool parse(Input& input, std::size_t most_levels, Records& records) {
        Builder<Records> builder(_root, most_levels, records);
        return Json::sax_parse(input, &builder);
    }

    [[nodiscard]] bool parse(std::string_view text, std::size_t most_levels) {
        NoRecords none;
        return parse(text, most_levels, none);
    }

private:
    struct NoRecords {
        static JsonRecord* begin(std::vector<Json*> const&, std::string const&) { return nullptr; }
        static void end(JsonRecord const&) {}
    };

    /// Handles the events of the parser. A callback of the parser could check the same, but would
    /// make it search an object for discarded members whenever a member ends.
    template <class Records>
    class Builder {
    public:
        Builder(Json& root, std::size_t most_levels, Records& records)
            : _root(&root), _most_levels(most_levels), _records(&records) {}

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
            if (_record != nullptr) {
                return _record->key(name);
            }
            _name = name; // the parser keeps its memory for the next text
            return !_open.back()->contains(_name);
        }

        template <class Exception>
        bool parse_error(std::size_t, std::string const&, Exception const& error) {
            throw error;
        }

    private:
        bool end() {
            if (_record == nullptr) {
                _open.pop_back();
            } else if (_record->level() != 0) {
                _record->close();
            } else {
                _records->end(*std::exchange(_record, nullptr));
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
            if (_record != nullptr) {
                _record->add(std::as_const(value));
            } else {
                (void)place(std::forward<Value>(value));
            }
            return true;
        }

        bool open(Json::value_t type) {
            std::size_t const in_record = _record == nullptr ? 0 : 1 + _record->level();
            if (_open.size() + in_record == _most_levels) {
                return false;
            }
            if (_record != nullptr) {
                _record->open(type == Json::value_t::array);
                return true;
            }
            if (type == Json::value_t::object) {
                _record = _records->begin(_open, _name);
            }
            if (_record != nullptr) {
                _record->begin();
            } else {
                _open.push_back(&place(type));
            }
            return true;
        }

        Json* _root;
        std::size_t _most_levels;
        Records* _records;
        JsonRecord* _record = nullptr; ///< that reads the object which is open; null: the tree
        std::vector<Json*> _open;      ///< from the root to the container that is being filled
        std::string _name;             ///< of the next member
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
