#pragma once

#include "detail/namespace.hpp"
#include "source_location.hpp"

#include <stdexcept>
#include <string>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief A message that remembers the line on which it became the argument of an exception.
///
/// The exceptions inherit one constructor with this parameter. (nvcc 13.0 fails with an internal
/// error if an inherited constructor itself has a defaulted SourceLocation.)
struct LocatedMessage {
    // NOLINTBEGIN(google-explicit-constructor): the conversion notes the line
    LocatedMessage(std::string message, SourceLocation place = SourceLocation::current())
        : text(std::move(message)), where(place) {}
    LocatedMessage(char const* message, SourceLocation place = SourceLocation::current())
        : text(message), where(place) {}
    // NOLINTEND(google-explicit-constructor)

    std::string text;
    SourceLocation where;
};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief Base class of every exception of this library. `what()` names the parameter, the rank and
/// the remedy where they exist.
///
/// Derived classes inherit the constructors.
class Error : public std::runtime_error {
public:
    /// @brief `where()` becomes the line of the call. @param message the text that `what()` returns
    explicit Error(detail::LocatedMessage const& message, int code = 0)
        : Error(message.text, message.where, code) {}

    /// @brief `where()` becomes the given place. @param code of the underlying interface, or 0
    Error(std::string const& message, SourceLocation where, int code = 0)
        : std::runtime_error(message), _where(where), _code(code) {}

    /// @brief The place in the library at which the exception was constructed.
    [[nodiscard]] SourceLocation const& where() const noexcept { return _where; }

    /// @brief The error code of the underlying interface (CUDA, NCCL), or 0.
    [[nodiscard]] int code() const noexcept { return _code; }

private:
    SourceLocation _where;
    int _code;
};

/// @brief An argument or option is invalid, for example out of range, or an unknown or duplicate
/// name. Nothing was changed.
class InvalidArgument : public Error {
public:
    using Error::Error;
};

/// @brief The ranks registered different models or chose different options.
class LayoutMismatch : public Error {
public:
    using Error::Error;
};

/// @brief A call that the protocol does not allow at this point. Nothing was changed.
class OutOfOrder : public Error {
public:
    using Error::Error;
};

/// @brief A gradient arrived for a parameter whose reduction has already begun in this micro-step.
class LateGradient : public OutOfOrder {
public:
    using OutOfOrder::OutOfOrder;
};

/// @brief A trainable parameter received no gradient, although the options require one.
class UnusedParameter : public Error {
public:
    using Error::Error;
};

/// @brief No rank reported a gradient of any unit in a step. The step changed nothing.
class NoGradients : public Error {
public:
    using Error::Error;
};

/// @brief The gradients contain infinities or NaNs, and the options request an exception. The step
/// changed nothing.
class NonFiniteGradients : public Error {
public:
    using Error::Error;
};

/// @brief As many steps in a row were skipped as the options allow. Since then no step changed
/// anything.
class TooManySkips : public Error {
public:
    using Error::Error;
};

/// @brief A step overflowed at the minimum loss scale, and the options request an exception. The
/// step changed nothing.
class LossScaleExhausted : public Error {
public:
    using Error::Error;
};

/// @brief An access to memory that was already released.
class Released : public Error {
public:
    using Error::Error;
};

/// @brief A queue has no capacity for another command.
class QueueFull : public Error {
public:
    using Error::Error;
};

/// @brief An earlier failure left the engine unable to continue. Its state can still be read.
class BrokenEngine : public Error {
public:
    using Error::Error;
};

/// @brief A collective operation failed.
class CommunicatorError : public Error {
public:
    using Error::Error;
};

/// @brief The ranks called different collectives, or the same one with different types or counts.
class CollectiveMismatch : public CommunicatorError {
public:
    using CommunicatorError::CommunicatorError;
};

/// @brief A peer did not arrive within the time-out.
class TimedOut : public CommunicatorError {
public:
    using CommunicatorError::CommunicatorError;
};

/// @brief Another rank failed or left. The message contains the cause.
class Aborted : public CommunicatorError {
public:
    using CommunicatorError::CommunicatorError;
};

} // namespace ZERO_NAMESPACE
