#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/text.hpp"
#include "step_report.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>

/// @file
/// @brief Reports of steps as lines of text and of JSON, and a callback for each of them.

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the shortest decimal number that reads as `value`; "null" if it is not finite,
/// which JSON cannot say.
template <class Real>
[[nodiscard, gnu::cold]] std::string json_number(Real value) {
    std::array<char, 32> digits{};
    return std::isfinite(value)
               ? std::string(digits.data(),
                             std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr)
               : "null";
}

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief Returns one line without its end, for instance "step 12: norm 1.5, clipped by 0.66, loss
/// scale 1024", or "step 12 skipped: 3 elements are not finite, the first is 812, loss scale 1024,
/// then 512". The number is that of the call of `step`.
[[nodiscard, gnu::cold]] inline std::string to_string(StepReport const& report) {
    std::string line = detail::text({"step ", report.serial});
    if (!report.has_gradients) {
        line += " skipped: no rank has gradients";
    } else if (report.non_finite_count != 0) {
        line += detail::text({report.is_skipped ? " skipped: " : ": ", report.non_finite_count,
                              " elements are not finite, the first is ", report.first_non_finite});
    } else {
        line += report.is_skipped ? " skipped:" : ":";
        line += report.has_norm ? " norm " + detail::json_number(report.gradient_norm) : " done";
        if (report.is_too_large) {
            line += ", above " + detail::json_number(report.norm_limit);
        } else if (report.clip_coefficient < 1.0F) {
            line += ", clipped by " + detail::json_number(report.clip_coefficient);
        }
    }
    line += ", loss scale " + detail::json_number(report.loss_scale);
    if (report.next_loss_scale != report.loss_scale) {
        line += ", then " + detail::json_number(report.next_loss_scale);
    }
    return line;
}

/// @brief Returns all figures as one JSON object in one line without its end. Its keys are the
/// members of `StepReport`; a number that is not finite is null.
[[nodiscard, gnu::cold]] inline std::string to_json(StepReport const& report) {
    auto const truth = [](bool value) { return value ? "true" : "false"; };
    std::string norms;
    for (double const norm : report.group_norms) {
        norms += (norms.empty() ? "" : ", ") + detail::json_number(norm);
    }
    return detail::text({R"({"serial": )",
                         report.serial,
                         R"(, "step_count": )",
                         report.step_count,
                         R"(, "is_skipped": )",
                         truth(report.is_skipped),
                         R"(, "is_too_large": )",
                         truth(report.is_too_large),
                         R"(, "too_large": )",
                         report.too_large,
                         R"(, "skipped_in_a_row": )",
                         report.skipped_in_a_row,
                         R"(, "has_gradients": )",
                         truth(report.has_gradients),
                         R"(, "has_norm": )",
                         truth(report.has_norm),
                         R"(, "gradient_norm": )",
                         detail::json_number(report.gradient_norm),
                         R"(, "clip_coefficient": )",
                         detail::json_number(report.clip_coefficient),
                         R"(, "norm_limit": )",
                         detail::json_number(report.norm_limit),
                         R"(, "non_finite_count": )",
                         report.non_finite_count,
                         R"(, "first_non_finite": )",
                         report.first_non_finite,
                         R"(, "zero_gradients": )",
                         report.zero_gradients,
                         R"(, "loss_scale": )",
                         detail::json_number(report.loss_scale),
                         R"(, "next_loss_scale": )",
                         detail::json_number(report.next_loss_scale),
                         R"(, "group_norms": [)",
                         norms,
                         "]}"});
}

/// @brief Calls a function with the report of each step, in order, on the thread that adds the
/// steps.
///
///     zero::ReportLog log(
///         engine, [&](zero::StepReport const& report) { file << to_json(report) << '\n'; });
///     log.add(engine.step(rate)); // of each step
///     log.finish();
///
/// A report exists when its step has ended on the queue. So `add` passes on the step that was added
/// `behind` calls ago: it waits only for a queue that is that far behind the host.
/// @tparam Stage a `ZeroStage` or an `Engine`
/// @tparam Callback called as `callback(StepReport)`; what it throws leaves `add` or `finish`
template <class Stage, class Callback>
class ReportLog {
public:
    using Ticket = decltype(std::declval<Stage&>().step(0.0)); ///< what `step` returns

    /// @param behind from 0, which waits for each step, to 15: an engine keeps 16 reports
    explicit ReportLog(Stage& /*engine*/, Callback callback, std::size_t behind = 8)
        : _callback(std::move(callback)), _behind(behind < most ? behind : most) {}

    /// @brief Takes the ticket of a step. The engine must outlive the log.
    /// @throws as `StepTicket::report`
    void add(Ticket ticket) {
        _tickets.push_back(std::move(ticket));
        pass_on(_behind);
    }

    ReportLog(ReportLog const&) = delete;
    ReportLog& operator=(ReportLog const&) = delete;

    /// @brief Passes on the steps that are left, as `finish`, up to the first that throws.
    ~ReportLog() {
        try {
            finish();
        } catch (...) { // what went wrong is on its way already, or the program did not ask
        }
    }

    /// @brief Passes on the steps that are left, and waits for them. @throws as `add`
    void finish() { pass_on(0); }

private:
    static constexpr std::size_t most = 15;

    void pass_on(std::size_t kept) {
        while (_tickets.size() > kept) {
            Ticket const ticket = std::move(_tickets.front());
            _tickets.pop_front();
            _callback(ticket.report());
        }
    }

    Callback _callback;
    std::size_t _behind;
    std::deque<Ticket> _tickets;
};

} // namespace ZERO_NAMESPACE
