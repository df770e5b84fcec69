#pragma once

#include "values.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <utility>

namespace zero::test::ptx {

/// What the checks found. Equal findings at one place are counted, and the first is described.
class Findings {
public:
    struct Finding {
        u64 times = 0;
        std::string first;
    };
    using Key = std::pair<std::string, std::string>; ///< what, where

    static Findings& instance() {
        static auto& findings = *new Findings; // used by threads that outlive main()
        return findings;
    }

    void add(std::string const& what, std::string const& where, std::string const& detail);
    [[nodiscard]] std::map<Key, Finding> const& all() const { return _all; }
    void clear() { _all.clear(); }

    /// Prints them, and what was run, to the standard error stream.
    void print_summary() const;

private:
    std::map<Key, Finding> _all;
};

inline void report(std::string const& what, std::string const& where, std::string const& detail) {
    Findings::instance().add(what, where, detail);
}

/// What was run.
struct Statistics {
    u64 launches = 0;
    u64 blocks = 0;
    u64 lane_instructions = 0;
};
inline Statistics statistics;

} // namespace zero::test::ptx
