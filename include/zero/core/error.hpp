#pragma once

#include "detail/namespace.hpp"
#include "source_location.hpp"

#include <stdexcept>
#include <string>

namespace ZERO_NAMESPACE {

/// @brief Root of everything that this library throws. `what()` names the parameter, the rank and
/// the remedy where there are such.
class Error : public std::runtime_error {
public:
    explicit Error(std::string const& message, SourceLocation where = SourceLocation::current(),
                   int code = 0)
        : std::runtime_error(message), _where(where), _code(code) {}

    /// @brief Where the exception was made, in the library.
    [[nodiscard]] SourceLocation const& where() const noexcept { return _where; }

    /// @brief The code of the interface below (CUDA, NCCL), or 0.
    [[nodiscard]] int code() const noexcept { return _code; }

private:
    SourceLocation _where;
    int _code;
};

/// @brief An argument out of its range; nothing was changed.
class InvalidArgument : public Error {
public:
    explicit InvalidArgument(std::string const& message,
                             SourceLocation where = SourceLocation::current(), int code = 0)
        : Error(message, where, code) {}
};

/// @brief The ranks registered different models or chose different options.
class LayoutMismatch : public Error {
public:
    explicit LayoutMismatch(std::string const& message,
                            SourceLocation where = SourceLocation::current(), int code = 0)
        : Error(message, where, code) {}
};

/// @brief A call at a point where the protocol does not allow it; nothing was changed.
class OutOfOrder : public Error {
public:
    explicit OutOfOrder(std::string const& message,
                        SourceLocation where = SourceLocation::current(), int code = 0)
        : Error(message, where, code) {}
};

/// @brief A gradient for a parameter whose reduction is already under way in this micro-step.
class LateGradient : public OutOfOrder {
public:
    explicit LateGradient(std::string const& message,
                          SourceLocation where = SourceLocation::current(), int code = 0)
        : OutOfOrder(message, where, code) {}
};

/// @brief A trainable parameter got no gradient although the options demand one.
class UnusedParameter : public Error {
public:
    explicit UnusedParameter(std::string const& message,
                             SourceLocation where = SourceLocation::current(), int code = 0)
        : Error(message, where, code) {}
};

/// @brief The gradients hold infinities or NaNs and the options ask for an exception. The step
/// changed nothing.
class NonFiniteGradients : public Error {
public:
    explicit NonFiniteGradients(std::string const& message,
                                SourceLocation where = SourceLocation::current(), int code = 0)
        : Error(message, where, code) {}
};

/// @brief An overflow while the loss scale was at its minimum, and the options ask for an
/// exception. The step changed nothing.
class LossScaleExhausted : public Error {
public:
    explicit LossScaleExhausted(std::string const& message,
                                SourceLocation where = SourceLocation::current(), int code = 0)
        : Error(message, where, code) {}
};

/// @brief Memory that was given back is asked for.
class Released : public Error {
public:
    explicit Released(std::string const& message, SourceLocation where = SourceLocation::current(),
                      int code = 0)
        : Error(message, where, code) {}
};

/// @brief A queue has no room for a further command.
class QueueFull : public Error {
public:
    explicit QueueFull(std::string const& message, SourceLocation where = SourceLocation::current(),
                       int code = 0)
        : Error(message, where, code) {}
};

/// @brief An earlier failure left the engine unable to go on; its own state can still be read.
class BrokenEngine : public Error {
public:
    explicit BrokenEngine(std::string const& message,
                          SourceLocation where = SourceLocation::current(), int code = 0)
        : Error(message, where, code) {}
};

/// @brief A collective operation failed.
class CommunicatorError : public Error {
public:
    explicit CommunicatorError(std::string const& message,
                               SourceLocation where = SourceLocation::current(), int code = 0)
        : Error(message, where, code) {}
};

/// @brief The ranks called different collectives, or the same with different types or counts.
class CollectiveMismatch : public CommunicatorError {
public:
    explicit CollectiveMismatch(std::string const& message,
                                SourceLocation where = SourceLocation::current(), int code = 0)
        : CommunicatorError(message, where, code) {}
};

/// @brief A peer did not arrive within the time-out.
class TimedOut : public CommunicatorError {
public:
    explicit TimedOut(std::string const& message, SourceLocation where = SourceLocation::current(),
                      int code = 0)
        : CommunicatorError(message, where, code) {}
};

/// @brief Another rank failed or left; the message holds its cause.
class Aborted : public CommunicatorError {
public:
    explicit Aborted(std::string const& message, SourceLocation where = SourceLocation::current(),
                     int code = 0)
        : CommunicatorError(message, where, code) {}
};

} // namespace ZERO_NAMESPACE
