#pragma once

#include "settings.hpp"
#include "summary.hpp"
#include "text.hpp"

#include <zero/core/dtype.hpp>
#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/stage/with_stage.hpp>

#include <functional>
#include <stdexcept>

namespace gpt {

/// @brief Trains once under the stage in the settings.
using Training = std::function<Summary(Settings const&, Text const&)>;

/// @brief Selects types by the settings: calls `body.template operator()<N, P, Policies...>()` with
/// the stage, the parameter type and the other policies.
/// @tparam Types the parameter types for which this program is built
template <class... Types, class Body>
Summary with_chosen_types(Settings const& settings, Body const& body) {
    return zero::with_stage(settings.stage, [&]<int N>() {
        Summary summary;
        auto const with_type = [&]<class P>() {
            bool const is_chosen = settings.dtype == zero::name_of(zero::dtype_of<P>());
            if (is_chosen) {
                bool const is_contiguous = settings.partitioner == "contiguous";
                summary = is_contiguous
                              ? body.template operator()<N, P, zero::ContiguousPartitioner>()
                              : body.template operator()<N, P, zero::RoundRobinPartitioner>();
            }
            return is_chosen;
        };
        if (!(with_type.template operator()<Types>() || ...)) {
            throw std::invalid_argument("this program was built without --dtype " + settings.dtype);
        }
        return summary;
    });
}

/// @brief The command line, the text, and a training or a verification: `main` of the training
/// examples.
/// @param prepare called first; it may change the settings, and returns whether to continue
int run_program(int argc, char** argv, char const* name, char const* description,
                std::function<bool(Settings&)> const& prepare, Training const& train);

} // namespace gpt
