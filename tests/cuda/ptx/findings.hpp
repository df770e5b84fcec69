#pragma once

#include "values.hpp"

#include <cstdio>
#include <map>
#include <string>
#include <utility>

namespace zero::test::ptx {

/// The amount of work that was interpreted.
struct Statistics {
    u64 launches = 0;
    u64 blocks = 0;
    u64 lane_instructions = 0;
};
inline Statistics statistics;

/// The findings of the checks. Equal findings at one place are counted, and the first is described.
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

    void add(std::string const& what, std::string const& where, std::string const& detail) {
        Finding& finding = _all[{what, where}];
        if (finding.times++ == 0) {
            finding.first = detail;
        }
    }
    [[nodiscard]] std::map<Key, Finding> const& all() const { return _all; }
    void clear() { _all.clear(); }

    /// Prints them, and what was run, to the standard error stream.
    void print_summary() const {
        auto const number = [](u64 value) { return static_cast<unsigned long long>(value); };
        std::fprintf(stderr,
                     "PTX: seed %llu, %llu launches, %llu blocks, %llu M lane instructions\n",
                     number(settings.seed), number(statistics.launches), number(statistics.blocks),
                     number(statistics.lane_instructions / 1000000));
        for (auto const& [key, finding] : _all) {
            std::fprintf(stderr, "PTX finding (%llu times): %s\n    at %s\n    first: %s\n",
                         number(finding.times), key.first.c_str(), key.second.c_str(),
                         finding.first.c_str());
        }
    }

private:
    std::map<Key, Finding> _all;
};

inline void report(std::string const& what, std::string const& where, std::string const& detail) {
    Findings::instance().add(what, where, detail);
}

} // namespace zero::test::ptx
