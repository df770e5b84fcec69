#pragma once

// A backend and a communicator that write down what an engine of stage 3 does, by unit: gathers,
// releases and reductions. The engine does not know about the log. A release shows as the poison
// that replaces a gathered bucket.

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/loopback.hpp>
#include <zero/comm/recording.hpp>
#include <zero/core/convert.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace zero::test::gather_log {

/// The log of a rank, and the places of its gathered buckets.
struct Log {
    std::string text;
    std::map<void const*, std::string> buckets;

    void add(std::string const& event) { text += (text.empty() ? "" : " ") + event; }
};

inline thread_local Log* log = nullptr;

/// Logs a release when it is poisoned, on the thread of the rank.
struct LoggedBackend : HostBackend {
    template <class T>
    static void fill(Queue queue, T* memory, std::size_t elements, T value) {
        if (log != nullptr && std::isnan(to_float(value)) && log->buckets.count(memory) != 0) {
            log->add("free" + log->buckets[memory]);
            log->buckets.erase(memory);
        }
        HostBackend::fill(queue, memory, elements, value);
    }
};

using Transport = Loopback<LoggedBackend>;

/// Units are called by the name of their first parameter.
class Logged : public Recording<Transport> {
public:
    using Recording<Transport>::Recording;

    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        if (log != nullptr && std::string_view(tag.what) == "parameters of bucket") {
            log->buckets[receive] = tag.parameter;
            log->add("gather" + log->buckets[receive]);
        }
        Recording<Transport>::all_gather(send, receive, cuts, queue, tag);
    }

    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag = {}) {
        if (log != nullptr) {
            log->add("reduce" + std::string(tag.parameter));
        }
        Recording<Transport>::reduce_scatter(send, receive, cuts, queue, tag);
    }
};

/// One parameter for each unit, called "0", "1", ...
inline std::vector<ParameterSpec> chain(std::vector<std::size_t> const& elements) {
    std::vector<ParameterSpec> specs;
    for (std::size_t unit = 0; unit < elements.size(); ++unit) {
        specs.push_back({std::to_string(unit), elements[unit], {unit}, 0, true});
    }
    return specs;
}

} // namespace zero::test::gather_log
