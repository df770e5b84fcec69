#pragma once

#include "../../core/detail/namespace.hpp"

#include <csignal>

namespace ZERO_NAMESPACE::torch::detail {

/// @brief Lets a write to a connection that the peer has closed fail. By default such a write ends
/// the process with SIGPIPE, because gloo writes without MSG_NOSIGNAL, on threads of its own.
/// Changes nothing if the program handles or ignores the signal already, as Python does.
inline void ignore_broken_pipes() noexcept {
#ifdef SIGPIPE
    struct sigaction action {};
    if (::sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
        action.sa_handler = SIG_IGN;
        (void)::sigaction(SIGPIPE, &action, nullptr);
    }
#endif
}

} // namespace ZERO_NAMESPACE::torch::detail
