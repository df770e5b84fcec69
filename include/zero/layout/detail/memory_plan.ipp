#pragma once

#include "../../core/detail/text.hpp"
#include "../memory_plan.hpp"

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE std::string to_string(MemoryPlan const& plan) {
    std::string text;
    for (std::size_t kind = 0; kind < plan.rows.size(); ++kind) {
        MemoryRow const& row = plan.rows[kind];
        if (row.bytes() != 0) {
            std::string const padding =
                row.padding_bytes == 0 ? "" : detail::text({row.padding_bytes, " of padding"});
            std::string const remarks =
                padding
                + (row.is_callers ? (padding.empty() ? "the caller's" : "; the caller's") : "");
            text += detail::text({name_of(static_cast<BufferKind>(kind)), ": ", row.bytes(),
                                  " bytes", (remarks.empty() ? "" : " (" + remarks + ")"), "\n"});
        }
    }
    return detail::text({text, "allocated by the engine: ", plan.engine_bytes(), " bytes\n"});
}

} // namespace ZERO_NAMESPACE
