#include "guard.hpp"

#include <zero/core/error.hpp>
#ifdef ZERO_C_HAS_CHECKPOINT
#include <zero/checkpoint/checkpoint_error.hpp>
#endif

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace zero_c {

namespace {

std::string& last_error() {
    static thread_local std::string text;
    return text;
}

std::atomic<zero_error_handler> error_handler{nullptr};

/// Names of the C++ headers, and what a C program knows instead.
constexpr std::pair<std::string_view, std::string_view> names_in_c[] = {
    {"call it inside the loop over micro_steps(n), or between begin_micro_step() and "
     "end_micro_step()",
     "call it between zero_begin_step() and zero_step()"},
    {"begin_micro_step()", "zero_next_micro_step()"},
    {"end_micro_step()", "zero_next_micro_step()"},
    {"begin_step()", "zero_begin_step()"},
    {"cancel_step()", "zero_cancel_step()"},
    {"note_unused()", "zero_note_unused()"},
    {"gradients_ready(unit)", "zero_gradients_ready()"},
    {"gradients_ready()", "zero_gradients_ready()"},
    {"the spans of gradients(unit)", "the memory of zero_gradient() or zero_open()"},
    {"begin_gradients(unit) or gradients(unit)", "zero_gradients()"},
    {"begin_gradients(unit)", "zero_gradients()"},
    {"gradients(unit)", "zero_gradients()"},
    {"GradientWrites::overwritten", "is_overwritten = 1"},
    {"acquire()", "zero_acquire()"},
    {"skip()", "zero_skip()"},
    {"call hand_over(), ", ""},
    {", or use hand_over()", ""},
    {"save_checkpoint()", "zero_save()"},
    {"load_checkpoint()", "zero_load()"},
    {"gradient_clipping", "options.clip_norm"},
    {"skip_above_norm.limit", "options.skip_norm"},
    {"skip_above_norm.factor", "options.skip_norm_factor"},
    {"skip_above_norm.window", "options.skip_norm_window"},
    {"skip_above_norm", "options.skip_norm"},
    {"is_clipped = false", "is_unclipped = 1"},
    {"TrainingState::set_full_fp32_parameter()", "zero_set_parameter()"},
    {"set_full_fp32_parameter()", "zero_set_parameter()"},
    {"gather_to()", "zero_gather()"},
    {"for_each_full_parameter()", "zero_get_parameter()"},
    {"Storage::adopted", "options.block"},
    {"adopted_block", "options.block"},
    {"Parameter::gradient", "zero_parameter.gradient"},
    {"ReductionSchedule::every_micro_step", "ZERO_EVERY_MICRO_STEP"},
    {"unused_parameters to UnusedParameters::zero", "require_gradients to 0"},
    {"UnusedParameters::zero", "require_gradients = 0"},
    {"UnusedParameters::leave", "leave_unused = 1"},
};

std::string in_c(std::string_view message) {
    std::string text(message);
    for (auto const& [from, to] : names_in_c) {
        for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos;) {
            if (at != 0 && text[at - 1] == '_') { // the end of "zero_begin_step()"
                at += from.size();
            } else {
                text.replace(at, from.size(), to);
                at += to.size();
            }
        }
    }
    return text;
}

} // namespace

zero_status failed(zero_status status, std::string_view text) noexcept {
    try {
        last_error() = in_c(text);
    } catch (std::bad_alloc const&) { // an empty text needs no memory
        last_error().clear();
    }
    if (zero_error_handler const handler = error_handler.load()) {
        handler(status, last_error().c_str());
    }
    return status;
}

zero_status failed_with_current_exception() noexcept {
    try {
        throw;
    } catch (CallbackFailed const& error) {
        return failed(error.status(), error.what());
    } catch (zero::InvalidArgument const& error) {
        return failed(ZERO_INVALID_ARGUMENT, error.what());
    } catch (zero::OutOfOrder const& error) {
        return failed(ZERO_OUT_OF_ORDER, error.what());
    } catch (zero::Released const& error) {
        return failed(ZERO_OUT_OF_ORDER, error.what());
    } catch (zero::UnusedParameter const& error) {
        return failed(ZERO_NO_GRADIENTS, error.what());
    } catch (zero::NoGradients const& error) {
        return failed(ZERO_NO_GRADIENTS, error.what());
    } catch (zero::LayoutMismatch const& error) {
        return failed(ZERO_MISMATCH, error.what());
    } catch (zero::CollectiveMismatch const& error) {
        return failed(ZERO_MISMATCH, error.what());
    } catch (zero::Aborted const& error) {
        return failed(ZERO_ABORTED, error.what());
    } catch (zero::TimedOut const& error) {
        return failed(ZERO_TIMED_OUT, error.what());
    } catch (zero::BrokenEngine const& error) {
        return failed(ZERO_BROKEN, error.what());
#ifdef ZERO_C_HAS_CHECKPOINT
    } catch (zero::CheckpointError const& error) {
        return failed(ZERO_CHECKPOINT, error.what());
#endif
    } catch (std::bad_alloc const&) {
        return failed(ZERO_OUT_OF_MEMORY,
                      "zero: the memory is exhausted; zero_plan() tells what an "
                      "engine takes.");
    } catch (std::exception const& error) {
        return failed(ZERO_FAILED, error.what());
    } catch (...) {
        return failed(ZERO_FAILED, "zero: an exception that is not a std::exception");
    }
}

} // namespace zero_c

char const* zero_last_error(void) {
    return zero_c::last_error().c_str();
}

void zero_set_error_handler(zero_error_handler handler) {
    zero_c::error_handler.store(handler);
}

void zero_exit_on_error(zero_status, char const* message) {
    std::fprintf(stderr, "%s\n", message);
    std::fflush(nullptr);
    std::_Exit(EXIT_FAILURE);
}

zero_status zero_fail(char const* message) {
    return zero_c::failed(ZERO_FAILED, message == nullptr ? "" : message);
}

char const* zero_status_name(zero_status status) {
    switch (status) {
    case ZERO_OK: return "ZERO_OK";
    case ZERO_INVALID_ARGUMENT: return "ZERO_INVALID_ARGUMENT";
    case ZERO_OUT_OF_ORDER: return "ZERO_OUT_OF_ORDER";
    case ZERO_MISMATCH: return "ZERO_MISMATCH";
    case ZERO_NO_GRADIENTS: return "ZERO_NO_GRADIENTS";
    case ZERO_ABORTED: return "ZERO_ABORTED";
    case ZERO_TIMED_OUT: return "ZERO_TIMED_OUT";
    case ZERO_BROKEN: return "ZERO_BROKEN";
    case ZERO_CHECKPOINT: return "ZERO_CHECKPOINT";
    case ZERO_OUT_OF_MEMORY: return "ZERO_OUT_OF_MEMORY";
    case ZERO_CALLBACK: return "ZERO_CALLBACK";
    case ZERO_UNSUPPORTED: return "ZERO_UNSUPPORTED";
    case ZERO_FAILED: return "ZERO_FAILED";
    }
    return "an unknown status";
}
