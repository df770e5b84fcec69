#pragma once

#include <zero_c.h>

#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace zero_c {

/// @brief A callback of the program failed. Carries its status to the caller of the C function.
class CallbackFailed : public std::exception {
public:
    CallbackFailed(zero_status status, std::string text)
        : _status(status), _text(std::move(text)) {}

    [[nodiscard]] zero_status status() const noexcept { return _status; }
    [[nodiscard]] char const* what() const noexcept override { return _text.c_str(); }

private:
    zero_status _status;
    std::string _text;
};

/// @brief Remembers a message for `zero_last_error` and returns the status.
zero_status failed(zero_status status, std::string_view text) noexcept;

/// @brief Returns the status of the exception in flight, and remembers its message. Call it in a
/// catch block.
zero_status failed_with_current_exception() noexcept;

/// @brief Runs the body of a C function.
template <class Body>
zero_status guarded(Body&& body) noexcept {
    try {
        std::forward<Body>(body)();
        return ZERO_OK;
    } catch (...) {
        return failed_with_current_exception();
    }
}

} // namespace zero_c
