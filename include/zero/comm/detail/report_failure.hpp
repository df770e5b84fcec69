#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

/// @brief Calls `abort(cause)` with the first line of the current exception and the rank. Called
/// inside a catch block.
/// @param abort does not throw
void report_failure(std::size_t rank, FunctionRef<std::string_view> abort) noexcept;

/// @brief Returns the cause for peers that wait for a rank whose body has returned.
[[nodiscard]] std::string finished_text(std::size_t rank);

/// @brief The scope of one body of `run_rank`. Tells communicators that have `begin_run` and
/// `end_run`.
template <class Communicator>
class RankBody {
public:
    explicit RankBody(Communicator& communicator) noexcept : _communicator(&communicator) {
        if constexpr (requires { communicator.begin_run(); }) {
            communicator.begin_run();
        }
    }
    RankBody(RankBody const&) = delete;
    RankBody& operator=(RankBody const&) = delete;
    ~RankBody() {
        if constexpr (requires { _communicator->end_run(); }) {
            _communicator->end_run();
        }
    }

private:
    Communicator* _communicator;
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "report_failure.ipp"
#endif
