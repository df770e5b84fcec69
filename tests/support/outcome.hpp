#pragma once

#include <zero/core/error.hpp>

#include <exception>
#include <string>

namespace zero::test {

/// How a call ended, as data that a rank can hand to the main thread.
struct Outcome {
    /// The name of the exception's type without namespace, "other" for an exception that is not the
    /// library's, or "returned".
    std::string type = "returned";
    std::string message;

    friend bool operator==(Outcome const&, Outcome const&) = default;
};

inline Outcome outcome_of_current_exception() {
    try {
        throw;
    } catch (TimedOut const& error) {
        return {"TimedOut", error.what()};
    } catch (Aborted const& error) {
        return {"Aborted", error.what()};
    } catch (CollectiveMismatch const& error) {
        return {"CollectiveMismatch", error.what()};
    } catch (LayoutMismatch const& error) {
        return {"LayoutMismatch", error.what()};
    } catch (UnusedParameter const& error) {
        return {"UnusedParameter", error.what()};
    } catch (NoGradients const& error) {
        return {"NoGradients", error.what()};
    } catch (NonFiniteGradients const& error) {
        return {"NonFiniteGradients", error.what()};
    } catch (TooManySkips const& error) {
        return {"TooManySkips", error.what()};
    } catch (LossScaleExhausted const& error) {
        return {"LossScaleExhausted", error.what()};
    } catch (BrokenEngine const& error) {
        return {"BrokenEngine", error.what()};
    } catch (LateGradient const& error) {
        return {"LateGradient", error.what()};
    } catch (OutOfOrder const& error) {
        return {"OutOfOrder", error.what()};
    } catch (InvalidArgument const& error) {
        return {"InvalidArgument", error.what()};
    } catch (QueueFull const& error) {
        return {"QueueFull", error.what()};
    } catch (std::exception const& error) {
        return {"other", error.what()};
    }
}

/// Calls `call` and returns how it ended.
template <class Call>
Outcome outcome_of(Call const& call) {
    try {
        call();
    } catch (...) {
        return outcome_of_current_exception();
    }
    return {};
}

} // namespace zero::test
