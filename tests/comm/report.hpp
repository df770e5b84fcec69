#pragma once

#include "support/catch.hpp"

#include <cstddef>
#include <mutex>
#include <string>

namespace zero::test {

/// @brief Collects the results of the ranks of a test. The ranks add to it from their threads; the
/// main thread asserts.
class Report {
public:
    /// Counts a comparison and keeps the text of the first few failures.
    void expect(bool holds, std::string const& text) {
        std::lock_guard const lock(_mutex);
        ++_comparisons;
        if (!holds && ++_failures <= 5) {
            _text += "\n  " + text;
        }
    }

    /// Asserts that no comparison failed. The main thread calls it after the ranks have ended.
    void check() const {
        INFO(_failures << " of " << _comparisons << " comparisons failed:" << _text);
        CHECK(_failures == 0);
        CHECK(_comparisons != 0);
    }

    /// The first few failures, for tests of the suites themselves.
    [[nodiscard]] std::string const& text() const noexcept { return _text; }

private:
    std::mutex _mutex;
    std::size_t _comparisons = 0;
    std::size_t _failures = 0;
    std::string _text;
};

/// @brief Runs `body` and returns the message of an exception of type `E`, or a note if there is
/// none. Other exceptions propagate.
template <class E, class Body>
std::string message_of(Body const& body) {
    try {
        body();
    } catch (E const& error) {
        return error.what();
    }
    return "nothing was thrown";
}

inline bool contains(std::string const& text, std::string const& part) {
    return text.find(part) != std::string::npos;
}

} // namespace zero::test
