#pragma once

#include "make_stage_layout.hpp"

#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void refuse_moved(char const* what, ParameterSpec const& spec,
                                   void const* registered, void const* now, std::size_t rank) {
    throw_error<InvalidArgument>(
        {"zero: the memory for the ", what, " of parameter '", spec.name, "' was registered at ",
         hexadecimal(registered), " and is now ",
         (now == nullptr ? std::string("null") : text({"at ", hexadecimal(now)})),
         ", so the engine would use memory that may be freed (rank ", rank,
         "). Keep it in place: clear gradients instead of dropping them, and register after the "
         "last resize or move between devices. Otherwise make a new engine."});
}

ZERO_INLINE void require_same_memory(ParameterSpec const& spec, CurrentMemory const& registered,
                                     CurrentMemory const& now, std::size_t rank) {
    if (now.elements != spec.elements) {
        throw_error<InvalidArgument>({"zero: parameter '", spec.name, "' was registered with ",
                                      spec.elements, " elements and now has ", now.elements,
                                      " (rank ", rank, "); make a new engine for another size."});
    }
    if (spec.elements == 0) {
        return;
    }
    if (registered.data != nullptr && registered.data != now.data) {
        refuse_moved("values", spec, registered.data, now.data, rank);
    }
    if (registered.gradient != nullptr && registered.gradient != now.gradient) {
        refuse_moved("gradient", spec, registered.gradient, now.gradient, rank);
    }
}

ZERO_COLD_INLINE void require_same_name(ParameterSpec const& registered, std::string const& name,
                                        std::size_t index, std::size_t rank) {
    if (registered.name != name) {
        throw_error<InvalidArgument>({"zero: parameter number ", index, " was registered as '",
                                      registered.name, "' and is now '", name, "' (rank ", rank,
                                      "); give the registrations in the same order."});
    }
}

ZERO_COLD_INLINE void require_same_count(std::size_t registered, std::size_t now,
                                         std::size_t rank) {
    if (registered != now) {
        throw_error<InvalidArgument>({"zero: ", registered, " parameters were registered, and ",
                                      now, " are to be compared (rank ", rank,
                                      "); give the registrations of all of them."});
    }
}

ZERO_COLD_INLINE void require_no_other_memory(ParameterSpec const& spec,
                                              CurrentMemory const& registered,
                                              CurrentMemory const& now, std::size_t rank) {
    bool const is_data = registered.data == nullptr && now.data != nullptr;
    if (is_data || (registered.gradient == nullptr && now.gradient != nullptr)) {
        throw_error<InvalidArgument>({"zero: parameter '", spec.name, "' was registered without '",
                                      (is_data ? "data" : "gradient"), "' and now has memory at ",
                                      hexadecimal(is_data ? now.data : now.gradient),
                                      ", which the engine does not use (rank ", rank,
                                      "); register it before the engine is made."});
    }
}

} // namespace ZERO_NAMESPACE::detail
