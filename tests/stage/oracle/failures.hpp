#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace zero::test::oracle {

/// @brief Collects the failures of all threads, for the main thread to read at the end. Counts all,
/// and keeps the text of the first four.
class Failures {
public:
    void add(std::string const& text) {
        std::lock_guard const lock(_mutex);
        ++_count;
        if (_texts.size() < 4) {
            _texts.push_back(text);
        }
    }

    [[nodiscard]] std::size_t count() const {
        std::lock_guard const lock(_mutex);
        return _count;
    }

    [[nodiscard]] std::string text() const {
        std::lock_guard const lock(_mutex);
        std::string all = std::to_string(_count) + " differences";
        for (auto const& text : _texts) {
            all += "\n  " + text;
        }
        return all;
    }

private:
    mutable std::mutex _mutex;
    std::size_t _count = 0;
    std::vector<std::string> _texts;
};

} // namespace zero::test::oracle
